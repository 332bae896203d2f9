"""Many rooms at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ragen_envs.grid import render_coordinates
from ragen_envs.sokoban.dynamics import (
    ACTION_NAMES,
    BOX_OFF_TARGET_REWARD,
    BOX_ON_TARGET_REWARD,
    SOLVED_REWARD,
    STEP_REWARD,
    State,
)
from ragen_envs.sokoban.env import SokobanEnv
from ragen_envs.sokoban.layout import Level
from ragen_envs.vector.boards import BoardWriter, Codes, Texts, lay_out_boards, tabulate
from ragen_envs.vector.streams import Indices
from ragen_envs.vector.text_vector_env import Flags, TextVectorEnv, Transitions

# In the order of their codes: a box adds `_BOX` to the ground, the player `_PLAYER`.
_KINDS = ("empty", "target", "box", "box_on_target", "player", "player_on_target", "wall")
_TARGET, _BOX, _PLAYER = 1, 2, 4
_WALL = len(_KINDS) - 1


class SokobanVectorEnv(TextVectorEnv):
    """As many `SokobanEnv`s; see there for the game and `arguments`, and `TextVectorEnv`.

    The rooms are drawn one by one, so that it is faster than single environments in its steps and
    not in its resets.
    """

    single_class = SokobanEnv
    _single: SokobanEnv

    def __init__(self, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__(num_envs, **arguments)
        single, num_envs = self._single, self.num_envs
        self._writer = BoardWriter(
            [single._symbols[kind] for kind in _KINDS], single.size, single._format
        )
        self._box_lines = tabulate(
            single.size, lambda cell: render_coordinates([("box", cell)]) + "\n"
        )
        self._player_lines = tabulate(
            single.size, lambda cell: render_coordinates([("player", cell)])
        )
        self._fixed_lines = np.full(num_envs, None, object)
        self._levels: list[Level | None] = [None] * num_envs
        self._ground = np.zeros((num_envs, self._writer.length), np.uint8)
        self._boxes = np.zeros((num_envs, self._writer.length), np.bool_)
        self._offsets = np.zeros((num_envs, len(ACTION_NAMES)), np.intp)
        self._players = np.zeros(num_envs, np.intp)
        self._num_boxes = np.zeros(num_envs, np.int64)
        self._num_on_target = np.zeros(num_envs, np.int64)

    def _start(self, indices: Indices, options: Mapping[str, Any]) -> None:
        for index in indices.tolist():
            self._single.np_random = self._streams.generator(index)
            self._single._start_from(options)
            self._take_over(index)

    def _take_over(self, index: int) -> None:
        """Copy the start state of the single environment."""
        layout, state = self._single.layout, self._single.state
        self._levels[index] = Level(layout, state, self._single.solution_length)
        rows, columns = size = layout.rows, layout.columns
        walls, targets = _spread_mask(layout.walls, size), _spread_mask(layout.targets, size)
        boxes = _spread_mask(state.boxes, size)
        board = _WALL * walls + _TARGET * targets
        self._ground[index] = lay_out_boards(board[None], self._writer.length)
        self._boxes[index] = False
        self._boxes[index, : rows * (columns + 1)].reshape(rows, -1)[:, :columns] = boxes
        self._offsets[index] = [-(columns + 1), columns + 1, -1, 1]
        row, column = divmod(state.player, columns)
        self._players[index] = row * (columns + 1) + column
        self._num_boxes[index] = boxes.sum()
        self._num_on_target[index] = (boxes & targets).sum()
        if self._writer.has_coordinates:
            fixed = render_coordinates(self._single._bare_objects)
            self._fixed_lines[index] = fixed + "\n"

    def _advance(self, indices: Indices, actions: Indices) -> Transitions:
        offsets = self._offsets[indices, actions]
        ahead = self._players[indices] + offsets
        is_box = self._boxes[indices, ahead]
        # Boxes are inside the outer wall, so that there is a cell behind each of them.
        behind = np.where(is_box, ahead + offsets, ahead)
        is_blocked = self._ground[indices, behind] == _WALL
        is_blocked |= is_box & self._boxes[indices, behind]
        is_push = is_box & ~is_blocked
        self._players[indices] = np.where(is_blocked, self._players[indices], ahead)
        pushing = indices[is_push]
        self._boxes[pushing, ahead[is_push]] = False
        self._boxes[pushing, behind[is_push]] = True
        is_off = is_push & (self._ground[indices, ahead] == _TARGET)
        is_on = is_push & (self._ground[indices, behind] == _TARGET)
        self._num_on_target[indices] += is_on.astype(np.int64) - is_off
        is_solved = self._is_success(indices)
        # Summed up in the order of the single environment, which rounding depends on.
        rewards = np.full(len(indices), STEP_REWARD)
        rewards += BOX_OFF_TARGET_REWARD * is_off
        rewards += BOX_ON_TARGET_REWARD * is_on
        rewards += SOLVED_REWARD * (is_on & is_solved)
        return Transitions(rewards, terminated=is_solved, is_effective=~is_blocked)

    def _write(self, indices: Indices) -> Texts:
        codes = self._ground[indices]
        codes += _BOX * self._boxes[indices].view(np.uint8)
        codes[np.arange(len(indices)), self._players[indices]] += _PLAYER
        coordinates = None
        if self._writer.has_coordinates:
            strides = self._offsets[indices, 1]
            player_lines = self._player_lines[divmod(self._players[indices], strides)]
            coordinates = self._fixed_lines[indices] + self._list_boxes(indices) + player_lines
        return self._writer.write(codes, coordinates)

    def _list_boxes(self, indices: Indices) -> Texts:
        """Write the lines of the boxes of each room, in the order of their cells."""
        rooms, cells = np.nonzero(self._boxes[indices])
        rank = np.arange(len(rooms)) - np.searchsorted(rooms, rooms)
        # A level of the options may hold more boxes than the rooms that are drawn.
        most_boxes = int(self._num_boxes[indices].max(initial=1))
        lines = np.full((len(indices), most_boxes), "", object)
        lines[rooms, rank] = self._box_lines[divmod(cells, self._offsets[indices, 1][rooms])]
        joined: Texts = lines.sum(axis=1)
        return joined

    def _is_success(self, indices: Indices) -> Flags:
        is_success: Flags = self._num_on_target[indices] == self._num_boxes[indices]
        return is_success

    def _details(self, indices: Indices) -> dict[str, npt.NDArray[Any]]:
        return {"boxes_on_target": self._num_on_target[indices]}

    def _load(self, index: int) -> None:
        level = self._levels[index]
        assert level is not None
        self._single._set_level(level)
        columns = level.layout.columns
        row, column = divmod(int(self._players[index]), columns + 1)
        boxes = [divmod(cell, columns + 1) for cell in np.flatnonzero(self._boxes[index]).tolist()]
        self._single.state = State(
            player=row * columns + column, boxes=sum(1 << r * columns + c for r, c in boxes)
        )


def _spread_mask(mask: int, size: tuple[int, int]) -> Codes:
    """Turn a mask of cells into an array of 0 and 1 of shape `size`."""
    num_cells = size[0] * size[1]
    octets = np.frombuffer(mask.to_bytes((num_cells + 7) // 8, "little"), np.uint8)
    return np.unpackbits(octets, count=num_cells, bitorder="little").reshape(size)
