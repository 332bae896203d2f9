"""`EchoTrapCallback`: watches a run for collapse, says so, and stops it or takes it back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from accelerate.logging import get_logger
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.optimization import GreedyLR

from ragen_envs.output_files import to_json
from ragen_trl.monitor.rollback import HealthyCheckpoints, Rollback
from ragen_trl.monitor.signals import Signal, default_signals
from ragen_trl.monitor.watch import Alarm, CollapseWatch
from ragen_trl.run_log import COLLAPSE_FILE
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.update_kl import as_finite

logger = get_logger(__name__)

OnCollapse = Literal["warn", "stop", "rollback"]

# Filters that `rollout_filter_ratio` has an effect on.
RATIO_FILTERS = ("top_k", "top_p", "min_p", "within_group")


class EchoTrapCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Watch a run of [`StarPOTrainer`] for collapse, the "echo trap" of RAGEN (arXiv:2504.20073).

    Reads the log, so `logging_steps` should be 1 (the default). Every alarm is a warning in words
    and a line in `<output_dir>/collapse.jsonl`: `step`, `since`, `signal`, `value`, `threshold`,
    `message`, `action`. The signs, their rules and sources: `default_signals`, docs/monitor.md.

    With "rollback", every checkpoint that is saved while all is well is copied to
    `<output_dir>/healthy` (the latest two stay). On collapse, training returns to the latest of them:
    weights, optimizers, critic, schedules, random state and start states are those of the
    checkpoint, learning rates and filter ratio are multiplied by the factors below. Another
    collapse before the next healthy checkpoint returns to the one before. Checkpoints and episodes
    of the collapsed part are moved to `<output_dir>/collapsed`.

    Args:
        patience (`int`, *optional*, defaults to 3):
            Bad measurements in a row that count as a sign, for signals whose source has no number of
            its own.
        on_collapse (`str`, *optional*, defaults to `"warn"`):
            "warn" says so, "stop" ends training, "rollback" returns to a healthy checkpoint, and
            ends training where there is none or after `max_rollbacks`.
        signals (`list` of `Signal`, *optional*):
            What to watch in place of `default_signals(patience)`.
        learning_rate_factor (`float`, *optional*, defaults to 0.5):
            Factor of the learning rates of policy and critic at each rollback, in `(0, 1]`.
        filter_ratio_factor (`float`, *optional*, defaults to 1.0):
            Factor of `rollout_filter_ratio` at each rollback, in `(0, 1]`.
        max_rollbacks (`int`, *optional*, defaults to 2):
            Rollbacks per run, those before a checkpoint that it is resumed from included.

    Raises:
        ValueError: If an argument is out of its range; at the start of training, if the run's
            configuration leaves the callback nothing to read or to return to.
    """

    def __init__(
        self,
        patience: int = 3,
        on_collapse: OnCollapse = "warn",
        *,
        signals: Sequence[Signal] | None = None,
        learning_rate_factor: float = 0.5,
        filter_ratio_factor: float = 1.0,
        max_rollbacks: int = 2,
    ) -> None:
        if not isinstance(patience, int) or patience < 1:
            raise ValueError(
                f"`patience` must be a whole number of at least 1, got {patience}. 3 is the default."
            )
        if on_collapse not in get_args(OnCollapse):
            raise ValueError(
                f"`on_collapse` must be one of {get_args(OnCollapse)}, got {on_collapse!r}."
            )
        factors = {
            "learning_rate_factor": learning_rate_factor,
            "filter_ratio_factor": filter_ratio_factor,
        }
        for name, factor in factors.items():
            if not 0 < factor <= 1:
                raise ValueError(
                    f"`{name}` must be in (0, 1], got {factor}. 1.0 leaves it as it is."
                )
        if on_collapse == "rollback" and set(factors.values()) == {1.0}:
            raise ValueError(
                "`learning_rate_factor` and `filter_ratio_factor` must not both be 1.0 with "
                "`on_collapse='rollback'`: the same training would collapse again. Lower one."
            )
        if max_rollbacks < 1:
            raise ValueError(
                f"`max_rollbacks` must be at least 1, got {max_rollbacks}. Use "
                "`on_collapse='stop'` to end training at the first collapse."
            )
        self.on_collapse = on_collapse
        self.signals = default_signals(patience) if signals is None else list(signals)
        self.learning_rate_factor = learning_rate_factor
        self.filter_ratio_factor = filter_ratio_factor
        self.max_rollbacks = max_rollbacks
        self.num_rollbacks = self._num_before = 0
        self._watch = CollapseWatch(self.signals)
        self._checkpoints: HealthyCheckpoints | None = None
        self._rollback: Rollback | None = None
        self._is_training = self._is_rolling_back = False

    def take_rollback(self) -> Rollback | None:
        """Return the rollback that was decided on since the last call, if any."""
        rollback, self._rollback = self._rollback, None
        self._is_rolling_back = rollback is not None
        return rollback

    def resume_after(self, num_rollbacks: int) -> None:
        """Let the next call of `train` go on from a checkpoint that was saved after rollbacks."""
        self._num_before = num_rollbacks

    def on_train_begin(
        self,
        args: StarPOConfig,
        state: TrainerState,
        control: TrainerControl,
        lr_scheduler: LRScheduler | ReduceLROnPlateau | None = None,
        **kwargs: Any,
    ) -> None:
        """Check the configuration, and read what a checkpoint's log says about its past."""
        _check_logging(args)
        output_dir = Path(args.output_dir)
        if self.on_collapse == "rollback":
            _check_rollback(args, state, lr_scheduler, self.filter_ratio_factor)
        if not self._is_rolling_back:
            self._start(output_dir, state)
        self._watch = CollapseWatch(self.signals)
        for entry in state.log_history:
            self._watch.feed(entry["step"], entry)
        self._is_training, self._is_rolling_back = True, False

    def on_log(
        self,
        args: StarPOConfig,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Judge a log entry, and act on the alarms it raises."""
        # Users evaluate before and after training, too.
        if not self._is_training or self._rollback is not None:
            return
        alarms = self._watch.feed(state.global_step, logs or {})
        if not alarms:
            return
        action, outcome = self._decide(state.global_step)
        if action != "warn":
            control.should_training_stop = True
        if action == "rollback":
            control.should_save = False
        if state.is_world_process_zero:
            _append_events(Path(args.output_dir) / COLLAPSE_FILE, alarms, action)
        lines = "\n".join(f"  {alarm.message}" for alarm in alarms)
        logger.warning(f"Signs of collapse at update {state.global_step}. {outcome}\n{lines}")

    def on_save(
        self, args: StarPOConfig, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep a copy of a checkpoint that is healthy."""
        if self._checkpoints is not None and self._watch.is_healthy:
            self._checkpoints.keep(state.global_step)

    def on_train_end(
        self, args: StarPOConfig, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop watching."""
        self._is_training = False

    def _start(self, output_dir: Path, state: TrainerState) -> None:
        self.num_rollbacks, self._num_before = self._num_before, 0
        if self.on_collapse == "rollback":
            self._checkpoints = HealthyCheckpoints(output_dir, state.global_step)
        if state.global_step == 0 and state.is_world_process_zero:
            # Those of an earlier run in the same folder.
            (output_dir / COLLAPSE_FILE).unlink(missing_ok=True)

    def _decide(self, step: int) -> tuple[OnCollapse, str]:
        """Return what is done about a collapse, and what a reader is told about it."""
        if self._checkpoints is None:
            is_warning = self.on_collapse == "warn"
            return self.on_collapse, "Training goes on." if is_warning else "Training stops."
        if not self._checkpoints.kept:
            return "stop", (
                "Training stops: no checkpoint was saved while all was well. Lower `save_steps`."
            )
        if self.num_rollbacks == self.max_rollbacks:
            return "stop", (
                f"Training stops after {self.num_rollbacks} rollbacks. The latest healthy "
                f"checkpoint is {self._checkpoints.kept[-1]}."
            )
        self.num_rollbacks += 1
        self._rollback = Rollback(
            checkpoint=self._checkpoints.take_last(),
            from_step=step,
            learning_rate_factor=self.learning_rate_factor,
            filter_ratio_factor=self.filter_ratio_factor,
        )
        self._checkpoints.put_aside_after(self._rollback.to_step)
        return "rollback", f"Training returns to {self._rollback.checkpoint}."


def take_rollback(callbacks: Sequence[TrainerCallback]) -> Rollback | None:
    """Return the rollback that one of a trainer's callbacks has decided on, if any."""
    for callback in callbacks:
        if isinstance(callback, EchoTrapCallback):
            rollback = callback.take_rollback()
            if rollback is not None:
                return rollback
    return None


def count_rollbacks(callbacks: Sequence[TrainerCallback]) -> int:
    """Return how often a trainer's callbacks have taken the run back."""
    return sum(c.num_rollbacks for c in callbacks if isinstance(c, EchoTrapCallback))


def resume_after_rollbacks(callbacks: Sequence[TrainerCallback], num_rollbacks: int) -> None:
    """Tell the callbacks of a resumed run how often it was taken back before."""
    for callback in callbacks:
        if isinstance(callback, EchoTrapCallback):
            callback.resume_after(num_rollbacks)


def _check_logging(args: StarPOConfig) -> None:
    if args.logging_strategy != "steps":
        raise ValueError(
            "`logging_strategy` must be 'steps' with EchoTrapCallback, which reads the log, got "
            f"{str(args.logging_strategy.value)!r}."
        )
    if args.logging_steps != 1:
        logger.warning(
            f"EchoTrapCallback sees means over `logging_steps` ({args.logging_steps}) updates, and "
            "its windows grow likewise. Set `logging_steps` to 1."
        )


def _check_rollback(
    args: StarPOConfig, state: TrainerState, lr_scheduler: Any, filter_ratio_factor: float
) -> None:
    why = "with `on_collapse='rollback'`"
    if args.save_strategy != "steps" or state.save_steps >= state.max_steps:
        raise ValueError(
            f"Checkpoints must be saved before training ends {why}, got `save_strategy` "
            f"{str(args.save_strategy.value)!r}, `save_steps` {args.save_steps}, `max_steps` "
            f"{state.max_steps}. Use 'steps' and, for instance, `save_steps=10`."
        )
    if args.save_only_model:
        raise ValueError(
            f"`save_only_model` must be False {why}: the optimizer is restored as well."
        )
    if isinstance(lr_scheduler, ReduceLROnPlateau | GreedyLR):
        raise ValueError(
            f"`lr_scheduler_type` must be a schedule of the update number {why}, got "
            f"{type(lr_scheduler).__name__}, which cannot be scaled. Use 'constant' or 'cosine'."
        )
    has_ratio = args.rollout_filter in RATIO_FILTERS and args.rollout_filter_num_groups is None
    if filter_ratio_factor != 1.0 and not has_ratio:
        raise ValueError(
            "`filter_ratio_factor` must be 1.0 where `rollout_filter_ratio` has no effect, got "
            f"{filter_ratio_factor} with `rollout_filter` {args.rollout_filter!r} and "
            f"`rollout_filter_num_groups` {args.rollout_filter_num_groups}."
        )


def _append_events(path: Path, alarms: Sequence[Alarm], action: OnCollapse) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for alarm in alarms:
            event = {
                "step": alarm.step,
                "since": alarm.since,
                "signal": alarm.signal.name,
                "value": as_finite(alarm.verdict.value),
                "threshold": alarm.verdict.threshold,
                "message": alarm.message,
                "action": action,
            }
            file.write(to_json(event) + "\n")
