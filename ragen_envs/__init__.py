"""Text-observation Gymnasium environments for language-model agents.

Importing this package registers its ids (`gymnasium.make("ragen/Sokoban-v0")`) and does nothing
else.
"""

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.gif import render_gif
from ragen_envs.optimal_actions import OptimalActions
from ragen_envs.parsing import ParsedReply, parse_reply
from ragen_envs.registration import register_all
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.solvers import optimal_success, optimal_turn_success, solve, solve_turn
from ragen_envs.teacher import demonstrations
from ragen_envs.text_env import TextEnv
from ragen_envs.text_side import from_gym

__all__ = [
    "AgentTurns",
    "BanditEnv",
    "FrozenLakeEnv",
    "OptimalActions",
    "ParsedReply",
    "SokobanEnv",
    "TextEnv",
    "demonstrations",
    "from_gym",
    "optimal_success",
    "optimal_turn_success",
    "parse_reply",
    "render_gif",
    "solve",
    "solve_turn",
]

register_all()
