"""What the best possible play looks like: optimal plans and the best reachable success."""

from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.error import ResetNeeded

from ragen_envs.agent_checks import check_limit
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.argument_checks import check_env, check_whole_number, show
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.frozen_lake.dynamics import find_path
from ragen_envs.frozen_lake.planning import PlanTooLargeError, TurnPlan, turn_planner
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.sokoban.solver import MAX_STATES, shortest_solution


class _Budget(NamedTuple):
    """What is left of an episode."""

    turns: int
    actions_per_turn: int
    actions: int

    @property
    def reachable_actions(self) -> int:
        return min(self.actions, self.turns * self.actions_per_turn)

    @property
    def next_turn(self) -> int:
        return min(self.actions, self.actions_per_turn) if self.turns else 0


def solve(env: gym.Env[Any, Any], *, max_states: int = MAX_STATES) -> list[int] | None:
    """Find an optimal plan from the current state; the environment is not stepped.

    Sokoban: fewest moves. FrozenLake without slipping: fewest moves. Bandit: one pull of the arm
    with the higher expected reward, of the high arm if they are equal.

    Args:
        env: An environment of this package after `reset`; wrappers are looked through.
        max_states: Largest number of Sokoban positions to look at. The default takes some seconds
            and is enough for nearly all rooms of 10x10 with 4 boxes.

    Returns:
        Action ids in order; `[]` if the task is solved already; `None` if it cannot be solved any
        more.

    Raises:
        ValueError: If the environment is a slippery FrozenLake, where no fixed plan is optimal,
            `max_states` is below 1, or the search reached it, which tells nothing about the level.
        TypeError: If the environment is of another type, or `max_states` no integer.
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
    bare = unwrap_own(env)
    check_limit("max_states", max_states)
    if isinstance(bare, BanditEnv):
        return _plan_pull(bare)
    if isinstance(bare, FrozenLakeEnv):
        if bare.is_slippery:
            raise ValueError(
                "`is_slippery` must be False for a plan, got True. "
                "`optimal_success` gives the best reachable success on slippery ice."
            )
        return find_path(bare.layout, bare.state)
    return shortest_solution(bare.layout, bare.state, max_states=max_states)


def optimal_success(env: gym.Env[Any, Any], horizon: int) -> float:
    """Compute the best success probability within `horizon` actions from the current state.

    The actions may depend on what happened before, so this bounds every policy that gives at most
    `horizon` actions; `optimal_turn_success` is the exact value where several actions of a turn are
    chosen at once. FrozenLake: value iteration, exact up to rounding, until it settles. Sokoban and
    Bandit: 1.0 or 0.0. The environment is not stepped, and its own step limit is not counted.

    Args:
        env: An environment of this package after `reset`; wrappers are looked through.
        horizon: Number of actions, at least 0.

    Returns:
        Probability in `[0, 1]`; 1.0 if the task is solved already, 0.0 if it is lost.

    Raises:
        ValueError: If `horizon` is negative, or too large for this lake (on slippery ice; 2,000
            actions are not), or the search of a Sokoban plan reached its bound.
        TypeError: If the environment is of another type, or `horizon` no integer.
        ResetNeeded: Before the first `reset`.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = gymnasium.make("ragen/Bandit-v0")
        >>> _ = env.reset(seed=0)
        >>> ragen_envs.optimal_success(env, horizon=1)
        1.0
    """
    horizon = check_whole_number("horizon", horizon)
    bare = unwrap_own(env)
    try:
        return _best_success(bare, _Budget(horizon, 1, horizon))
    except PlanTooLargeError as error:
        raise ValueError(
            f"`horizon` must be small enough to look so far ahead, got {show(horizon)} on a lake of "
            "this size. Lower it."
        ) from error


def optimal_turn_success(
    env: gym.Env[Any, Any],
    *,
    max_turns: int | None = None,
    max_actions_per_turn: int | None = None,
    max_actions_per_episode: int | None = None,
) -> float:
    """Compute the best success probability from the current state under a budget of turns.

    In each turn the agent commits to up to `max_actions_per_turn` actions before it sees what any of
    them did; they stop at the end of the episode, and after them the agent sees the state. This is
    the exact optimum of `AgentTurns`, for every environment of this package. FrozenLake: dynamic
    programming over all action sequences of a turn, exact up to rounding; about 10 ms for the
    default budget on a 4x4 lake, growing with the fourth power per action of a turn. Sokoban and
    Bandit: 1.0 or 0.0. The environment is not stepped, and its own step limit is not counted.

    Args:
        env: An environment of this package after `reset`; wrappers are looked through.
        max_turns: Turns from now on. By default what is left by the `AgentTurns` around `env`.
        max_actions_per_turn: Actions of one turn. By default that of `AgentTurns`.
        max_actions_per_episode: Actions from now on. By default what is left by `AgentTurns`.

    Returns:
        Probability in `[0, 1]`; 1.0 if the task is solved already, 0.0 if it is lost.

    Raises:
        ValueError: If a limit is below 1, the search of a Sokoban plan reached its bound, or a turn
            has too many action sequences to compare (on slippery ice, in some 4x4 lakes with 10
            actions or more, in some 8x8 lakes with 6, and in large lakes earlier).
        TypeError: If the environment is of another type, or a limit is missing and there is no
            `AgentTurns` to take it from.
        ResetNeeded: Before the first `reset`.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = ragen_envs.AgentTurns(gymnasium.make("ragen/FrozenLake-v0"))
        >>> _ = env.reset(seed=1)
        >>> f"{ragen_envs.optimal_turn_success(env):.4f} {ragen_envs.optimal_success(env, 10):.4f}"
        '0.4203 0.4212'
    """
    limits = (max_turns, max_actions_per_turn, max_actions_per_episode)
    return _best_success(unwrap_own(env), _read_budget(env, *limits))


def solve_turn(
    env: gym.Env[Any, Any],
    *,
    max_turns: int | None = None,
    max_actions_per_turn: int | None = None,
    max_actions_per_episode: int | None = None,
) -> list[int] | None:
    """Find the actions of a best next turn; played turn after turn they reach the optimum.

    The optimum is `optimal_turn_success`, whose arguments and errors these are. Among equally good
    turns on slippery ice a shortest one is taken; elsewhere it is the beginning of the plan of
    `solve`.

    Returns:
        Action ids in order, `[]` if the task is solved already, `None` if success is out of reach
        within the budget.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = ragen_envs.AgentTurns(gymnasium.make("ragen/FrozenLake-v0"))
        >>> _ = env.reset(seed=1)
        >>> [env.unwrapped.action_names[action] for action in solve_turn(env)]
        ['Down', 'Down']
    """
    bare = unwrap_own(env)
    budget = _read_budget(env, max_turns, max_actions_per_turn, max_actions_per_episode)
    if isinstance(bare, FrozenLakeEnv) and bare.is_slippery:
        success, actions = _plan_on_ice(bare, budget)
        return actions if success > 0 else None
    plan = _plan_within(bare, budget.reachable_actions)
    return None if plan is None else plan[: budget.next_turn]


def find_agent_turns(env: gym.Env[Any, Any]) -> AgentTurns | None:
    """Return the `AgentTurns` among the wrappers of `env`, or `None`."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, AgentTurns):
            return env
        env = env.env
    return None


