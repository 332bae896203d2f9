"""Pictures made of coloured tiles, by numpy alone."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

TILE_PIXELS = 24


class Tile(NamedTuple):
    """How one kind of cell is drawn.

    Attributes:
        background: Colour of the whole cell.
        mark: Colour of what lies on it, or `None`.
        shape: Outline of the mark: "disc", "square" or "ring".
    """

    background: Colour
    mark: Colour | None = None
    shape: str = "disc"


def draw_tile(tile: Tile, pixels: int = TILE_PIXELS) -> Picture:
    """Draw one cell with a thin border. Returns shape (pixels, pixels, 3), uint8."""
    picture = np.empty((pixels, pixels, 3), dtype=np.uint8)
    picture[:] = tile.background
    picture[-1, :] = picture[:, -1] = np.asarray(tile.background) * 4 // 5
    if tile.mark is not None:
        offsets = np.abs(np.arange(pixels) - (pixels - 1) / 2) / pixels
        if tile.shape == "square":
            distance = np.maximum(offsets[:, None], offsets[None, :])
        else:
            distance = np.hypot(offsets[:, None], offsets[None, :])
        inside = distance < 0.34
        if tile.shape == "ring":
            inside &= distance > 0.2
        picture[inside] = tile.mark
    return picture


def draw_board(kinds: Sequence[Sequence[str]], tiles: Mapping[str, Tile]) -> Picture:
    """Draw a board given as rows of cell kinds. Returns shape (24 * rows, 24 * columns, 3), uint8."""
    drawn = {kind: draw_tile(tile) for kind, tile in tiles.items()}
    return np.concatenate([np.concatenate([drawn[kind] for kind in row], axis=1) for row in kinds])
