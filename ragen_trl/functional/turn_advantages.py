"""Advantages of turns: one number per reply, from the rewards that its actions earned.

Turns that do not exist (`turn_mask` is `False`) are skipped: whatever stands there changes nothing,
and their advantage is exactly 0.0.
"""

import torch
from torch import Tensor

from ragen_trl.functional.advantages import GroupAdvantageKind, group_advantages
from ragen_trl.functional.gae import compute_gae
from ragen_trl.functional.masking import check_fraction, check_masked_matrix, keep


def discounted_turn_returns(turn_rewards: Tensor, turn_mask: Tensor, *, gamma: float) -> Tensor:
    """Add up the rewards from each turn on: G_k = r_k + gamma * G_{k+1}.

    Args:
        turn_rewards: Sum of the rewards of a turn. Shape `(B, K)`, floating, finite.
        turn_mask: `True` where the turn exists. Shape `(B, K)`, bool.
        gamma: Discount per turn, in `[0, 1]`.

    Returns:
        Shape `(B, K)`, dtype of `turn_rewards`, computed in float64, without gradient; exactly 0.0
        where `turn_mask` is `False`.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong, `gamma` out of its range or a reward not finite.

    Example:
        >>> turn_rewards, turn_mask = torch.tensor([[1.0, 4.0]]), torch.tensor([[True, True]])
        >>> discounted_turn_returns(turn_rewards, turn_mask, gamma=0.5)
        tensor([[3., 4.]])
    """
    return _discount(turn_rewards, turn_mask, gamma).to(turn_rewards.dtype)


def gigpo_advantages(
    turn_rewards: Tensor,
    turn_mask: Tensor,
    observation_ids: Tensor,
    group_ids: Tensor,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    normalize_by_std: bool = True,
    eps: float = 1e-4,
) -> Tensor:
    """Compare trajectories with their group, and turns with turns that began at the same place.

    A = A_episode + step_weight * A_step; GiGPO (arXiv:2505.10978). A_episode: `group_advantages` of
    the undiscounted sum of all turn rewards, "grpo" or without the division "dr_grpo". A_step: the
    discounted return from the turn on minus its mean over all turns of the *group* that saw the
    identical observation, in whichever trajectory and turn. A turn whose observation nobody else
    saw, or after which all fared alike up to rounding, has A_step exactly 0.

    Args:
        turn_rewards: Sum of the rewards of a turn. Shape `(B, K)`, floating, finite.
        turn_mask: `True` where the turn exists. A trajectory without any turn earned 0 and is a
            member of its group all the same. Shape `(B, K)`, bool.
        observation_ids: What the policy saw before its reply: equal numbers for equal observations.
            Shape `(B, K)`, long.
        group_ids: Which rows share an initial state. Shape `(B,)`, long.
        gamma: Discount per turn in A_step, in `[0, 1]`.
        step_weight: Weight of A_step, at least 0.
        normalize_by_std: Whether A_episode is divided by the std of the group; A_step never is.
        eps: Added to that std, in units of the return; at least 0.

    Returns:
        Shape `(B, K)`, dtype of `turn_rewards`, without gradient; exactly 0.0 where `turn_mask` is
        `False`.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong, a scalar out of its range or a reward not finite.

    Example:
        >>> turn_rewards, turn_mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2) > 0
        >>> observation_ids, group_ids = torch.tensor([[7, 8], [7, 9]]), torch.tensor([0, 0])
        >>> gigpo_advantages(
        ...     turn_rewards, turn_mask, observation_ids, group_ids, gamma=0.5, normalize_by_std=False
        ... )
        tensor([[ 0.7500,  0.5000],
                [-0.7500, -0.5000]])
    """
    if not step_weight >= 0:
        raise ValueError(f"`step_weight` must be at least 0, got {step_weight}.")
    turn_returns = _discount(turn_rewards, turn_mask, gamma)
    _check_ids(observation_ids, group_ids, turn_mask)
    kind: GroupAdvantageKind = "grpo" if normalize_by_std else "dr_grpo"
    episode_returns = keep(turn_rewards.detach().double(), turn_mask).sum(dim=1)
    episode = group_advantages(episode_returns, group_ids, kind=kind, eps=eps).unsqueeze(1)
    anchor_ids = _number_anchors(observation_ids, group_ids, turn_mask)
    step = group_advantages(turn_returns[turn_mask], anchor_ids, kind="dr_grpo")
    advantages = episode + torch.zeros_like(turn_returns).masked_scatter(
        turn_mask, step_weight * step
    )
    return torch.where(turn_mask, advantages, 0.0).to(turn_rewards.dtype)


