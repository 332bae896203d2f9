"""The ids of this package, one block each."""

from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec

MAX_EPISODE_STEPS = 100


def _register(name: str, entry_point: str, **kwargs: Any) -> None:
    env_id = f"ragen/{name}"
    if env_id in gym.registry:  # `ragen_envs:ragen/...` imports the package a second time
        return
    gym.register(
        id=env_id,
        entry_point=entry_point,
        kwargs=kwargs,
        max_episode_steps=MAX_EPISODE_STEPS,
        additional_wrappers=(
            WrapperSpec("EndEnforcing", "ragen_envs.end_enforcing:EndEnforcing", {}),
        ),
    )


def register_all() -> None:
    """Register every environment with Gymnasium; calling it again does nothing."""
    _register("Bandit-v0", "ragen_envs.bandit:BanditEnv")
    _register("Sokoban-v0", "ragen_envs.sokoban:SokobanEnv")
    _register("LargeSokoban-v0", "ragen_envs.sokoban:SokobanEnv", size=(8, 8), num_boxes=2)
    _register("SokobanNewVocab-v0", "ragen_envs.sokoban:SokobanEnv", symbols="letters")
    _register("FrozenLake-v0", "ragen_envs.frozen_lake:FrozenLakeEnv")
