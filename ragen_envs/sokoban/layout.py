"""Random Sokoban levels whose optimal solution length is known."""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragen_envs.argument_checks import check_whole_number, show
from ragen_envs.grid import check_size
from ragen_envs.sokoban.dynamics import Layout, State, list_cells

# Share of the interior that is floor, drawn anew for each room.
MIN_FLOOR_SHARE = 0.6
MAX_FLOOR_SHARE = 1.0

# A state costs about 1 microsecond: a search may take some 5 ms, a level some 200 ms.
MAX_STATES_PER_SEARCH = 5_000
MAX_STATES_PER_LEVEL = 150_000
# What an attempt costs besides its search, in states; it bounds the number of attempts. Of a large
# room each further cell costs about as much as a state.
STATES_PER_ATTEMPT = 50
CELLS_PER_ATTEMPT = 100


class Level(NamedTuple):
    """A level at its start.

    Attributes:
        layout: Walls and targets.
        state: Start of the player and the boxes.
        solution_length: Least number of player moves (pushes included) that solves the level.
            `None` if it is not known, which happens to written levels only.
    """

    layout: Layout
    state: State
    solution_length: int | None


class _BackwardSearch(NamedTuple):
    layers: list[list[int]]  # by solution length: packed states in order of discovery
    player_bits: int
    num_states: int
    is_cut_short: bool

    def unpack(self, packed: int) -> State:
        return State(packed & (1 << self.player_bits) - 1, packed >> self.player_bits)


def check_request(
    *,
    size: Sequence[int],
    num_boxes: int,
    min_solution_length: int,
    max_solution_length: int | None,
) -> tuple[int, int]:
    """Return `size` as (rows, columns) if levels of this kind can be asked for.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If a number is out of range or no such level can exist.
    """
    rows, columns = check_size(size, minimum=3)
    num_cells = (rows - 2) * (columns - 2)
    check_whole_number("num_boxes", num_boxes, minimum=1)
    check_length_range(min_solution_length, max_solution_length)
    # A push needs the player, the box and the cell ahead of it in one line.
    if num_cells < num_boxes + 2 or max(rows, columns) < 5:
        raise ValueError(
            f"`size` must be large enough to hold {show(num_boxes)} boxes, the player and one free "
            f"cell inside the outer wall, three of them in one line, got size={(rows, columns)} with "
            f"num_boxes={show(num_boxes)}. Use a larger `size` or a smaller `num_boxes`."
        )
    # A shortest solution visits no unsolved state twice.
    num_unsolved = (math.comb(num_cells, num_boxes) - 1) * (num_cells - num_boxes)
    if min_solution_length > num_unsolved:
        raise ValueError(
            f"`min_solution_length` must be at most {show(num_unsolved)}, the number of unsolved "
            f"states at size={(rows, columns)} with num_boxes={num_boxes}, got "
            f"{show(min_solution_length)}. "
            "Lower it or use a larger `size`."
        )
    return rows, columns


def check_length_range(min_solution_length: int, max_solution_length: int | None) -> None:
    """Check a range of optimal solution lengths.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If a number is below 1 or the range is empty.
    """
    check_whole_number("min_solution_length", min_solution_length, minimum=1)
    if max_solution_length is None:
        return
    check_whole_number("max_solution_length", max_solution_length, minimum=1)
    if max_solution_length < min_solution_length:
        raise ValueError(
            f"`max_solution_length` must be None or at least `min_solution_length`, got "
            f"{show(max_solution_length)} with min_solution_length={show(min_solution_length)}."
        )


def generate_level(
    rng: np.random.Generator,
    *,
    size: Sequence[int],
    num_boxes: int,
    min_solution_length: int = 1,
    max_solution_length: int | None = None,
) -> Level:
    """Draw a level that is solvable, not solved, and of a length in the asked range.

    A room is carved and targets are chosen. A breadth-first search runs backward from all solved
    states, over walks and pulls, so that it meets every state at its optimal solution length. The
    length is drawn uniformly among those found in the range, then the state among those of this
    length. A room without such a state is thrown away; the work in all is bounded.

    Args:
        rng: Source of every draw.
        size: (rows, columns), the outer wall counted.
        num_boxes: Number of boxes and of targets.
        min_solution_length: Least number of player moves of an optimal solution.
        max_solution_length: Largest such number, or `None` for no limit.

    Raises:
        ValueError: If no such level can exist or none was found within the bound.
    """
    rows, columns = check_request(
        size=size,
        num_boxes=num_boxes,
        min_solution_length=min_solution_length,
        max_solution_length=max_solution_length,
    )
    num_cells = (rows - 2) * (columns - 2)
    least_floor = max(num_boxes + 2, round(MIN_FLOOR_SHARE * num_cells))
    most_floor = max(least_floor, round(MAX_FLOOR_SHARE * num_cells))
    states_left = MAX_STATES_PER_LEVEL
    is_picky = False
    while states_left > 0:
        num_floor = int(rng.integers(least_floor, most_floor + 1))
        floor = _carve_room(rng, rows, columns, num_floor)
        # Picky rooms are better, but the tightest exist only with a box that never moves.
        is_picky = not is_picky
        targets = _draw_targets(rng, floor, columns, num_boxes, is_picky=is_picky)
        search = _search_backward(floor, columns, targets, max_solution_length)
        states_left -= STATES_PER_ATTEMPT + max(0, num_cells - CELLS_PER_ATTEMPT)
        states_left -= search.num_states
        longest = len(search.layers) - 1
        if longest >= min_solution_length:
            length = int(rng.integers(min_solution_length, longest + 1))
            layer = search.layers[length]
            state = search.unpack(layer[int(rng.integers(len(layer)))])
            walls = (1 << rows * columns) - 1 - floor
            return Level(Layout(rows, columns, walls, targets), state, length)
        if search.is_cut_short:
            # Longer solutions are within reach of the search in smaller rooms.
            most_floor = max(num_boxes + 2, min(most_floor, num_floor) - 1)
            least_floor = min(least_floor, most_floor)
    raise ValueError(
        f"`min_solution_length` and `max_solution_length` must be lengths that occur, found no level "
        f"for size={(rows, columns)}, num_boxes={num_boxes}, "
        f"min_solution_length={show(min_solution_length)}, "
        f"max_solution_length={show(max_solution_length)}. "
        "Widen the range, or change `size` or `num_boxes`."
    )


