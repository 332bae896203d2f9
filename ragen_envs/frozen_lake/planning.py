"""Best play on slippery ice where the player sees nothing within a turn."""

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
# So many sequences of one turn are compared at most.
MAX_SEQUENCES = 10_000
# Probabilities that agree to this many decimals count as equal.
_DECIMALS = 12
_ROUNDING = 10.0**-_DECIMALS

_Floats = NDArray[np.float64]


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
    """

    success: _Floats
    actions: NDArray[np.int8]


class TurnPlanner:
    """Plans turns on one lake by dynamic programming, backward over turns.

    A turn is a sequence of actions that is chosen before any of them is seen; it stops where the
    episode ends. After it the player is seen again. With t turns and n actions left,

        V(s, t, n) = max over k, a_1 .. a_k of sum_s' (P_a1 .. P_ak)(s, s') V(s', t - 1, n - k)

    where V is 1 on a goal, 0 in a hole, and 0 elsewhere once turns or actions are used up. More than
    n - t + 1 actions leave turns unused in the end, and to look in between is never worse, so k need
    not be larger. The maximum is over all sequences, so the values are exact up to rounding.

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
        self._values: dict[tuple[int, int], _Floats] = {}
        self._sequences: dict[tuple[int, int, int], _BestSequences] = {}

    def plan(self, state: State, num_turns: int, num_actions: int) -> TurnPlan:
        """Return the best next turn with this many turns and actions left in the episode.

        Of sequences that are equally good a shortest one is taken.

        Raises:
            ValueError: If more than `MAX_SEQUENCES` sequences of one turn must be compared.
        """
        row, column = state.player
        cell = row * self._columns + column
        num_turns = min(num_turns, num_actions)
        self._fill_values(num_turns, num_actions)
        success = float(self._values[num_turns, num_actions][cell])
        if num_turns < 1 or self._is_over[cell]:
            return TurnPlan(success, [])
        candidates = [
            self._find_sequences(num_turns - 1, num_actions - length, length)
            for length in self._list_lengths(num_turns, num_actions)
        ]
        best = next(c for c in candidates if c.success[cell] >= success - _ROUNDING)
        return TurnPlan(success, best.actions[cell].tolist())

    def _list_lengths(self, num_turns: int, num_actions: int) -> range:
        return range(1, min(self._max_actions_per_turn, num_actions - num_turns + 1) + 1)

    def _fill_values(self, num_turns: int, num_actions: int) -> None:
        """Compute V(., t, n) for what can come up on the way to the end, shortest budgets first."""
        for turns in range(num_turns + 1):
            turns_before = num_turns - turns
            least = max(0, num_actions - self._max_actions_per_turn * turns_before)
            for actions in range(least, num_actions - turns_before + 1):
                key = (min(turns, actions), actions)
                if key not in self._values:
                    self._values[key] = self._compute_values(*key)

    def _compute_values(self, num_turns: int, num_actions: int) -> _Floats:
        if num_turns == 0:
            return self._final
        by_length = [
            self._find_sequences(num_turns - 1, num_actions - length, length).success
            for length in self._list_lengths(num_turns, num_actions)
        ]
        best: _Floats = np.max(by_length, axis=0)
        return best

    def _find_sequences(self, num_turns: int, num_actions: int, length: int) -> _BestSequences:
        """Find the best sequences of `length` actions that leave this many turns and actions."""
        # With no turn left the actions left do not matter.
        key = (num_turns, num_actions if num_turns else 0, length)
        if key not in self._sequences:
            later = self._values[min(num_turns, num_actions), num_actions]
            self._sequences[key] = self._search(later, length)
        return self._sequences[key]

    def _search(self, later: _Floats, length: int) -> _BestSequences:
        """Go through all sequences, from their last action to their first."""
        values = later[None]
        actions = np.empty((1, 0), np.int8)
        for _ in range(length):
            values = np.concatenate([self._step_back(values, a) for a in range(len(self._moves))])
            first = np.repeat(np.arange(len(self._moves), dtype=np.int8), len(actions))
            actions = np.column_stack([first, np.tile(actions, (len(self._moves), 1))])
            if len(values) > NUM_SEQUENCES_TO_SORT:
                kept = _find_undominated(values)
                values, actions = values[kept], actions[kept]
        best = values.argmax(axis=0)
        return _BestSequences(values.max(axis=0), actions[best])

    def _step_back(self, values: _Floats, action: int) -> _Floats:
        """Return the values before `action` from the values after it; both `(N, cells)`."""
        total = np.zeros_like(values)
        for arrivals, probability in self._moves[action]:
            total += probability * values[:, arrivals]
        return total


@lru_cache(maxsize=64)
def turn_planner(layout: Layout, success_rate: float, max_actions_per_turn: int) -> TurnPlanner:
    """Return a planner; the last ones are kept, with the values they have computed."""
    return TurnPlanner(layout, success_rate, max_actions_per_turn)


def _list_moves(
    layout: Layout, states: list[State], success_rate: float
) -> list[list[tuple[NDArray[np.intp], float]]]:
    """List by action where each cell leads and how likely; goals and holes lead to themselves."""

    def arrive(state: State, direction: int) -> int:
        row, column = (state if is_over(layout, state) else step(layout, state, direction)).player
        return row * layout.size[1] + column

    return [
        [
            (np.array([arrive(state, direction) for state in states]), probability)
            for direction, probability in slip_outcomes(action, success_rate)
        ]
        for action in range(len(ACTION_NAMES))
    ]


def _find_undominated(values: _Floats) -> NDArray[np.intp]:
    """Return the rows that no other row equals or beats in every column, one of equal ones.

    Raises:
        ValueError: If more than `MAX_SEQUENCES` different rows come in.
    """
    _, first = np.unique(np.round(values, _DECIMALS), axis=0, return_index=True)
    if len(first) > MAX_SEQUENCES:
        raise ValueError(
            f"`max_actions_per_turn` must leave at most {MAX_SEQUENCES} action sequences of a turn to "
            f"compare, got {len(first)}. Lower it."
        )
    # A row can only be beaten by one with a larger sum.
    order = first[np.argsort(-values[first].sum(axis=1), kind="stable")]
    kept = [order[0]]
    for row in order[1:]:
        if not np.any(np.all(values[kept] >= values[row] - _ROUNDING, axis=1)):
            kept.append(row)
    return np.array(kept)
