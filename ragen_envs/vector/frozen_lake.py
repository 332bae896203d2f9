"""Many lakes at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ragen_envs.frozen_lake.dynamics import DELTAS, Layout, State
from ragen_envs.frozen_lake.env import DESC, GOAL_REWARD, FrozenLakeEnv, lay_out_kinds
from ragen_envs.grid import render_coordinates
from ragen_envs.vector.boards import NOTHING, BoardWriter, Texts, lay_out_boards, tabulate
from ragen_envs.vector.lake_maps import FROZEN, GOAL, HOLE, LakeMaps, generate_lake_maps
from ragen_envs.vector.streams import Indices
from ragen_envs.vector.text_vector_env import Flags, TextVectorEnv, Transitions

# In the order of their codes; where the player stands, the code is larger by `_PLAYER`.
_KINDS = ("frozen", "goal", "hole", "player", "player_on_goal", "player_in_hole")
_PLAYER = 3
_DOWN, _RIGHT = np.array(DELTAS).T


class FrozenLakeVectorEnv(TextVectorEnv):
    """As many `FrozenLakeEnv`s; see there for the game and `arguments`, and `TextVectorEnv`."""

    single_class = FrozenLakeEnv
    _single: FrozenLakeEnv

    def __init__(self, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__(num_envs, **arguments)
        single, num_envs = self._single, self.num_envs
        self._writer = BoardWriter(
            [single._symbols[kind] for kind in _KINDS], single.size, single._format
        )
        self._positions = tabulate(single.size, lambda cell: cell)
        self._player_lines = tabulate(
            single.size, lambda cell: render_coordinates([("player", cell)])
        )
        self._other_lines = np.full(num_envs, None, object)
        self._ground = np.zeros((num_envs, self._writer.length), np.uint8)
        self._last_rows = np.zeros(num_envs, np.intp)
        self._last_columns = np.zeros(num_envs, np.intp)
        self._starts = np.zeros(num_envs, np.intp)
        self._rows = np.zeros(num_envs, np.intp)
        self._columns = np.zeros(num_envs, np.intp)
        # Where in the boards the players are, and what is below them.
        self._cells = np.zeros(num_envs, np.intp)
        self._below = np.zeros(num_envs, np.uint8)

    def _start(self, indices: Indices, options: Mapping[str, Any]) -> None:
        layout = options.get(DESC) or self._single.fixed_layout
        if layout is None:
            size = self._single.size
            maps = generate_lake_maps(size, self._single.frozen_probability, self._streams, indices)
        else:
            size, maps = layout.size, _read_layout(layout)
        self._ground[indices] = NOTHING
        self._ground[indices, : maps.boards.shape[1]] = maps.boards
        self._last_rows[indices], self._last_columns[indices] = size[0] - 1, size[1] - 1
        self._starts[indices] = maps.starts
        self._place(indices, *divmod(maps.starts, size[1] + 1))
        if self._writer.has_coordinates:
            for index in indices.tolist():
                self._load(index)
                *others, _ = self._single._objects()
                self._other_lines[index] = render_coordinates(others) + "\n"

    def _advance(self, indices: Indices, actions: Indices) -> Transitions:
        directions = actions
        if self._single.is_slippery:
            directions = self._slip(indices, actions)
        rows, columns = self._rows[indices], self._columns[indices]
        new_rows = np.maximum(rows + _DOWN[directions], 0)
        np.minimum(new_rows, self._last_rows[indices], out=new_rows)
        new_columns = np.maximum(columns + _RIGHT[directions], 0)
        np.minimum(new_columns, self._last_columns[indices], out=new_columns)
        self._place(indices, new_rows, new_columns)
        below = self._below[indices]
        return Transitions(
            rewards=np.where(below == GOAL, GOAL_REWARD, 0.0),
            terminated=below != FROZEN,
            is_effective=(new_rows != rows) | (new_columns != columns),
        )

    def _place(self, indices: Indices, rows: Indices, columns: Indices) -> None:
        self._rows[indices], self._columns[indices] = rows, columns
        cells = rows * (self._last_columns[indices] + 2) + columns
        self._cells[indices] = cells
        self._below[indices] = self._ground[indices, cells]

    def _slip(self, indices: Indices, actions: Indices) -> Indices:
        """Draw the directions that the moves take, as `draw_direction`."""
        luck = self._streams.draw(indices, 1)[:, 0]
        success_rate = self._single.success_rate
        turns = np.where(luck < (1.0 + success_rate) / 2, -1, 1)
        turns[luck < success_rate] = 0
        return (actions + turns) % 4

    def _write(self, indices: Indices) -> Texts:
        codes = self._ground[indices]
        codes[np.arange(len(indices)), self._cells[indices]] += _PLAYER
        coordinates = None
        if self._writer.has_coordinates:
            lines = self._player_lines[self._rows[indices], self._columns[indices]]
            coordinates = self._other_lines[indices] + lines
        return self._writer.write(codes, coordinates)

    def _is_success(self, indices: Indices) -> Flags:
        is_success: Flags = self._below[indices] == GOAL
        return is_success

    def _details(self, indices: Indices) -> dict[str, npt.NDArray[Any]]:
        return {"position": self._positions[self._rows[indices], self._columns[indices]]}

    def _load(self, index: int) -> None:
        rows, columns = int(self._last_rows[index]) + 1, int(self._last_columns[index]) + 1
        board = self._ground[index][: rows * (columns + 1)].reshape(rows, -1)[:, :columns]
        goal, *other_goals = _list_cells(board == GOAL)
        layout = Layout(
            size=(rows, columns),
            holes=frozenset(_list_cells(board == HOLE)),
            start=divmod(int(self._starts[index]), columns + 1),
            goal=goal,
            other_goals=frozenset(other_goals),
        )
        self._single._set_start(layout)
        self._single.state = State((int(self._rows[index]), int(self._columns[index])))


def _read_layout(layout: Layout) -> LakeMaps:
    kinds = lay_out_kinds(layout)
    board = np.array([[_KINDS.index(kind) for kind in row] for row in kinds], np.uint8)
    row, column = layout.start
    laid_out = lay_out_boards(board[None], layout.size[0] * (layout.size[1] + 1))
    return LakeMaps(laid_out, np.array([row * (layout.size[1] + 1) + column]))


def _list_cells(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    return [(row, column) for row, column in np.argwhere(mask).tolist()]
