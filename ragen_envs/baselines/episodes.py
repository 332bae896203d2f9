"""Whole episodes of a policy."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.argument_checks import check_env, check_seeds, show
from ragen_envs.baselines.policies import Policy, random_policy

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


def play(env: AgentTurns, policy: Policy, *, seeds: Iterable[int]) -> list[EpisodeResult]:
    """Play one episode per seed.

    Args:
        env: Environment in the agent's view.
        policy: Writes the replies; its generator is its own, apart from the environment's luck.
        seeds: Non-negative seeds; each fixes the environment and the player of its episode.

    Returns:
        One result per seed, in order; the same in every process.

    Raises:
        TypeError: If an argument has the wrong type, or a reply is no text.
        ValueError: If a seed is negative.

    Example:
        >>> import gymnasium, ragen_envs
        >>> from ragen_envs.baselines import solver_policy
        >>> env = ragen_envs.AgentTurns(gymnasium.make("ragen/Sokoban-v0", max_solution_length=9))
        >>> [result.success for result in play(env, solver_policy, seeds=[0, 1])]
        [True, True]
    """
    check_env(env)
    if not callable(policy):
        raise TypeError(f"`policy` must be a function that writes replies, got {show(policy)}.")
    return [_play_episode(env, policy, seed) for seed in check_seeds("seeds", seeds)]


def play_random(env: AgentTurns, *, seeds: Iterable[int]) -> list[EpisodeResult]:
    """Play one episode per seed with uniformly random legal actions, as many as the limits allow.

    Arguments and result are those of `play`.

    Raises:
        TypeError: If the actions of `env` are free text.
    """
    return play(env, random_policy, seeds=seeds)


def _play_episode(env: AgentTurns, policy: Policy, seed: int) -> EpisodeResult:
    rng = np.random.default_rng([_PLAYER_STREAM, seed])
    _, info = env.reset(seed=seed)
    episode_reward = 0.0
    terminated = truncated = False
    while not (terminated or truncated):
        reply = policy(env, rng)
        if not isinstance(reply, str):
            raise TypeError(f"`policy` must write replies of type str, got {show(reply)}.")
        _, reward, terminated, truncated, info = env.step(reply)
        episode_reward += reward
    success = info.get("success", terminated and info["turn_reward"] > 0)
    return EpisodeResult(bool(success), episode_reward)
