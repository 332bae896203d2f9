"""Sokoban levels in the common plain-text format: read, and checked for their form.

    # wall   @ player   + player on target   $ box   * box on target   . target   space - _ floor

A level is a block of lines of these symbols that begins with a row of walls. Blank lines, comment
lines (`;` in front) and lines of other text (titles, authors) end it and may stand between levels.
The right edge may be ragged, and what all rows are indented by does not count. The ten-by-ten files
of the Boxoban collection are of this kind.
"""

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ragen_envs.argument_checks import is_file_name, show
from ragen_envs.grid import MAX_SIZE
from ragen_envs.sokoban.dynamics import Layout, State

Source = str | os.PathLike[str]

_SYMBOLS = "#@+$*. "
# A first row begins with a wall behind nothing but symbols. Further rows do so, too, or end with a
# wall, or hold symbols alone: a row with a foreign character is reported, not taken for a title.
_BLOCK = re.compile(
    r"^[@+$*. ]*#.*(?:\n(?! *;)(?:[@+$*. ]*#.*|.*# *|[ ]*[@+$*.][@+$*. ]*)$)*", re.MULTILINE
)
_MAX_CACHED_FILES = 8
# Read in about two seconds; 100,000 levels of ten by ten are 11 million.
MAX_CHARACTERS = 16_000_000
MAX_LEVELS = 300_000


class WrittenLevel(NamedTuple):
    """A level as it is written; its form is right, but it may be unsolvable.

    Attributes:
        cells: Symbols of all rows, one row after the other, filled up to equal lengths.
        columns: Length of a row.
        place: What messages call it: its source and the number of its first line.
    """

    cells: str
    columns: int
    place: str

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.cells) // self.columns, self.columns

    @property
    def num_boxes(self) -> int:
        """Number of boxes and of targets."""
        return self.cells.count("$") + self.cells.count("*")


def read_levels(levels: Source | Sequence[Source]) -> tuple[WrittenLevel, ...]:
    """Read the levels of one source or of several, in order.

    Args:
        levels: A path, a text of one level or more, or a list of these. A string is text if it has
            a line break, and a path otherwise.

    Raises:
        TypeError: If a source is neither a string nor a path.
        ValueError: If a file cannot be read, or as `parse_levels`.
    """
    sources = [levels] if isinstance(levels, str | os.PathLike) else levels
    is_list = isinstance(sources, Sequence)
    if not is_list or not all(isinstance(source, str | os.PathLike) for source in sources):
        raise TypeError(f"`levels` must be a path, a text or a list of these, got {show(levels)}.")
    if not sources:
        raise ValueError("`levels` must be at least one path or text, got an empty list.")
    if len(sources) == 1:
        return _read_source(sources[0], "`levels`")
    found = (_read_source(source, f"`levels[{i}]`") for i, source in enumerate(sources))
    return tuple(level for group in found for level in group)


