"""Checks behind `AgentTurns`: its arguments, and what the environment inside it hands over."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from ragen_envs.parsing import check_names_apart, normalize_name
from ragen_envs.visible_text import visible_form


def check_limit(argument: str, value: int) -> int:
    """Return `value` if it is a positive integer; `argument` is its name in the message."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"`{argument}` must be a positive integer, got {value!r}. Pass an int such as 5."
        )
    if value < 1:
        raise ValueError(f"`{argument}` must be at least 1, got {value}. Use a larger number.")
    return int(value)


def check_penalty(penalty: float, argument: str = "format_penalty") -> float:
    """Return `penalty` if it is finite and at most 0; `argument` is its name in the message."""
    if isinstance(penalty, bool) or not isinstance(penalty, Real):
        raise TypeError(
            f"`{argument}` must be a number, got {penalty!r}. Pass a float such as -0.1."
        )
    if not (math.isfinite(penalty) and penalty <= 0):
        raise ValueError(
            f"`{argument}` must be finite and at most 0, got {penalty}. "
            "It is added to the reward; use 0.0 for no penalty."
        )
    return float(penalty)


def check_flag(argument: str, value: bool) -> bool:
    """Return `value` if it is a bool; `argument` is its name in the message."""
    if not isinstance(value, bool):
        raise TypeError(f"`{argument}` must be True or False, got {value!r}.")
    return value


def check_spaces(env: gym.Env[Any, Any], label: str) -> None:
    """Check that the env's observations are text and its actions can be written as text."""
    if not isinstance(env.observation_space, spaces.Text):
        raise TypeError(
            f"`env` must have a Text observation space, but that of {label} is "
            f"{env.observation_space}. Wrap it in an ObservationWrapper that writes text."
        )
    if not isinstance(env.action_space, spaces.Discrete | spaces.Text):
        raise TypeError(
            f"`env` must have a Discrete action space with `action_names`, or a Text action space, "
            f"but that of {label} is {env.action_space}. Wrap it in an ActionWrapper."
        )


def check_action_names(names: Sequence[str], num_actions: int, separator: str, label: str) -> None:
    """Check that every name can be written in a reply and be told from the others."""
    is_named = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    if not is_named or isinstance(names, str) or len(names) != num_actions:
        raise ValueError(
            f"`action_names` of {label} must be a tuple of {num_actions} names, one per action, "
            f"got {names!r}. Set one name per action on the env."
        )
    normalized = {visible_form(normalize_name(name)) for name in names}
    if len(normalized) < num_actions or "" in normalized:
        raise ValueError(
            f"`action_names` of {label} must be visible and differ in more than case, "
            f"whitespace and composition, got {names!r}. Rename the actions."
        )
    check_names_apart(names, separator, f"`action_names` of {label}")


def check_task_description(description: Any, label: str) -> str:
    """Return `description` if it is text."""
    if not isinstance(description, str):
        raise TypeError(
            f"`task_description` of {label} must be a str, got {description!r}. "
            "Describe the rules in plain words."
        )
    return description


def check_state(state: Any, label: str, when: str) -> str:
    """Return an observation if it is text; `when` says where in the episode it came."""
    if not isinstance(state, str):
        raise TypeError(
            f"The observation of {label} must be a str, got {state!r} {when}. "
            "Put the state into text in the env."
        )
    return state


def check_reward(reward: Any, label: str, when: str) -> float:
    """Return a reward as `float` if it is a finite number; `when` as in `check_state`."""
    if not isinstance(reward, Real):
        raise TypeError(
            f"The reward of {label} must be a finite number, got {reward!r} {when}. "
            "Return a float from the env."
        )
    if not math.isfinite(reward):
        raise ValueError(
            f"The reward of {label} must be a finite number, got {reward} {when}. "
            "Look for a division by zero in the env."
        )
    return float(reward)
