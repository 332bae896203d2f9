"""The uncertainty filter of StarPO-S: score whole groups, then name the ones worth an update.

Nothing here drops a row. The functions return scores and indices of groups, both in ascending
order of the group ids, or a mask over the rows, and the caller decides what to do with them.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from ragen_trl.functional.advantages import group_statistics

GroupScoreKind = Literal[
    "reward_std", "reward_mean", "reward_sum", "entropy", "entropy_variance", "response_length"
]
SelectionMethod = Literal[
    "top_k", "top_k_abs", "top_p", "top_p_softmax", "min_p", "percentile_range"
]

# Forgives what binary fractions lose: 0.29 * 100 is 28.999999999999996.
_COUNT_SLACK = 1e-9
# The same for scores, which may be float32: 0.7 is less than 0.7 * 1.0 there.
_SCORE_SLACK = 1e-6


def group_scores(
    returns: Tensor, group_ids: Tensor, *, kind: GroupScoreKind = "reward_std"
) -> Tensor:
    """Score every group by one quantity of its trajectories.

    "reward_std": sample std (n - 1) of the returns in the group, the uncertainty U of
    RAGEN (arXiv:2504.20073). It is always taken per group, however rewards are scaled elsewhere.
    "reward_mean", "reward_sum": of the returns. The other kinds of RAGEN-2 (arXiv:2604.06268) take
    something else in place of the returns: "entropy" and "entropy_variance" are the mean and the
    sample variance of each trajectory's mean token entropy, "response_length" is the mean of its
    sampled tokens.

    Args:
        returns: Quantity of every trajectory: its return, or for the last three kinds its mean token
            entropy or its number of sampled tokens. Shape `(B,)`, floating, finite.
        group_ids: Which rows share an initial state. Any values in any order. Shape `(B,)`, long.
        kind: What is measured.

    Returns:
        Shape `(P,)`, dtype of `returns`, in the order of `torch.unique(group_ids)`. "reward_std" and
        "entropy_variance" are exactly 0.0 for groups without variance (see `has_no_variance`).

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape or `kind` is wrong or a value not finite.

    Example:
        >>> group_scores(torch.tensor([0.15, 0.15, 2.0, 0.0]), torch.tensor([0, 0, 1, 1]))
        tensor([0.0000, 1.4142])
    """
    if kind not in get_args(GroupScoreKind):
        raise ValueError(
            f"`kind` must be one of {', '.join(map(repr, get_args(GroupScoreKind)))}, got {kind!r}."
        )
    groups = group_statistics(returns, group_ids)
    if kind == "reward_std":
        scores = groups.std
    elif kind == "entropy_variance":
        scores = groups.std.square()
    elif kind == "reward_sum":
        scores = groups.mean * groups.size
    else:
        scores = groups.mean
    return scores.to(returns.dtype)


def select_groups(
    scores: Tensor,
    *,
    method: SelectionMethod = "top_k",
    value: float | Sequence[float],
    include_zero: bool = True,
    has_variance: Tensor | None = None,
) -> Tensor:
    """Choose the groups to keep.

    All methods rank the groups by descending score, the lower index first among equals, and keep
    one stretch of the ranking (RAGEN-2, arXiv:2604.06268). RAGEN (arXiv:2504.20073) keeps a quarter:
    "top_k" with `value=0.25`.
    "top_k": the first max(1, floor(value * P)).
    "top_k_abs": the first `value`, or all if there are fewer.
    "top_p": the shortest start of the ranking whose scores add up to `value` times their total. At
    1.0 that is every group with a positive score; if all scores are 0 it is one group.
    "top_p_softmax": the same on softmax(scores), so that any sign is allowed; 1.0 keeps all.
    "min_p": all with a score of at least `value` times the highest.
    "percentile_range": for `value=(low, high)` the positions r = 0, 1, ... with low <= r / P < high.
    Ranges that join up share no group and leave none out; a narrow one may hold none at all.

    Args:
        scores: One per group, higher = more worth keeping. Shape `(P,)`, finite; at least 0 for
            "top_p" and "min_p".
        method: Rule of selection.
        value: In `(0, 1]` for "top_k", "top_p" and "top_p_softmax"; a whole number from 1 for
            "top_k_abs"; in `[0, 1]` for "min_p"; two numbers, 0 <= low < high <= 1, for
            "percentile_range". What binary fractions lose is forgiven in every comparison.
        include_zero: Whether groups without variance may be kept. `False` drops them first: totals,
            maximum and percentiles are those of the rest. The k of "top_k" is still counted from all
            P groups, so fewer than k may remain.
        has_variance: Which groups have variance, read by `include_zero=False` alone; without it those
            whose score is not exactly 0.0, which fits "reward_std" only. Shape `(P,)`, bool.

    Returns:
        Indices into `scores`, ascending, long. Empty only with `include_zero=False` or by
        "percentile_range".

    Raises:
        TypeError: If `has_variance` is not bool.
        ValueError: If an argument is out of its range, or `scores` empty or not finite.

    Example:
        >>> select_groups(torch.tensor([0.1, 0.9, 0.0, 0.9]), value=0.5)
        tensor([1, 3])
        >>> select_groups(torch.tensor([0.1, 0.9, 0.0, 0.9]), method="top_p", value=0.95)
        tensor([0, 1, 3])
    """
    _check_scores(scores, method)
    low, high = _check_value(method, value)
    candidates = _candidates(scores, include_zero, has_variance)
    ranking = candidates[torch.argsort(scores[candidates], descending=True, stable=True)]
    start, stop = 0, len(ranking)
    if method == "top_k":
        stop = max(1, math.floor(high * len(scores) + _COUNT_SLACK))
    elif method == "top_k_abs":
        stop = int(high)
    elif method == "percentile_range":
        start, stop = (math.ceil(share * len(ranking) - _COUNT_SLACK) for share in (low, high))
    elif len(ranking) > 0:
        stop = _num_kept_by_score(scores[ranking].double(), method, high)
    return ranking[start:stop].sort().values


def select_within_groups(returns: Tensor, group_ids: Tensor, *, num_kept: int) -> Tensor:
    """Choose in every group the trajectories whose returns vary most.

    Of all choices of k = `num_kept` members the one with the largest variance of returns consists of
    the j lowest and the k - j highest for some j, so k + 1 candidates are enough
    (PODS, arXiv:2504.13818). Ties: members are ranked by descending return, the earlier row first
    among equals; highest ones come from the front of that ranking, lowest ones from its end. Of
    equally good j the smallest wins.

    Args:
        returns: Return of every trajectory. Shape `(B,)`, floating, finite.
        group_ids: Which rows share an initial state. Shape `(B,)`, long.
        num_kept: Members to keep of each group, at least 1; a group with no more is kept whole.

    Returns:
        Which rows are kept. Shape `(B,)`, bool.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong, `num_kept` below 1 or a return not finite.

    Example:
        >>> returns = torch.tensor([0.2, 1.0, 0.0, 0.3])
        >>> select_within_groups(returns, torch.tensor([0, 0, 0, 0]), num_kept=2)
        tensor([False,  True,  True, False])
    """
    if not num_kept >= 1:
        raise ValueError(f"`num_kept` must be at least 1, got {num_kept}.")
    group_index = group_statistics(returns, group_ids).group_index
    is_kept = torch.ones_like(group_ids, dtype=torch.bool)
    for group in range(int(group_index.max()) + 1 if len(group_index) else 0):
        rows = (group_index == group).nonzero().squeeze(1)
        ranking = rows[torch.argsort(returns[rows], descending=True, stable=True)]
        num_low = _best_num_low(returns[ranking].double(), num_kept)
        is_kept[ranking[num_kept - num_low : len(ranking) - num_low]] = False
    return is_kept


def _candidates(scores: Tensor, include_zero: bool, has_variance: Tensor | None) -> Tensor:
    if has_variance is None:
        has_variance = scores != 0
    if has_variance.dtype != torch.bool:
        raise TypeError(
            f"`has_variance` must be a bool tensor, got {has_variance.dtype}. Convert it with `.bool()`."
        )
    if has_variance.shape != scores.shape:
        raise ValueError(
            f"`has_variance` must have the shape of `scores`, {tuple(scores.shape)}, "
            f"got {tuple(has_variance.shape)}."
        )
    return (has_variance | include_zero).nonzero().squeeze(1)


def _num_kept_by_score(ranked: Tensor, method: SelectionMethod, value: float) -> int:
    """Count the groups that "top_p", "top_p_softmax" or "min_p" keep; `ranked` is descending."""
    if method == "min_p":
        return int((ranked >= (value - _SCORE_SLACK) * ranked[0]).sum())
    if method == "top_p_softmax":
        # A share too small for its float is still a share: 1.0 has to keep every group.
        ranked = ranked.softmax(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
    if value == 1.0:
        return max(1, int((ranked > 0).sum()))
    totals = ranked.cumsum(dim=0)
    return int((totals < (value - _SCORE_SLACK) * totals[-1]).sum()) + 1


def _best_num_low(ranked: Tensor, num_kept: int) -> int:
    """How many of the `num_kept` to take from the end of a descending ranking, for variance."""
    if len(ranked) <= num_kept:
        return 0
    places = torch.arange(num_kept, device=ranked.device)
    num_low = torch.arange(num_kept + 1, device=ranked.device).unsqueeze(1)
    is_low = places >= num_kept - num_low
    kept = ranked[torch.where(is_low, places + len(ranked) - num_kept, places)]
    variances = kept.var(dim=1, correction=0)
    # Splits that are equal on paper differ in the last digits.
    return int((variances >= (1 - _SCORE_SLACK) * variances.max()).nonzero()[0])


def _check_scores(scores: Tensor, method: str) -> None:
    if method not in get_args(SelectionMethod):
        raise ValueError(
            f"`method` must be one of {', '.join(map(repr, get_args(SelectionMethod)))}, got {method!r}."
        )
    if scores.dim() != 1 or len(scores) == 0:
        raise ValueError(
            f"`scores` must have shape `(P,)` with at least one group, got {tuple(scores.shape)}."
        )
    if not torch.isfinite(scores).all():
        raise ValueError(
            f"`scores` must be finite, got {scores[~torch.isfinite(scores)][0].item()} "
            f"for group {int((~torch.isfinite(scores)).nonzero()[0])}."
        )
    if method in ("top_p", "min_p") and (scores < 0).any():
        raise ValueError(
            f"`scores` must be at least 0 for {method!r}, got {scores.min().item()} "
            f"for group {int(scores.argmin())}. Use 'top_p_softmax' for scores of any sign."
        )


def _check_value(method: SelectionMethod, value: float | Sequence[float]) -> tuple[float, float]:
    """Return `value` as the bounds of a range; the lower one counts for "percentile_range" only."""
    is_number = isinstance(value, int | float)
    bounds = (0.0, value) if isinstance(value, int | float) else tuple(value)
    if method == "percentile_range":
        rule = "two numbers with 0 <= low < high <= 1"
        is_valid = not is_number and len(bounds) == 2 and 0 <= bounds[0] < bounds[1] <= 1
    elif not is_number:
        rule, is_valid = "one number", False
    elif method == "top_k_abs":
        rule = "a whole number of at least 1"
        is_valid = bounds[1] >= 1 and float(bounds[1]).is_integer()
    elif method == "min_p":
        rule, is_valid = "in [0, 1]", 0 <= bounds[1] <= 1
    else:
        rule, is_valid = "in (0, 1]", 0 < bounds[1] <= 1
    if not is_valid:
        raise ValueError(f"`value` must be {rule} for {method!r}, got {value}.")
    return bounds[0], bounds[1]
