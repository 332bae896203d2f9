"""From log entries to alarms: runs the signals side by side. No trainer."""

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ragen_trl.monitor.rules import Verdict
from ragen_trl.monitor.signals import Signal, SuccessHistory


class Alarm(NamedTuple):
    """A sign of collapse that has shown for as long as its patience.

    Attributes:
        signal: Which one.
        step: Update at which it was raised.
        since: Update of the first bad measurement in a row.
        verdict: The latest measurement.
    """

    signal: Signal
    step: int
    since: int
    verdict: Verdict

    @property
    def message(self) -> str:
        """What happened, since when, and what to try, in words."""
        signal, side = self.signal, "below" if self.signal.rule.is_floor else "above"
        return (
            f"{signal.name}: {signal.meaning} is {self.verdict.value:.3g}, {side} "
            f"{self.verdict.threshold:.3g} ({signal.rule.words}), since update {self.since}. "
            f"Try {signal.advice}."
        )


@dataclass
class _Streak:
    """Bad measurements of one signal in a row."""

    count: int = 0
    since: int = 0


class CollapseWatch:
    """Feeds log entries to signals and says which of them have become alarms.

    An alarm is raised once; again only after its signal was fine in between.

    Args:
        signals: What to watch; copied, so that one list can serve several watches.

    Raises:
        ValueError: If there is no signal, if two have one name, or if a patience can never be met.
    """

    def __init__(self, signals: Sequence[Signal]) -> None:
        _check_signals(signals)
        self.signals = copy.deepcopy(list(signals))
        self.success = SuccessHistory()
        self._streaks = {signal.name: _Streak() for signal in self.signals}

    def feed(self, step: int, logs: Mapping[str, Any]) -> list[Alarm]:
        """Take one log entry, of an update or an evaluation, and return the alarms it raises.

        Only what the entry holds is judged: of several updates per rollout, the first alone holds
        the metrics of the rollout.
        """
        if (success_rate := logs.get("success_rate")) is not None:
            self.success.add(success_rate)
        alarms = []
        for signal in self.signals:
            verdict = _judge(signal, logs.get(signal.metric))
            if verdict is None:
                continue
            streak = self._streaks[signal.name]
            if not verdict.is_bad or self.success.excuses(signal.excuse):
                streak.count = 0
                continue
            streak.count += 1
            if streak.count == 1:
                streak.since = step
            if streak.count == signal.patience:
                alarms.append(Alarm(signal, step, streak.since, verdict))
        return alarms

    @property
    def is_healthy(self) -> bool:
        """Whether no signal's last measurement was bad, and success is near its best."""
        is_fine = all(streak.count == 0 for streak in self._streaks.values())
        return is_fine and self.success.is_near_best


def _check_signals(signals: Sequence[Signal]) -> None:
    if not signals:
        raise ValueError("`signals` must hold at least one, got none. Leave it out for all signs.")
    counts = Counter(signal.name for signal in signals)
    for signal in signals:
        if counts[signal.name] > 1:
            raise ValueError(
                f"`signals` must have different names, got {counts[signal.name]} named "
                f"{signal.name!r}."
            )
        if not isinstance(signal.patience, int) or signal.patience < 1:
            raise ValueError(
                f"`patience` of signal {signal.name!r} must be a whole number of at least 1, got "
                f"{signal.patience}."
            )


def _judge(signal: Signal, value: Any) -> Verdict | None:
    if value is None or not (signal.rule.takes_infinities or math.isfinite(value)):
        return None
    return signal.rule.judge(float(value))
