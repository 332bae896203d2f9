"""Rules of the lake: where the player may be and where a move leads."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ragen_envs.grid import Cell

# Gymnasium's order. Neighbours in it, the last and the first included, are perpendicular.
ACTION_NAMES = ("Left", "Down", "Right", "Up")
DELTAS = ((0, -1), (1, 0), (0, 1), (-1, 0))


@dataclass(frozen=True, slots=True)
class Layout:
    """What stays the same within an episode.

    Attributes:
        size: Rows and columns.
        holes: Cells that end the episode without success.
        start: Where the player begins.
        goal: Where the player wants to be.
        other_goals: Further such cells, which only maps written by people have.
    """

    size: tuple[int, int]
    holes: frozenset[Cell]
    start: Cell
    goal: Cell
    other_goals: frozenset[Cell] = frozenset()


class State(NamedTuple):
    """What a move can change: the cell that the player is on."""

    player: Cell


def initial_state(layout: Layout) -> State:
    """Put the player on the start."""
    return State(layout.start)


def is_solved(layout: Layout, state: State) -> bool:
    """Tell whether the player is on a goal."""
    return state.player == layout.goal or state.player in layout.other_goals


def is_lost(layout: Layout, state: State) -> bool:
    """Tell whether the player is in a hole."""
    return state.player in layout.holes


def is_over(layout: Layout, state: State) -> bool:
    """Tell whether the player is on a goal or in a hole."""
    return is_lost(layout, state) or is_solved(layout, state)


def step(layout: Layout, state: State, direction: int) -> State:
    """Move by one cell in `direction`; at the edge of the lake the player stays."""
    return State(_tabulate_moves(layout.size)[state.player][direction])


@functools.lru_cache(maxsize=64)
def _tabulate_moves(size: tuple[int, int]) -> dict[Cell, list[Cell]]:
    """List where each direction leads from each cell."""
    rows, columns = size
    return {
        (row, column): [
            (min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1))
            for down, right in DELTAS
        ]
        for row in range(rows)
        for column in range(columns)
    }


def slip_outcomes(action: int, success_rate: float) -> tuple[tuple[int, float], ...]:
    """List the directions that a move can take, with their probabilities.

    The intended direction has `success_rate`; the two perpendicular ones share the rest evenly.
    """
    side_rate = (1.0 - success_rate) / 2
    return (
        (action, success_rate),
        ((action - 1) % 4, side_rate),
        ((action + 1) % 4, side_rate),
    )


def draw_direction(action: int, success_rate: float, rng: np.random.Generator) -> int:
    """Draw the direction that a move takes; see `slip_outcomes`. Draws one number from `rng`."""
    luck = rng.random()
    if luck < success_rate:
        return action
    return (action - 1) % 4 if luck < (1.0 + success_rate) / 2 else (action + 1) % 4


def find_path(layout: Layout, state: State) -> list[int] | None:
    """Find a shortest way to a goal that needs no slip, by breadth-first search.

    Returns:
        The directions in order, `[]` on a goal, or `None` if no goal can be reached.
    """
    if is_over(layout, state):
        return [] if is_solved(layout, state) else None
    moves = _tabulate_moves(layout.size)
    # Whence, and by which move.
    arrivals: dict[Cell, tuple[Cell, int] | None] = {state.player: None}
    frontier = [state.player]
    for cell in frontier:  # which grows meanwhile
        for direction, following in enumerate(moves[cell]):
            if following in arrivals:
                continue
            arrivals[following] = cell, direction
            if following == layout.goal or following in layout.other_goals:
                return _trace_back(arrivals, following)
            if following not in layout.holes:
                frontier.append(following)
    return None


def _trace_back(arrivals: Mapping[Cell, tuple[Cell, int] | None], cell: Cell) -> list[int]:
    directions = []
    while (arrival := arrivals[cell]) is not None:
        cell, direction = arrival
        directions.append(direction)
    return directions[::-1]
