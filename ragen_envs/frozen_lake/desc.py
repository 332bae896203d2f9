"""Maps of the lake that people write, in Gymnasium's letters: S start, F frozen, H hole, G goal."""

from collections.abc import Sequence

from ragen_envs.argument_checks import show
from ragen_envs.frozen_lake.dynamics import Layout, find_path, initial_state
from ragen_envs.grid import MAX_SIZE, Cell

Desc = str | Sequence[str]

_LETTERS = "SFHG"


def parse_desc(desc: Desc, argument: str = "`desc`") -> Layout:
    """Read a map.

    Args:
        desc: One string per row, or all rows in one string with line breaks, where space around
            the rows does not count.
        argument: What messages call it.

    Raises:
        TypeError: If it is neither a string nor a sequence of strings.
        ValueError: If the rows are not equally long, a letter is unknown, there is not exactly one
            start, no goal can be reached, or the map is larger than `MAX_SIZE`. The message names
            the row, counted from 0.
    """
    rows = _split_rows(desc, argument)
    if len(rows) > MAX_SIZE or len(rows[0]) > MAX_SIZE:
        raise ValueError(
            f"{argument} must have at most {MAX_SIZE} rows and columns, got {len(rows)} rows and "
            f"{len(rows[0])} columns. Cut the map."
        )
    cells: dict[str, list[Cell]] = {letter: [] for letter in _LETTERS}
    for r, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{argument} must have rows of equal length, got {len(row)} letters in row {r} and "
                f"{len(rows[0])} in row 0: {show(row)}."
            )
        for c, letter in enumerate(row):
            if letter not in cells:
                raise ValueError(
                    f"{argument} must consist of the letters S (start), F (frozen), H (hole) and G "
                    f"(goal), got {letter!r} in row {r}: {show(row)}."
                )
            cells[letter].append((r, c))
    if len(cells["S"]) != 1:
        found = ", ".join(f"row {r}" for r, _ in cells["S"]) or "no row"
        raise ValueError(f"{argument} must have exactly one start (S), got one in {found}.")
    if not cells["G"]:
        raise ValueError(f"{argument} must have a goal (G), got one in no row.")
    layout = Layout(
        size=(len(rows), len(rows[0])),
        holes=frozenset(cells["H"]),
        start=cells["S"][0],
        goal=cells["G"][0],
        other_goals=frozenset(cells["G"][1:]),
    )
    if find_path(layout, initial_state(layout)) is None:
        raise ValueError(
            f"{argument} must leave a way to a goal, but holes cut off the start in row "
            f"{layout.start[0]} from every goal. Remove a hole."
        )
    return layout


def _split_rows(desc: Desc, argument: str) -> list[str]:
    if isinstance(desc, str):
        rows = [row.strip() for row in desc.strip().splitlines()]
    elif isinstance(desc, Sequence) and all(isinstance(row, str) for row in desc):
        rows = list(desc)
    else:
        raise TypeError(f"{argument} must be a string or a list of strings, got {show(desc)}.")
    if not rows:
        raise ValueError(f"{argument} must have at least one row, got {show(desc)}.")
    return rows
