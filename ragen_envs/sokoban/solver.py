"""Shortest solutions by A* over player moves."""

import heapq

from ragen_envs.sokoban.dynamics import ACTION_NAMES, Layout, State, is_solved, list_cells, step


def shortest_solution(
    layout: Layout, state: State, *, max_states: int = 200_000
) -> list[int] | None:
    """Return a plan with the fewest player moves from `state` to a solved state.

    A* (Hart, Nilsson and Raphael, 1968). The remaining moves are estimated by the pushes that each
    box alone would need to its nearest target: one push moves one box by one cell, so the estimate
    never exceeds the truth and falls by at most 1 per move. Boxes that no push sequence could bring
    to a target even alone end a branch.

    Args:
        layout: Walls and targets.
        state: Where to start.
        max_states: Largest number of states to look at.

    Returns:
        Indices of `ACTION_NAMES`, empty if `state` is solved; `None` if there is no solution.

    Raises:
        ValueError: If the search needs more than `max_states` states.
    """
    distances = count_pushes_to_target(layout)
    estimate = _estimate_pushes(state.boxes, distances)
    if estimate is None:
        return None
    came_from: dict[State, tuple[State, int] | None] = {state: None}
    num_moves = {state: 0}
    # Among equal sums the state nearer to its goal comes first, then the smaller numbers: the plan
    # is the same on every run.
    frontier = [(estimate, estimate, state)]
    closed = set()
    while frontier:
        _, _, current = heapq.heappop(frontier)
        if is_solved(layout, current):
            return _read_plan(came_from, current)
        if current in closed:
            continue
        closed.add(current)
        moves = num_moves[current] + 1
        for action in range(len(ACTION_NAMES)):
            following = step(layout, current, action).state
            if num_moves.get(following, moves + 1) <= moves:
                continue
            estimate = _estimate_pushes(following.boxes, distances)
            if estimate is None:
                continue
            num_moves[following] = moves
            came_from[following] = (current, action)
            heapq.heappush(frontier, (moves + estimate, estimate, following))
        if len(num_moves) > max_states:
            raise ValueError(
                f"`max_states` must be large enough to finish the search, got {max_states}. "
                "Raise it or ask about a smaller level."
            )
    return None


def count_pushes_to_target(layout: Layout) -> dict[int, int]:
    """Count, for a box alone in the room, the pushes from each cell to the nearest target.

    Cells that are missing are dead: a box there reaches no target, wherever the player stands.
    """
    layer = list(list_cells(layout.targets & ~layout.walls))
    distances = dict.fromkeys(layer, 0)
    while layer:
        next_layer = []
        for cell in layer:
            for offset in layout.offsets:
                # Pulled from `cell` to `origin`; the player stands one cell beyond `origin`.
                origin = cell - offset
                if origin in distances or layout.walls >> origin & 1:
                    continue
                if layout.walls >> origin - offset & 1:
                    continue
                distances[origin] = distances[cell] + 1
                next_layer.append(origin)
        layer = next_layer
    return distances


def _estimate_pushes(boxes: int, distances: dict[int, int]) -> int | None:
    """Sum the pushes that the boxes need, each alone; `None` if one is on a dead cell."""
    total = 0
    for cell in list_cells(boxes):
        distance = distances.get(cell)
        if distance is None:
            return None
        total += distance
    return total


def _read_plan(came_from: dict[State, tuple[State, int] | None], state: State) -> list[int]:
    plan = []
    link = came_from[state]
    while link is not None:
        previous, action = link
        plan.append(action)
        link = came_from[previous]
    return plan[::-1]
