"""Random play: what success costs nothing to reach."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.parsing import DEFAULT_SEPARATOR, format_reply

# `default_rng(seed)` alone would repeat the environment's own stream, and the player would "guess"
# what the environment has drawn.
_PLAYER_STREAM = 0x506C6179


class EpisodeResult(NamedTuple):
    """How one episode went.

    Attributes:
        success: `info["success"]` at the end. Where the environment does not report it: whether it
            terminated in a turn that paid something positive.
        reward: Sum of the turn rewards, format penalties included.
    """

    success: bool
    reward: float


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
        ValueError: If there is nothing to draw from or to draw.
    """
    if not action_names or num_actions < 1:
        raise ValueError(
            "`action_names` must hold a name and `num_actions` be at least 1, "
            f"got {action_names!r} and {num_actions}. A reply without an action is not legal."
        )
    drawn = rng.integers(len(action_names), size=num_actions)
    return format_reply([action_names[index] for index in drawn], separator=separator, think=think)


def play_random(env: AgentTurns, *, seeds: Iterable[int]) -> list[EpisodeResult]:
    """Play one episode per seed with uniformly random legal actions, as many as the limits allow.

    Args:
        env: Environment with a `Discrete` action space inside.
        seeds: Non-negative seeds; each fixes the environment and the player of its episode.

    Returns:
        One result per seed, in order; the same in every process.

    Raises:
        TypeError: If the actions of `env` are free text.
    """
    if not isinstance(env.env.action_space, spaces.Discrete):
        raise TypeError(
            "`env` must wrap an environment with a Discrete action space, "
            f"got {env.env.action_space}. Random free text measures nothing."
        )
    return [_play_episode(env, seed) for seed in seeds]


def _play_episode(env: AgentTurns, seed: int) -> EpisodeResult:
    rng = np.random.default_rng([_PLAYER_STREAM, seed])
    _, info = env.reset(seed=seed)
    episode_reward = 0.0
    terminated = truncated = False
    while not (terminated or truncated):
        reply = random_reply(
            env.get_wrapper_attr("action_names"),
            rng,
            num_actions=min(
                env.max_actions_per_turn, env.max_actions_per_episode - info["num_actions"]
            ),
            separator=env.separator,
            think=env.think,
        )
        _, reward, terminated, truncated, info = env.step(reply)
        episode_reward += reward
    success = info.get("success", terminated and info["turn_reward"] > 0)
    return EpisodeResult(bool(success), episode_reward)
