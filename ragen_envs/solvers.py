"""What the best possible play looks like: optimal plans and the best reachable success."""

from typing import Any

import gymnasium as gym
from gymnasium.error import ResetNeeded

from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.frozen_lake.dynamics import (
    ACTION_NAMES,
    State,
    find_path,
    is_over,
    is_solved,
    slip_outcomes,
    step,
)
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.sokoban.solver import shortest_solution


def solve(env: gym.Env[Any, Any]) -> list[int] | None:
    """Find an optimal plan from the current state; the environment is not stepped.

    Sokoban: fewest moves. FrozenLake without slipping: fewest moves. Bandit: one pull of the arm
    with the higher expected reward, of the high arm if they are equal.

    Args:
        env: An environment of this package after `reset`; wrappers are looked through.

    Returns:
        Action ids in order; `[]` if the task is solved already; `None` if it cannot be solved any
        more.

    Raises:
        ValueError: If the environment is a slippery FrozenLake, where no fixed plan is optimal.
        TypeError: If the environment is of another type.
        ResetNeeded: Before the first `reset`.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = gymnasium.make("ragen/FrozenLake-v0", is_slippery=False)
        >>> _ = env.reset(seed=0)
        >>> for action in ragen_envs.solve(env):
        ...     _, reward, _, _, _ = env.step(action)
        >>> reward
        1.0
    """
    bare = _unwrap(env)
    if isinstance(bare, BanditEnv):
        return _plan_pull(bare)
    if isinstance(bare, FrozenLakeEnv):
        if bare.is_slippery:
            raise ValueError(
                "`is_slippery` must be False for a plan, got True. "
                "`optimal_success` gives the best reachable success on slippery ice."
            )
        return find_path(bare.layout, bare.state)
    return shortest_solution(bare.layout, bare.state)


def optimal_success(env: gym.Env[Any, Any], horizon: int) -> float:
    """Compute the best success probability within `horizon` actions from the current state.

    The actions may depend on what happened before, so this bounds every policy that gives at most
    `horizon` actions. FrozenLake: value iteration, exact up to rounding. Sokoban and Bandit: 1.0 or
    0.0. The environment is not stepped, and its own step limit is not counted.

    Args:
        env: An environment of this package after `reset`; wrappers are looked through.
        horizon: Number of actions, at least 0.

    Returns:
        Probability in `[0, 1]`; 1.0 if the task is solved already, 0.0 if it is lost.

    Raises:
        ValueError: If `horizon` is negative.
        TypeError: If the environment is of another type.
        ResetNeeded: Before the first `reset`.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = gymnasium.make("ragen/Bandit-v0")
        >>> _ = env.reset(seed=0)
        >>> ragen_envs.optimal_success(env, horizon=1)
        1.0
    """
    if horizon < 0:
        raise ValueError(f"`horizon` must be at least 0, got {horizon!r}.")
    bare = _unwrap(env)
    if isinstance(bare, BanditEnv):
        # Success is the pull of the high arm, which is there as long as no arm was pulled.
        needed = 1 if bare.pulled is None else 0
        return float(needed <= horizon and bare.pulled in (None, bare.high_arm))
    if isinstance(bare, FrozenLakeEnv):
        return _iterate_values(bare, horizon)
    plan = shortest_solution(bare.layout, bare.state)
    return float(plan is not None and len(plan) <= horizon)


def _unwrap(env: gym.Env[Any, Any]) -> BanditEnv | FrozenLakeEnv | SokobanEnv:
    bare = env.unwrapped
    if not isinstance(bare, BanditEnv | FrozenLakeEnv | SokobanEnv):
        raise TypeError(
            "`env` must be a Bandit, FrozenLake or Sokoban environment of this package, got "
            f"{type(bare).__name__}."
        )
    if not bare.has_state:
        raise ResetNeeded("There is no state to plan from. Call `reset()` first.")
    return bare


def _plan_pull(env: BanditEnv) -> list[int] | None:
    if env.pulled is not None:
        return [] if env.pulled is env.high_arm else None
    best = max(env.arms, key=lambda arm: (arm.expected_reward, arm is env.high_arm))
    return [env.arms.index(best)]


def _iterate_values(env: FrozenLakeEnv, horizon: int) -> float:
    """Return V_h(s) = max_a sum_s' p(s' | s, a) V_(h-1)(s'), V_0 = 1 at the goal and 0 elsewhere."""
    layout = env.layout
    rows, columns = layout.size
    states = [State((row, column)) for row in range(rows) for column in range(columns)]
    moves = {
        state: [
            [(step(layout, state, direction), p) for direction, p in outcomes]
            for outcomes in (
                slip_outcomes(action, env.success_rate) for action in range(len(ACTION_NAMES))
            )
        ]
        for state in states
        if not is_over(layout, state)
    }
    values = {state: float(is_solved(layout, state)) for state in states}
    for _ in range(horizon):
        better = {
            state: max(sum(p * values[following] for following, p in move) for move in choices)
            for state, choices in moves.items()
        }
        values |= better
    return values[env.state]
