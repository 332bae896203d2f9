"""How far a measured success rate can be trusted."""

import math
from statistics import NormalDist

from ragen_envs.argument_checks import check_number, check_whole_number, is_whole_number, show

__all__ = ["wilson_interval"]

MAX_TRIALS = 10**12


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Bound a success probability from how often it happened.

    Wilson's score interval (1927): the probabilities p for which
    |successes / trials - p| <= z * sqrt(p * (1 - p) / trials). Unlike the textbook interval
    around the mean it stays within [0, 1] and has a width at 0 and at 100 %.

    Args:
        successes: Number of successes, in `[0, trials]`.
        trials: Number of independent trials, from 0 to 10**12.
        confidence: Two-sided coverage, in `(0, 1)`.

    Returns:
        Lower and upper bound; `(0.0, 1.0)` without trials.

    Raises:
        TypeError: If an argument is no number, or a count no integer.
        ValueError: If an argument is out of its range.

    Example:
        >>> low, high = wilson_interval(8, 10)
        >>> f"{low:.3f} {high:.3f}"
        '0.490 0.943'
    """
    for argument, count in (("successes", successes), ("trials", trials)):
        if not is_whole_number(count):
            raise TypeError(f"`{argument}` must be an integer, got {show(count)}. Pass a count.")
    if not 0 <= successes <= trials:
        raise ValueError(
            f"`successes` must be in [0, `trials`], got {show(successes)} successes in {show(trials)} "
            "trials."
        )
    check_whole_number("trials", trials, maximum=MAX_TRIALS)
    confidence = check_number("confidence", confidence)
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be in (0, 1), got {confidence}. Use 0.95 for 95 %.")
    if trials == 0:
        return 0.0, 1.0
    # From the lower tail, where a confidence just below 1 is not rounded to 1.
    z = -NormalDist().inv_cdf((1 - confidence) / 2)
    share = successes / trials
    shrinkage = 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / shrinkage
    half_width = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / shrinkage
    # At the ends the bound is exactly 0 or 1; rounding alone would miss it by an ulp.
    low = centre - half_width if successes > 0 else 0.0
    high = centre + half_width if successes < trials else 1.0
    return low, high
