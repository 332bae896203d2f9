"""What people see: a live line in rollouts, and one readable line per iteration."""

import time
from collections.abc import Mapping
from typing import Any, Self

from tqdm.auto import tqdm
from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments

from ragen_trl.rollout import TurnReport

# Log name, label, format; percentages are stored as ratios.
_TRAIN_COLUMNS = (
    ("reward", "reward", "{:+.3f}"),
    ("success_rate", "success", "{:5.1%}"),
    ("rollout/valid_reply_ratio", "valid", "{:4.0%}"),
    ("rollout/in_group_reward_std", "group std", "{:.3f}"),
    ("rollout/kept_group_ratio", "kept", "{:4.0%}"),
    ("entropy", "entropy", "{:.3f}"),
    ("grad_norm", "grad", "{:.2f}"),
    ("rollout/tokens_per_second", "tok/s", "{:.0f}"),
)


def describe_iteration(logs: Mapping[str, float], step: int) -> str:
    """Put the main metrics of an update or an evaluation into one line; "" if there are none."""
    if "rollout/turns" in logs:
        columns = [
            f"{label} {form.format(float(logs[name]))}"
            for name, label, form in _TRAIN_COLUMNS
            if logs.get(name) is not None
        ]
        return " | ".join([f"update {step:4d}", *columns])
    suffix = "success_rate_low"
    parts = []
    for key in logs:
        if key.startswith("eval_") and key.endswith(suffix):
            stem = key.removesuffix(suffix)
            rate, low, high = (
                float(logs[stem + name])
                for name in ("success_rate", "success_rate_low", "success_rate_high")
            )
            name = stem.removeprefix("eval_").rstrip("_")
            parts.append(f"{name} success {rate:.1%} [{low:.1%}, {high:.1%}]".strip())
    return f"evaluation after {step} updates | " + " | ".join(parts) if parts else ""


class LineProgressCallback(ProgressCallback):  # type: ignore[misc]  # transformers is untyped here
    """Transformers' progress bar with one line per log entry above it."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the line; entries that are neither an update nor an evaluation are left out."""
        line = describe_iteration(logs or {}, state.global_step)
        if line and state.is_world_process_zero and self.training_bar is not None:
            self.training_bar.write(line)


class RolloutBar:
    """A bar that counts finished episodes while a rollout runs, and leaves no trace.

    Args:
        num_episodes: Episodes of this process.
        is_shown: Whether there is a bar at all.
    """

    def __init__(self, num_episodes: int, *, is_shown: bool) -> None:
        self._bar = tqdm(
            total=num_episodes, desc="rollout", unit="episode", leave=False, disable=not is_shown
        )
        self._begin = time.perf_counter()
        self._num_tokens = 0

    def update(self, report: TurnReport) -> None:
        """Count what ended in a turn, and show turn and sampled tokens per second."""
        self._num_tokens += report.num_tokens
        seconds = max(time.perf_counter() - self._begin, 1e-9)
        self._bar.set_postfix_str(f"turn {report.turn}, {self._num_tokens / seconds:.0f} tokens/s")
        self._bar.update(report.num_finished)

    def __enter__(self) -> Self:
        """Return the bar itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Take the bar off the screen."""
        self._bar.close()
