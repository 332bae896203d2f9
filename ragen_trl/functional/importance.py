"""Correction for tokens that another engine sampled than the one that is trained."""

from typing import Literal, get_args

import torch
from torch import Tensor

from ragen_trl.functional.masking import check_masked_matrix, keep

ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


def importance_weights(
    old_logps: Tensor,
    sampling_logps: Tensor,
    action_mask: Tensor,
    *,
    mode: ImportanceMode,
    clip_min: float | None,
    clip_max: float | None,
) -> Tensor:
    """Correct for tokens that were sampled by another engine than the one that is trained.

    The ratio is exp(old_logp - sampling_logp), per token ("token_...") or as the product over all
    sampled tokens of the row ("sequence_..."). "..._truncate" moves it into [clip_min, clip_max],
    "..._mask" sets it to 0.0 outside of that interval.

    Args:
        old_logps: Log-probability under the policy before the update. Shape `(B, T)`, floating.
        sampling_logps: Log-probability that the sampler reported; NaN where it reported none, which
            counts as a ratio of 1. Shape `(B, T)`.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.
        mode: Level of the ratio and what happens to outliers.
        clip_min: Lower bound, at least 0; `None` for no bound.
        clip_max: Upper bound, at least `clip_min`; `None` for no bound.

    Returns:
        Factors for the per-token loss, without gradient. Shape `(B, T)`, dtype of `old_logps`. A
        sequence ratio stands at each sampled token of its row. Exactly 0.0 where `action_mask` is
        `False`, whatever stands there: average the weights with the mask.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape, `mode` or bound is wrong.

    Example:
        >>> old_logps = torch.log(torch.tensor([[4.0, 0.5]]))
        >>> sampling_logps, action_mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
        >>> importance_weights(
        ...     old_logps, sampling_logps, action_mask, mode="token_truncate", clip_min=None, clip_max=3.0
        ... )
        tensor([[3.0000, 0.5000]])
    """
    check_masked_matrix(
        "action_mask", action_mask, "(B, T)", old_logps=old_logps, sampling_logps=sampling_logps
    )
    _check_importance(mode, clip_min, clip_max)
    is_known = action_mask & ~sampling_logps.isnan()
    log_ratio = (keep(old_logps, is_known) - keep(sampling_logps, is_known)).detach()
    if mode.startswith("sequence"):
        log_ratio = log_ratio.sum(dim=1, keepdim=True).expand(action_mask.shape)
    ratio = log_ratio.exp()
    lowest = 0.0 if clip_min is None else clip_min
    highest = torch.inf if clip_max is None else clip_max
    if mode.endswith("truncate"):
        weights = ratio.clamp(lowest, highest)
    else:
        weights = torch.where((ratio < lowest) | (ratio > highest), 0.0, ratio)
    return torch.where(action_mask, weights, 0.0).to(old_logps.dtype)


def _check_importance(mode: str, clip_min: float | None, clip_max: float | None) -> None:
    if mode not in get_args(ImportanceMode):
        raise ValueError(
            f"`mode` must be one of {', '.join(map(repr, get_args(ImportanceMode)))}, got {mode!r}."
        )
    if clip_min is not None and not clip_min >= 0:
        raise ValueError(f"`clip_min` must be at least 0 or None, got {clip_min}.")
    if clip_max is not None and not clip_max >= (clip_min or 0.0):
        raise ValueError(
            f"`clip_max` must be at least `clip_min` and 0, or None, got {clip_max} "
            f"with `clip_min` {clip_min}."
        )
