"""Whether one model is better than another, judged on the same start states."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragen_trl.evaluate.records import EpisodeRecord


@dataclass(frozen=True)
class PairedComparison:
    """Two models on the same start states.

    Attributes:
        num_both: Start states that both solved.
        num_first_only: Those that the first solved and the second did not.
        num_second_only: Those that the second solved and the first did not.
        num_neither: Those that neither solved.
        num_unpaired: Start states that one of them did not play to its end; they say nothing.
        p_value: Of the exact McNemar test; see `mcnemar_p_value`.
    """

    num_both: int
    num_first_only: int
    num_second_only: int
    num_neither: int
    num_unpaired: int
    p_value: float

    @property
    def num_pairs(self) -> int:
        """Start states that both played."""
        return self.num_both + self.num_first_only + self.num_second_only + self.num_neither

    def to_dict(self) -> dict[str, Any]:
        """Return what a JSON file holds."""
        return {"num_pairs": self.num_pairs, **asdict(self)}


def mcnemar_p_value(num_first_only: int, num_second_only: int) -> float:
    """Compute the two-sided p-value of the exact McNemar test.

    Pairs that end alike say nothing about a difference. If the models were equally good, each of
    the n = b + c others would favour either with probability 1/2, so that the smaller count is
    binomial: p = min(1, 2 * sum_{i <= min(b, c)} C(n, i) / 2^n) (McNemar 1947; exact form as in
    Fagerland, Lydersen and Laake 2013). It is computed in whole numbers until the last division.

    Args:
        num_first_only: Pairs that only the first solved, b.
        num_second_only: Pairs that only the second solved, c.

    Returns:
        Probability in [0, 1] of a difference at least this large by chance; 1.0 without any pair
        that differs.

    Raises:
        ValueError: If a count is negative.

    Example:
        >>> mcnemar_p_value(1, 4)  # 2 * (1 + 5) / 32
        0.375
    """
    if min(num_first_only, num_second_only) < 0:
        raise ValueError(
            "`num_first_only` and `num_second_only` must be at least 0, got "
            f"{num_first_only} and {num_second_only}."
        )
    total = num_first_only + num_second_only
    tail = sum(math.comb(total, i) for i in range(min(num_first_only, num_second_only) + 1))
    return min(1.0, 2 * tail / (1 << total))


def compare_records(
    first: Iterable[EpisodeRecord], second: Iterable[EpisodeRecord]
) -> PairedComparison:
    """Pair two models' episodes by environment and seed, and test the difference.

    Of several samples the first is taken: samples of one start state are alike, and the test asks
    for pairs that do not depend on each other.
    """
    ours, theirs = _solved(first), _solved(second)
    pairs = [(ours[key], theirs[key]) for key in ours.keys() & theirs.keys()]
    paired = [(a, b) for a, b in pairs if a is not None and b is not None]
    first_only, second_only = paired.count((True, False)), paired.count((False, True))
    return PairedComparison(
        num_both=paired.count((True, True)),
        num_first_only=first_only,
        num_second_only=second_only,
        num_neither=paired.count((False, False)),
        num_unpaired=len(ours.keys() | theirs.keys()) - len(paired),
        p_value=mcnemar_p_value(first_only, second_only),
    )


def _solved(records: Iterable[EpisodeRecord]) -> Mapping[tuple[str, int], bool | None]:
    return {
        (record.env, record.seed): None if record.error is not None else record.success
        for record in records
        if record.sample == 0
    }
