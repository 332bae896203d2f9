"""Per-token losses of the policy and the weights that turn them into one number.

Loss per token, weight per row and correction per token are separate functions; the loss of an
update is `sum_i row_weights_i * sum_t per_token_loss_it`.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ragen_trl.functional.masking import check_masked, keep

RowWeightKind = Literal["token_mean", "trajectory_mean", "constant"]
ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class PolicyLoss(NamedTuple):
    """Loss of every token and where the clip cut its gradient off.

    Attributes:
        per_token_loss: To be minimised. Shape `(B, T)`, dtype of the log-probabilities.
        is_low_clipped: Ratio below 1 - epsilon_low and advantage negative. Shape `(B, T)`, bool.
        is_high_clipped: Ratio above 1 + epsilon_high and advantage positive. Shape `(B, T)`, bool.
    """

    per_token_loss: Tensor
    is_low_clipped: Tensor
    is_high_clipped: Tensor


def clipped_policy_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    epsilon_low: float,
    epsilon_high: float,
) -> PolicyLoss:
    """Compute PPO's clipped surrogate for every sampled token.

    loss = -min(r * A, clip(r, 1 - epsilon_low, 1 + epsilon_high) * A), r = exp(logp - old_logp);
    RAGEN (arXiv:2504.20073) eq. 4, with the asymmetric clip of DAPO (arXiv:2503.14476) section 3.1.
    Only `logps` receives a gradient, and exactly none where a clip flag is set.

    Args:
        logps: Log-probability of each token now, natural log. Shape `(B, T)`, floating.
        old_logps: The same before the update. Shape `(B, T)`.
        advantages: One per trajectory or per token. Shape `(B,)` or `(B, T)`.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.
        epsilon_low: Clip below 1, at least 0; acts on negative advantages only.
        epsilon_high: Clip above 1, at least 0; acts on positive advantages only.

    Returns:
        `PolicyLoss`, exactly 0.0 and `False` where `action_mask` is `False`; nothing that stands
        there, NaN and inf included, changes a value or a gradient.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong or an epsilon negative.

    Example:
        >>> logps, old_logps = torch.log(torch.tensor([[1.5]])), torch.zeros(1, 1)
        >>> advantages, action_mask = torch.ones(1), torch.ones(1, 1, dtype=torch.bool)
        >>> loss = clipped_policy_loss(
        ...     logps, old_logps, advantages, action_mask, epsilon_low=0.2, epsilon_high=0.28
        ... )
        >>> loss.per_token_loss
        tensor([[-1.2800]])
    """
    for name, epsilon in (("epsilon_low", epsilon_low), ("epsilon_high", epsilon_high)):
        if not epsilon >= 0:
            raise ValueError(f"`{name}` must be at least 0, got {epsilon}.")
    _check_tokens(action_mask, logps=logps, old_logps=old_logps)
    if advantages.shape == action_mask.shape[:1]:
        advantages = advantages.unsqueeze(1).expand(action_mask.shape)
    check_masked("action_mask", action_mask, advantages=advantages)
    # Unsampled tokens get ratio 1 and advantage 0 before any arithmetic: masking the loss afterwards
    # would still let NaN through in the backward pass.
    log_ratio = keep(logps, action_mask) - keep(old_logps, action_mask).detach()
    advantages = keep(advantages, action_mask).detach()
    ratio = log_ratio.detach().exp()
    is_low_clipped = (advantages < 0) & (ratio < 1 - epsilon_low)
    is_high_clipped = (advantages > 0) & (ratio > 1 + epsilon_high)
    # `exp` sees no token that has no gradient: where the ratio overflows it would be 0 * inf.
    is_constant = is_low_clipped | is_high_clipped | (advantages == 0)
    free_ratio = torch.where(is_constant, 0.0, log_ratio).exp()
    clipped_ratio = torch.where(is_high_clipped, 1 + epsilon_high, free_ratio)
    clipped_ratio = torch.where(is_low_clipped, 1 - epsilon_low, clipped_ratio)
    per_token_loss = (-clipped_ratio * advantages).to(logps.dtype)
    return PolicyLoss(per_token_loss, is_low_clipped, is_high_clipped)


def kl_k3(logps: Tensor, ref_logps: Tensor, action_mask: Tensor) -> Tensor:
    """Estimate the KL divergence to a reference policy from each sampled token.

    k3 = exp(d) - d - 1 with d = ref_logp - logp: unbiased and never negative (Schulman 2020,
    "Approximating KL divergence"). Only `logps` receives a gradient.

    Args:
        logps: Log-probability of each token, natural log. Shape `(B, T)`, floating.
        ref_logps: The same under the reference policy. Shape `(B, T)`.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.

    Returns:
        Shape `(B, T)`, dtype of `logps`, exactly 0.0 where `action_mask` is `False`, whatever
        stands there.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape differs.

    Example:
        >>> ref_logps = torch.log(torch.tensor([[2.0]]))
        >>> kl_k3(torch.zeros(1, 1), ref_logps, torch.ones(1, 1, dtype=torch.bool))
        tensor([[0.3069]])
    """
    _check_tokens(action_mask, logps=logps, ref_logps=ref_logps)
    difference = keep(ref_logps, action_mask).detach() - keep(logps, action_mask)
    # `expm1` keeps the digits that `exp(d) - 1` loses when the policies are close.
    return (torch.expm1(difference) - difference).to(logps.dtype)


def row_weights(
    num_action_tokens: Tensor, *, kind: RowWeightKind, max_tokens: int | None = None
) -> Tensor:
    """Weigh the rows of one whole update batch.

    The loss of the batch is sum_i w_i * sum_t per_token_loss[i, t]. Computed over all rows of the
    update, the weights can be dealt out to micro-batches of any size without changing the gradient.
    With n_i sampled tokens in row i and R' rows that have any:
    "token_mean": w_i = 1 / sum_j n_j, every token counts the same (DAPO, arXiv:2503.14476).
    "trajectory_mean": w_i = 1 / (R' * n_i), every trajectory counts the same (GRPO).
    "constant": w_i = 1 / (R' * max_tokens), free of the actual lengths (Dr. GRPO, arXiv:2503.20783).

    Args:
        num_action_tokens: Sampled tokens of every row, at least 0. Shape `(R,)`, integer.
        kind: What counts the same.
        max_tokens: Longest possible trajectory in sampled tokens; read by "constant" only.

    Returns:
        Shape `(R,)`, float32; 0.0 for rows without sampled tokens.

    Raises:
        TypeError: If the dtype is wrong.
        ValueError: If a shape, count or `kind` is wrong or `max_tokens` missing or not positive.

    Example:
        >>> row_weights(torch.tensor([3, 0, 1]), kind="token_mean")
        tensor([0.2500, 0.0000, 0.2500])
    """
    _check_row_weights(num_action_tokens, kind)
    has_tokens = num_action_tokens > 0
    num_rows = has_tokens.sum()
    if kind == "token_mean":
        denominator = num_action_tokens.sum()
    elif kind == "trajectory_mean":
        denominator = num_rows * num_action_tokens
    elif max_tokens is None or max_tokens < 1:
        raise ValueError(
            f"`max_tokens` must be at least 1 when `kind` is 'constant', got {max_tokens}."
        )
    else:
        denominator = num_rows * max_tokens
    weights = 1.0 / denominator.clamp(min=1).double()
    return torch.where(has_tokens, weights, 0.0).float()


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
    _check_tokens(action_mask, old_logps=old_logps, sampling_logps=sampling_logps)
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


def _check_tokens(action_mask: Tensor, **tensors: Tensor) -> None:
    if action_mask.dim() != 2:
        raise ValueError(f"`action_mask` must have shape `(B, T)`, got {tuple(action_mask.shape)}.")
    check_masked("action_mask", action_mask, **tensors)


def _check_row_weights(num_action_tokens: Tensor, kind: str) -> None:
    if num_action_tokens.is_floating_point() or num_action_tokens.dtype == torch.bool:
        raise TypeError(
            f"`num_action_tokens` must be an integer tensor, got {num_action_tokens.dtype}."
        )
    if num_action_tokens.dim() != 1:
        raise ValueError(
            f"`num_action_tokens` must have shape `(R,)`, got {tuple(num_action_tokens.shape)}. "
            "Sum the action mask over the tokens."
        )
    if (num_action_tokens < 0).any():
        raise ValueError(
            f"`num_action_tokens` must be at least 0, got {num_action_tokens.min().item()}."
        )
    if kind not in get_args(RowWeightKind):
        raise ValueError(
            f"`kind` must be one of {', '.join(map(repr, get_args(RowWeightKind)))}, got {kind!r}."
        )


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
