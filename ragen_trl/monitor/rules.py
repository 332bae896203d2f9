"""When a number looks like collapse: rules that see one measurement at a time. No trainer."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Makes the median of absolute deviations an estimate of a normal distribution's std.
MAD_TO_STD = 1.4826


class Verdict(NamedTuple):
    """What a rule says about a measurement.

    Attributes:
        value: What was compared: the measurement, or a mean of the latest ones.
        threshold: What it was compared with.
        is_bad: Whether it is on the wrong side.
    """

    value: float
    threshold: float
    is_bad: bool


class Rule(ABC):
    """Judges the measurements of one metric in their order."""

    is_floor = True  # Whether values below the threshold are the bad ones.
    takes_infinities = False  # Whether it judges values that are not finite as well.

    @abstractmethod
    def judge(self, value: float) -> Verdict | None:
        """Take the next measurement, and judge it if there is something to compare it with."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What the threshold is, as the end of a sentence."""


class Below(Rule):
    """Bad: values below a fixed limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def judge(self, value: float) -> Verdict:
        """See `Rule`."""
        return Verdict(value, self.limit, value < self.limit)

    @property
    def words(self) -> str:
        """See `Rule`."""
        return "a fixed limit"


class AtLeast(Rule):
    """Bad: values at or above a fixed limit."""

    is_floor = False

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def judge(self, value: float) -> Verdict:
        """See `Rule`."""
        return Verdict(value, self.limit, value >= self.limit)

    @property
    def words(self) -> str:
        """See `Rule`."""
        return "a fixed limit"


class NotFinite(Rule):
    """Bad: values that are infinite or not a number."""

    is_floor = False
    takes_infinities = True

    def judge(self, value: float) -> Verdict:
        """See `Rule`."""
        return Verdict(value, sys.float_info.max, not math.isfinite(value))

    @property
    def words(self) -> str:
        """See `Rule`."""
        return "the largest number there is"


class BelowStart(Rule):
    """Bad: values below a share of the mean of the first ones, such as 0.1 * V0 in RAGEN-2.

    There is no verdict on the first `num_start` values, nor where their mean is 0.
    """

    def __init__(self, share: float, *, num_start: int = 10) -> None:
        self.share, self.num_start = share, num_start
        self._start: list[float] = []

    def judge(self, value: float) -> Verdict | None:
        """See `Rule`."""
        if len(self._start) < self.num_start:
            self._start.append(value)
            return None
        threshold = self.share * float(np.mean(self._start))
        return Verdict(value, threshold, value < threshold) if threshold > 0 else None

    @property
    def words(self) -> str:
        """See `Rule`."""
        return f"{self.share:.0%} of the mean of its first {self.num_start} measurements"


class AboveStart(Rule):
    """Bad: values that went more than half of the way from the mean of the first ones to 1.

    For shares in `[0, 1]`. There is no verdict on the first `num_start` values.
    """

    is_floor = False

    def __init__(self, *, num_start: int = 10) -> None:
        self.num_start = num_start
        self._start: list[float] = []

    def judge(self, value: float) -> Verdict | None:
        """See `Rule`."""
        if len(self._start) < self.num_start:
            self._start.append(value)
            return None
        threshold = (1 + float(np.mean(self._start))) / 2
        return Verdict(value, threshold, value > threshold)

    @property
    def words(self) -> str:
        """See `Rule`."""
        return f"halfway from the mean of its first {self.num_start} measurements to 1"


class BelowBest(Rule):
    """Bad: values below a share of the best one, or of the best mean of several in a row.

    There is no verdict while the best is 0.
    """

    def __init__(self, share: float, *, num_averaged: int = 1) -> None:
        self.share, self.num_averaged = share, num_averaged
        self._latest: list[float] = []
        self._best = 0.0

    def judge(self, value: float) -> Verdict | None:
        """See `Rule`."""
        self._latest = [*self._latest, value][-self.num_averaged :]
        if len(self._latest) == self.num_averaged:
            self._best = max(self._best, float(np.mean(self._latest)))
        threshold = self.share * self._best
        return Verdict(value, threshold, value < threshold) if threshold > 0 else None

    @property
    def words(self) -> str:
        """See `Rule`."""
        mean = f" mean of {self.num_averaged}" if self.num_averaged > 1 else ""
        return f"{self.share:.0%} of its best{mean}"


class Spike(Rule):
    """Bad: values whose log is too many robust standard deviations above the median.

    The z-score is (log x - median) / (1.4826 * MAD), both of the logs of the `window` values before.
    The very latest of these are left out (`lag`), so that an explosion does not hide itself, and
    values that are not positive: those of updates that were skipped.
    """

    is_floor = False

    def __init__(
        self,
        z: float,
        *,
        window: int = 50,
        num_least: int = 10,
        lag: int = 1,
        least_spread: float = 0.1,
    ) -> None:
        self.z, self.window, self.num_least = z, window, num_least
        self.lag, self.least_spread = lag, least_spread
        self._logs: list[float] = []

    def judge(self, value: float) -> Verdict | None:
        """See `Rule`."""
        if value <= 0:
            return None
        before = self._logs[: len(self._logs) - self.lag][-self.window :]
        self._logs = [*self._logs, math.log(value)][-(self.window + self.lag) :]
        if len(before) < self.num_least:
            return None
        median, spread = _median_and_spread(before)
        threshold = math.exp(median + self.z * max(spread, self.least_spread))
        return Verdict(value, threshold, value > threshold)

    @property
    def words(self) -> str:
        """See `Rule`."""
        return (
            f"{self.z:g} robust standard deviations of its log above the median of up to "
            f"{self.window} measurements before"
        )


class Decline(Rule):
    """Bad: a share in `[0, 1]` that fell off its best by more than a part of it and than noise.

    The best is the highest mean of `num_averaged` values in a row. Two levels are compared with it:
    the mean of the latest ones, which sees a slow decline, and the latest value alone, which sees a
    crash at once and has to fall by `crash_part`. Both have to fall by `z` standard deviations, on
    the scale of arcsin(sqrt(x)), where the noise of a rate does not depend on the rate. Fewer than
    `num_least` values do not show how noisy they are; the noise is `first_noise` then, by default that of
    shares of 25.
    """

    def __init__(
        self,
        part: float,
        *,
        crash_part: float = 0.4,
        z: float = 5.0,
        num_averaged: int = 5,
        num_least: int = 20,
        first_noise: float = 0.1,
    ) -> None:
        self.part, self.crash_part, self.z = part, crash_part, z
        self.num_averaged, self.num_least = num_averaged, num_least
        self.first_noise = first_noise
        self._values: list[float] = []
        self._best, self._best_count = 0.0, 1

    def judge(self, value: float) -> Verdict:
        """See `Rule`."""
        self._values.append(value)
        latest = self._values[-self.num_averaged :]
        mean = float(np.mean(latest))
        if mean > self._best:
            self._best, self._best_count = mean, len(latest)
        sinking = self._compare(mean, self.part, len(latest))
        crashing = self._compare(value, self.crash_part, 1)
        return crashing if crashing.is_bad else sinking

    def _compare(self, level: float, part: float, count: int) -> Verdict:
        are_enough = len(self._values) >= self.num_least
        noise = noise_of(self._values) if are_enough else self.first_noise
        deviation = noise * math.sqrt(1 / count + 1 / self._best_count)
        by_noise = max(0.0, math.asin(math.sqrt(self._best)) - self.z * deviation)
        threshold = min((1 - part) * self._best, math.sin(by_noise) ** 2)
        return Verdict(level, threshold, level < threshold)

    @property
    def words(self) -> str:
        """See `Rule`."""
        return (
            f"{self.part:.0%} off its best mean of {self.num_averaged}, {self.crash_part:.0%} "
            f"for a single value, and more than {self.z:g} standard deviations of its noise"
        )


def noise_of(rates: Sequence[float]) -> float:
    """Estimate the std of single rates around their trend, on the scale of arcsin(sqrt(x)).

    From the differences between successive rates, robustly: the median of them is the trend.

    Args:
        rates: Rates in their order, at least two, in `[0, 1]`.
    """
    angles = np.arcsin(np.sqrt(np.asarray(rates, dtype=float)))
    _, spread = _median_and_spread(np.diff(angles).tolist())
    return spread / math.sqrt(2)


def _median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    median = float(np.median(values))
    return median, MAD_TO_STD * float(np.median(np.abs(np.asarray(values) - median)))
