"""`StarPOTrainer`: TRL's GRPO trainer, playing multi-turn episodes instead of answering prompts."""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProgressCallback

from ragen_trl.collation import Row, plan_passes
from ragen_trl.critic_learner import build_learner
from ragen_trl.environments import EnvLike, close_after_error
from ragen_trl.metrics import peak_memory, rollout_metrics
from ragen_trl.monitor.callback import count_rollbacks, resume_after_rollbacks, take_rollback
from ragen_trl.monitor.rollback import Rollback, base_rates, set_base_rates
from ragen_trl.progress import LineProgressCallback
from ragen_trl.refill import refill
from ragen_trl.rollout import RolloutTimer
from ragen_trl.rollout_callback import RolloutCallback, read_metrics
from ragen_trl.run_state import batch_settings, read_state, write_state
from ragen_trl.schedules import begin_later
from ragen_trl.scoring_trainer import ScoringTrainer
from ragen_trl.selection import Selection, select_trajectories
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.start_states import GroupDealer
from ragen_trl.token_advantages import add_token_advantages
from ragen_trl.trainer_checks import check_finite, check_recorded_logps, warn_about_dead_groups
from ragen_trl.trajectory import Trajectory
from ragen_trl.update import build_micro_batches, starpo_loss, update_metrics
from ragen_trl.update_kl import AfterUpdate, as_finite, collate_spread, update_kl_sums


