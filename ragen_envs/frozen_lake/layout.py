"""Random lakes whose goal can be reached."""

import numpy as np

from ragen_envs.frozen_lake.dynamics import Layout, find_path, initial_state

MAX_TRIES = 1000


def generate_layout(
    size: tuple[int, int], frozen_probability: float, rng: np.random.Generator
) -> Layout:
    """Draw start, goal and holes until a path leads from the start to the goal.

    Start and goal are two different cells, each pair equally likely; every other cell is frozen
    with `frozen_probability`, independently. Maps without a path are thrown away.

    Raises:
        ValueError: If none of `MAX_TRIES` maps has a path.
    """
    for _ in range(MAX_TRIES):
        layout = _draw_layout(size, frozen_probability, rng)
        if find_path(layout, initial_state(layout)) is not None:
            return layout
    raise ValueError(
        f"`frozen_probability` must leave a path from start to goal, but none of {MAX_TRIES} maps "
        f"had one, got {frozen_probability} with `size` {size}. Raise `frozen_probability` or "
        "lower `size`."
    )


def _draw_layout(
    size: tuple[int, int], frozen_probability: float, rng: np.random.Generator
) -> Layout:
    rows, columns = size
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    start_index = int(rng.integers(len(cells)))
    goal_index = int(rng.integers(len(cells) - 1))
    goal_index += goal_index >= start_index
    start, goal = cells[start_index], cells[goal_index]
    luck = rng.random(len(cells)).tolist()
    holes = frozenset(
        cell
        for cell, number in zip(cells, luck, strict=True)
        if number >= frozen_probability and cell != start and cell != goal
    )
    return Layout(size=size, holes=holes, start=start, goal=goal)
