"""Boards of many environments as one array, and the texts of all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ragen_envs.grid import Cell, ObservationFormat

Codes = npt.NDArray[np.uint8]
Texts = npt.NDArray[np.object_]
Integers = npt.NDArray[np.intp]

# Besides the kinds of cells, which count from 0.
LINE_BREAK = 254
NOTHING = 255


def lay_out_boards(boards: Codes, length: int) -> Codes:
    """Write boards row by row, as their text will be: a line break between two rows.

    A cell is at `row * (columns + 1) + column`.

    Args:
        boards: Kinds of the cells. Shape `(N, rows, columns)`.
        length: Number of entries wanted, at least `rows * (columns + 1)`.

    Returns:
        Shape `(N, length)`; what follows the last row is `NOTHING`.
    """
    num_boards, rows, columns = boards.shape
    lines = np.full((num_boards, rows, columns + 1), LINE_BREAK, np.uint8)
    lines[:, :, :columns] = boards
    lines[:, -1, columns] = NOTHING
    laid_out = np.full((num_boards, length), NOTHING, np.uint8)
    laid_out[:, : rows * (columns + 1)] = lines.reshape(num_boards, -1)
    return laid_out


class BoardWriter:
    """Writes boards in one of the formats of `ragen_envs.grid.render_board`.

    Args:
        symbols: By kind, the character that stands for it.
        size: Rows and columns of the largest board.
        observation_format: See `ObservationFormat`.

    Attributes:
        length: Entries per board that `write` takes.
        has_coordinates: Whether the format lists objects.
    """

    def __init__(
        self, symbols: Sequence[str], size: tuple[int, int], observation_format: ObservationFormat
    ) -> None:
        self.length = size[0] * (size[1] + 1)
        self.has_coordinates = observation_format != "grid"
        self._has_grid = observation_format != "coordinates"
        # Code points in the layout of numpy's strings, which end where only zeros follow.
        self._characters = np.zeros(256, np.uint32)
        self._characters[: len(symbols)] = [ord(symbol) for symbol in symbols]
        self._characters[LINE_BREAK] = ord("\n")

    def write(self, codes: Codes, coordinates: Texts | None) -> Texts:
        """Write each board.

        Args:
            codes: As `lay_out_boards` returns them. Shape `(N, length)`.
            coordinates: The lists of objects, if the format has them. Shape `(N,)`.
        """
        if not self._has_grid:
            assert coordinates is not None
            return coordinates
        characters = self._characters.take(codes)
        grids: Texts = characters.view(f"U{self.length}")[:, 0].astype(object)
        if coordinates is None:
            return grids
        joined: Texts = grids + "\n" + coordinates
        return joined


def tabulate(size: tuple[int, int], describe: Callable[[Cell], Any]) -> Texts:
    """Make a table with an object for each cell. Shape `size`."""
    table = np.empty(size, object)
    for cell in np.ndindex(*size):
        row, column = cell
        table[cell] = describe((row, column))
    return table
