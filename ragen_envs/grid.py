"""What boards have in common: cells, symbols and the three ways to write a board down."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from ragen_envs.argument_checks import is_whole_number, show
from ragen_envs.visible_text import is_visible_symbol

Cell = tuple[int, int]
ObservationFormat = Literal["grid", "coordinates", "grid_coordinates"]

# Rows and columns of every board, drawn or written: what takes a moment, not minutes.
MAX_SIZE = 100

COORDINATE_CHARSET = "0123456789 ,:.\n" + "row" + "column"


def check_size(size: Sequence[int], *, minimum: int) -> tuple[int, int]:
    """Return `size` as (rows, columns), both from `minimum` to `MAX_SIZE`.

    Raises:
        ValueError: If it is anything else.
    """
    is_list = isinstance(size, Sequence) and not isinstance(size, str | bytes)
    is_list |= isinstance(size, np.ndarray) and size.ndim == 1
    if not (
        is_list
        and len(size) == 2
        and all(is_whole_number(n) and minimum <= n <= MAX_SIZE for n in size)
    ):
        raise ValueError(
            f"`size` must be (rows, columns) with both at least {minimum} and at most {MAX_SIZE}, "
            f"got {show(size)}."
        )
    return int(size[0]), int(size[1])


def check_observation_format(observation_format: str) -> ObservationFormat:
    """Return `observation_format` if it is a known one.

    Raises:
        ValueError: Otherwise.
    """
    for known in get_args(ObservationFormat):
        if isinstance(observation_format, str) and observation_format == known:
            return known  # type: ignore[no-any-return]  # get_args is untyped
    raise ValueError(
        f"`observation_format` must be one of {get_args(ObservationFormat)}, got "
        f"{show(observation_format)}."
    )


def resolve_symbols(
    symbols: str | Mapping[str, str], vocabularies: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Turn the name of a vocabulary, or a mapping from cell kind to character, into a full mapping.

    Args:
        symbols: A key of `vocabularies`, or a mapping that names every cell kind.
        vocabularies: The named vocabularies; all have the same kinds.

    Raises:
        TypeError: If `symbols` is neither a string nor a mapping.
        ValueError: If a name is unknown, a kind is missing or unknown, a symbol is not one visible
            character, or two kinds share one.
    """
    if isinstance(symbols, str):
        if symbols not in vocabularies:
            raise ValueError(
                f"`symbols` must be one of {sorted(vocabularies)} or a mapping from cell kind to "
                f"character, got {show(symbols)}."
            )
        return dict(vocabularies[symbols])
    if not isinstance(symbols, Mapping):
        raise TypeError(
            f"`symbols` must be the name of a vocabulary or a mapping from cell kind to character, "
            f"got {show(symbols)}."
        )
    kinds = set(next(iter(vocabularies.values())))
    if set(symbols) != kinds:
        raise ValueError(
            f"`symbols` must map each of the cell kinds {sorted(kinds)} to a character, "
            f"got the keys {show(list(symbols))}."
        )
    for kind, symbol in symbols.items():
        if not (isinstance(symbol, str) and is_visible_symbol(symbol)):
            raise ValueError(
                f"`symbols` must map to single visible characters, got {show(symbol, write=ascii)} "
                f"for {kind!r}. Use "
                "one that is no blank and does not join the character before it."
            )
    # The ångström sign and the letter Å are two characters of one look.
    if len({unicodedata.normalize("NFC", symbol) for symbol in symbols.values()}) < len(kinds):
        raise ValueError(
            f"`symbols` must give every cell kind its own character, got {show(symbols)}."
        )
    return dict(symbols)


def render_rows(kinds: Sequence[Sequence[str]], symbols: Mapping[str, str]) -> str:
    """Write a board of cell kinds as one line of symbols per row, without a final newline."""
    return "\n".join(["".join([symbols[kind] for kind in row]) for row in kinds])


class Board:
    """Cells that stay what they are, to be drawn again and again with a few pieces on them.

    Args:
        kinds: Kind of each cell, row by row; all rows are equally long.
        symbols: Character by cell kind.

    Attributes:
        kinds: As given.
    """

    def __init__(self, kinds: Sequence[Sequence[str]], symbols: Mapping[str, str]) -> None:
        self.kinds = kinds
        self._symbols = symbols
        self._rows = render_rows(kinds, symbols)
        self._line_length = len(kinds[0]) + 1

    def write_rows(self, pieces: Iterable[tuple[str, Cell]]) -> str:
        """Write the board as `render_rows` does, with `pieces` (kind, cell) in place of what is there."""
        rows = self._rows
        for kind, (row, column) in pieces:
            place = row * self._line_length + column
            rows = rows[:place] + self._symbols[kind] + rows[place + 1 :]
        return rows

    def list_kinds(self, pieces: Iterable[tuple[str, Cell]]) -> list[list[str]]:
        """Return the kind of each cell, with `pieces` in place of what is there."""
        kinds = [list(row) for row in self.kinds]
        for kind, (row, column) in pieces:
            kinds[row][column] = kind
        return kinds


def render_coordinates(objects: Iterable[tuple[str, Cell]]) -> str:
    """Write one line per object, such as `box: row 2, column 3.`; counted from 0."""
    return "\n".join(f"{name}: row {row}, column {column}." for name, (row, column) in objects)


def render_board(
    rows: str, objects: Iterable[tuple[str, Cell]], observation_format: ObservationFormat
) -> str:
    """Put together the asked parts of an observation.

    Args:
        rows: The board as lines of symbols; see `render_rows`.
        objects: What `render_coordinates` lists.
        observation_format: See `ObservationFormat`.
    """
    if observation_format == "grid":
        return rows
    if observation_format == "coordinates":
        return render_coordinates(objects)
    return rows + "\n" + render_coordinates(objects)


def board_charset(
    symbols: Mapping[str, str], object_names: Iterable[str], observation_format: ObservationFormat
) -> str:
    """Return the characters that `render_board` can write, sorted."""
    charset = set("\n")
    if observation_format != "coordinates":
        charset |= set(symbols.values())
    if observation_format != "grid":
        charset |= set(COORDINATE_CHARSET).union(*object_names)
    return "".join(sorted(charset))


def board_max_length(
    size: tuple[int, int], object_names: Iterable[str], observation_format: ObservationFormat
) -> int:
    """Return an upper bound on the characters that `render_board` writes at this size."""
    rows, columns = size
    grid = rows * (columns + 1)
    longest_name = max(len(name) for name in object_names)
    line = longest_name + len(f": row {rows}, column {columns}.\n")
    # No cell holds more than two objects (a box on a target, a player on a goal).
    coordinates = 2 * rows * columns * line
    return {"grid": grid, "coordinates": coordinates, "grid_coordinates": grid + coordinates}[
        observation_format
    ]
