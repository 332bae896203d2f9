"""Levels that get longer as the player gets better."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ragen_envs.argument_checks import check_number, check_whole_number, is_whole_number, show

__all__ = ["Curriculum"]

LengthRange = tuple[int, int | None]

# Counts up to here are exact as floats, and more episodes nobody plays.
MAX_EPISODES = 10**12
MAX_STAGES = 10_000


class Curriculum:
    """Moves the range of solution lengths with the measured success rate.

    The rule: once `window` episodes of the present range are in, their success rate moves the range
    one stage up if it is above `raise_above` and one stage down if it is below `lower_below`. Every
    move empties the window, so that the next one again takes `window` episodes of the new range.
    Between the two rates nothing moves; without this gap a player whose rates at two neighbouring
    stages lie on the two sides of one threshold would go up and down for ever.

    Use `options` at reset, or `kwargs` where environments are made anew:
    `env.reset(seed=seed, options=curriculum.options)`.

    Args:
        ranges: (min_solution_length, max_solution_length) of each stage, the easiest first; `None`
            for no upper limit.
        raise_above: Success rate above which the stage goes up.
        lower_below: Success rate below which the stage goes down; less than `raise_above`.
        window: Number of most recent episodes that the success rate is measured over.

    Attributes:
        ranges: As given.
        stage: Index of the present range.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there is no range, a range is empty, or another argument is out of range.

    Example:
        >>> curriculum = Curriculum([(1, 4), (4, 8), (8, None)], window=50)
        >>> curriculum.update(0.5, num_episodes=50), curriculum.options["max_solution_length"]
        (False, 4)
        >>> curriculum.update(0.9, num_episodes=50), curriculum.options["max_solution_length"]
        (True, 8)
    """

    def __init__(
        self,
        ranges: Sequence[LengthRange],
        *,
        raise_above: float = 0.7,
        lower_below: float = 0.3,
        window: int = 256,
    ) -> None:
        if not isinstance(ranges, Sequence) or isinstance(ranges, str | bytes):
            raise TypeError(
                f"`ranges` must be a list of pairs (shortest, longest), got {show(ranges)}. "
                "Pass one pair per stage, such as [(1, 4), (4, None)]."
            )
        self.ranges = tuple(_check_range(length_range) for length_range in ranges)
        if not self.ranges:
            raise ValueError("`ranges` must hold at least one range, got none.")
        raise_above = check_number("raise_above", raise_above, minimum=0, maximum=1)
        lower_below = check_number("lower_below", lower_below, minimum=0, maximum=1)
        if lower_below >= raise_above:
            raise ValueError(
                "`lower_below` and `raise_above` must be rates with lower_below < raise_above, got "
                f"{lower_below} and {raise_above}."
            )
        self.raise_above = raise_above
        self.lower_below = lower_below
        self.window = check_whole_number("window", window, minimum=1, maximum=MAX_EPISODES)
        self.stage = 0
        self._batches: deque[tuple[float, int]] = deque()  # (successes, episodes) of each update
        self._num_episodes = 0  # in all of them

    @classmethod
    def by_steps(cls, *, first: int, step: int, last: int, **kwargs: Any) -> Self:
        """Make neighbouring ranges of equal width.

        Args:
            first: Largest length of the first stage, which begins at 1.
            step: By how much the largest length grows per stage.
            last: Largest length of the last stage.
            kwargs: Further arguments of the class.

        Example:
            >>> Curriculum.by_steps(first=3, step=3, last=8).ranges
            ((1, 3), (4, 6), (7, 8))
        """
        first = check_whole_number("first", first, minimum=1)
        step = check_whole_number("step", step, minimum=1)
        last = check_whole_number("last", last, minimum=1)
        if first > last:
            raise ValueError(
                f"`first` must be at most `last`, got {show(first)} and {show(last)}. Raise `last`."
            )
        if (last - first) // step >= MAX_STAGES:
            raise ValueError(
                f"`step` must leave at most {MAX_STAGES:,} stages from {show(first)} to {show(last)}, "
                f"got {step}. Raise `step` or lower `last`."
            )
        ends = [*range(first, last, step), last]
        starts = [1, *(end + 1 for end in ends[:-1])]
        return cls(list(zip(starts, ends, strict=True)), **kwargs)

    @property
    def kwargs(self) -> dict[str, int | None]:
        """The present range as keyword arguments of `gymnasium.make`."""
        shortest, longest = self.ranges[self.stage]
        return {"min_solution_length": shortest, "max_solution_length": longest}

    @property
    def options(self) -> dict[str, int | None]:
        """The present range as `options` of `reset`."""
        return self.kwargs

    @property
    def num_episodes(self) -> int:
        """Number of episodes in the window."""
        return self._num_episodes

    @property
    def success_rate(self) -> float | None:
        """Success rate over the window; `None` if it is empty."""
        if not self._batches:
            return None
        return sum(successes for successes, _ in self._batches) / self.num_episodes

    def update(self, success: bool | float, num_episodes: int = 1) -> bool:
        """Take in what episodes of the present range came to; move the range by the rule.

        Episodes that began before the last move do not belong here.

        Args:
            success: Whether the episode succeeded, or the success rate of several.
            num_episodes: How many episodes `success` is the rate of. Of a batch larger than the
                window all episodes count.

        Returns:
            Whether the range has moved.

        Raises:
            TypeError: If `success` is no number or `num_episodes` no integer.
            ValueError: If `success` is no rate or `num_episodes` not in [1, 10**12].
        """
        if isinstance(success, bool | np.bool_):
            success = float(success)
        success = check_number("success", success, minimum=0, maximum=1)
        num_episodes = check_whole_number(
            "num_episodes", num_episodes, minimum=1, maximum=MAX_EPISODES
        )
        self._batches.append((success * num_episodes, num_episodes))
        self._num_episodes += num_episodes
        # Whole batches leave the window, and only those that it can do without.
        while self._num_episodes - self._batches[0][1] >= self.window:
            self._num_episodes -= self._batches.popleft()[1]
        return self._num_episodes >= self.window and self._move()

    def _move(self) -> bool:
        rate = self.success_rate
        assert rate is not None
        step = int(rate > self.raise_above) - int(rate < self.lower_below)
        new_stage = min(max(self.stage + step, 0), len(self.ranges) - 1)
        if new_stage == self.stage:
            return False
        self.stage = new_stage
        self._batches.clear()
        self._num_episodes = 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs, in types that JSON knows."""
        return {
            "ranges": [list(length_range) for length_range in self.ranges],
            "stage": self.stage,
            "batches": [list(batch) for batch in self._batches],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            TypeError: If it is no such mapping.
            ValueError: If it comes from a curriculum with other ranges, or a value in it cannot be.
        """
        ranges, stage, batches = _read_state(state)
        if ranges != self.ranges:
            raise ValueError(
                f"`state` must come from a curriculum with the ranges {show(self.ranges)}, got "
                f"{show(ranges)}."
            )
        if stage >= len(self.ranges):
            raise ValueError(
                f"`state['stage']` must be below {len(self.ranges)}, the number of ranges, got "
                f"{show(stage)}."
            )
        self.stage, self._batches = stage, deque(batches)
        self._num_episodes = sum(count for _, count in batches)


def _check_range(length_range: LengthRange, argument: str = "ranges") -> LengthRange:
    try:
        shortest, longest = length_range
    except (TypeError, ValueError):  # no pair
        shortest, longest = 0, 0
    is_whole = is_whole_number(shortest) and (longest is None or is_whole_number(longest))
    if not (is_whole and shortest >= 1 and (longest is None or shortest <= longest)):
        raise ValueError(
            f"`{argument}` must hold pairs (shortest, longest) of integers with 1 <= shortest <= "
            f"longest, or None for no upper limit, got {show(length_range)}."
        )
    return int(shortest), None if longest is None else int(longest)


def _read_state(
    state: Mapping[str, Any],
) -> tuple[tuple[LengthRange, ...], int, list[tuple[float, int]]]:
    """Take ranges, stage and batches out of what `state_dict` returned."""
    keys = ("ranges", "stage", "batches")
    if not isinstance(state, Mapping) or any(key not in state for key in keys):
        raise TypeError(
            f"`state` must be a dict with {', '.join(map(repr, keys))}, got {show(state)}. Pass what "
            "`state_dict` returned."
        )
    stage = check_whole_number("state['stage']", state["stage"])
    try:
        ranges = [*state["ranges"]]
        batches = [(wins, count) for wins, count in state["batches"]]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`state` must hold lists of pairs in 'ranges' and 'batches', got "
            f"{show(state['ranges'])} and {show(state['batches'])}."
        ) from error
    checked = []
    for wins, count in batches:
        count = check_whole_number("state['batches']", count, minimum=1, maximum=MAX_EPISODES)
        checked.append((check_number("state['batches']", wins, minimum=0, maximum=count), count))
    return tuple(_check_range(each, "state['ranges']") for each in ranges), stage, checked
