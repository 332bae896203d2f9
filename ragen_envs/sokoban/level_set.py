"""Drawing from levels that were written by people."""

from collections.abc import Iterator, Sequence

import numpy as np

from ragen_envs.argument_checks import show
from ragen_envs.sokoban.layout import Level
from ragen_envs.sokoban.level_file import Source, WrittenLevel, build_level, read_levels
from ragen_envs.sokoban.solver import shortest_solution

# What may be spent, once, on finding out whether a level can be solved and in how many moves.
MAX_STATES_PER_CHECK = 20_000
# A file may hold 100,000 levels and none of the asked length.
MAX_LEVELS_PER_DRAW = 1_000


class LevelSet:
    """Levels to draw from.

    Whether a level can be solved is found out when it is drawn for the first time, so that large
    files load at once.

    Args:
        levels: A path, a text of one level or more, or a list of these; see `read_levels`.

    Attributes:
        size: Rows and columns that hold every level.
        num_boxes: Largest number of boxes.

    Raises:
        TypeError: As `read_levels`.
        ValueError: As `read_levels`.
    """

    def __init__(self, levels: Source | Sequence[Source]) -> None:
        self._levels = read_levels(levels)
        self._solution_lengths: dict[int, int | None] = {}
        sizes = {level.size for level in self._levels}
        self.size = (max(rows for rows, _ in sizes), max(columns for _, columns in sizes))
        self.num_boxes = max(level.num_boxes for level in self._levels)

    def __len__(self) -> int:
        return len(self._levels)

    def draw(
        self,
        rng: np.random.Generator,
        *,
        min_solution_length: int = 1,
        max_solution_length: int | None = None,
    ) -> Level:
        """Draw one of the levels whose optimal length is in the range, all equally likely.

        Where the search for the optimal length reaches its bound (`MAX_STATES_PER_CHECK`), the
        length is not known: such a level is drawn only if the range holds every length.

        Raises:
            ValueError: If a level cannot be solved, or none of the first `MAX_LEVELS_PER_DRAW` that
                come up is in the range.
        """
        for index in self._order(rng):
            level = self._solve(index)
            if _is_in_range(level.solution_length, min_solution_length, max_solution_length):
                return level
        raise ValueError(
            f"`levels` must hold optimal lengths in the range, found none in "
            f"{min(len(self), MAX_LEVELS_PER_DRAW)} of {len(self)} levels for "
            f"`min_solution_length` {show(min_solution_length)} and `max_solution_length` "
            f"{show(max_solution_length)}. Widen the range; a level whose length is "
            f"not known after {MAX_STATES_PER_CHECK} states of search counts as out of it."
        )

    def _order(self, rng: np.random.Generator) -> Iterator[int]:
        # Mostly the first level is taken, and a permutation of a large file costs a millisecond.
        yield int(rng.integers(len(self)))
        yield from rng.permutation(len(self))[:MAX_LEVELS_PER_DRAW].tolist()

    def _solve(self, index: int) -> Level:
        written = self._levels[index]
        if index not in self._solution_lengths:
            self._solution_lengths[index] = measure_level(written).solution_length
        return Level(*build_level(written), self._solution_lengths[index])


def measure_level(written: WrittenLevel) -> Level:
    """Make a level playable and find its optimal length, `None` if the search reached its bound.

    Raises:
        ValueError: If the level cannot be solved.
    """
    layout, state = build_level(written)
    try:
        plan = shortest_solution(layout, state, max_states=MAX_STATES_PER_CHECK)
    except ValueError:  # the bound was reached, which proves nothing
        return Level(layout, state, None)
    if plan is None:
        raise ValueError(
            f"{written.place}: the level cannot be solved: every sequence of pushes ends in a dead "
            "position. Remove or repair it."
        )
    return Level(layout, state, len(plan))


def _is_in_range(length: int | None, shortest: int, longest: int | None) -> bool:
    if length is None:
        return shortest <= 1 and longest is None
    return shortest <= length and (longest is None or length <= longest)