def parse_levels(text: str, source: str) -> tuple[WrittenLevel, ...]:
    """Read all levels of a text; `source` is what messages call it.

    Raises:
        ValueError: If there is no level, or one has a foreign character, not exactly one player,
            not as many boxes as targets, no box off target, a gap in its outer wall, or more than
            `MAX_SIZE` rows or columns; the message names source, line and reason. If the text is
            longer than `MAX_CHARACTERS` or holds more than `MAX_LEVELS`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"{source} must hold at most {MAX_CHARACTERS:,} characters, got more. Split it into "
            "several sources."
        )
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").expandtabs()
    text = text.replace("-", " ").replace("_", " ")
    levels: list[WrittenLevel] = []
    line, counted = 1, 0
    for block in _BLOCK.finditer(text):
        line += text.count("\n", counted, block.start())
        counted = block.start()
        if len(levels) == MAX_LEVELS:
            raise ValueError(
                f"{source} must hold at most {MAX_LEVELS:,} levels, got more. Split it into several "
                "sources."
            )
        levels.append(_read_block(block[0], source, line))
    if not levels:
        raise ValueError(
            f"{source} must hold a level, found none. A level is a block of lines of the symbols "
            f"{_SYMBOLS.strip()} that begins with a row of walls."
        )
    return tuple(levels)


def build_level(level: WrittenLevel) -> tuple[Layout, State]:
    """Turn a level into the form that is played; what the player can never reach becomes wall.

    Raises:
        ValueError: If a box off target or a free target lies where the player never comes.
    """
    room = _flood_room(level)
    targets, boxes = _mask(level, ".*+"), _mask(level, "$*")
    if targets & ~room != boxes & ~room:
        raise ValueError(
            f"{level.place}: the level cannot be solved, since a box or a target lies outside of "
            "the player's room. Remove or repair it."
        )
    rows, columns = level.size
    walls = (1 << rows * columns) - 1 & ~room
    player = _mask(level, "@+").bit_length() - 1
    return Layout(rows, columns, walls, targets & room), State(player, boxes & room)


def _read_source(source: Source, argument: str) -> tuple[WrittenLevel, ...]:
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        return parse_levels(source, argument)
    path = Path(source)
    if not is_file_name(str(path)):
        raise _no_file_error(source, argument, "no file has such a name")
    try:
        status = path.stat()
        return _read_file(path, status.st_mtime_ns, status.st_size, argument)
    except OSError as error:
        raise _no_file_error(source, argument, str(error.strerror)) from error


def _no_file_error(source: Source, argument: str, reason: str) -> ValueError:
    return ValueError(
        f"{argument} must be the path of a level file or a text with line breaks, got "
        f"{show(os.fspath(source))} ({reason}). The rows of a level belong in one string."
    )


@functools.lru_cache(maxsize=_MAX_CACHED_FILES)  # the copies of a vector environment share a file
def _read_file(
    path: Path, mtime_ns: int, num_bytes: int, argument: str
) -> tuple[WrittenLevel, ...]:
    # Old collections are in all kinds of encodings; it matters to the names of their authors only.
    with path.open("rb") as file:  # a device has no end
        text = file.read(MAX_CHARACTERS + 1).decode(errors="replace")
    return parse_levels(text, f"{argument}: {path}")


def _read_block(block: str, source: str, line: int) -> WrittenLevel:
    """Check one level and fill up its rows."""
    place = f"{source}, line {line}"
    rows = [row.rstrip() for row in block.split("\n")]
    if block.strip(_SYMBOLS + "\n"):
        _refuse_foreign_character(rows, source, line)
    indent = len(rows[0]) - len(rows[0].lstrip())
    if indent:  # in large collections the first row mostly settles it
        indent = min(len(row) - len(row.lstrip()) for row in rows)
    columns = max(map(len, rows)) - indent
    if len(rows) > MAX_SIZE or columns > MAX_SIZE:
        raise ValueError(
            f"{place}: a level must have at most {MAX_SIZE} rows and columns, found {len(rows)} rows "
            f"and {columns} columns. Remove or cut it."
        )
    cells = "".join([row[indent:].ljust(columns) for row in rows])
    level = WrittenLevel(cells, columns, place)
    num_players = cells.count("@") + cells.count("+")
    if num_players != 1:
        raise ValueError(f"{place}: a level must have one player (@ or +), found {num_players}.")
    num_boxes, num_targets = level.num_boxes, sum(map(cells.count, ".*+"))
    if num_boxes != num_targets:
        raise ValueError(
            f"{place}: a level must have as many boxes as targets, found {num_boxes} and "
            f"{num_targets}."
        )
    if "$" not in cells:
        raise ValueError(
            f"{place}: a level must have a box that is not on a target ($); this one is solved."
        )
    if not _has_closed_frame(cells, columns):
        _flood_room(level)
    return level


def _refuse_foreign_character(rows: Sequence[str], source: str, line: int) -> None:
    for number, row in enumerate(rows, start=line):
        rest = row.strip(_SYMBOLS)
        if rest:
            raise ValueError(
                f"{source}, line {number}: a row must consist of the symbols {_SYMBOLS.strip()} "
                f"and of space, - or _ for floor, found {rest[0]!r}."
            )


def _has_closed_frame(cells: str, columns: int) -> bool:
    """Tell whether the outermost cells are all walls: the usual case, and quickly seen."""
    edges = cells[:columns] + cells[-columns:] + cells[::columns] + cells[columns - 1 :: columns]
    return not edges.strip("#")


def _flood_room(level: WrittenLevel) -> int:
    """Return the mask of the cells that the player could reach if boxes were no obstacle.

    Raises:
        ValueError: If an outermost cell is among them.
    """
    rows, columns = level.size
    walls = _mask(level, "#")
    floor = (1 << rows * columns) - 1 & ~walls
    left_column = sum(1 << row * columns for row in range(rows))
    edge = left_column | left_column << columns - 1
    edge |= (1 << columns) - 1 | (1 << columns) - 1 << (rows - 1) * columns
    room, grown = 0, _mask(level, "@+")
    while grown != room:
        room = grown
        if room & edge:
            exit_row = ((room & edge).bit_length() - 1) // columns
            raise ValueError(
                f"{level.place}: the outer wall must be closed, but the player can walk out in row "
                f"{exit_row + 1} of the level."
            )
        grown = (room | room << 1 | room >> 1 | room << columns | room >> columns) & floor
    return room


def _mask(level: WrittenLevel, symbols: str) -> int:
    """Return the mask of the cells that hold one of `symbols`."""
    bits = level.cells[::-1].translate(_BITS[symbols])
    return int(bits, 2)


_BITS = {
    symbols: {ord(symbol): "01"[symbol in symbols] for symbol in _SYMBOLS}
    for symbols in ("#", "@+", "$*", ".*+")
}
