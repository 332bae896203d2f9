"""The maps of `ragen_envs.frozen_lake.layout`, many at once."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ragen_envs.frozen_lake import layout as single
from ragen_envs.vector.boards import Codes, lay_out_boards
from ragen_envs.vector.streams import Indices, RandomStreams

# Those below `HOLE` can be walked on.
FROZEN, GOAL, HOLE = range(3)


class LakeMaps(NamedTuple):
    """Maps of one size.

    Attributes:
        boards: `FROZEN`, `GOAL`, `HOLE`, laid out as by `lay_out_boards`. Shape `(N, length)`.
        starts: Where in the boards the starts are. Shape `(N,)`.
    """

    boards: Codes
    starts: Indices


def generate_lake_maps(
    size: tuple[int, int], frozen_probability: float, streams: RandomStreams, indices: Indices
) -> LakeMaps:
    """Draw one map for each of these environments, the one that `generate_layout` would draw.

    Raises:
        ValueError: As `generate_layout`.
    """
    blank = lay_out_boards(np.full((1, *size), FROZEN, np.uint8), (size[0] + 1) * (size[1] + 1))
    boards = np.empty((len(indices), blank.size), np.uint8)
    starts = np.empty(len(indices), np.intp)
    missing = np.arange(len(indices))
    for _ in range(single.count_tries(size)):
        numbers = streams.draw(indices[missing], single.NUM_END_NUMBERS + size[0] * size[1])
        drawn = blank.repeat(len(missing), axis=0)
        drawn_starts, goals = _draw_maps(drawn, size, frozen_probability, numbers)
        boards[missing], starts[missing] = drawn, drawn_starts
        missing = missing[~_find_reachable(drawn, drawn_starts, goals, size[1])]
        if not len(missing):
            return LakeMaps(boards[:, : size[0] * (size[1] + 1)], starts)
    raise single.no_path_error(size, frozen_probability)


def _draw_maps(
    boards: Codes,
    size: tuple[int, int],
    frozen_probability: float,
    numbers: npt.NDArray[np.float64],
) -> tuple[Indices, Indices]:
    """Turn blank boards into maps. Returns where in them the starts and the goals are."""
    rows, columns = size
    num_cells = rows * columns
    starts = (numbers[:, 0] * num_cells).astype(np.intp)
    goals = (numbers[:, 1] * (num_cells - 1)).astype(np.intp)
    goals += goals >= starts
    is_hole = numbers[:, single.NUM_END_NUMBERS :] >= frozen_probability
    cells = boards.reshape(-1, rows + 1, columns + 1)[:, :rows, :columns]
    cells[is_hole.reshape(-1, rows, columns)] = HOLE
    starts += starts // columns  # the line breaks before it
    goals += goals // columns
    rank = np.arange(len(boards))
    boards[rank, starts] = FROZEN
    boards[rank, goals] = GOAL
    return starts, goals


def _find_reachable(
    boards: Codes, starts: Indices, goals: Indices, columns: int
) -> npt.NDArray[np.bool_]:
    """Tell which goals can be reached, by flooding all maps from their starts at once.

    All cells of all maps are one number, whose shifts cost a thousandth of a shift per map. The
    boards must have an empty row at the end, so that no shift leads from one to another.
    """
    firsts = np.arange(0, boards.size, boards.shape[1])
    is_start = np.zeros(boards.size, np.bool_)
    is_start[firsts + starts] = True
    is_open, flooded = _pack(boards < HOLE), _pack(is_start)
    below = columns + 1
    while True:
        grown = flooded | flooded << 1 | flooded >> 1 | flooded << below | flooded >> below
        grown &= is_open
        if grown == flooded:
            break
        flooded = grown
    octets = np.frombuffer(flooded.to_bytes((boards.size + 7) // 8, "little"), np.uint8)
    cells = np.unpackbits(octets, bitorder="little")
    is_reached: npt.NDArray[np.bool_] = cells[firsts + goals] == 1
    return is_reached


def _pack(cells: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(cells, bitorder="little").tobytes(), "little")