def rebn_advantages(
    turn_rewards: Tensor, turn_mask: Tensor, *, gamma: float, eps: float = 1e-8
) -> Tensor:
    """Standardise the discounted return of every turn over all turns of the batch.

    A = (G - mean G) / (std G + eps), with the sample std (n - 1): return batch normalisation of
    GEM (arXiv:2510.01051). Groups play no part. Where all returns are equal up to rounding, or
    there is one turn only, it is exactly 0.

    Args:
        turn_rewards: Sum of the rewards of a turn. Shape `(B, K)`, floating, finite.
        turn_mask: `True` where the turn exists. Shape `(B, K)`, bool.
        gamma: Discount per turn, in `[0, 1]`.
        eps: Added to the std, in units of the return; at least 0.

    Returns:
        Shape `(B, K)`, dtype of `turn_rewards`, without gradient; exactly 0.0 where `turn_mask` is
        `False`.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong, a scalar out of its range or a reward not finite.

    Example:
        >>> turn_rewards = torch.tensor([[1.5, 1.0], [1.0, 0.0]])
        >>> rebn_advantages(turn_rewards, torch.tensor([[True, True], [True, False]]), gamma=0.0)
        tensor([[ 1.1547, -0.5774],
                [-0.5774,  0.0000]])
    """
    turn_returns = _discount(turn_rewards, turn_mask, gamma)
    kept = turn_returns[turn_mask]
    whole_batch = torch.zeros_like(kept, dtype=torch.long)
    standardized = group_advantages(kept, whole_batch, kind="reinforce_pp", eps=eps)
    advantages = torch.zeros_like(turn_returns).masked_scatter(turn_mask, standardized)
    return advantages.to(turn_rewards.dtype)


def turns_to_tokens(turn_values: Tensor, turn_index: Tensor) -> Tensor:
    """Give every token the number of its turn.

    Args:
        turn_values: One number per turn. Shape `(B, K)`, floating.
        turn_index: Turn of a token, in `[-1, K)`; -1 outside of replies. Shape `(B, T)`, long.

    Returns:
        Shape `(B, T)`, dtype of `turn_values`, exactly 0.0 where `turn_index` is -1.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong or a turn does not exist.

    Example:
        >>> turns_to_tokens(torch.tensor([[0.5, 2.0]]), torch.tensor([[0, 0, -1, 1]]))
        tensor([[0.5000, 0.5000, 0.0000, 2.0000]])
    """
    _check_token_turns(turn_values, turn_index)
    # A column of zeros in front is what -1 finds.
    return torch.nn.functional.pad(turn_values, (1, 0)).gather(1, turn_index + 1)


def _discount(turn_rewards: Tensor, turn_mask: Tensor, gamma: float) -> Tensor:
    check_fraction(gamma=gamma)
    check_masked_matrix("turn_mask", turn_mask, "(B, K)", turn_rewards=turn_rewards)
    kept = turn_rewards[turn_mask]
    if not torch.isfinite(kept).all():
        raise ValueError(
            f"`turn_rewards` must be finite, got {kept[~torch.isfinite(kept)][0].item()}. "
            "Play the episode again or leave its whole group out."
        )
    # Without a critic (V = 0) and with lambda = 1, an advantage is a discounted return.
    no_critic = torch.zeros_like(turn_rewards, dtype=torch.float64)
    return compute_gae(turn_rewards, no_critic, turn_mask, gamma=gamma, gae_lambda=1.0).advantages


def _number_anchors(observation_ids: Tensor, group_ids: Tensor, turn_mask: Tensor) -> Tensor:
    """Number the pairs of group and observation of all existing turns, in row-major order."""
    _, observations = torch.unique(observation_ids[turn_mask], return_inverse=True)
    group_of_turn = group_ids.unsqueeze(1).expand(turn_mask.shape)[turn_mask]
    _, groups = torch.unique(group_of_turn, return_inverse=True)
    anchor_ids: Tensor = groups * len(observations) + observations
    return anchor_ids


def _check_ids(observation_ids: Tensor, group_ids: Tensor, turn_mask: Tensor) -> None:
    for name, ids, shape in (
        ("observation_ids", observation_ids, turn_mask.shape),
        ("group_ids", group_ids, turn_mask.shape[:1]),
    ):
        if ids.dtype != torch.long:
            raise TypeError(f"`{name}` must be a long tensor, got {ids.dtype}.")
        if ids.shape != shape:
            raise ValueError(
                f"`{name}` must have shape {tuple(shape)} to fit `turn_mask`, "
                f"got {tuple(ids.shape)}."
            )


def _check_token_turns(turn_values: Tensor, turn_index: Tensor) -> None:
    if not turn_values.is_floating_point():
        raise TypeError(f"`turn_values` must be a floating tensor, got {turn_values.dtype}.")
    if turn_index.dtype != torch.long:
        raise TypeError(f"`turn_index` must be a long tensor, got {turn_index.dtype}.")
    if turn_values.dim() != 2 or turn_index.dim() != 2 or len(turn_values) != len(turn_index):
        raise ValueError(
            "`turn_values` and `turn_index` must have shapes `(B, K)` and `(B, T)`, "
            f"got {tuple(turn_values.shape)} and {tuple(turn_index.shape)}."
        )
    is_unknown = (turn_index < -1) | (turn_index >= turn_values.shape[1])
    if is_unknown.any():
        raise ValueError(
            f"`turn_index` must be in [-1, {turn_values.shape[1]}), "
            f"got {turn_index[is_unknown][0].item()}."
        )
