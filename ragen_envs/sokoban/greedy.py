"""Play that looks one push ahead: what Sokoban gives away without a search."""

from ragen_envs.sokoban.deadlocks import PushDistances
from ragen_envs.sokoban.dynamics import Layout, State, is_solved
from ragen_envs.sokoban.solver import Push, find_walk, list_pushes


def push_greedily(layout: Layout, state: State, max_actions: int) -> list[int]:
    """Push the nearest box towards a target, again and again.

    Of all pushes that the player can get to and that bring their box nearer to its nearest target,
    counted as if it were alone in the room, the one with the shortest walk is made. Neither the
    other boxes nor what the push blocks are thought of, so it may get stuck.

    Args:
        layout: Walls and targets.
        state: Where to start.
        max_actions: Length of the plan at most.

    Returns:
        Indices of `ACTION_NAMES`; shorter if the level is solved or no push is left that helps.
    """
    distances = PushDistances(layout)
    plan: list[int] = []
    while len(plan) < max_actions and not is_solved(layout, state):
        push = _choose_push(layout, state, distances)
        if push is None:
            break
        plan += find_walk(layout, state, 2 * push.origin - push.destination) or []
        plan.append(push.action)
        boxes = state.boxes ^ (1 << push.origin | 1 << push.destination)
        state = State(push.origin, boxes)
    return plan[:max_actions]


def _choose_push(layout: Layout, state: State, distances: PushDistances) -> Push | None:
    for push in list_pushes(layout, state, distances.live_cells):
        before, after = distances.nearest(push.origin), distances.nearest(push.destination)
        if before is not None and after is not None and after < before:
            return push
    return None
