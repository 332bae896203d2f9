"""The maps of `ragen_envs.frozen_lake.layout`, many at once."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ragen_envs.frozen_lake import layout as single
from ragen_envs.vector.boards import Codes
from ragen_envs.vector.streams import Indices, RandomStreams

FROZEN, HOLE, GOAL = range(3)


class LakeMaps(NamedTuple):
    """Maps of one size.

    Attributes:
        boards: `FROZEN`, `HOLE` or `GOAL`. Shape `(N, rows, columns)`.
        starts: Row and column. Shape `(N, 2)`.
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
    boards = np.empty((len(indices), *size), np.uint8)
    starts = np.empty((len(indices), 2), np.intp)
    missing = np.arange(len(indices))
    for _ in range(single.MAX_TRIES):
        numbers = streams.draw(indices[missing], single.NUM_END_NUMBERS + size[0] * size[1])
        drawn = _draw_maps(size, frozen_probability, numbers)
        boards[missing], starts[missing] = drawn
        missing = missing[~_find_reachable(drawn)]
        if not len(missing):
            return LakeMaps(boards, starts)
    raise single.no_path_error(size, frozen_probability)


def _draw_maps(
    size: tuple[int, int], frozen_probability: float, numbers: npt.NDArray[np.float64]
) -> LakeMaps:
    num_cells = size[0] * size[1]
    starts = (numbers[:, 0] * num_cells).astype(np.intp)
    goals = (numbers[:, 1] * (num_cells - 1)).astype(np.intp)
    goals += goals >= starts
    boards = (numbers[:, single.NUM_END_NUMBERS :] >= frozen_probability).astype(np.uint8)
    rank = np.arange(len(boards))
    boards[rank, starts] = FROZEN
    boards[rank, goals] = GOAL
    return LakeMaps(boards.reshape(-1, *size), np.column_stack(divmod(starts, size[1])))


def _find_reachable(maps: LakeMaps) -> npt.NDArray[np.bool_]:
    """Tell which goals can be reached, by flooding all maps from their starts at once."""
    num_maps, _, columns = maps.boards.shape
    is_start = np.zeros(maps.boards.shape, np.bool_)
    is_start[np.arange(num_maps), maps.starts[:, 0], maps.starts[:, 1]] = True
    is_open, flooded = _pack(maps.boards != HOLE), _pack(is_start)
    below = columns + 1
    while True:
        grown = flooded | flooded << 1 | flooded >> 1 | flooded << below | flooded >> below
        grown &= is_open
        if grown == flooded:
            break
        flooded = grown
    return _find_nonempty(flooded & _pack(maps.boards == GOAL), maps.boards.shape)


def _pack(boards: npt.NDArray[np.bool_]) -> int:
    """Make one number of all cells: its shifts cost a thousandth of a shift per board.

    Each board gets an empty column and an empty row, so that no shift leads from one to another.
    """
    num_boards, rows, columns = boards.shape
    padded = np.zeros((num_boards, rows + 1, columns + 1), np.bool_)
    padded[:, :rows, :columns] = boards
    return int.from_bytes(np.packbits(padded, bitorder="little").tobytes(), "little")


def _find_nonempty(packed: int, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Tell which of the boards of this shape that were packed have a cell in `packed`."""
    num_boards, rows, columns = shape
    num_bits = num_boards * (rows + 1) * (columns + 1)
    octets = np.frombuffer(packed.to_bytes((num_bits + 7) // 8, "little"), np.uint8)
    cells = np.unpackbits(octets, count=num_bits, bitorder="little").reshape(num_boards, -1)
    return np.asarray(cells.any(axis=1))
