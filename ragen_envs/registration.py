"""The ids of this package, one block each."""

from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec

from ragen_envs.end_enforcing import SingleWrappers

MAX_EPISODE_STEPS = 100


def _register(name: str, entry_point: str, vector_entry_point: str, **kwargs: Any) -> None:
    env_id = f"ragen/{name}"
    if env_id in gym.registry:  # `ragen_envs:ragen/...` imports the package a second time
        return
    gym.register(
        id=env_id,
        entry_point=entry_point,
        # `TextEnv` looks after the order of calls and the actions itself, and the tests after the rest.
        order_enforce=False,
        disable_env_checker=True,
        kwargs=kwargs,
        max_episode_steps=MAX_EPISODE_STEPS,
        additional_wrappers=SingleWrappers(
            [WrapperSpec("EndEnforcing", "ragen_envs.end_enforcing:EndEnforcing", {})]
        ),
        vector_entry_point=vector_entry_point,
    )


def register_all() -> None:
    """Register every environment with Gymnasium; calling it again does nothing."""
    _register("Bandit-v0", "ragen_envs.bandit:BanditEnv", "ragen_envs.vector:BanditVectorEnv")
    sokoban = ("ragen_envs.sokoban:SokobanEnv", "ragen_envs.vector:SokobanVectorEnv")
    _register("Sokoban-v0", *sokoban)
    _register("LargeSokoban-v0", *sokoban, size=(8, 8), num_boxes=2)
    _register("SokobanNewVocab-v0", *sokoban, symbols="letters")
    lake = ("ragen_envs.frozen_lake:FrozenLakeEnv", "ragen_envs.vector:FrozenLakeVectorEnv")
    _register("FrozenLake-v0", *lake)
