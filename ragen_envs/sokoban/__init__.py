"""Sokoban: push every box onto a target."""

from ragen_envs.sokoban.env import SokobanEnv

__all__ = ["SokobanEnv"]
