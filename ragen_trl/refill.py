"""Playing further groups in place of those without variance, a bounded number of times."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from ragen_trl.functional import has_no_variance
from ragen_trl.trajectory import Trajectory


def split_groups(trajectories: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Return the episodes group by group, in ascending order of the group ids."""
    groups: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    return [groups[group_id] for group_id in sorted(groups)]


def has_variance(group: Sequence[Trajectory]) -> bool:
    """Tell whether the returns of a group differ by more than rounding."""
    returns = torch.tensor([t.total_reward for t in group], dtype=torch.float64)
    return not has_no_variance(returns, torch.zeros(len(group), dtype=torch.long)).item()


def refill(
    trajectories: Sequence[Trajectory],
    *,
    num_wanted: int,
    max_tries: int,
    play: Callable[[int], list[Trajectory]],
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Play new groups until enough of them have variance; dynamic sampling (DAPO, arXiv:2503.14476).

    Args:
        trajectories: The episodes of a rollout.
        num_wanted: Groups with variance that are asked for.
        max_tries: How often at most new groups are played, as many as are missing; 0 for never.
        play: Plays that many new groups, from new start states.

    Returns:
        The episodes to go on with, as many groups as there were, those with variance before the
        others; and all that were played. A group has the same id in both.
    """
    if max_tries == 0:
        return list(trajectories), list(trajectories)
    num_groups = len(split_groups(trajectories))
    played = list(trajectories)
    for _ in range(max_tries):
        groups = split_groups(played)
        num_missing = num_wanted - sum(map(has_variance, groups))
        if num_missing <= 0:
            break
        new = split_groups(play(num_missing))
        for group_id, group in enumerate(new, start=len(groups)):
            played += [replace(trajectory, group_id=group_id) for trajectory in group]
    groups = sorted(split_groups(played), key=lambda group: not has_variance(group))
    return [t for group in groups[:num_groups] for t in group], played