class StarPOTrainer(ScoringTrainer):
    """Train a language model in multi-turn environments with StarPO (RAGEN, arXiv:2504.20073).

    One iteration plays `num_env_groups` groups of `num_generations` episodes, keeps the groups
    whose outcome is most uncertain, and trains on them in updates of at most
    `args.update_batch_size` trajectories, `num_iterations` times. Neither a dataset nor a reward
    function is needed: the environment gives both.

    Everything that is not named in `ragen_trl.trl_compat.OVERRIDES` is TRL's.

    Args:
        model (`str`, [`~transformers.PreTrainedModel`] or [`~peft.PeftModel`]):
            Causal language model: an id, a folder, or a loaded model.
        args ([`StarPOConfig`], *optional*):
            Configuration; its defaults when not given.
        env (`str`, `Callable`, [`EnvSpec`] or `list` of these, optionally as (entry, weight) pairs):
            What to play: a Gymnasium id, a callable that returns an environment, a specification,
            or a mixture of these.
        eval_env (same forms, or `dict` from name to one of them, *optional*):
            What to evaluate on; the training environments when not given.
        peft_config ([`~peft.PeftConfig`], *optional*):
            Adapter to train instead of the whole model.
        processing_class ([`~transformers.PreTrainedTokenizerBase`], *optional*):
            Tokenizer with a chat template; the model's own when not given.
        callbacks (`list` of [`~transformers.TrainerCallback`], *optional*):
            Further callbacks.
        optimizers (`tuple`, *optional*, defaults to `(None, None)`):
            Optimizer and learning-rate scheduler.

    Raises:
        ValueError: If the model has no trainable parameters, no chat template, or too short a
            context; and for every combination of options that this version does not have.
    """

    _tag_names = ["trl", "starpo"]  # noqa: RUF012
    _name = "StarPO"
    _paper = {  # noqa: RUF012
        "title": "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning",
        "id": "2504.20073",
    }

    def __init__(
        self,
        model: str | PreTrainedModel,
        args: StarPOConfig | None = None,
        env: EnvLike | list[EnvLike] | None = None,
        eval_env: EnvLike | list[EnvLike] | dict[str, EnvLike] | None = None,
        peft_config: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        super().__init__(
            model=model, args=args, env=env, eval_env=eval_env, peft_config=peft_config,
            processing_class=processing_class, callbacks=callbacks, optimizers=optimizers,
        )  # fmt: skip
        with close_after_error(self._all_pools):
            self._prepare_to_train()

    def _prepare_to_train(self) -> None:
        self._dealer = GroupDealer(
            self._pools,
            first_seed=self.args.train_seed,
            validation_share=self.args.validation_share,
        )
        self.critic = None
        if self.args.has_critic:
            self.critic = build_learner(
                self.model, self.args, self.accelerator, self.get_decay_parameter_names
            )
        self._pending: deque[dict[str, Tensor]] = deque()
        self._watched: dict[str, Tensor] = {}
        self.add_callback(AfterUpdate(self._measure_update))
        self._update_sums: Tensor | None = None
        self._update_seconds = 0.0
        self._rates_after_rollback: list[list[float]] = []
        self._filter_ratio_factor = 1.0
        # Only where transformers put its bar up (`disable_tqdm` is off).
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(LineProgressCallback)

    def describe(self) -> str:
        """Say in a few lines what will be played and trained."""
        names = ", ".join(pool.name for pool in self._pools)
        trainable = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        critic = "" if self.critic is None else f"; of the critic: {self.critic.num_parameters:,}"
        return (
            f"Playing {names}.\n{self.args.describe_iteration()}\n"
            f"Trainable parameters of the policy: {trainable:,}{critic}."
        )

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """Train; where an `EchoTrapCallback` asks for it, go on from a healthy checkpoint.

        Args:
            resume_from_checkpoint: Checkpoint to go on from, or `True` for the latest one.
            trial: See transformers' `Trainer`, as for what follows.
            ignore_keys_for_eval: Without effect; evaluation plays episodes.
        """
        # What an earlier call left is of another policy, or of an update that was broken off.
        self._pending.clear()
        self._watched, self._update_sums, self._update_seconds = {}, None, 0.0
        self._metrics["train"].clear()
        output = super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)
        while (rollback := take_rollback(self.callback_handler.callbacks)) is not None:
            self._prepare_rollback(rollback)
            output = super().train(str(rollback.checkpoint), trial, ignore_keys_for_eval)
        return output

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Create the policy's schedule, from the end of the critic's warm-up on, and the critic's."""
        is_new = self.lr_scheduler is None
        num_own_steps = num_training_steps - self._critic_warmup_steps
        scheduler = super().create_scheduler(num_own_steps, optimizer)
        if is_new:
            begin_later(scheduler, self._critic_warmup_steps)
        if self.critic is not None:
            self.critic.create_scheduler(num_training_steps)
        return scheduler

    def _prepare_rollback(self, rollback: Rollback) -> None:
        """Change what is to be different; `_load_optimizer_and_scheduler` sets the rates."""
        self._rates_after_rollback = [
            [rollback.learning_rate_factor * rate for rate in base_rates(scheduler)]
            for scheduler in self._schedulers
        ]
        self._scale_filter_ratio(self._filter_ratio_factor * rollback.filter_ratio_factor)
        steps = {"rollback/from_step": rollback.from_step, "rollback/to_step": rollback.to_step}
        ratio = {"rollback/filter_ratio": self.args.rollout_filter_ratio}
        self._append_metrics(steps | ratio)

    def _scale_filter_ratio(self, factor: float) -> None:
        # Times what the configuration says.
        self.args.rollout_filter_ratio *= factor / self._filter_ratio_factor
        self._filter_ratio_factor = factor

    @property
    def _schedulers(self) -> list[Any]:
        return [self.lr_scheduler] + ([] if self.critic is None else [self.critic.scheduler])

    # --- One iteration ------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[int]:
        """Return a loader of placeholders: one per micro-batch of the whole run."""
        placeholders: Any = range(self.args.max_steps * self.args.gradient_accumulation_steps)
        return DataLoader(placeholders, batch_size=1, collate_fn=list)

    def _start_iteration(self) -> float:
        """Play a rollout and queue its updates; return the seconds of play and of callbacks."""
        args, begin, timer = self.args, time.perf_counter(), RolloutTimer()

        def play(num_groups: int) -> list[Trajectory]:
            return self._play(
                self._dealer.deal(num_groups),
                num_generations=args.num_generations,
                temperature=args.temperature,
                timer=timer,
            )

        trajectories, played = refill(
            play(args.num_env_groups),
            num_wanted=args.num_kept_groups,
            max_tries=args.rollout_refill_tries,
            play=play,
        )
        seconds = time.perf_counter() - begin
        selection = select_trajectories(trajectories, args)
        self._append_metrics({"time/filter": time.perf_counter() - begin - seconds})
        self._append_metrics(self._dealer.update_curricula(played))
        self._log_rollout(played, selection, seconds, timer)
        begin = time.perf_counter()
        self._show_rollout(played)
        seconds += time.perf_counter() - begin
        begin = time.perf_counter()
        self._queue_updates(selection)
        self._append_metrics({"time/logps": time.perf_counter() - begin})
        self._iteration += 1
        return seconds

    def _show_rollout(self, played: Sequence[Trajectory]) -> None:
        """Call the callbacks that look at rollouts, and log what they measured."""
        callbacks = [c for c in self.callback_handler.callbacks if isinstance(c, RolloutCallback)]
        if not callbacks:
            return
        with torch.no_grad(), self._policy_at_rest(), self._open_model() as model:
            shown = {"trajectories": played, "model": model, "iteration": self._iteration}
            shown["processing_class"] = self._tokenizer
            for callback in callbacks:
                metrics = callback.on_rollout_end(self.args, self.state, self.control, **shown)
                self._append_metrics(read_metrics(callback, metrics))

    def _queue_updates(self, selection: Selection) -> None:
        args, accelerator, rows = self.args, self.accelerator, selection.rows
        self._watched = {}
        if not rows:
            # Nothing to learn: one update without a batch, so that training goes on.
            self._pending.extend({} for _ in range(args.gradient_accumulation_steps))
            return
        if args.old_logps == "rollout":
            check_recorded_logps([row.trajectory for row in rows])
        passes = plan_passes(
            rows, self.num_iterations, args.update_batch_size, seed=args.seed + self._iteration
        )
        self._watched = collate_spread(
            rows[accelerator.process_index :: accelerator.num_processes],
            pad_token_id=self._tokenizer.pad_token_id,
            device=accelerator.device,
        )
        is_single = self.num_iterations * len(passes[0]) == 1
        for number, updates in enumerate(passes):
            # A single update has but one split, which need not be scored again.
            if number == 0 or len(updates) > 1:
                batches = self._make_batches(updates, selection.loss_scale, is_single)
            self._pending.extend(batches)

    def _make_batches(
        self, updates: list[list[Row]], loss_scale: float, is_single_update: bool
    ) -> list[dict[str, Tensor]]:
        """Return this process's micro-batches of one pass over the rollout, complete."""
        args, accelerator = self.args, self.accelerator
        batches = [
            batch
            for rows in updates
            for batch in build_micro_batches(
                rows,
                loss_type=args.loss_type,
                loss_scale=loss_scale,
                max_tokens=args.max_trajectory_tokens,
                num_micro_batches=args.gradient_accumulation_steps,
                process_index=accelerator.process_index,
                num_processes=accelerator.num_processes,
                pad_token_id=self._tokenizer.pad_token_id,
                pad_to_multiple_of=self.pad_to_multiple_of,
                device=accelerator.device,
            )
        ]
        with self._scoring():
            self._add_fixed_logps(batches, is_single_update=is_single_update)
            values = None if self.critic is None else self.critic.values
            add_token_advantages(batches, args, values=values, gather=accelerator.gather)
        return batches

    # --- Update -------------------------------------------------------------------------------

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Run one micro-batch of policy and critic, after a rollout where none is left of the last.

        An update is skipped, without touching weights or moments, where a rollout taught nothing;
        in the critic's warm-up, the policy's half of it is.
        """
        # TRL logs by this mode, and a skipped update does not come to where transformers sets it.
        model.train()
        begin = time.perf_counter()
        rollout_seconds = 0.0 if self._pending else self._start_iteration()
        batch = self._pending.popleft()
        loss = torch.zeros((), device=self.args.device)
        if batch and self.state.global_step >= self._critic_warmup_steps:
            loss = super().training_step(model, batch, num_items_in_batch)
        if self.critic is not None:
            self._append_metrics(self.critic.learn(batch) if batch else self.critic.skip())
        self._update_seconds += time.perf_counter() - begin - rollout_seconds
        if not self._pending:
            self._append_metrics({"time/update": self._update_seconds, **peak_memory()})
            self._update_seconds = 0.0
        return loss

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        # In training, `training_step` hands over batches that are ready.
        if self.model.training:
            return generation_batch
        return super()._prepare_inputs(generation_batch)

    @property
    def _critic_warmup_steps(self) -> int:
        return 0 if self.critic is None else self.args.critic_warmup_steps

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        logps, entropies = self._score(model, inputs)
        loss, parts = starpo_loss(
            logps,
            entropies,
            inputs,
            epsilon_low=self.epsilon_low,
            epsilon_high=self.epsilon_high,
            entropy_coef=self.entropy_coef,
            beta=self.beta,
        )
        sums = torch.stack([part.float() for part in parts])
        self._update_sums = sums if self._update_sums is None else self._update_sums + sums
        if self.accelerator.sync_gradients:
            totals = self.accelerator.reduce(self._update_sums, reduction="sum").tolist()
            # Of all processes, so that all of them stop, and none waits for another.
            check_finite("loss", sum(totals), "`learning_rate`")
            self._append_metrics(update_metrics(totals, has_reference=self._has_reference))
            self._update_sums = None
        # DDP averages gradients over the processes, whose parts of the loss add up.
        return loss * self.accelerator.num_processes

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        # DeepSpeed has none before its first step.
        if norm is not None:
            check_finite("gradient norm", float(norm), "`learning_rate`")
        return norm

    def _measure_update(self) -> None:
        """Log how far the policy has moved, after the last update on a rollout and before a save."""
        # Before a save, so that no checkpoint counts as healthy whose policy is broken.
        if not self._watched or (self._pending and not self.control.should_save):
            return
        with self._scoring():
            sums = update_kl_sums(self._logps(self.model, self._watched), self._watched)
        difference, num_tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        if num_tokens:
            self._append_metrics({"update_kl": as_finite(difference / num_tokens)})

    # --- Records ------------------------------------------------------------------------------

    def _log_rollout(
        self,
        played: Sequence[Trajectory],
        selection: Selection,
        seconds: float,
        timer: RolloutTimer,
    ) -> None:
        metrics = rollout_metrics(played, seconds=seconds, timer=timer) | selection.metrics()
        if self.args.rollout_refill_tries:
            num_groups = len(played) // self.args.num_generations
            metrics["rollout/refilled_groups"] = num_groups - self.args.num_env_groups
        self._append_metrics(metrics)
        self.state.num_input_tokens_seen += sum(
            len(t.prompt_ids) + len(t.completion_ids) for t in played
        )
        skips_kl = self._has_reference and not selection.rows
        ratio = metrics["rollout/zero_variance_ratio"]
        warn_about_dead_groups(self._iteration, ratio, skips_kl=skips_kl)
        records = selection.records(played)
        self._write(f"train-{self._iteration:05d}", zip(played, records, strict=True))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = self._checkpoint_folder(trial)
        pending = {"batches": list(self._pending), "watched": self._watched}
        torch.save(pending, folder / self._pending_file)
        if self.args.should_save:
            state = {"dealer": self._dealer.state_dict(), "iteration": self._iteration}
            state["batches"] = self._batch_settings
            state["rollbacks"] = count_rollbacks(self.callback_handler.callbacks)
            state["filter_ratio_factor"] = self._filter_ratio_factor
            write_state(folder, state)
            if self.critic is not None:
                self.critic.save(folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        folder = Path(checkpoint)
        state = read_state(folder)
        self._dealer.load_state_dict(state["dealer"])
        self._iteration = state["iteration"]
        # A rollback goes on with what it changed, a resumed run with what the checkpoint's had.
        if not self._rates_after_rollback:
            self._scale_filter_ratio(state.get("filter_ratio_factor", 1.0))
            resume_after_rollbacks(self.callback_handler.callbacks, state.get("rollbacks", 0))
        self._pending.clear()
        self._watched = {}
        # Batches of other settings are of no use; training goes on with a new rollout.
        if state["batches"] == self._batch_settings:
            pending = torch.load(
                folder / self._pending_file, map_location=self.args.device, weights_only=True
            )
            self._pending.extend(pending["batches"])
            self._watched = pending["watched"]
        if self.critic is not None:
            self.critic.load(folder)
        if self._rates_after_rollback:
            for scheduler, rates in zip(self._schedulers, self._rates_after_rollback, strict=True):
                set_base_rates(scheduler, rates)
            self._rates_after_rollback = []

    @property
    def _batch_settings(self) -> dict[str, Any]:
        return batch_settings(self.args, num_processes=self.accelerator.num_processes)

    @property
    def _pending_file(self) -> str:
        return f"starpo_pending_{self.accelerator.process_index}.pt"
