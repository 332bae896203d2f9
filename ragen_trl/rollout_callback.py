"""Callbacks that see what was played."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState

from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trajectory import Trajectory


class RolloutCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """A callback with one event more: a rollout was played, and nothing is learned from it yet.

    Hand it to [`StarPOTrainer`] as one of its `callbacks`.
    """

    def on_rollout_end(
        self,
        args: StarPOConfig,
        state: TrainerState,
        control: TrainerControl,
        *,
        trajectories: Sequence[Trajectory],
        model: Any,
        processing_class: PreTrainedTokenizerBase,
        iteration: int,
        **kwargs: Any,
    ) -> Mapping[str, float]:
        """Look at a rollout; called on every process, with the same episodes.

        Args:
            args: The trainer's configuration.
            state: Where training stands.
            control: May be changed in place, as in every other event.
            trajectories: All episodes that were played, over all processes, before the filter.
            model: The policy that played them, unwrapped, in evaluation mode and without gradients.
            processing_class: Its tokenizer.
            iteration: Number of the rollout, counted from 0 and on after a checkpoint.
            kwargs: Reserved.

        Returns:
            Metrics for the log entry of the coming update.
        """
        return {}


def read_metrics(callback: RolloutCallback, returned: Any) -> dict[str, float]:
    """Return what a callback measured as plain numbers, which every log can hold.

    Raises:
        TypeError: If it returned no mapping.
    """
    if not isinstance(returned, Mapping):
        raise TypeError(
            f"`on_rollout_end` of {type(callback).__name__} must return metrics by name, got "
            f"{returned!r}. Return {{}} to log nothing."
        )
    return {name: float(value) for name, value in returned.items()}
