"""Which episodes a report shows: the same every time, from every part of the run, in bounded size."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

Record = dict[str, Any]

RULE = (
    "From every rollout and evaluation: in turn a solved and a failed episode that was kept, a "
    "solved and a failed one that was not, from one group after the other, until the share of the "
    "file is full. Counts and rates elsewhere in the report are those of all episodes; the shares "
    "in this list are not."
)


def spread_evenly(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` items at equal distances, the first and the last among them.

    Example:
        >>> spread_evenly(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    if most < 2:
        return list(items[-most:]) if most else []
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def order_for_display(records: Sequence[Record]) -> list[Record]:
    """Order the episodes of one file so that any beginning of it shows all there is.

    Kept and solved, kept and failed, dropped and solved, dropped and failed take turns; within
    each, the groups do.
    """

    def stratum(record: Record) -> tuple[bool, bool]:
        return (not record.get("is_kept"), not record.get("success"))

    strata = split_by(records, stratum)
    lanes = [
        _take_turns(list(split_by(strata[key], lambda record: record.get("group_id")).values()))
        for key in sorted(strata)
    ]
    return _take_turns(lanes)


def split_by(items: Sequence[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    """Return the items by key, both in the order of their first appearance."""
    parts: dict[Any, list[T]] = defaultdict(list)
    for item in items:
        parts[key(item)].append(item)
    return parts


def _take_turns(lanes: Sequence[Sequence[T]]) -> list[T]:
    longest = max(map(len, lanes), default=0)
    return [lane[i] for i in range(longest) for lane in lanes if i < len(lane)]
