"""The rules of Sokoban as pure functions.

A cell is a number, `row * columns + column`. A set of cells is a bit mask: an integer whose bit
`cell` is 1 for each member. Masks compare, hash and copy faster than sets of pairs, and nothing
that is derived from them depends on hash order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ACTION_NAMES = ("Up", "Down", "Left", "Right")

# RAGEN (arXiv:2504.20073), reward of the Sokoban environment.
STEP_REWARD = -0.1
BOX_ON_TARGET_REWARD = 1.0
BOX_OFF_TARGET_REWARD = -1.0
SOLVED_REWARD = 10.0


@dataclass(frozen=True)
class Layout:
    """What stays the same during an episode.

    Attributes:
        rows: Number of rows, the outer wall counted.
        columns: Number of columns, the outer wall counted.
        walls: Mask of the wall cells. The outer ring must be wall: `step` relies on it.
        targets: Mask of the target cells.
    """

    rows: int
    columns: int
    walls: int
    targets: int

    @cached_property
    def offsets(self) -> tuple[int, int, int, int]:
        """By how much each action changes the number of the player's cell."""
        return -self.columns, self.columns, -1, 1


class State(NamedTuple):
    """What an action can change.

    Attributes:
        player: Cell of the player.
        boxes: Mask of the box cells.
    """

    player: int
    boxes: int


class Outcome(NamedTuple):
    """What one action did.

    Attributes:
        state: State after the action.
        reward: Reward of the action.
        is_effective: Whether the state changed.
    """

    state: State
    reward: float
    is_effective: bool


def list_cells(mask: int) -> Iterator[int]:
    """Yield the cells of a mask in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def is_solved(layout: Layout, state: State) -> bool:
    """Tell whether every box is on a target."""
    return not state.boxes & ~layout.targets


def step(layout: Layout, state: State, action: int) -> Outcome:
    """Carry out one action; `action` is an index of `ACTION_NAMES`."""
    offset = layout.offsets[action]
    ahead = state.player + offset
    if layout.walls >> ahead & 1:
        return Outcome(state, STEP_REWARD, is_effective=False)
    if not state.boxes >> ahead & 1:
        return Outcome(State(ahead, state.boxes), STEP_REWARD, is_effective=True)
    behind_box = ahead + offset
    if (layout.walls | state.boxes) >> behind_box & 1:
        return Outcome(state, STEP_REWARD, is_effective=False)
    pushed = State(ahead, state.boxes ^ (1 << ahead | 1 << behind_box))
    return Outcome(pushed, _push_reward(layout, pushed, ahead, behind_box), is_effective=True)


def _push_reward(layout: Layout, pushed: State, origin: int, destination: int) -> float:
    reward = STEP_REWARD
    if layout.targets >> origin & 1:
        reward += BOX_OFF_TARGET_REWARD
    if layout.targets >> destination & 1:
        reward += BOX_ON_TARGET_REWARD
        # Only a push onto a target can solve a level, so a solved one cannot be paid twice by
        # walking about.
        if is_solved(layout, pushed):
            reward += SOLVED_REWARD
    return reward
