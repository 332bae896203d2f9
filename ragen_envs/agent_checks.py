"""Checks behind `AgentTurns`: its arguments, and what the environment inside it hands over."""

import math
import sys
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from ragen_envs.argument_checks import show
from ragen_envs.parsing import TAGS, normalize_name
from ragen_envs.visible_text import visible_form


def check_limit(argument: str, value: int) -> int:
    """Return `value` if it is an integer from 1 to `sys.maxsize`.

    `argument` is its name in the message.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"`{argument}` must be a positive integer, got {show(value)}. Pass an int such as 5."
        )
    if value < 1:
        raise ValueError(
            f"`{argument}` must be at least 1, got {show(value)}. Use a larger number."
        )
    if value > sys.maxsize:  # which is what people write for "no limit"
        raise ValueError(f"`{argument}` must be at most {sys.maxsize}, got {show(value)}.")
    return int(value)


def check_penalty(penalty: float, argument: str = "format_penalty") -> float:
    """Return `penalty` if it is finite and at most 0; `argument` is its name in the message."""
    if isinstance(penalty, bool) or not isinstance(penalty, Real):
        raise TypeError(
            f"`{argument}` must be a number, got {show(penalty)}. Pass a float such as -0.1."
        )
    number = _to_float(penalty)
    if not (math.isfinite(number) and number <= 0):
        raise ValueError(
            f"`{argument}` must be finite and at most 0, got {show(penalty)}. "
            "It is added to the reward; use 0.0 for no penalty."
        )
    return number


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
            f"got {show(names)}. Set one name per action on the env."
        )
    normalized = {visible_form(normalize_name(name)) for name in names}
    if len(normalized) < num_actions or "" in normalized:
        raise ValueError(
            f"`action_names` of {label} must be visible and differ in more than case, "
            f"whitespace and composition, got {show(names)}. Rename the actions."
        )
    for part in (separator, *TAGS):
        # A reply may write a name in any case, and is cut at the separator before names are read.
        if any(part.casefold() in name.casefold() for name in names):
            raise ValueError(
                f"`action_names` of {label} must not contain {part!r}, got {show(names)}. "
                "Pass another `separator`, or rename the actions."
            )


def check_task_description(description: Any, label: str) -> str:
    """Return `description` if it is text."""
    if not isinstance(description, str):
        raise TypeError(
            f"`task_description` of {label} must be a str, got {show(description)}. "
            "Describe the rules in plain words."
        )
    return description


def check_describe(describe: Any) -> Callable[[Any], str] | None:
    """Return what puts observations into text if it can be called, or is left out."""
    if describe is not None and not callable(describe):
        raise TypeError(
            f"`describe` must be a function of an observation or None, got {show(describe)}."
        )
    return describe  # type: ignore[no-any-return]  # checked above


def check_charset(charset: Any) -> str | None:
    """Return the characters of a str or a set, each once, or `None` if they are left out."""
    if charset is None:
        return None
    is_set = isinstance(charset, str | set | frozenset)
    if not is_set or not all(isinstance(each, str) and len(each) == 1 for each in charset):
        raise TypeError(
            f"`charset` must be a str of the characters that a text may hold or None, got "
            f"{show(charset)}."
        )
    if not charset:
        raise ValueError("`charset` must hold a character, got none. Pass None for the usual ones.")
    return "".join(sorted(set(charset)))


def check_state(state: Any, label: str, when: str) -> str:
    """Return an observation if it is text; `when` says where in the episode it came."""
    if not isinstance(state, str):
        raise TypeError(
            f"The observation of {label} must be a str, got {show(state)} {when}. "
            "Put the state into text in the env."
        )
    return state


def check_reward(reward: Any, label: str, when: str) -> float:
    """Return a reward as `float` if it is a finite number; `when` as in `check_state`."""
    if not isinstance(reward, Real):
        raise TypeError(
            f"The reward of {label} must be a finite number, got {show(reward)} {when}. "
            "Return a float from the env."
        )
    number = _to_float(reward)
    if not math.isfinite(number):
        raise ValueError(
            f"The reward of {label} must be a finite number, got {show(reward)} {when}. "
            "Look for a division by zero in the env."
        )
    return number


def _to_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf
