"""Best play on slippery ice where the player sees nothing within a turn."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragen_envs.frozen_lake.dynamics import (
    ACTION_NAMES,
    Layout,
    State,
    is_over,
    is_solved,
    slip_outcomes,
    step,
)

# From this many action sequences on, those that are never best are sorted out.
NUM_SEQUENCES_TO_SORT = 2_000
# What one plan may take, in numbers that are computed: one or two seconds.
MAX_WORK = 120_000_000
# A call takes as long as so many numbers, be the lake ever so small: a step back, a comparison.
_STEP_WORK = 2_000
_ROW_WORK = 400
# Beyond so many at once, numbers take twice as long.
_NUMBERS_IN_CACHE = 2_000_000
# To tell rows apart takes longer per number than to compute them; to compare two rows, shorter.
_SORT_WORK = 3
_NUMBERS_COMPARED = 10
# Probabilities that agree to this many decimals count as equal.
_DECIMALS = 12
_ROUNDING = 10.0**-_DECIMALS

_Floats = NDArray[np.float64]
_Budget = tuple[int, int]  # turns and actions


class PlanTooLargeError(ValueError):
    """A plan would take more than `MAX_WORK`."""


class _Work:
    """Counts what one plan takes, also where an earlier plan has done it already.

    So a plan is always refused or never, whatever was planned before it.
    """

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, numbers: int) -> None:
        self.spent += numbers
        if self.spent > MAX_WORK:
            raise PlanTooLargeError("too many action sequences to compare")


class TurnPlan(NamedTuple):
    """The best that can be done in one turn.

    Attributes:
        success: Probability of success if this and all later turns are played best, in `[0, 1]`.
        actions: Indices of `ACTION_NAMES` to play in this turn; empty if the episode is over or
            nothing is left of the budget.
    """

    success: float
    actions: list[int]


class _BestSequences(NamedTuple):
    """By start cell, the best action sequence of one length.

    Attributes:
        success: Probability of success. Shape `(cells,)`.
        actions: The sequence. Shape `(cells, length)`, int8.
        work: What it took to find it.
    """

    success: _Floats
    actions: NDArray[np.int8]
    work: int


class TurnPlanner:
    """Plans turns on one lake by dynamic programming, backward over turns.

    A turn is a sequence of actions that is chosen before any of them is seen; it stops where the
    episode ends. After it the player is seen again. With t turns and n actions left,

        V(s, t, n) = max over k, a_1 .. a_k of sum_s' (P_a1 .. P_ak)(s, s') V(s', t - 1, n - k)

    where V is 1 on a goal, 0 in a hole, and 0 elsewhere once turns or actions are used up. More than
    n - t + 1 actions leave turns unused in the end, and to look in between is never worse, so k need
    not be larger. The maximum is over all sequences, so the values are exact up to rounding. Where
    one more turn of k actions no longer changes a bit, no number of turns does.

    Args:
        layout: The map.
        success_rate: Probability that a move goes where intended.
        max_actions_per_turn: Largest k.
    """

    def __init__(self, layout: Layout, success_rate: float, max_actions_per_turn: int) -> None:
        self._columns = layout.size[1]
        self._max_actions_per_turn = max_actions_per_turn
        states = [State(divmod(i, self._columns)) for i in range(layout.size[0] * self._columns)]
        self._is_over = np.array([is_over(layout, state) for state in states])
        self._moves = _list_moves(layout, states, success_rate)
        self._final = np.array([float(is_solved(layout, state)) for state in states])
        self._values: dict[_Budget, _Floats] = {(0, 0): self._final}
        self._sequences: dict[tuple[_Budget, int], _BestSequences] = {}
        self._settled: int | None = None  # turns from which on, with all their actions, V stays

    def plan(self, state: State, num_turns: int, num_actions: int) -> TurnPlan:
        """Return the best next turn with this many turns and actions left in the episode.

        Of sequences that are equally good a shortest one is taken.

        Raises:
            PlanTooLargeError: If that takes more than `MAX_WORK`.
        """
        row, column = state.player
        cell = row * self._columns + column
        if min(num_turns, num_actions) < 1 or self._is_over[cell]:
            return TurnPlan(float(self._final[cell]), [])
        budget = self._fill_values(num_turns, num_actions, _Work())
        success = float(self._values[budget][cell])
        candidates = (self._sequences[key] for key in self._list_continuations(budget))
        best = next(c for c in candidates if c.success[cell] >= success - _ROUNDING)
        return TurnPlan(success, best.actions[cell].tolist())

    def _cut(self, num_turns: int, num_actions: int) -> _Budget:
        """Return the smallest budget that is worth the same: some turns or actions have no use."""
        most = self._max_actions_per_turn
        turns = min(num_turns, num_actions)
        actions = min(num_actions, most * turns)
        if self._settled is not None and actions == most * turns and turns > self._settled:
            return self._settled, most * self._settled
        return turns, actions

    def _list_continuations(self, budget: _Budget) -> Iterator[tuple[_Budget, int]]:
        """Yield what each length of a turn leaves of a budget, and the length."""
        turns, actions = budget
        longest = min(self._max_actions_per_turn, actions - turns + 1) if turns else 0
        for length in range(1, longest + 1):
            yield self._cut(turns - 1, actions - length), length

    def _fill_values(self, num_turns: int, num_actions: int, work: _Work) -> _Budget:
        """Compute V(., t, n) for what can come up on the way to the end, shortest budgets first.

        Returns:
            The budget under which the values of the whole one are kept.
        """
        most = self._max_actions_per_turn
        num_turns, num_actions = self._cut(num_turns, num_actions)
        if (num_turns, num_actions) in self._values:  # which it took no more than it may
            return num_turns, num_actions
        turns = 1
        while turns <= self._cut(num_turns, num_actions)[0]:
            turns_before = num_turns - turns
            least = max(0, num_actions - most * turns_before)
            for actions in range(least, min(num_actions - turns_before, most * turns) + 1):
                self._fill_value(self._cut(turns, actions), work)
            turns += 1
        return self._cut(num_turns, num_actions)

    def _fill_value(self, budget: _Budget, work: _Work) -> None:
        work.spend(_ROW_WORK)
        by_length = [
            self._find_sequences(left, length, work).success
            for left, length in self._list_continuations(budget)
        ]
        if budget in self._values:
            return
        values: _Floats = np.max(by_length, axis=0)
        self._values[budget] = values
        turns, actions = budget
        most = self._max_actions_per_turn
        if actions == most * turns and np.array_equal(
            values, self._values[turns - 1, actions - most]
        ):
            self._settled = turns

    def _find_sequences(self, left: _Budget, length: int, work: _Work) -> _BestSequences:
        """Find the best sequences of `length` actions that leave this much."""
        key = (left, length)
        if key in self._sequences:
            work.spend(self._sequences[key].work)
        else:
            self._sequences[key] = self._search(self._values[left], length, work)
        return self._sequences[key]

    def _search(self, later: _Floats, length: int, work: _Work) -> _BestSequences:
        """Go through all sequences, from their last action to their first."""
        before = work.spent
        num_moves = len(ACTION_NAMES)
        values = later[None]
        actions = np.empty((1, 0), np.int8)
        for _ in range(length):
            num_new = num_moves * values.size
            work.spend(_STEP_WORK + num_new + max(0, num_new - _NUMBERS_IN_CACHE))
            values = self._step_back(values)
            first = np.repeat(np.arange(num_moves, dtype=np.int8), len(actions))
            actions = np.column_stack([first, np.tile(actions, (num_moves, 1))])
            if len(values) > NUM_SEQUENCES_TO_SORT:
                kept = _find_undominated(values, work)
                values, actions = values[kept], actions[kept]
        best = values.argmax(axis=0)
        return _BestSequences(values.max(axis=0), actions[best], work.spent - before)

    def _step_back(self, values: _Floats) -> _Floats:
        """Return the values before each action from the values after it.

        Args:
            values: Shape `(N, cells)`.

        Returns:
            Shape `(actions * N, cells)`, the values before the first action first.
        """
        num_cells = values.shape[1]
        total = np.zeros((len(values), len(ACTION_NAMES), num_cells))
        for arrivals, probability in self._moves:
            part = values.take(arrivals, axis=1)
            part *= probability
            total += part
        return total.swapaxes(0, 1).reshape(-1, num_cells)


@lru_cache(maxsize=64)
def turn_planner(layout: Layout, success_rate: float, max_actions_per_turn: int) -> TurnPlanner:
    """Return a planner; the last ones are kept, with the values they have computed."""
    return TurnPlanner(layout, success_rate, max_actions_per_turn)


def _list_moves(
    layout: Layout, states: list[State], success_rate: float
) -> list[tuple[NDArray[np.intp], float]]:
    """List how likely a move goes as meant or to a side, and where it leads then.

    Returns:
        Numbers of cells, shape `(actions, cells)`, and the probability. Goals and holes lead to
        themselves.
    """

    def arrive(state: State, direction: int) -> int:
        row, column = (state if is_over(layout, state) else step(layout, state, direction)).player
        return row * layout.size[1] + column

    outcomes = [slip_outcomes(action, success_rate) for action in range(len(ACTION_NAMES))]
    return [
        (np.array([[arrive(state, move) for state in states] for move, _ in slips]), slips[0][1])
        for slips in zip(*outcomes, strict=True)
    ]


def _find_undominated(values: _Floats, work: _Work) -> NDArray[np.intp]:
    """Return the rows that no other row equals or beats in every column, one of equal ones."""
    work.spend(_SORT_WORK * values.size)
    _, first = np.unique(np.round(values, _DECIMALS), axis=0, return_index=True)
    # A row can only be beaten by one with a larger sum.
    order = first[np.argsort(-values[first].sum(axis=1), kind="stable")]
    kept: list[int] = []
    beating = np.empty((len(order), values.shape[1]))
    for row in order.tolist():
        work.spend(_ROW_WORK + len(kept) * values.shape[1] // _NUMBERS_COMPARED)
        if not np.any(np.all(beating[: len(kept)] >= values[row] - _ROUNDING, axis=1)):
            beating[len(kept)] = values[row]
            kept.append(row)
    return np.array(kept)
