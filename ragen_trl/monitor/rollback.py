"""The way back: checkpoints that were healthy, and what changes when training goes on from one."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accelerate import PartialState
from torch.optim.lr_scheduler import LRScheduler
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ragen_trl.records import EPISODES_FOLDER

HEALTHY_FOLDER = "healthy"
COLLAPSED_FOLDER = "collapsed"
# The latest, and one before it in case that its collapse was under way.
NUM_KEPT = 2


@dataclass(frozen=True)
class Rollback:
    """A return to a checkpoint, and what is different from then on.

    Attributes:
        checkpoint: Where training goes on from.
        from_step: Update after which it is given up.
        learning_rate_factor: Factor of the learning rates that led to the collapse.
        filter_ratio_factor: Factor of the `rollout_filter_ratio` that led to it.
    """

    checkpoint: Path
    from_step: int
    learning_rate_factor: float
    filter_ratio_factor: float

    @property
    def to_step(self) -> int:
        """Update after which the checkpoint was saved."""
        return step_of(self.checkpoint)


class HealthyCheckpoints:
    """Copies of the latest healthy checkpoints, out of the reach of `save_total_limit`.

    Args:
        output_dir: Folder of the run; the copies go to its subfolder `healthy`.
        last_step: Update that the run is at: copies of later ones are another run's.
    """

    def __init__(self, output_dir: Path, last_step: int) -> None:
        self._output_dir = output_dir
        self._folder = output_dir / HEALTHY_FOLDER
        found = sorted(_checkpoints(self._folder), key=step_of)
        self.kept = [folder for folder in found if step_of(folder) <= last_step][-NUM_KEPT:]

    def keep(self, step: int) -> None:
        """Copy the checkpoint that was saved after update `step`, and drop the oldest copy."""
        name = f"{PREFIX_CHECKPOINT_DIR}-{step}"
        target = self._folder / name
        self.kept = [*(folder for folder in self.kept if folder != target), target][-NUM_KEPT:]
        process = PartialState()
        # Each process writes its own part of a checkpoint.
        process.wait_for_everyone()
        if process.is_main_process:
            _copy(self._output_dir / name, target)
            for folder in _checkpoints(self._folder):
                if folder not in self.kept:
                    shutil.rmtree(folder)
        process.wait_for_everyone()

    def take_last(self) -> Path:
        """Return the latest copy, and leave the one before it for the next time, if there is one."""
        return self.kept.pop() if len(self.kept) > 1 else self.kept[0]

    def put_aside_after(self, step: int) -> None:
        """Move what the run wrote after update `step` to its subfolder `collapsed`.

        Those are checkpoints, so that `resume_from_checkpoint=True` does not take one of them for
        the latest, and episodes, which the same iterations would overwrite, or leave behind.
        """
        folder, process = self._output_dir / COLLAPSED_FOLDER, PartialState()
        if process.is_main_process:
            for checkpoint in _checkpoints(self._output_dir):
                if step_of(checkpoint) > step:
                    folder.mkdir(exist_ok=True)
                    shutil.rmtree(folder / checkpoint.name, ignore_errors=True)
                    checkpoint.rename(folder / checkpoint.name)
            for episodes in _episodes_after(self._output_dir / EPISODES_FOLDER, step):
                (folder / EPISODES_FOLDER).mkdir(parents=True, exist_ok=True)
                episodes.replace(folder / EPISODES_FOLDER / episodes.name)
        process.wait_for_everyone()


def step_of(checkpoint: Path) -> int:
    """Return the update after which a checkpoint was saved, by its name."""
    return int(checkpoint.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-"))


def base_rates(scheduler: LRScheduler) -> list[float]:
    """Return the learning rate that a schedule modifies, per parameter group."""
    return [float(rate) for rate in scheduler.base_lrs]


def set_base_rates(scheduler: LRScheduler, rates: Sequence[float]) -> None:
    """Let a schedule modify other learning rates, from its present step on.

    Args:
        scheduler: Any schedule in which learning rates are proportional to their base.
        rates: New base per parameter group.
    """
    groups = scheduler.optimizer.param_groups
    for group, old, new in zip(groups, scheduler.base_lrs, rates, strict=True):
        group["lr"] *= new / old if old else 1.0
        group["initial_lr"] = new
    scheduler.base_lrs = list(rates)
    scheduler._last_lr = [group["lr"] for group in groups]


def _copy(source: Path, target: Path) -> None:
    """Copy a folder so that, whenever it is interrupted, `target` is whole or absent."""
    unfinished = target.with_name(f"unfinished-{target.name}")
    for leftover in (target, unfinished):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(source, unfinished)
    unfinished.rename(target)


def _episodes_after(folder: Path, step: int) -> list[Path]:
    """Return the files of rollouts and evaluations that a run plays again from update `step` on."""
    rollouts = [path for path in folder.glob("train-*.jsonl") if _step_played(path) >= step]
    # A checkpoint is saved after the evaluation of the same update.
    return rollouts + [path for path in folder.glob("eval-*.jsonl") if _step_played(path) > step]


def _step_played(path: Path) -> int:
    """Return the update after which a file of episodes was written; -1 where it is damaged."""
    try:
        with path.open("rb") as file:
            return int(json.loads(file.readline())["step"])
    except (KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        return -1


def _checkpoints(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*")
        if path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-").isdecimal()
    ]
