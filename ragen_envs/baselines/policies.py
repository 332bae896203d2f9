"""Policies that need no model: from the environment's state to the text of a reply."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.argument_checks import check_flag, check_whole_number, show
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.frozen_lake.dynamics import find_path
from ragen_envs.parsing import DEFAULT_SEPARATOR, check_separator, format_reply
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.sokoban.greedy import push_greedily
from ragen_envs.solvers import solve_turn

MAX_DRAWN_ACTIONS = 100_000


class Policy(Protocol):
    """Writes the reply of the next turn; it looks at the environment and does not step it.

    A function of the environment and of a generator for the policy's own luck.
    """

    def __call__(self, env: AgentTurns, rng: np.random.Generator, /) -> str:
        """Return the reply."""
        ...


def random_reply(
    action_names: Sequence[str],
    rng: np.random.Generator,
    *,
    num_actions: int,
    separator: str = DEFAULT_SEPARATOR,
    think: bool = True,
) -> str:
    """Write a legal reply of independent, uniformly drawn actions; its thought is empty.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there is nothing to draw from or to draw, or `num_actions` is too large.
    """
    is_list = isinstance(action_names, Sequence) and not isinstance(action_names, str)
    if not is_list or not all(isinstance(name, str) for name in action_names):
        raise TypeError(f"`action_names` must be a sequence of str, got {show(action_names)}.")
    if not action_names:
        raise ValueError(
            "`action_names` must hold a name, got none. There is nothing to draw from."
        )
    check_whole_number("num_actions", num_actions, minimum=1, maximum=MAX_DRAWN_ACTIONS)
    _check_generator(rng)
    check_separator(separator)
    check_flag("think", think)
    drawn = rng.integers(len(action_names), size=num_actions)
    return format_reply([action_names[index] for index in drawn], separator=separator, think=think)


def random_policy(env: AgentTurns, rng: np.random.Generator) -> str:
    """Reply with uniformly random legal actions, as many as the limits allow.

    Raises:
        TypeError: If the actions of `env` are free text.
    """
    check_agent_turns(env)
    if not isinstance(env.env.action_space, spaces.Discrete):
        raise TypeError(
            "`env` must wrap an environment with a Discrete action space, "
            f"got {env.env.action_space}. Random free text measures nothing."
        )
    return random_reply(
        env.get_wrapper_attr("action_names"),
        rng,
        num_actions=_count_next_actions(env),
        separator=env.separator,
        think=env.think,
    )


def greedy_policy(env: AgentTurns, rng: np.random.Generator) -> str:
    """Reply with what looks best at once.

    FrozenLake: the next steps of a shortest path around the holes, as if nothing slipped; on
    slippery ice the actions left are spread over the turns left, elsewhere a turn takes all it can.
    Sokoban: pushes of the nearest box towards a target, a random action where that is stuck.
    Bandit: the high arm.

    Raises:
        TypeError: If the environment is not of this package.
    """
    check_agent_turns(env)
    _check_generator(rng)
    actions = greedy_actions(env)
    if not actions:
        actions = [int(rng.integers(len(env.get_wrapper_attr("action_names"))))]
    return write_reply(env, actions)


def solver_policy(env: AgentTurns, rng: np.random.Generator) -> str:
    """Reply with a best next turn (`ragen_envs.solve_turn`), or greedily if success is out of reach.

    Raises:
        TypeError: If the environment is not of this package.
        ValueError: If the search reached its bound.
    """
    check_agent_turns(env)
    _check_generator(rng)
    actions = solve_turn(env)
    return write_reply(env, actions) if actions else greedy_policy(env, rng)


def greedy_actions(env: AgentTurns) -> list[int]:
    """Return the action ids of `greedy_policy`, `[]` where it is stuck."""
    bare = env.unwrapped
    most = _count_next_actions(env)
    if isinstance(bare, SokobanEnv):
        return push_greedily(bare.layout, bare.state, most)
    if isinstance(bare, FrozenLakeEnv):
        if bare.is_slippery:
            most = min(most, math.ceil(env.actions_left / env.turns_left))
        return (find_path(bare.layout, bare.state) or [])[:most]
    if isinstance(bare, BanditEnv):
        return [bare.arms.index(bare.high_arm)]
    raise TypeError(
        "`env` must be a Bandit, FrozenLake or Sokoban environment of this package, got "
        f"{type(bare).__name__}."
    )


def write_reply(env: AgentTurns, actions: Sequence[int], thought: str = "") -> str:
    """Write the reply that plays these action ids, in the format of `env`."""
    names = env.get_wrapper_attr("action_names")
    return format_reply(
        [names[action] for action in actions],
        separator=env.separator,
        think=env.think,
        thought=thought,
    )


def check_agent_turns(env: Any) -> None:
    """Check that something is an environment in the agent's view.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(env, AgentTurns):
        raise TypeError(
            f"`env` must be an environment in AgentTurns, got {show(env)}. Wrap it: "
            "`AgentTurns(env)`."
        )


def _check_generator(rng: Any) -> None:
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"`rng` must be a generator of numpy, got {show(rng)}. Make one with "
            "`numpy.random.default_rng`."
        )


def _count_next_actions(env: AgentTurns) -> int:
    return min(env.max_actions_per_turn, env.actions_left)
