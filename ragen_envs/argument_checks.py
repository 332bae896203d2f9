"""Checks of public arguments: each message names the argument, the rule and what was given."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import gymnasium as gym
import numpy as np

_MAX_SHOWN = 200
# Numpy takes time quadratic in the length of a seed. Hashes have 512 bits or less.
MAX_SEED_BITS = 4096


def show(value: Any, *, write: Callable[[Any], str] = repr) -> str:
    """Write a value for a message, which stays short whatever the value is."""
    try:
        text = write(value)
    except ValueError:  # Python does not write out integers of more than 4,300 digits
        text = f"an {type(value).__name__} of too many digits to write out"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def check_number(
    argument: str, value: Any, *, minimum: float = -math.inf, maximum: float = math.inf
) -> float:
    """Return `value` as `float` if it is a finite number from `minimum` to `maximum`.

    Raises:
        TypeError: If it is no number; a bool is none.
        ValueError: If it is out of range.
    """
    rule = "be finite"
    if math.isfinite(minimum) and math.isfinite(maximum):
        rule = f"be in [{minimum:g}, {maximum:g}]"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"`{argument}` must be a number, got {show(value)}. Pass a float such as 0.5."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and minimum <= number <= maximum):
        raise ValueError(f"`{argument}` must {rule}, got {show(value)}.")
    return number


def is_whole_number(value: Any) -> bool:
    """Tell whether a value is an integer of Python or numpy; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_index(value: Any, first: int, count: int) -> bool:
    """Tell whether a value is one of `count` integers from `first` on, perhaps as a 0-d array."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    # All integers of numpy, of which `Discrete.contains` leaves out `uint64`.
    return is_whole_number(value) and first <= value < first + count


def check_whole_number(
    argument: str, value: Any, *, minimum: int = 0, maximum: int | None = None
) -> int:
    """Return `value` as `int` if it is an integer from `minimum` to `maximum`.

    Raises:
        TypeError: If it is no integer; a bool is none.
        ValueError: If it is too small or too large.
    """
    if not is_whole_number(value):
        raise TypeError(
            f"`{argument}` must be an integer of at least {minimum}, got {show(value)}. "
            f"Pass an int such as {max(minimum, 1)}."
        )
    if value < minimum:
        raise ValueError(f"`{argument}` must be at least {minimum}, got {show(value)}.")
    if maximum is not None and value > maximum:
        raise ValueError(
            f"`{argument}` must be at most {maximum:,}, got {show(value)}. Use a smaller number."
        )
    return int(value)


def check_flag(argument: str, value: Any) -> bool:
    """Return `value` if it is a bool.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(value, bool):
        raise TypeError(f"`{argument}` must be True or False, got {show(value)}.")
    return value


def check_seed(seed: Any, argument: str = "seed") -> int | None:
    """Return a seed as `int`, `None` if there is none.

    Raises:
        TypeError: If it is no integer; a bool is none.
        ValueError: If it is negative or has more than `MAX_SEED_BITS` bits.
    """
    return None if seed is None else check_given_seed(seed, argument)


def check_given_seed(seed: Any, argument: str = "seed") -> int:
    """Return a seed as `int` where there must be one; errors as of `check_seed`."""
    number = check_whole_number(argument, seed)
    if number.bit_length() > MAX_SEED_BITS:
        raise ValueError(
            f"`{argument}` must be below 2**{MAX_SEED_BITS}, got {show(seed)}. Use a smaller number."
        )
    return number


def check_options(options: Any) -> dict[str, Any]:
    """Return a copy of the options of a reset, `{}` for `None`.

    Raises:
        TypeError: If they are no mapping.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(
            f"`options` must be a dict or None, got {show(options)}. Pass options by name, such as "
            "{'dynamics_seed': 1}."
        )
    return dict(options)


def check_seeds(argument: str, seeds: Any) -> Sequence[int]:
    """Return the seeds of several episodes: a range as it is, anything else as a list.

    Raises:
        TypeError: If they are none, or one is no integer.
        ValueError: If one is negative.
    """
    if isinstance(seeds, range):  # which may be too long to list
        for end in (*seeds[:1], *seeds[-1:]):
            check_whole_number(argument, end)
        return seeds
    if not isinstance(seeds, Iterable) or (isinstance(seeds, np.ndarray) and not seeds.ndim):
        raise TypeError(
            f"`{argument}` must be a list of integers, got {show(seeds)}. Pass one seed per "
            "episode."
        )
    return [check_whole_number(argument, seed) for seed in seeds]


def check_env_id(argument: str, env_id: Any) -> str:
    """Return an id that Gymnasium can look up; whether there is such an environment it says itself.

    Raises:
        TypeError: If it is no text.
        ValueError: If it has another form.
    """
    if not isinstance(env_id, str):
        raise TypeError(
            f"`{argument}` must be an id, got {show(env_id)}. Pass a str such as "
            "'ragen/Sokoban-v0'."
        )
    if not re.fullmatch(r"(?:[\w.]+:)?[\w./-]+", env_id):
        raise ValueError(
            f"`{argument}` must be an id such as 'ragen/Sokoban-v0', got {show(env_id)}. Take one "
            "of `gymnasium.registry`."
        )
    return env_id


def check_env_kwargs(argument: str, kwargs: Any) -> dict[str, Any]:
    """Return a copy of the arguments of an environment that is made by id, `{}` for `None`.

    Raises:
        TypeError: If they are no mapping from names to values, or `render_mode` among them is no
            text, which Gymnasium takes for granted.
    """
    if kwargs is None:
        return {}
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(
            f"`{argument}` must be a dict or None, got {show(kwargs)}. Pass arguments by name, "
            "such as {'is_slippery': False}."
        )
    render_mode = kwargs.get("render_mode")
    if not (render_mode is None or isinstance(render_mode, str)):
        raise TypeError(f"`render_mode` must be a str or None, got {show(render_mode)}.")
    return dict(kwargs)


def check_env(env: Any, argument: str = "env") -> None:
    """Check that something is a Gymnasium environment.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(env, gym.Env):
        raise TypeError(
            f"`{argument}` must be a Gymnasium environment, got {show(env)}. Make one with "
            "`gymnasium.make`."
        )


def is_file_name(path: str) -> bool:
    """Tell whether a text can be the path of a file on this system."""
    try:
        return path != "" and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def check_path(argument: str, path: Any) -> None:
    """Check that something can be the path of a file.

    Raises:
        TypeError: If it is neither a string nor a path.
        ValueError: If it is empty or holds a character that no file name has.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"`{argument}` must be a path, got {show(path)}. Pass a str or a Path.")
    if not is_file_name(os.fspath(path)):
        raise ValueError(
            f"`{argument}` must be the path of a file, got {show(path)}. Give it a name of characters "
            "that files can have."
        )


def check_picture(argument: str, picture: Any) -> None:
    """Check that something is a picture of shape (height, width, 3), uint8.

    Raises:
        TypeError: If it is no array of such numbers.
        ValueError: If its shape is another one.
    """
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8:
        raise TypeError(
            f"`{argument}` must be pictures (arrays of uint8), got {show(picture)} among them."
        )
    if picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise ValueError(
            f"`{argument}` must be pictures of shape (height, width, 3), got {picture.shape}."
        )
