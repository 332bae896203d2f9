"""FrozenLake with a new map, start and goal in every episode."""

from ragen_envs.frozen_lake.env import FrozenLakeEnv

__all__ = ["FrozenLakeEnv"]
