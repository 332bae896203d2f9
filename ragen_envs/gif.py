"""Animated GIF pictures of episodes. The only module that needs Pillow, and only when called."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ragen_envs.argument_checks import check_env, check_number, check_path, check_picture, show
from ragen_envs.rendering import Picture

SECONDS_PER_FRAME = 0.4
SECONDS_AT_END = 1.6
# Of all frames together: some seconds and a gigabyte. 2,700 frames of a six-by-six board.
MAX_PIXELS = 100_000_000


def render_gif(
    env: gym.Env[Any, Any],
    actions: Iterable[Any],
    path: str | PathLike[str],
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
    seconds_per_frame: float = SECONDS_PER_FRAME,
) -> Path:
    """Play an episode and write it as an animated GIF, one frame per state.

    Args:
        env: Environment made with `render_mode="rgb_array"`.
        actions: What to play, until the episode or the actions end. They are asked for one at a
            time after the reset, so a generator may look at `env` before it yields the next.
        path: Where to write, a name that ends in `.gif`; an existing file is replaced.
        seed: Of the reset.
        options: Of the reset.
        seconds_per_frame: How long a frame stays. The last one stays 1.6 seconds longer.

    Returns:
        `path`.

    Raises:
        TypeError: If an argument has the wrong type or the environment draws something else.
        ValueError: If the environment does not draw pictures, a number is out of range, or all
            frames together have more than `MAX_PIXELS`.
        ImportError: If Pillow is missing.

    Example:
        >>> import os, tempfile
        >>> import ragen_envs
        >>> env = gym.make("ragen/Sokoban-v0", render_mode="rgb_array")
        >>> plan = (ragen_envs.solve(env)[0] for _ in range(100))
        >>> file = os.path.join(tempfile.mkdtemp(), "sokoban.gif")
        >>> ragen_envs.render_gif(env, plan, file, seed=3).stat().st_size > 1000
        True
    """
    check_env(env)
    _check_path(path)
    check_number("seconds_per_frame", seconds_per_frame, minimum=0.01, maximum=60)
    if not isinstance(actions, Iterable) or (isinstance(actions, np.ndarray) and not actions.ndim):
        raise TypeError(f"`actions` must be actions to play, got {show(actions)}. Pass a list.")
    if env.render_mode != "rgb_array":
        raise ValueError(
            f"`env` must be made with `render_mode='rgb_array'`, got {env.render_mode!r}."
        )
    env.reset(seed=seed, options=options)
    frames = [_read_frame(env)]
    is_over = False
    moves = iter(actions)
    while not is_over:
        try:
            action = next(moves)
        except StopIteration:
            break
        _, _, terminated, truncated, _ = env.step(action)
        is_over = bool(terminated or truncated)
        frames.append(_read_frame(env))
        _check_size("actions", frames)
    return write_gif(frames, path, seconds_per_frame=seconds_per_frame)


def write_gif(
    frames: Sequence[Picture],
    path: str | PathLike[str],
    *,
    seconds_per_frame: float = SECONDS_PER_FRAME,
    seconds_at_end: float = SECONDS_AT_END,
) -> Path:
    """Write pictures as a GIF that repeats for ever, with one palette of 256 colours for all.

    Args:
        frames: Pictures of one shape (height, width, 3), uint8. Equal neighbours become one frame
            that stays as long as both.
        path: Where to write, a name that ends in `.gif`; an existing file is replaced.
        seconds_per_frame: How long a frame stays; GIF counts in hundredths.
        seconds_at_end: How much longer the last frame stays.

    Returns:
        `path`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there are no frames, their shapes differ, they have more than `MAX_PIXELS`
            together, or a number is out of range.
        ImportError: If Pillow is missing.
    """
    _check_path(path)
    if not isinstance(frames, Sequence):
        raise TypeError(f"`frames` must be a list of pictures, got {show(frames)}.")
    for frame in frames:
        check_picture("frames", frame)
    if len({frame.shape for frame in frames}) != 1:
        raise ValueError(
            "`frames` must hold pictures of one shape, got "
            f"{show([frame.shape for frame in frames])}."
        )
    _check_size("frames", frames)
    check_number("seconds_per_frame", seconds_per_frame, minimum=0.01, maximum=60)
    check_number("seconds_at_end", seconds_at_end, minimum=0, maximum=60)
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Writing GIF pictures needs Pillow. Install it with `pip install 'ragen-envs[render]'`."
        ) from error
    pictures = [Image.fromarray(frame) for frame in frames]
    # One palette: with one per frame, cells that stay as they are would flicker.
    height, width, _ = frames[0].shape
    strip = Image.new("RGB", (width, height * len(pictures)))
    for i, picture in enumerate(pictures):
        strip.paste(picture, (0, height * i))
    palette = strip.quantize(256, method=Image.Quantize.MEDIANCUT)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    milliseconds = [round(1000 * seconds_per_frame)] * len(flat)
    milliseconds[-1] += round(1000 * seconds_at_end)
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=milliseconds, loop=0)
    return Path(path)


def _check_path(path: Any) -> None:
    check_path("path", path)
    # Pillow would write another format, or say after the episode that it knows none of this name.
    if Path(path).suffix.lower() != ".gif":
        raise ValueError(f"`path` must end in .gif, got {show(path)}. Rename the file.")


def _check_size(argument: str, frames: Sequence[Picture]) -> None:
    height, width, _ = frames[0].shape
    if len(frames) * height * width > MAX_PIXELS:
        raise ValueError(
            f"`{argument}` must give at most {MAX_PIXELS // (height * width):,} frames of {width} x "
            f"{height} pixels, got more. Leave some out, or draw a smaller board."
        )


def _read_frame(env: gym.Env[Any, Any]) -> Picture:
    frame: Any = env.render()
    check_picture("env.render()", frame)
    return frame  # type: ignore[no-any-return]  # checked above
