"""Group scores and selection from their definitions."""

import statistics
from decimal import Decimal

from tests.reference.advantages import has_no_variance, members


def group_scores(returns, group_ids):
    return [
        0.0 if has_no_variance(group) else statistics.stdev(group)
        for group in members(returns, group_ids).values()
    ]


def select_top_k(scores, value, include_zero):
    """Take the best remaining group k times; `max` returns the first of equals."""
    num_kept = max(1, int(Decimal(str(value)) * len(scores)))
    remaining = [i for i, score in enumerate(scores) if include_zero or score != 0]
    kept = []
    while remaining and len(kept) < num_kept:
        best = max(remaining, key=lambda i: scores[i])
        remaining.remove(best)
        kept.append(best)
    return sorted(kept)
