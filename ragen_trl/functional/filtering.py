"""The uncertainty filter of StarPO-S: score whole groups, then name the ones worth an update.

Nothing here drops a row. The functions return scores and indices of groups, both in ascending
order of the group ids, and the caller decides what to do with them.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from ragen_trl.functional.advantages import group_statistics

GroupScoreKind = Literal["reward_std"]
SelectionMethod = Literal["top_k"]

# Forgives what binary fractions lose: 0.29 * 100 is 28.999999999999996.
_FLOOR_SLACK = 1e-9


def group_scores(
    returns: Tensor, group_ids: Tensor, *, kind: GroupScoreKind = "reward_std"
) -> Tensor:
    """Score every group by how uncertain the policy is about it.

    "reward_std": sample std (n - 1) of the returns in the group, the uncertainty U of
    RAGEN (arXiv:2504.20073). It is always taken per group, however rewards are scaled elsewhere.

    Args:
        returns: Return of every trajectory. Shape `(B,)`, floating, finite.
        group_ids: Which rows share an initial state. Any values in any order. Shape `(B,)`, long.
        kind: What is measured.

    Returns:
        Shape `(P,)`, dtype of `returns`, in the order of `torch.unique(group_ids)`; exactly 0.0 for
        groups without variance (see `has_no_variance`).

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape or `kind` is wrong or a return not finite.

    Example:
        >>> group_scores(torch.tensor([0.15, 0.15, 2.0, 0.0]), torch.tensor([0, 0, 1, 1]))
        tensor([0.0000, 1.4142])
    """
    if kind not in get_args(GroupScoreKind):
        raise ValueError(f"`kind` must be 'reward_std', got {kind!r}.")
    return group_statistics(returns, group_ids).std.to(returns.dtype)


def select_groups(
    scores: Tensor,
    *,
    method: SelectionMethod = "top_k",
    value: float,
    include_zero: bool = True,
) -> Tensor:
    """Choose the groups to keep.

    "top_k" keeps the k = max(1, floor(value * P)) highest scores; of equal scores the lower index
    wins. RAGEN keeps a quarter of the groups: `value=0.25`.

    Args:
        scores: One per group, higher = more worth keeping. Shape `(P,)`, finite.
        method: Rule of selection.
        value: Share of the P groups to keep, in `(0, 1]`.
        include_zero: Whether groups that score exactly 0.0 may be kept. `False` leaves them out
            first; k is still counted from all P, so fewer than k may remain, even none.

    Returns:
        Indices into `scores`, ascending, long. Empty only with `include_zero=False`.

    Raises:
        ValueError: If an argument is out of its range, or `scores` empty or not finite.

    Example:
        >>> select_groups(torch.tensor([0.1, 0.9, 0.0, 0.9]), value=0.5)
        tensor([1, 3])
    """
    _check_selection(scores, method, value)
    num_kept = max(1, math.floor(value * len(scores) + _FLOOR_SLACK))
    is_candidate = torch.ones_like(scores, dtype=torch.bool) if include_zero else scores != 0
    candidates = is_candidate.nonzero().squeeze(1)
    ranking = torch.argsort(scores[candidates], descending=True, stable=True)
    return candidates[ranking[:num_kept]].sort().values


def _check_selection(scores: Tensor, method: str, value: float) -> None:
    if method not in get_args(SelectionMethod):
        raise ValueError(f"`method` must be 'top_k', got {method!r}.")
    if not 0 < value <= 1:
        raise ValueError(f"`value` must be in (0, 1], got {value}. Use 1.0 to keep every group.")
    if scores.dim() != 1 or len(scores) == 0:
        raise ValueError(
            f"`scores` must have shape `(P,)` with at least one group, got {tuple(scores.shape)}."
        )
    if not torch.isfinite(scores).all():
        raise ValueError(
            f"`scores` must be finite, got {scores[~torch.isfinite(scores)][0].item()} "
            f"for group {int((~torch.isfinite(scores)).nonzero()[0])}."
        )
