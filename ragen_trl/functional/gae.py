"""Generalized advantage estimation over the tokens that the policy sampled, and over its turns.

Text of the environment is skipped: it neither earns, nor discounts, nor lends its value.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ragen_trl.functional.masking import check_fraction, check_masked_matrix, keep


class GAEOutput(NamedTuple):
    """What the policy and the critic learn from.

    Attributes:
        advantages: Not whitened. Shape `(B, T)`, dtype of the values.
        returns: Targets of the critic, advantage + value. Shape `(B, T)`, dtype of the values.
    """

    advantages: Tensor
    returns: Tensor


def compute_gae(
    rewards: Tensor, values: Tensor, action_mask: Tensor, *, gamma: float, gae_lambda: float
) -> GAEOutput:
    """Estimate the advantage of every sampled token.

    Over the n sampled tokens of a row, numbered without gaps:
    delta_j = r_j + gamma * V_{j+1} - V_j, A_j = delta_j + gamma * gae_lambda * A_{j+1}, with V and
    A 0 behind the last one; arXiv:1506.02438 eq. 16. RAGEN (arXiv:2504.20073) sets both to 1.

    Args:
        rewards: Reward paid for a token. Shape `(B, T)`, floating.
        values: Critic's estimate *before* the token is sampled. Shape `(B, T)`, floating.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.
        gamma: Discount per sampled token, in `[0, 1]`.
        gae_lambda: Weight of later errors, in `[0, 1]`; 1 trusts rewards alone, 0 the critic.

    Returns:
        `GAEOutput`, computed in float64 and without gradient; exactly 0.0 where `action_mask` is
        `False`, whatever stands there. Rows without sampled tokens are 0.0.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong or a scalar out of its range.

    Example:
        >>> rewards, values = torch.tensor([[0.0, 9.0, 1.0]]), torch.tensor([[0.5, 9.0, 0.25]])
        >>> action_mask = torch.tensor([[True, False, True]])
        >>> compute_gae(rewards, values, action_mask, gamma=1.0, gae_lambda=1.0).advantages
        tensor([[0.5000, 0.0000, 0.7500]])
    """
    check_fraction(gamma=gamma, gae_lambda=gae_lambda)
    check_masked_matrix("action_mask", action_mask, "(B, T)", rewards=rewards, values=values)
    kept_rewards, kept_values = (keep(x.detach().double(), action_mask) for x in (rewards, values))
    no_resets = torch.zeros_like(action_mask)
    advantages = _sweep(kept_rewards, kept_values, action_mask, no_resets, gamma, gae_lambda)
    return _to_output(advantages, kept_values, values.dtype)


def compute_bi_level_gae(
    rewards: Tensor,
    values: Tensor,
    action_mask: Tensor,
    turn_index: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    turn_gamma: float,
) -> GAEOutput:
    """Estimate the advantage of every sampled token, first across turns and then inside of them.

    Between the last sampled tokens t_k of the turns, with r_k the reward paid there:
    delta_k = r_k + turn_gamma * V(t_{k+1}) - V(t_k), A_k = delta_k + turn_gamma * gae_lambda *
    A_{k+1}, G_k = A_k + V(t_k). Then `compute_gae` inside of turn k alone, with G_k for the reward
    at t_k. From RAGEN (arXiv:2504.20073), whose code looks for turn ends at rewards other than 0;
    here they are given, so that a turn may earn exactly 0.

    Args:
        rewards: Reward paid for a token. Those before the last token of a turn count inside of that
            turn only. Shape `(B, T)`, floating.
        values: Critic's estimate *before* the token is sampled. Shape `(B, T)`, floating.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.
        turn_index: Turn of a token, at least 0 and never falling along the sampled tokens of a row;
            -1 outside of replies. Numbers may be left out. Shape `(B, T)`, long.
        gamma: Discount per sampled token, in `[0, 1]`.
        gae_lambda: Weight of later errors on both levels, in `[0, 1]`.
        turn_gamma: Discount per turn, in `[0, 1]`.

    Returns:
        `GAEOutput`, computed in float64 and without gradient; exactly 0.0 where `action_mask` is
        `False`, whatever stands there. Rows without sampled tokens are 0.0.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong, a scalar out of its range, or the turn of a sampled token
            unknown or lower than that of the sampled token before.

    Example:
        >>> rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.zeros(1, 3)
        >>> action_mask, turn_index = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0, 0, 1]])
        >>> compute_bi_level_gae(
        ...     rewards, values, action_mask, turn_index, gamma=1.0, gae_lambda=1.0, turn_gamma=0.5
        ... ).advantages
        tensor([[0.5000, 0.5000, 1.0000]])
    """
    check_fraction(gamma=gamma, gae_lambda=gae_lambda, turn_gamma=turn_gamma)
    check_masked_matrix("action_mask", action_mask, "(B, T)", rewards=rewards, values=values)
    is_turn_end = _find_turn_ends(action_mask, turn_index)
    kept_rewards, kept_values = (keep(x.detach().double(), action_mask) for x in (rewards, values))
    no_resets = torch.zeros_like(action_mask)
    turn_advantages = _sweep(
        kept_rewards, kept_values, is_turn_end, no_resets, turn_gamma, gae_lambda
    )
    token_rewards = torch.where(is_turn_end, turn_advantages + kept_values, kept_rewards)
    advantages = _sweep(token_rewards, kept_values, action_mask, is_turn_end, gamma, gae_lambda)
    return _to_output(advantages, kept_values, values.dtype)


def _sweep(
    rewards: Tensor, values: Tensor, mask: Tensor, is_end: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Run GAE over the positions in `mask`; nothing flows back across those in `is_end`."""
    order = _move_together(mask)
    is_kept, is_end = mask.gather(1, order), is_end.gather(1, order)
    rewards, values = (torch.where(is_kept, x.gather(1, order), 0.0) for x in (rewards, values))
    next_values = torch.where(is_end, 0.0, _shift(values, 1))
    deltas = rewards + gamma * next_values - values
    # Not `torch.where` with two numbers, which would round the product to float32.
    factors = (~is_end).to(deltas.dtype) * (gamma * gae_lambda)
    advantages = _scan_backwards(deltas, factors)
    return torch.zeros_like(advantages).scatter(1, order, advantages)


