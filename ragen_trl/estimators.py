"""From episodes to what every turn of them is worth: rewards for a critic, or advantages."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ragen_trl.functional import (
    gigpo_advantages,
    group_advantages,
    has_no_variance,
    normalize_returns,
    rebn_advantages,
)
from ragen_trl.functional.advantages import GroupAdvantageKind
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trajectory import Trajectory

PerTurn = list[tuple[float, ...]]


def turn_rewards(trajectories: Sequence[Trajectory], args: StarPOConfig) -> PerTurn:
    """Return what each turn pays the critic's estimators, format penalties included.

    Without `args.turn_rewards` the whole return of the episode, normalised if asked, is paid by
    its last turn. The end of an episode is not bootstrapped, be it terminated or truncated: the
    budget of turns and actions is a part of the task and stands in every prompt (RAGEN does the
    same).
    """
    if args.turn_rewards:
        return [tuple(t.rewards_by_turn) for t in trajectories]
    return [
        (*[0.0] * (len(t.turns) - 1), value) if t.turns else ()
        for t, value in zip(trajectories, _normalized_returns(trajectories, args), strict=True)
    ]


def turn_advantages(trajectories: Sequence[Trajectory], args: StarPOConfig) -> PerTurn:
    """Return the advantage of each turn from the estimators that need no critic.

    Those that see whole episodes give all turns the same; with a critic all are 0 here.
    """
    estimator = args.advantage_estimator
    if args.has_critic or not trajectories:
        return [(0.0,) * len(t.turns) for t in trajectories]
    group_ids = torch.tensor([t.group_id for t in trajectories])
    if estimator in ("gigpo", "rebn"):
        rewards, turn_mask = _stack_rewards(trajectories)
        if estimator == "gigpo":
            advantages = gigpo_advantages(
                rewards,
                turn_mask,
                _observation_ids(trajectories, turn_mask.size(1)),
                group_ids,
                gamma=args.turn_gamma,
                step_weight=args.gigpo_step_weight,
                normalize_by_std=args.gigpo_divide_by_std,
            )
        else:
            advantages = rebn_advantages(rewards, turn_mask, gamma=args.turn_gamma)
        return [
            tuple(row[: len(t.turns)])
            for row, t in zip(advantages.tolist(), trajectories, strict=True)
        ]
    returns = torch.tensor(_normalized_returns(trajectories, args), dtype=torch.float64)
    per_episode = group_advantages(returns, group_ids, kind=cast("GroupAdvantageKind", estimator))
    return [(a,) * len(t.turns) for a, t in zip(per_episode.tolist(), trajectories, strict=True)]


def teaches_nothing(trajectories: Sequence[Trajectory], args: StarPOConfig) -> bool:
    """Tell whether no action of these episodes turned out better than another.

    What is left of the loss then is the entropy bonus, which an optimizer that divides by the size
    of the gradient turns into a full step.
    """
    if not args.has_critic:
        return all(a == 0.0 for turns in turn_advantages(trajectories, args) for a in turns)
    rewards = turn_rewards(trajectories, args)
    # With a discount, equal returns other than 0 still tell that earlier is better.
    discounts = args.gamma < 1 or (
        args.advantage_estimator == "bi_level_gae" and args.turn_gamma < 1
    )
    if discounts and any(reward != 0.0 for turns in rewards for reward in turns):
        return False
    # What a turn and all after it earn, compared between the episodes that came as far.
    to_go = [(sum(turns[k:]), k) for turns in rewards for k in range(len(turns))]
    if not to_go:
        return True
    returns, turn_ids = zip(*to_go, strict=True)
    no_variance = has_no_variance(
        torch.tensor(returns, dtype=torch.float64), torch.tensor(turn_ids)
    )
    return bool(no_variance.all())


def _normalized_returns(trajectories: Sequence[Trajectory], args: StarPOConfig) -> list[float]:
    returns = torch.tensor([t.total_reward for t in trajectories], dtype=torch.float64)
    env_ids = sorted({t.env_id for t in trajectories})
    units = {
        "group": [t.group_id for t in trajectories],
        "env": [env_ids.index(t.env_id) for t in trajectories],
        "batch": [0] * len(trajectories),
    }
    unit_ids = torch.tensor(units[args.reward_grouping], dtype=torch.long)
    values: list[float] = normalize_returns(
        returns, unit_ids, kind=args.reward_normalization
    ).tolist()
    return values


def _stack_rewards(trajectories: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
    num_turns = max(1, *(len(t.turns) for t in trajectories))
    rewards = torch.zeros(len(trajectories), num_turns, dtype=torch.float64)
    turn_mask = torch.zeros(len(trajectories), num_turns, dtype=torch.bool)
    for i, trajectory in enumerate(trajectories):
        count = len(trajectory.turns)
        rewards[i, :count] = torch.tensor(trajectory.rewards_by_turn, dtype=torch.float64)
        turn_mask[i, :count] = True
    return rewards, turn_mask


def _observation_ids(trajectories: Sequence[Trajectory], num_turns: int) -> Tensor:
    """Number the states of the environment: the same text, the same number."""
    numbers: dict[str, int] = {}
    ids = torch.full((len(trajectories), num_turns), -1)
    for i, trajectory in enumerate(trajectories):
        for k, turn in enumerate(trajectory.turns):
            ids[i, k] = numbers.setdefault(turn.state, len(numbers))
    return ids
