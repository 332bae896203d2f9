"""Rules of the lake: where the player may be and where a move leads."""

from collections import deque
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class State:
    """What a move can change: the cell that the player is on."""

    player: Cell


def initial_state(layout: Layout) -> State:
    """Put the player on the start."""
    return State(layout.start)


def is_solved(layout: Layout, state: State) -> bool:
    """Tell whether the player is on a goal."""
    return state.player == layout.goal or state.player in layout.other_goals


def is_over(layout: Layout, state: State) -> bool:
    """Tell whether the player is on a goal or in a hole."""
    return state.player in layout.holes or is_solved(layout, state)


def step(layout: Layout, state: State, direction: int) -> State:
    """Move by one cell in `direction`; at the edge of the lake the player stays."""
    row, column = state.player
    down, right = DELTAS[direction]
    row += down
    column += right
    if 0 <= row < layout.size[0] and 0 <= column < layout.size[1]:
        return State((row, column))
    return state


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
    plans: dict[Cell, list[int]] = {state.player: []}
    frontier = deque([state])
    while frontier:
        current = frontier.popleft()
        plan = plans[current.player]
        if is_solved(layout, current):
            return plan
        if is_over(layout, current):
            continue
        for direction in range(len(DELTAS)):
            following = step(layout, current, direction)
            if following.player not in plans:
                plans[following.player] = [*plan, direction]
                frontier.append(following)
    return None