def _scan_backwards(x: Tensor, factors: Tensor) -> Tensor:
    """Solve y_j = x_j + factors_j * y_{j+1} in log2(T) steps, with y 0 behind the end."""
    reach = 1
    # Here x_j is the sum of the next `reach` terms, and factors_j carries what comes after them.
    while reach < x.shape[1]:
        x = x + factors * _shift(x, reach)
        factors = factors * _shift(factors, reach)
        reach *= 2
    return x


def _find_turn_ends(action_mask: Tensor, turn_index: Tensor) -> Tensor:
    """Return `True` at the last sampled token of each turn."""
    if turn_index.dtype != torch.long:
        raise TypeError(f"`turn_index` must be a long tensor, got {turn_index.dtype}.")
    if turn_index.shape != action_mask.shape:
        raise ValueError(
            f"`turn_index` must have the shape of `action_mask`, {tuple(action_mask.shape)}, "
            f"got {tuple(turn_index.shape)}."
        )
    if (turn_index[action_mask] < 0).any():
        raise ValueError(
            "`turn_index` must be at least 0 at sampled tokens, "
            f"got {turn_index[action_mask].min().item()}. Only the others may have -1."
        )
    order = _move_together(action_mask)
    turns = torch.where(action_mask, turn_index, -1).gather(1, order)
    # The token behind the last one counts as turn -1, too.
    next_turns = _shift(turns + 1, 1) - 1
    if ((next_turns >= 0) & (next_turns < turns)).any():
        row = int(((next_turns >= 0) & (next_turns < turns)).any(dim=1).nonzero()[0])
        raise ValueError(
            "`turn_index` must not fall along the sampled tokens of a row, "
            f"got {turns[row][turns[row] >= 0].tolist()} in row {row}."
        )
    return torch.zeros_like(action_mask).scatter(1, order, (turns >= 0) & (next_turns != turns))


def _move_together(mask: Tensor) -> Tensor:
    """Return the positions of each row, those in `mask` first; both kinds keep their order."""
    return (~mask).byte().argsort(dim=1, stable=True)


def _shift(x: Tensor, distance: int) -> Tensor:
    """Bring to each position what stands `distance` later, 0 behind the end."""
    return torch.nn.functional.pad(x, (0, distance))[:, distance:]


def _to_output(advantages: Tensor, values: Tensor, dtype: torch.dtype) -> GAEOutput:
    return GAEOutput(advantages.to(dtype), (advantages + values).to(dtype))
