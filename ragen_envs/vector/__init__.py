"""Many environments at once, in numpy: what `gymnasium.make_vec` makes of the ids of this package."""

from ragen_envs.vector.bandit import BanditVectorEnv
from ragen_envs.vector.frozen_lake import FrozenLakeVectorEnv
from ragen_envs.vector.sokoban import SokobanVectorEnv
from ragen_envs.vector.text_vector_env import TextVectorEnv

__all__ = ["BanditVectorEnv", "FrozenLakeVectorEnv", "SokobanVectorEnv", "TextVectorEnv"]
