"""Animated GIF pictures of episodes. The only module that needs Pillow, and only when called."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium as gym

from ragen_envs.rendering import Picture

SECONDS_PER_FRAME = 0.4
SECONDS_AT_END = 1.6


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
        path: Where to write; an existing file is replaced.
        seed: Of the reset.
        options: Of the reset.
        seconds_per_frame: How long a frame stays. The last one stays 1.6 seconds longer.

    Returns:
        `path`.

    Raises:
        ValueError: If the environment does not draw pictures or a number is out of range.
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
        path: Where to write; an existing file is replaced.
        seconds_per_frame: How long a frame stays; GIF counts in hundredths.
        seconds_at_end: How much longer the last frame stays.

    Returns:
        `path`.

    Raises:
        ValueError: If there are no frames, their shapes differ or a number is out of range.
        ImportError: If Pillow is missing.
    """
    if len({frame.shape for frame in frames}) != 1:
        raise ValueError(
            f"`frames` must hold pictures of one shape, got {[frame.shape for frame in frames]}."
        )
    if not 0.01 <= seconds_per_frame <= 60:
        raise ValueError(f"`seconds_per_frame` must be in [0.01, 60], got {seconds_per_frame}.")
    if not 0 <= seconds_at_end <= 60:
        raise ValueError(f"`seconds_at_end` must be in [0, 60], got {seconds_at_end}.")
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


def _read_frame(env: gym.Env[Any, Any]) -> Picture:
    frame: Any = env.render()
    return frame  # type: ignore[no-any-return]  # what `rgb_array` promises
