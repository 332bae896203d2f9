"""Text-observation Gymnasium environments for language-model agents.

Importing this package registers its ids (`gymnasium.make("ragen/Sokoban-v0")`) and does nothing
else.
"""

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.parsing import ParsedReply, parse_reply
from ragen_envs.registration import register_all
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.solvers import optimal_success, solve
from ragen_envs.text_env import TextEnv

__all__ = [
    "AgentTurns",
    "BanditEnv",
    "FrozenLakeEnv",
    "ParsedReply",
    "SokobanEnv",
    "TextEnv",
    "optimal_success",
    "parse_reply",
    "solve",
]

register_all()
