"""Shortest solutions by A* over pushes, counted in player moves."""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ragen_envs.argument_checks import show
from ragen_envs.sokoban.deadlocks import PushDistances, has_frozen_box
from ragen_envs.sokoban.dynamics import Layout, State, is_solved, list_cells

MAX_STATES = 200_000
# In some levels hardly a push leads to a new state, or the ways are thousands of cells long. What may
# be spent for each state that may be looked at, in steps of a walk: many times what a level of ten by
# ten takes. A push is looked at in the time of ten steps.
_STEPS_PER_STATE = 250
_STEPS_PER_PUSH = 10


class _Work:
    """What a search may still spend."""

    def __init__(self, layout: Layout, max_states: int) -> None:
        # A step is a handful of operations with masks, whose time grows with their length.
        self._cost = 1000 + layout.rows * layout.columns
        self._left = 1000 * _STEPS_PER_STATE * max_states

    def spend(self, num_steps: int) -> None:
        self._left -= self._cost * num_steps

    @property
    def is_used_up(self) -> bool:
        return self._left < 0


class Push(NamedTuple):
    """A push that the player can get to.

    Attributes:
        num_moves: Moves of it, the walk to the box and the push itself.
        action: Index of `ACTION_NAMES` of the push.
        origin: Cell of the box before it, where the player is afterwards.
        destination: Cell of the box after it.
    """

    num_moves: int
    action: int
    origin: int
    destination: int


def shortest_solution(
    layout: Layout, state: State, *, max_states: int = MAX_STATES, max_moves: int | None = None
) -> list[int] | None:
    """Return a plan with the fewest player moves from `state` to a solved state.

    A* (Hart, Nilsson and Raphael, 1968) over the states after a push; an edge is a walk and the push
    at its end. The remaining moves are estimated by the cheapest assignment of boxes to targets,
    each box alone in the room: one move pushes at most one box by one cell, so the estimate never
    exceeds the truth. Branches end at boxes on dead cells, at boxes that cannot have targets of
    their own and at boxes that block one another for good.

    Args:
        layout: Walls and targets.
        state: Where to start.
        max_states: Largest number of states to look at. Where a state takes far longer than in a
            room of ten by ten, it counts for more.
        max_moves: Longest plan to look for; `None` for no limit.

    Returns:
        Indices of `ACTION_NAMES`, empty if `state` is solved; `None` if there is no solution, or
        none of at most `max_moves` moves.

    Raises:
        ValueError: If the search needs more than `max_states` states. Nothing is known then.
    """
    distances = PushDistances(layout)
    estimate = distances.estimate(state.boxes)
    if estimate is None or (max_moves is not None and estimate > max_moves):
        return None
    work = _Work(layout, max_states)
    num_moves = {state: 0}
    came_from: dict[State, tuple[State, int]] = {}  # the state before a push, and its action
    # Among equal sums the state nearer to its goal comes first, then the smaller numbers: the plan
    # is the same on every run.
    frontier = [(estimate, estimate, 0, state)]
    while frontier:
        _, before, moves, current = heapq.heappop(frontier)
        if is_solved(layout, current):
            return _read_plan(layout, state, came_from, current)
        if moves > num_moves[current]:
            continue
        for push in list_pushes(layout, current, distances.live_cells, work):
            boxes = current.boxes ^ (1 << push.origin | 1 << push.destination)
            following = State(push.origin, boxes)
            total = moves + push.num_moves
            if num_moves.get(following, total + 1) <= total:
                continue
            estimate = distances.estimate_after(before, boxes, push.origin, push.destination)
            if estimate is None or (max_moves is not None and total + estimate > max_moves):
                continue
            if following not in num_moves and has_frozen_box(
                layout, distances.live_cells, boxes, push.destination
            ):
                continue
            num_moves[following] = total
            came_from[following] = (current, push.action)
            heapq.heappush(frontier, (total + estimate, estimate, total, following))
        if len(num_moves) > max_states or work.is_used_up:
            raise ValueError(
                f"`max_states` must be large enough to finish the search, got {show(max_states)}. The "
                "level may be solvable or not. Raise it or ask about a smaller level."
            )
    return None


def list_pushes(
    layout: Layout, state: State, landings: int, work: _Work | None = None
) -> Iterator[Push]:
    """Yield the pushes of boxes onto cells of the mask `landings`, the nearest first.

    When all are found, what that took is taken off `work`.
    """
    columns = layout.columns
    free = ~(layout.walls | state.boxes)
    landings &= free
    sides = []
    for offset in layout.offsets:
        movable = state.boxes & _shift(landings, -offset) & _shift(free, offset)
        sides.append(_shift(movable, -offset))
    wanted = sides[0] | sides[1] | sides[2] | sides[3]
    layer = reached = 1 << state.player
    num_walked = 0
    while layer and wanted:
        if layer & wanted:
            for action, offset in enumerate(layout.offsets):
                for cell in list_cells(layer & sides[action]):
                    yield Push(num_walked + 1, action, cell + offset, cell + 2 * offset)
            wanted &= ~layer
        layer = (layer << columns | layer >> columns | layer << 1 | layer >> 1) & free & ~reached
        reached |= layer
        num_walked += 1
    if work is not None:
        work.spend(num_walked + _STEPS_PER_PUSH * sum(side.bit_count() for side in sides))


def find_walk(layout: Layout, state: State, destination: int) -> list[int] | None:
    """Return the actions of a shortest walk that pushes nothing; `None` if there is none."""
    blocked = layout.walls | state.boxes
    arrivals = {state.player: -1}  # the action that led to each cell
    queue = deque([state.player])
    while queue and destination not in arrivals:
        cell = queue.popleft()
        for action, offset in enumerate(layout.offsets):
            ahead = cell + offset
            if ahead not in arrivals and not blocked >> ahead & 1:
                arrivals[ahead] = action
                queue.append(ahead)
    if destination not in arrivals:
        return None
    walk = []
    while destination != state.player:
        walk.append(arrivals[destination])
        destination -= layout.offsets[walk[-1]]
    return walk[::-1]


def _read_plan(
    layout: Layout, start: State, came_from: dict[State, tuple[State, int]], state: State
) -> list[int]:
    """Follow the links back to `start` and fill in the walks between the pushes."""
    stretches = []
    while state != start:
        before, action = came_from[state]
        # The player stands where the box was; before the push it stood one cell behind that.
        walk = find_walk(layout, before, state.player - layout.offsets[action])
        assert walk is not None  # `list_pushes` found it
        stretches.append([*walk, action])
        state = before
    return [action for walk_and_push in reversed(stretches) for action in walk_and_push]


def _shift(mask: int, offset: int) -> int:
    """Move every cell of a mask by `offset`."""
    return mask << offset if offset > 0 else mask >> -offset
