"""From a rollout's returns to the rows that are trained on: advantages and the filter."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ragen_trl.collation import Row
from ragen_trl.functional import (
    group_advantages,
    group_scores,
    has_no_variance,
    select_groups,
)
from ragen_trl.trajectory import Trajectory


class Selection(NamedTuple):
    """What one rollout teaches.

    Attributes:
        advantages: Advantage per trajectory, shape (B,).
        is_kept: Whether the trajectory's group passed the filter, shape (B,), bool.
        scores: Uncertainty per group, in ascending order of group id, shape (P,).
        no_variance: Whether all returns of the group are equal, shape (P,), bool.
        rows: The kept trajectories that hold at least one sampled token, in their order. None at
            all when no kept group has variance: what is left of the loss then is the entropy bonus,
            which an optimizer that divides by the size of the gradient turns into a full step.
    """

    advantages: Tensor
    is_kept: Tensor
    scores: Tensor
    no_variance: Tensor
    rows: list[Row]

    def metrics(self) -> dict[str, float]:
        """Return the filter's metrics by log name."""
        return {
            "rollout/in_group_reward_std": self.scores.mean().item(),
            "rollout/kept_group_ratio": self.is_kept.double().mean().item(),
            "rollout/zero_variance_ratio": self.no_variance.double().mean().item(),
            "rollout/skipped_update": float(not self.rows),
        }


def select_trajectories(
    trajectories: Sequence[Trajectory],
    *,
    advantage_estimator: Literal["grpo", "dr_grpo"],
    rollout_filter: Literal["top_k", "none"],
    rollout_filter_ratio: float,
) -> Selection:
    """Estimate advantages within groups and keep the most uncertain groups, whole.

    Args:
        trajectories: All episodes of a rollout, over all processes.
        advantage_estimator: See `group_advantages`.
        rollout_filter: "top_k" or "none".
        rollout_filter_ratio: Share of groups that "top_k" keeps.

    Raises:
        ValueError: If no kept trajectory holds a sampled token.
    """
    returns = torch.tensor([t.total_reward for t in trajectories], dtype=torch.float64)
    group_ids = torch.tensor([t.group_id for t in trajectories])
    advantages = group_advantages(returns, group_ids, kind=advantage_estimator)
    scores = group_scores(returns, group_ids, kind="reward_std")
    unique_ids, group_index = torch.unique(group_ids, return_inverse=True)
    if rollout_filter == "none":
        kept_groups = torch.arange(len(unique_ids))
    else:
        kept_groups = select_groups(scores, method=rollout_filter, value=rollout_filter_ratio)
    is_kept = torch.isin(group_index, kept_groups)
    rows = [
        Row(trajectory, advantage)
        for trajectory, advantage, kept in zip(
            trajectories, advantages.tolist(), is_kept.tolist(), strict=True
        )
        if kept and trajectory.num_action_tokens
    ]
    if not rows:
        raise ValueError(
            "No kept trajectory holds a sampled token, so there is nothing to train on. The first "
            f"prompt has {len(trajectories[0].prompt_ids)} tokens; raise `max_trajectory_tokens`."
        )
    if all(row.advantage == 0.0 for row in rows):
        rows = []
    return Selection(advantages, is_kept, scores, has_no_variance(returns, group_ids), rows)
