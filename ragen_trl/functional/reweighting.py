"""Weights for what is kept: soft ones in place of a filter, and the scale of a filtered loss."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

LossScaleKind = Literal["none", "ratio", "sqrt"]


def soft_group_weights(scores: Tensor) -> Tensor:
    """Weigh groups by their score instead of dropping the low ones.

    w_g = s_g / max s; the advantages of the group's trajectories are multiplied by it
    (RAGEN-2, arXiv:2604.06268).

    Args:
        scores: One per group, see `group_scores`. Shape `(P,)`, floating, finite, at least 0.

    Returns:
        Shape `(P,)`, dtype of `scores`, in [0, 1] with a highest weight of exactly 1.0; all 0.0 if
        every score is.

    Raises:
        TypeError: If `scores` is not floating.
        ValueError: If `scores` is not of shape `(P,)`, empty, negative or not finite.

    Example:
        >>> soft_group_weights(torch.tensor([0.5, 0.0, 2.0]))
        tensor([0.2500, 0.0000, 1.0000])
    """
    if not scores.is_floating_point():
        raise TypeError(f"`scores` must be a floating tensor, got {scores.dtype}.")
    if scores.dim() != 1 or len(scores) == 0:
        raise ValueError(
            f"`scores` must have shape `(P,)` with at least one group, got {tuple(scores.shape)}."
        )
    is_wrong = ~torch.isfinite(scores) | (scores < 0)
    if is_wrong.any():
        raise ValueError(
            f"`scores` must be finite and at least 0, got {scores[is_wrong][0].item()} "
            f"for group {int(is_wrong.nonzero()[0])}."
        )
    highest = scores.max()
    return scores / torch.where(highest > 0, highest, 1.0)


def loss_scale(num_kept: int, num_total: int, *, kind: LossScaleKind) -> float:
    """Scale the loss of an update for which only some of the rows were kept.

    "none": 1. "ratio": kept / total. "sqrt": its square root (RAGEN-2, arXiv:2604.06268).

    Args:
        num_kept: Rows that passed the filter, from 0 to `num_total`.
        num_total: Rows of the rollout, at least 1.
        kind: Rule.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> loss_scale(32, 128, kind="sqrt")
        0.5
    """
    if kind not in get_args(LossScaleKind):
        raise ValueError(
            f"`kind` must be one of {', '.join(map(repr, get_args(LossScaleKind)))}, got {kind!r}."
        )
    if not 0 <= num_kept <= num_total or num_total < 1:
        raise ValueError(
            "`num_kept` must be from 0 to `num_total`, and that at least 1, "
            f"got {num_kept} of {num_total}."
        )
    if kind == "none":
        return 1.0
    ratio = num_kept / num_total
    return ratio if kind == "ratio" else math.sqrt(ratio)
