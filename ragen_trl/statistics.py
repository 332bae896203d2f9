"""How far evaluation numbers can be trusted: intervals and estimators for success counts."""

import math

from ragen_envs.statistics import wilson_interval

__all__ = ["pass_at_k", "wilson_interval"]


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Estimate the probability that at least one of k samples is correct.

    1 - C(n - c, k) / C(n, k) for c correct ones among n samples: unbiased, and lower in variance
    than looking at k samples only (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    Args:
        num_samples: Samples drawn, n, at least `k`.
        num_correct: Correct ones among them, c, in `[0, n]`.
        k: Samples that the user of the policy may draw, at least 1.

    Returns:
        Estimate in `[0, 1]`; to be averaged over tasks.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    if not 1 <= k <= num_samples:
        raise ValueError(
            f"`k` must be in [1, `num_samples`], got {k} with `num_samples` {num_samples}."
        )
    if not 0 <= num_correct <= num_samples:
        raise ValueError(
            f"`num_correct` must be in [0, `num_samples`], got {num_correct} "
            f"with `num_samples` {num_samples}."
        )
    # Whole numbers until the last division: the counts overflow a float from n of about 1,000 on.
    num_draws = math.comb(num_samples, k)
    return (num_draws - math.comb(num_samples - num_correct, k)) / num_draws
