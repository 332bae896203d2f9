"""Best play in the form of conversations, for supervised fine-tuning."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym

from ragen_envs.agent_checks import check_limit
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.argument_checks import (
    check_env_id,
    check_env_kwargs,
    check_flag,
    check_given_seed,
)
from ragen_envs.baselines.policies import greedy_actions, write_reply
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.solvers import optimal_turn_success, solve_turn
from ragen_envs.thoughts import write_thought

MAX_SKIPPED_IN_A_ROW = 1000


def demonstrations(
    id: str,
    num_episodes: int,
    *,
    seed: int,
    thoughts: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    **agent_turns_kwargs: Any,
) -> Iterator[dict[str, Any]]:
    """Play episodes as well as possible and yield them as conversations.

    The messages are those that `AgentTurns` shows and the replies those that it parses, so a model
    that is trained on them meets the same texts later. Every turn is planned anew by `solve_turn`,
    from the state that the player sees.

    Episode i starts from `seed + i`, but start states from which success is out of reach within the
    limits are left out, and so are Sokoban rooms whose search takes too long: the next seed takes
    their place. On slippery ice the best play may fail all the same. Such an episode is yielded with
    `success` false: to keep only the lucky ones would teach that slips do not happen.

    Args:
        id: Id of an environment of this package.
        num_episodes: Number of episodes, at least 1.
        seed: First seed, at least 0.
        thoughts: Whether the think block of a reply gives a short reason; it is empty otherwise.
        env_kwargs: Further arguments of `gymnasium.make`.
        agent_turns_kwargs: Arguments of `AgentTurns`.

    Returns:
        Iterator over dictionaries with `env_id`, `seed`, `messages` (list of `role` and `content`;
        `user` and `assistant` take turns, `assistant` is last), `rewards` (one per reply) and
        `success`. `datasets.Dataset.from_list` takes them as they are.

    Raises:
        TypeError: If the environment is not of this package or an argument has the wrong type.
        ValueError: If an argument is out of range or `thoughts` has no think block to stand in; while
            iterating, if `MAX_SKIPPED_IN_A_ROW` start states in a row are left out.

    Example:
        >>> import ragen_envs
        >>> (episode,) = ragen_envs.demonstrations("ragen/Sokoban-v0", 1, seed=0, thoughts=True)
        >>> episode["success"]
        True
        >>> print(episode["messages"][-1]["content"])
        <think>A box is 1 up of me, and its target is 1 up of it. I push Up.</think><answer>Up</answer>
    """
    check_limit("num_episodes", num_episodes)
    seed = check_given_seed(seed)
    check_flag("thoughts", thoughts)
    episodes = _play_episodes(
        partial(gym.make, check_env_id("id", id), **check_env_kwargs("env_kwargs", env_kwargs)),
        agent_turns_kwargs,
        num_episodes,
        seed,
        has_thoughts=thoughts,
    )
    # Up to the first episode: errors come now, and the environment is closed even if no episode is
    # ever asked for.
    next(episodes)
    return episodes


def _play_episodes(
    make: Callable[[], gym.Env[Any, Any]],
    agent_turns_kwargs: Mapping[str, Any],
    num_episodes: int,
    seed: int,
    *,
    has_thoughts: bool,
) -> Iterator[dict[str, Any]]:
    """Yield nothing of use once the environment is made, then the episodes; close it at the end."""
    with closing(make()) as inner:
        env = AgentTurns(inner, **agent_turns_kwargs)
        if has_thoughts and not env.think:
            raise ValueError(
                "`thoughts` must be False with `think=False`, got True. Without a think block there "
                "is no place for them."
            )
        yield {}
        for _ in range(num_episodes):
            seed = _find_seed(env, seed)
            yield _play_episode(env, seed, has_thoughts=has_thoughts)
            seed += 1


def _find_seed(env: AgentTurns, first_seed: int) -> int:
    """Return the first seed whose start state can be solved within the limits."""
    for seed in range(first_seed, first_seed + MAX_SKIPPED_IN_A_ROW):
        env.reset(seed=seed)
        if _is_within_reach(env):
            return seed
    raise ValueError(
        f"`max_actions_per_episode` and `max_turns` must leave start states that can be solved, but "
        f"none of {MAX_SKIPPED_IN_A_ROW} seeds from {first_seed} on can, got "
        f"{env.max_actions_per_episode} and {env.max_turns}. Raise them or make the task easier."
    )


def _is_within_reach(env: AgentTurns) -> bool:
    try:
        return optimal_turn_success(env) > 0
    except ValueError:
        if isinstance(env.unwrapped, SokobanEnv):  # the search reached its bound
            return False
        raise


def _plan(env: AgentTurns) -> tuple[list[int], int]:
    """Return what is planned and how much of it is played in this turn."""
    bare = env.unwrapped
    actions_in_reach = min(env.actions_left, env.turns_left * env.max_actions_per_turn)
    if isinstance(bare, FrozenLakeEnv) and bare.is_slippery:
        # A slip may have put success out of reach; any action is as good as another then.
        plan = solve_turn(env) or greedy_actions(env) or [0]
    else:
        plan = (
            solve_turn(
                env,
                max_turns=1,
                max_actions_per_turn=actions_in_reach,
                max_actions_per_episode=actions_in_reach,
            )
            or []
        )
    return plan, min(len(plan), env.max_actions_per_turn)


def _play_episode(env: AgentTurns, seed: int, *, has_thoughts: bool) -> dict[str, Any]:
    message, info = env.reset(seed=seed)
    messages: list[dict[str, str]] = []
    rewards: list[float] = []
    is_over = False
    while not is_over:
        plan, num_actions = _plan(env)
        thought = write_thought(env, plan, num_actions) if has_thoughts else ""
        reply = write_reply(env, plan[:num_actions], thought)
        messages += [
            {"role": "user", "content": message},
            {"role": "assistant", "content": reply},
        ]
        message, reward, terminated, truncated, info = env.step(reply)
        rewards.append(reward)
        is_over = terminated or truncated
    assert env.env.spec is not None  # made by id
    return {
        "env_id": env.env.spec.id,
        "seed": seed,
        "messages": messages,
        "rewards": rewards,
        "success": bool(info["success"]),
    }
