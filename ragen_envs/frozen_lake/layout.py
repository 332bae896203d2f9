"""Random lakes whose goal can be reached."""

import numpy as np

from ragen_envs.frozen_lake.dynamics import Layout, find_path, initial_state

MAX_TRIES = 1000
# Cells of all tries together: maps of more than 5,000 cells get fewer tries, about a second of work.
MAX_CELLS = 5_000_000
# Of the numbers of one map: the first two say where start and goal are.
NUM_END_NUMBERS = 2


def generate_layout(
    size: tuple[int, int], frozen_probability: float, rng: np.random.Generator
) -> Layout:
    """Draw start, goal and holes until a path leads from the start to the goal.

    Start and goal are two different cells, each pair equally likely; every other cell is frozen
    with `frozen_probability`, independently. Maps without a path are thrown away.

    Raises:
        ValueError: If none of `count_tries(size)` maps has a path.
    """
    for _ in range(count_tries(size)):
        layout = _draw_layout(size, frozen_probability, rng)
        if find_path(layout, initial_state(layout)) is not None:
            return layout
    raise no_path_error(size, frozen_probability)


def count_tries(size: tuple[int, int]) -> int:
    """Return how many maps of this size are drawn at most."""
    return min(MAX_TRIES, MAX_CELLS // (size[0] * size[1]))


def no_path_error(size: tuple[int, int], frozen_probability: float) -> ValueError:
    """Make the error of `generate_layout`."""
    return ValueError(
        "`frozen_probability` must leave a path from start to goal, but none of "
        f"{count_tries(size)} maps had one, got {frozen_probability} with `size` {size}. Raise "
        "`frozen_probability` or lower `size`."
    )


def _draw_layout(
    size: tuple[int, int], frozen_probability: float, rng: np.random.Generator
) -> Layout:
    # All in one call, which is most of the time that a map takes. `ragen_envs.vector.lake_maps`
    # reads the same numbers in the same order.
    rows, columns = size
    num_cells = rows * columns
    start_number, goal_number, *luck = rng.random(NUM_END_NUMBERS + num_cells).tolist()
    start = int(start_number * num_cells)
    goal = int(goal_number * (num_cells - 1))
    goal += goal >= start
    holes = [
        divmod(cell, columns)
        for cell, number in enumerate(luck)
        if number >= frozen_probability and cell != start and cell != goal
    ]
    return Layout(
        size=size,
        holes=frozenset(holes),
        start=divmod(start, columns),
        goal=divmod(goal, columns),
    )
