"""Per-token losses of the policy and the critic, and the weights that turn them into one number.

Loss per token and weight per row are separate functions; the loss of an update is `sum_i row_weights_i * sum_t per_token_loss_it`.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ragen_trl.functional.masking import (
    Moments,
    check_masked,
    check_masked_matrix,
    keep,
    masked_moments,
)

RowWeightKind = Literal["token_mean", "trajectory_mean", "constant"]

# Largest std of returns that counts as rounding, relative for means above 1.
_CONSTANT_TOLERANCE = 1e-6


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
    check_masked_matrix("action_mask", action_mask, "(B, T)", logps=logps, old_logps=old_logps)
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


class ValueLoss(NamedTuple):
    """Loss of every token's value estimate and where the clip cut its gradient off.

    Attributes:
        per_token_loss: To be minimised, at least 0. Shape `(B, T)`, dtype of the values.
        is_clipped: The value left its range and the clipped error is the larger one.
            Shape `(B, T)`, bool.
    """

    per_token_loss: Tensor
    is_clipped: Tensor


def clipped_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    action_mask: Tensor,
    *,
    clip_range: float | None,
) -> ValueLoss:
    """Compute PPO's clipped squared error of the critic for every sampled token.

    loss = 0.5 * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2), so that a value earns nothing
    by moving further than c from where the rollout found it. Only `values` receives a gradient, and
    exactly none where `is_clipped` is set.

    Args:
        values: Critic estimate before each token, now. Shape `(B, T)`, floating.
        old_values: The same before the update. Shape `(B, T)`.
        returns: What the values should be. Shape `(B, T)`.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.
        clip_range: The c of the formula, at least 0, in units of the return; `None` for no clip.

    Returns:
        `ValueLoss`, exactly 0.0 and `False` where `action_mask` is `False`; nothing that stands
        there, NaN and inf included, changes a value or a gradient.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong or `clip_range` negative.

    Example:
        >>> values, old_values, returns = torch.tensor([[[2.0]], [[0.0]], [[3.0]]])
        >>> action_mask = torch.ones(1, 1, dtype=torch.bool)
        >>> clipped_value_loss(values, old_values, returns, action_mask, clip_range=0.5)
        ValueLoss(per_token_loss=tensor([[3.1250]]), is_clipped=tensor([[True]]))
    """
    if clip_range is not None and not clip_range >= 0:
        raise ValueError(f"`clip_range` must be at least 0 or None, got {clip_range}.")
    check_masked_matrix(
        "action_mask", action_mask, "(B, T)", values=values, old_values=old_values, returns=returns
    )
    kept_values = keep(values, action_mask)
    old_values = keep(old_values, action_mask).detach()
    returns = keep(returns, action_mask).detach()
    limit = torch.inf if clip_range is None else clip_range
    clipped = kept_values.detach().clamp(old_values - limit, old_values + limit)
    is_clipped = (clipped - returns).abs() > (kept_values.detach() - returns).abs()
    error = torch.where(is_clipped, clipped, kept_values) - returns
    return ValueLoss((0.5 * error.square()).to(values.dtype), is_clipped)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Tell how much of the spread of the returns the critic predicts.

    1 - Var(R - V) / Var(R): 1 for a perfect critic, 0 for one that always says the same, below 0 for
    one that is worse than that.

    Args:
        values: Critic estimate. Any shape, floating.
        returns: What the values should be. Shape of `values`.
        mask: `True` at the positions that count. Shape of `values`, bool.

    Returns:
        Scalar in float64, without gradient. 0.0 where the returns have no variance beyond rounding,
        no position at all included.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape differs.

    Example:
        >>> values, returns = torch.tensor([0.5, 1.0, 9.0]), torch.tensor([0.0, 2.0, 9.0])
        >>> explained_variance(values, returns, torch.tensor([True, True, False])).item()
        0.4375
    """
    check_masked("mask", mask, values=values, returns=returns)
    values, returns = values.detach().double(), returns.detach().double()
    return explained_variance_from_moments(
        masked_moments(returns, mask), masked_moments(returns - values, mask)
    )


def explained_variance_from_moments(returns: Moments, errors: Moments) -> Tensor:
    """Compute `explained_variance` of a batch that lies in parts.

    Args:
        returns: Moments of the returns R over the whole batch, see `combine_moments`. Scalars.
        errors: Those of R - V. Scalars.

    Returns:
        As `explained_variance`.

    Example:
        >>> returns, errors = Moments(*torch.tensor([2.0, 1.0, 2.0])), Moments(*torch.zeros(3))
        >>> explained_variance_from_moments(returns, errors).item()
        1.0
    """
    num_values = returns.num_values.clamp(min=1)
    std = (returns.squared_deviations / num_values).sqrt()
    has_no_variance = std <= _CONSTANT_TOLERANCE * returns.mean.abs().clamp(min=1)
    # The 1 only keeps 0 / 0 away.
    total = torch.where(has_no_variance, 1.0, returns.squared_deviations)
    return torch.where(has_no_variance, 0.0, 1 - errors.squared_deviations / total)


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