def unwrap_own(
    env: gym.Env[Any, Any], *, purpose: str = "plan from"
) -> BanditEnv | FrozenLakeEnv | SokobanEnv:
    """Return the environment of this package inside the wrappers, which must have been reset.

    Raises:
        TypeError: If it is of another type.
        ResetNeeded: Before the first `reset`; the message says what the state is needed for.
    """
    check_env(env)
    bare = env.unwrapped
    if not isinstance(bare, BanditEnv | FrozenLakeEnv | SokobanEnv):
        raise TypeError(
            "`env` must be a Bandit, FrozenLake or Sokoban environment of this package, got "
            f"{type(bare).__name__}."
        )
    if not bare.has_state:
        raise ResetNeeded(f"`env` has no state to {purpose} yet. Call `reset()` first.")
    return bare


def _read_budget(
    env: gym.Env[Any, Any],
    max_turns: int | None,
    max_actions_per_turn: int | None,
    max_actions_per_episode: int | None,
) -> _Budget:
    agent = find_agent_turns(env)
    turns, actions_per_turn, actions = (
        (None, None, None)
        if agent is None
        else (agent.turns_left, agent.max_actions_per_turn, agent.actions_left)
    )
    return _Budget(
        _choose_limit("max_turns", max_turns, turns),
        _choose_limit("max_actions_per_turn", max_actions_per_turn, actions_per_turn),
        _choose_limit("max_actions_per_episode", max_actions_per_episode, actions),
    )


def _choose_limit(argument: str, given: int | None, from_agent: int | None) -> int:
    if given is not None:
        return check_limit(argument, given)
    if from_agent is None:
        raise TypeError(
            f"`{argument}` must be given where there is no AgentTurns around `env`, got None. Pass a "
            "number or wrap the environment."
        )
    return from_agent


def _best_success(bare: BanditEnv | FrozenLakeEnv | SokobanEnv, budget: _Budget) -> float:
    if isinstance(bare, FrozenLakeEnv) and bare.is_slippery:
        return _plan_on_ice(bare, budget).success
    if isinstance(bare, BanditEnv):
        # Success is the pull of the high arm, which is there as long as no arm was pulled.
        needed = 1 if bare.pulled is None else 0
        is_open = bare.pulled in (None, bare.high_arm)
        return float(is_open and needed <= budget.reachable_actions)
    return float(_plan_within(bare, budget.reachable_actions) is not None)


def _plan_on_ice(env: FrozenLakeEnv, budget: _Budget) -> TurnPlan:
    # With a turn for each action, several actions in a turn have no use.
    longest = 1 if budget.turns >= budget.actions else budget.actions_per_turn
    planner = turn_planner(env.layout, env.success_rate, longest)
    try:
        return planner.plan(env.state, budget.turns, budget.actions)
    except PlanTooLargeError as error:
        raise PlanTooLargeError(
            "`max_actions_per_turn`, `max_turns` and `max_actions_per_episode` must leave few enough "
            f"action sequences to compare, got {show(budget.actions_per_turn)}, "
            f"{show(budget.turns)} and {show(budget.actions)} on a lake of {env.size}. Lower "
            "`max_actions_per_turn`, or else the others."
        ) from error


def _plan_within(
    bare: BanditEnv | FrozenLakeEnv | SokobanEnv, max_actions: int
) -> list[int] | None:
    """Return an optimal plan without luck that is no longer than this, or `None`."""
    if isinstance(bare, SokobanEnv):
        return shortest_solution(bare.layout, bare.state, max_moves=max_actions)
    if isinstance(bare, FrozenLakeEnv):
        plan = find_path(bare.layout, bare.state)
    else:
        plan = _plan_pull(bare)
    return plan if plan is not None and len(plan) <= max_actions else None


def _plan_pull(env: BanditEnv) -> list[int] | None:
    if env.pulled is not None:
        return [] if env.pulled is env.high_arm else None
    best = max(env.arms, key=lambda arm: (arm.expected_reward, arm is env.high_arm))
    return [env.arms.index(best)]