def _carve_room(rng: np.random.Generator, rows: int, columns: int, num_floor: int) -> int:
    """Grow a connected floor of `num_floor` cells inside the outer wall. Returns its mask."""
    interior = [
        row * columns + column for row in range(1, rows - 1) for column in range(1, columns - 1)
    ]
    # One random order of all cells; the neighbour that comes first in it is opened next. This makes
    # bays and corridors where a uniform choice would make round rooms.
    order = rng.permutation(len(interior)).tolist()
    ranks = dict(zip(interior, order, strict=True))
    cells = dict(zip(order, interior, strict=True))
    frontier = [ranks.pop(interior[int(rng.integers(len(interior)))])]
    floor = 0
    for _ in range(num_floor):
        cell = cells[heapq.heappop(frontier)]
        floor |= 1 << cell
        for offset in (-columns, -1, 1, columns):
            rank = ranks.pop(cell + offset, None)
            if rank is not None:
                heapq.heappush(frontier, rank)
    return floor


def _draw_targets(
    rng: np.random.Generator, floor: int, columns: int, num_boxes: int, *, is_picky: bool
) -> int:
    """Choose targets on the floor, if `is_picky` first those that a lone box can be pushed onto."""
    cells = list(list_cells(floor))
    order = [cells[index] for index in rng.permutation(len(cells)).tolist()]
    if is_picky:
        pushable = 0
        for distance in (columns, 1):
            pushable |= floor << distance & floor << 2 * distance
            pushable |= floor >> distance & floor >> 2 * distance
        order.sort(key=lambda cell: not pushable >> cell & 1)
    return sum(1 << cell for cell in order[:num_boxes])


def _search_backward(
    floor: int, columns: int, targets: int, max_solution_length: int | None
) -> _BackwardSearch:
    """Sort states by solution length, up to `max_solution_length` and the bound on states.

    A state is packed into one integer, the boxes above the player. Thousands of tuples would wake the
    garbage collector, which then looks at every object of the process: the slowest resets.
    """
    player_bits = floor.bit_length().bit_length()
    player_mask = (1 << player_bits) - 1
    moves = _list_reverse_moves(floor, columns, player_bits)
    layer = [targets << player_bits | player for player in list_cells(floor & ~targets)]
    seen = set(layer)
    layers = [layer]
    max_states = len(layer) + MAX_STATES_PER_SEARCH
    while len(layers) - 1 != max_solution_length:
        if len(seen) >= max_states:
            return _BackwardSearch(layers, player_bits, len(seen), is_cut_short=True)
        next_layer = []
        for state in layer:
            for walk, box_behind, box_ahead, pull in moves[state & player_mask]:
                if state & box_behind:
                    continue
                walked = state ^ walk
                if walked not in seen:
                    seen.add(walked)
                    next_layer.append(walked)
                if state & box_ahead:
                    pulled = walked ^ pull
                    if pulled not in seen:
                        seen.add(pulled)
                        next_layer.append(pulled)
        if not next_layer:
            break
        layers.append(next_layer)
        layer = next_layer
    return _BackwardSearch(layers, player_bits, len(seen), is_cut_short=False)


def _list_reverse_moves(
    floor: int, columns: int, player_bits: int
) -> dict[int, list[tuple[int, int, int, int]]]:
    """List how the player can have come to each cell, in terms of packed states.

    An entry holds the bits in which the cells of the player differ, the bit of a box on the cell the
    player came from, that of a box on the cell ahead (where a box that was pushed by this move now
    is), and both bits that take this box back.
    """
    box = [1 << cell + player_bits for cell in range(floor.bit_length() + columns)]
    return {
        cell: [
            (cell ^ origin, box[origin], box[ahead], box[cell] | box[ahead])
            for origin, ahead in (
                (cell + columns, cell - columns),
                (cell - columns, cell + columns),
                (cell + 1, cell - 1),
                (cell - 1, cell + 1),
            )
            if floor >> origin & 1
        ]
        for cell in list_cells(floor)
    }
