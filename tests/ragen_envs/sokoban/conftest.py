"""Levels written as text, and a search that shares no code with the package."""

from collections import deque

import pytest

from ragen_envs.sokoban.dynamics import Layout, State

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # Up, Down, Left, Right


def _read_level(text):
    """Read a board of the symbols # - . * $ @ + as `(Layout, State)`."""
    rows = text.split()
    columns = len(rows[0])
    cells = "".join(rows)

    def mask(symbols):
        return sum(1 << cell for cell, symbol in enumerate(cells) if symbol in symbols)

    player = mask("@+").bit_length() - 1
    return Layout(len(rows), columns, mask("#"), mask(".*+")), State(player, mask("$*"))


def _search_length(layout, state):
    """Return the optimal number of moves by forward search over pairs and frozen sets."""

    def pairs(mask):
        return frozenset(
            (row, column)
            for row in range(layout.rows)
            for column in range(layout.columns)
            if mask >> (row * layout.columns + column) & 1
        )

    walls, targets, boxes = pairs(layout.walls), pairs(layout.targets), pairs(state.boxes)
    start = (divmod(state.player, layout.columns), boxes)
    lengths = {start: 0}
    queue = deque([start])
    while queue:
        player, boxes = here = queue.popleft()
        if boxes == targets:
            return lengths[here]
        for down, right in MOVES:
            ahead = (player[0] + down, player[1] + right)
            beyond = (ahead[0] + down, ahead[1] + right)
            if ahead in walls or (ahead in boxes and (beyond in walls or beyond in boxes)):
                continue
            moved = (ahead, boxes - {ahead} | {beyond} if ahead in boxes else boxes)
            if moved not in lengths:
                lengths[moved] = lengths[here] + 1
                queue.append(moved)
    return None


@pytest.fixture
def read_level():
    return _read_level


@pytest.fixture
def search_length():
    return _search_length
