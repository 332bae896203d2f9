"""From a rollout to the rows that are trained on: the filter, then the estimator."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ragen_trl.collation import Row
from ragen_trl.estimators import teaches_nothing, turn_advantages, turn_rewards
from ragen_trl.functional import (
    group_scores,
    has_no_variance,
    loss_scale,
    select_groups,
    select_within_groups,
    soft_group_weights,
)
from ragen_trl.functional.filtering import SelectionMethod
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trajectory import Trajectory


class Selection(NamedTuple):
    """What one rollout teaches.

    Attributes:
        trajectories: All episodes of the rollout.
        is_kept: Whether the trajectory passed the filter, shape (B,), bool.
        scores: Score per group, in ascending order of group id, shape (P,).
        reward_stds: In-group standard deviation of the returns, shape (P,).
        no_variance: Whether all returns of the group are equal, shape (P,), bool.
        rows: The kept trajectories that hold at least one sampled token, in their order. None at
            all when they teach nothing; the update is skipped then.
        loss_scale: Factor of the loss of the update.
        has_critic: Whether a critic will find the advantages, token by token.
    """

    trajectories: Sequence[Trajectory]
    is_kept: Tensor
    scores: Tensor
    reward_stds: Tensor
    no_variance: Tensor
    rows: list[Row]
    loss_scale: float
    has_critic: bool

    def metrics(self) -> dict[str, float]:
        """Return the filter's metrics by log name; a group with one kept episode is kept."""
        is_kept = self.is_kept.tolist()
        kept_groups = {
            t.group_id for t, keep in zip(self.trajectories, is_kept, strict=True) if keep
        }
        return {
            "rollout/in_group_reward_std": self.reward_stds.mean().item(),
            "rollout/kept_group_ratio": len(kept_groups) / len(self.scores),
            "rollout/kept_episode_ratio": sum(is_kept) / len(is_kept),
            "rollout/zero_variance_ratio": self.no_variance.double().mean().item(),
            "rollout/skipped_update": float(not self.rows),
        }

    def records(self, episodes: Iterable[Trajectory]) -> Iterator[dict[str, Any]]:
        """Yield what a log line says about each episode: filter, score of its group, advantages.

        Advantages per token, those of a critic, are not recorded.
        """
        # By identity: a refilled rollout may hold episodes that are equal and yet not the same.
        kept = {
            id(t) for t, keep in zip(self.trajectories, self.is_kept.tolist(), strict=True) if keep
        }
        advantages = {id(row.trajectory): row.advantages for row in self.rows}
        group_ids = sorted({t.group_id for t in self.trajectories})
        scores = dict(zip(group_ids, self.scores.tolist(), strict=True))
        for episode in episodes:
            has_own = id(episode) in advantages and not self.has_critic
            yield {
                "is_kept": id(episode) in kept,
                "group_score": scores.get(episode.group_id),
                "advantages": list(advantages[id(episode)]) if has_own else None,
            }


def select_trajectories(trajectories: Sequence[Trajectory], args: StarPOConfig) -> Selection:
    """Filter a rollout, then estimate advantages on what is left of it.

    Args:
        trajectories: All episodes of a rollout, over all processes.
        args: Filter, estimator and normalisation.

    Raises:
        ValueError: If trajectories are kept, but none holds a sampled token.
    """
    returns = torch.tensor([t.total_reward for t in trajectories], dtype=torch.float64)
    group_ids = torch.tensor([t.group_id for t in trajectories])
    no_variance = has_no_variance(returns, group_ids)
    scores = _score_groups(trajectories, returns, group_ids, args)
    is_kept, soft_weights = _filter(returns, group_ids, scores, ~no_variance, args)
    kept = [i for i, keep in enumerate(is_kept.tolist()) if keep]
    with_tokens = [i for i in kept if trajectories[i].num_action_tokens]
    if kept and not with_tokens:
        raise ValueError(
            "No kept trajectory holds a sampled token, so there is nothing to train on. The first "
            f"prompt has {len(trajectories[0].prompt_ids)} tokens; raise `max_trajectory_tokens`."
        )
    return Selection(
        trajectories=trajectories,
        is_kept=is_kept,
        scores=scores,
        reward_stds=group_scores(returns, group_ids, kind="reward_std"),
        no_variance=no_variance,
        rows=_make_rows([trajectories[i] for i in kept], soft_weights[kept].tolist(), args),
        loss_scale=loss_scale(len(kept), len(trajectories), kind=args.rollout_loss_scale),
        has_critic=args.has_critic,
    )


def _make_rows(
    trajectories: Sequence[Trajectory], scales: Sequence[float], args: StarPOConfig
) -> list[Row]:
    # Soft weights may take away what there is to learn: groups without variance weigh 0.
    if teaches_nothing(trajectories, args) or not any(scales):
        return []
    parts = zip(
        trajectories,
        turn_advantages(trajectories, args),
        turn_rewards(trajectories, args),
        scales,
        strict=True,
    )
    return [Row(*part) for part in parts if part[0].num_action_tokens]


def _score_groups(
    trajectories: Sequence[Trajectory], returns: Tensor, group_ids: Tensor, args: StarPOConfig
) -> Tensor:
    kind = args.rollout_filter_score
    if kind.startswith("reward"):
        return group_scores(returns, group_ids, kind=kind)
    if kind == "response_length":
        values = [float(t.num_action_tokens) for t in trajectories]
    else:
        values = [_mean_surprise(t) for t in trajectories]
    return group_scores(torch.tensor(values, dtype=torch.float64), group_ids, kind=kind)


def _mean_surprise(trajectory: Trajectory) -> float:
    """Estimate the mean entropy of the sampled tokens without bias, and without a pass over them.

    Tokens whose log-probability is NaN, as vLLM may report it, are left out.
    """
    pairs = zip(trajectory.logps, trajectory.action_mask, strict=True)
    surprises = [-logp for logp, is_action in pairs if is_action and not math.isnan(logp)]
    return sum(surprises) / max(len(surprises), 1)


def _filter(
    returns: Tensor, group_ids: Tensor, scores: Tensor, has_variance: Tensor, args: StarPOConfig
) -> tuple[Tensor, Tensor]:
    """Return who is kept, and the factor of each one's advantages, both of shape (B,)."""
    _, group_index = torch.unique(group_ids, return_inverse=True)
    soft_weights = torch.ones_like(returns)
    method, value = args.rollout_filter, args.rollout_filter_ratio
    if method in ("none", "within_group", "soft"):
        is_kept = torch.ones_like(group_index, dtype=torch.bool)
        if method == "soft":
            soft_weights = soft_group_weights(scores)[group_index]
        elif method == "within_group":
            is_kept = select_within_groups(returns, group_ids, num_kept=args.num_kept_per_group)
        if not args.rollout_filter_include_zero:
            is_kept = is_kept & has_variance[group_index]
        return is_kept, soft_weights
    rules: dict[str, tuple[SelectionMethod, Any]] = {
        # A number, so that groups that were refilled do not raise what is kept.
        "top_k": ("top_k_abs", args.num_kept_groups),
        "top_p": ("top_p" if args.rollout_filter_top_p == "linear" else "top_p_softmax", value),
        "min_p": ("min_p", value),
        "percentile_range": ("percentile_range", tuple(args.rollout_filter_percentiles)),
    }
    rule, value = rules[method]
    kept_groups = select_groups(
        scores,
        method=rule,
        value=value,
        include_zero=args.rollout_filter_include_zero,
        has_variance=has_variance,
    )
    return torch.isin(group_index, kept_groups), soft_weights
