"""Trajectories written by hand, for tests of what is done with them."""

from ragen_trl.collation import Row
from ragen_trl.trajectory import Trajectory, Turn


def make_turn(observation="o", reply="r", executed=(), *, is_valid=True, state="s"):
    return Turn(observation, reply, tuple(executed), tuple(executed), is_valid, state)


def make_trajectory(
    prompt_ids=(1, 2),
    completion_ids=(3,),
    action_mask=None,
    *,
    reward=0.0,
    logps=None,
    turns=None,
    turn_rewards=None,
    format_penalties=None,
    env_id="env",
    seed=0,
    group_id=0,
    success=False,
    truncated=False,
    num_effective_actions=0,
    final_state="",
):
    """One episode of one turn that was sampled entirely, unless told otherwise."""
    length = len(completion_ids)
    mask = [True] * length if action_mask is None else [bool(m) for m in action_mask]
    turns = [make_turn()] if turns is None else list(turns)
    return Trajectory(
        env_id=env_id,
        seed=seed,
        group_id=group_id,
        prompt_ids=list(prompt_ids),
        completion_ids=list(completion_ids),
        action_mask=mask,
        turn_index=[0 if m else -1 for m in mask],
        logps=[-1.0 if m else 0.0 for m in mask] if logps is None else list(logps),
        turn_rewards=[reward] + [0.0] * (len(turns) - 1) if turn_rewards is None else turn_rewards,
        format_penalties=[0.0] * len(turns) if format_penalties is None else format_penalties,
        terminated=not truncated,
        truncated=truncated,
        success=success,
        turns=turns,
        num_effective_actions=num_effective_actions,
        final_state=final_state,
    )


def make_row(trajectory, advantage=0.0, weight=0.0):
    """A row whose turns all have the same advantage, and earned nothing."""
    num_turns = len(trajectory.turns)
    return Row(trajectory, (advantage,) * num_turns, (0.0,) * num_turns, weight=weight)
