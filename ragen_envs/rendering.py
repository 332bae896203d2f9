"""Painting with numpy alone: smooth simple shapes on a canvas, and boards made of tiles."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Point = tuple[float, float]
_Field = npt.NDArray[np.float64]

TILE_PIXELS = 32


class Canvas:
    """A picture in the making; shapes are painted over each other in the order of the calls.

    Coordinates are (x, y) in tiles, from the top left corner, so that drawings do not depend on the
    resolution. Edges are smooth: a pixel takes the share of the colour that its centre's distance
    from the edge stands for.

    Args:
        colour: What the canvas is filled with.
        columns: Width in tiles.
        rows: Height in tiles.
        pixels: Edge length of a tile in pixels.
    """

    def __init__(
        self, colour: Colour, *, columns: int = 1, rows: int = 1, pixels: int = TILE_PIXELS
    ) -> None:
        self._pixels = pixels
        self._values = np.full((rows * pixels, columns * pixels, 3), colour, dtype=np.float64)
        self._x = (np.arange(columns * pixels)[None, :] + 0.5) / pixels
        self._y = (np.arange(rows * pixels)[:, None] + 0.5) / pixels

    @classmethod
    def on(cls, picture: Picture, *, pixels: int = TILE_PIXELS) -> "Canvas":
        """Make a canvas that goes on from a finished picture."""
        rows, columns = picture.shape[0] // pixels, picture.shape[1] // pixels
        canvas = cls((0, 0, 0), columns=columns, rows=rows, pixels=pixels)
        canvas._values[:] = picture
        return canvas

    def ellipse(
        self, center: Point, radii: Point, colour: Colour, *, opacity: float = 1.0
    ) -> "Canvas":
        """Paint an ellipse with the given half-widths."""
        scaled = np.hypot((self._x - center[0]) / radii[0], (self._y - center[1]) / radii[1])
        return self._paint((scaled - 1) * min(radii), colour, opacity)

    def disc(
        self, center: Point, radius: float, colour: Colour, *, opacity: float = 1.0
    ) -> "Canvas":
        """Paint a disc."""
        return self.ellipse(center, (radius, radius), colour, opacity=opacity)

    def ring(
        self, center: Point, radius: float, width: float, colour: Colour, *, opacity: float = 1.0
    ) -> "Canvas":
        """Paint a ring; `radius` runs to the middle of its band."""
        distance = np.hypot(self._x - center[0], self._y - center[1])
        return self._paint(np.abs(distance - radius) - width / 2, colour, opacity)

    def box(
        self,
        top_left: Point,
        bottom_right: Point,
        colour: Colour,
        *,
        corner: float = 0.0,
        opacity: float = 1.0,
    ) -> "Canvas":
        """Paint an upright rectangle; `corner` is the radius of its corners."""
        (left, top), (right, bottom) = top_left, bottom_right
        beside = np.abs(self._x - (left + right) / 2) - (right - left) / 2 + corner
        above = np.abs(self._y - (top + bottom) / 2) - (bottom - top) / 2 + corner
        outside = np.hypot(np.maximum(beside, 0), np.maximum(above, 0))
        distance = outside + np.minimum(np.maximum(beside, above), 0) - corner
        return self._paint(distance, colour, opacity)

    def line(
        self, start: Point, end: Point, width: float, colour: Colour, *, opacity: float = 1.0
    ) -> "Canvas":
        """Paint a line with round ends."""
        along = np.subtract(end, start)
        offset_x, offset_y = self._x - start[0], self._y - start[1]
        share = (offset_x * along[0] + offset_y * along[1]) / (along @ along)
        share = np.clip(share, 0, 1)
        distance = np.hypot(offset_x - share * along[0], offset_y - share * along[1])
        return self._paint(distance - width / 2, colour, opacity)

    def polygon(
        self, corners: Sequence[Point], colour: Colour, *, opacity: float = 1.0
    ) -> "Canvas":
        """Paint a convex polygon; `corners` go around it clockwise as seen."""
        distances = []
        for start, end in zip(corners, [*corners[1:], corners[0]], strict=True):
            edge = np.subtract(end, start) / np.hypot(*np.subtract(end, start))
            distances.append((self._x - start[0]) * edge[1] - (self._y - start[1]) * edge[0])
        return self._paint(np.maximum.reduce(distances), colour, opacity)

    def picture(self) -> Picture:
        """Return what was painted, shape (pixels * rows, pixels * columns, 3), uint8."""
        return np.rint(self._values).astype(np.uint8)

    def _paint(self, distance: _Field, colour: Colour, opacity: float) -> "Canvas":
        """Blend `colour` in where the signed distance to a shape's edge, in tiles, is negative."""
        share = opacity * np.clip(0.5 - distance * self._pixels, 0, 1)[..., None]
        self._values += share * (np.asarray(colour) - self._values)
        return self


def draw_board(kinds: Sequence[Sequence[str]], tiles: Mapping[str, Picture]) -> Picture:
    """Put a board of cell kinds together from one picture per kind, all of the same shape."""
    return np.concatenate([np.concatenate([tiles[kind] for kind in row], axis=1) for row in kinds])
