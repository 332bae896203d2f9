"""Normalisation of returns before advantages are estimated."""

from typing import Literal, get_args

import torch
from torch import Tensor

from ragen_trl.functional.advantages import group_advantages

ReturnNormalization = Literal["none", "mean", "mean_std", "asym_clip"]

# Bounds of "asym_clip", in stds: a failure may count for less than a rare success.
ASYM_CLIP_MIN = -1.0
ASYM_CLIP_MAX = 3.0


def normalize_returns(
    returns: Tensor, unit_ids: Tensor, *, kind: ReturnNormalization, eps: float = 1e-6
) -> Tensor:
    """Put returns on the scale of their unit.

    "none": R_i. "mean": R_i - mean R. "mean_std": (R_i - mean R) / (std R + eps), with the sample
    std (n - 1). "asym_clip": "mean_std" clipped to [-1, 3], as the code of RAGEN
    (arXiv:2504.20073) does. In a unit without variance, one of a single member included, all kinds
    but "none" give exactly 0 (see `has_no_variance`).

    Args:
        returns: Sum of all rewards of a trajectory. Shape `(B,)`, floating, finite.
        unit_ids: Which rows are normalised together: group ids, environment ids, or zeros for the
            whole batch. Any values in any order. Shape `(B,)`, long.
        kind: Normalisation.
        eps: Added to the std, in units of the return; at least 0.

    Returns:
        Shape `(B,)`, dtype of `returns`, computed in float64.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape or `kind` is wrong, `eps` negative or a return not finite.

    Example:
        >>> normalize_returns(torch.tensor([1.0, 0.0, 7.0]), torch.tensor([3, 3, 5]), kind="mean")
        tensor([ 0.5000, -0.5000,  0.0000])
    """
    if kind not in get_args(ReturnNormalization):
        raise ValueError(
            f"`kind` must be one of {', '.join(map(repr, get_args(ReturnNormalization)))}, got {kind!r}."
        )
    if unit_ids.dtype != torch.long:
        raise TypeError(f"`unit_ids` must be a long tensor, got {unit_ids.dtype}.")
    if returns.dim() != 1 or unit_ids.shape != returns.shape:
        raise ValueError(
            "`returns` and `unit_ids` must have one and the same shape `(B,)`, "
            f"got {tuple(returns.shape)} and {tuple(unit_ids.shape)}."
        )
    # The same arithmetic, with the unit in place of the group.
    is_centred_only = kind in ("none", "mean")
    normalized = group_advantages(
        returns, unit_ids, kind="dr_grpo" if is_centred_only else "grpo", eps=eps
    )
    if kind == "none":
        return returns.clone()
    if kind == "asym_clip":
        return normalized.clamp(ASYM_CLIP_MIN, ASYM_CLIP_MAX)
    return normalized
