"""`StarPOTrainer`: TRL's GRPO trainer, playing multi-turn episodes instead of answering prompts."""

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProgressCallback,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from ragen_trl.chat import ChatCodec
from ragen_trl.collation import plan_updates, split_evenly
from ragen_trl.environments import EnvLike, EnvPool, GroupDealer, make_eval_pools, make_pools
from ragen_trl.evaluation import EvaluationPanel
from ragen_trl.functional import importance_weights
from ragen_trl.generation import Reply, sample_replies
from ragen_trl.loading import load_tokenizer
from ragen_trl.metrics import evaluation_metrics, merge_evaluations, rollout_metrics
from ragen_trl.progress import LineProgressCallback
from ragen_trl.records import write_trajectories
from ragen_trl.rollout import RolloutTimer, TokenLimits, play_episodes, start_episodes
from ragen_trl.selection import Selection, select_trajectories
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trainer_checks import check_rollout_arguments, check_trainer, warn_about_dead_groups
from ragen_trl.trajectory import Trajectory
from ragen_trl.trl_compat import (
    disable_gradient_checkpointing,
    reward_is_the_environments,
    unwrap_model_for_generation,
    use_adapter,
)
from ragen_trl.update import build_micro_batches, starpo_loss, update_metrics

STATE_FILE = "starpo_state.json"


class StarPOTrainer(GRPOTrainer):
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
        if env is None:
            raise ValueError('`env` must be given, such as `env="ragen/Sokoban-v0"`.')
        if args is None:
            args = StarPOConfig("starpo")
        if not isinstance(args, StarPOConfig):
            raise TypeError(f"`args` must be a `StarPOConfig`, got {type(args).__name__}.")
        self._pools = make_pools(env, args.agent_turns)
        self.eval_panel = EvaluationPanel(
            make_eval_pools(eval_env, self._pools, args.agent_turns),
            range(args.eval_seed, args.eval_seed + args.eval_episodes),
        )
        if processing_class is None and isinstance(model, str):
            processing_class = load_tokenizer(model)
        placeholder = Dataset.from_dict({"prompt": [""]})
        super().__init__(
            model=model,
            reward_funcs=reward_is_the_environments,
            args=args,
            train_dataset=placeholder,
            eval_dataset=placeholder,
            processing_class=processing_class,
            callbacks=callbacks,
            optimizers=optimizers,
            peft_config=peft_config,
        )
        check_trainer(self)
        self._chat = ChatCodec(
            self._tokenizer,
            eos_token_ids=self.eos_token_ids,
            chat_template_kwargs=self.chat_template_kwargs,
        )
        self._limits = TokenLimits(args.max_new_tokens_per_turn, args.max_trajectory_tokens)
        self._dealer = GroupDealer(
            [pool.spec.weight for pool in self._pools], first_seed=args.train_seed
        )
        self._iteration = 0
        self._pending: deque[dict[str, Tensor]] = deque()
        self._update_sums: Tensor | None = None
        self._rollout_seconds = 0.0
        self._update_seconds = 0.0
        # Only where transformers put its bar up (`disable_tqdm` is off).
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(LineProgressCallback)

    # --- Public -------------------------------------------------------------------------------

    def rollout(
        self,
        env: EnvLike | list[EnvLike] | None = None,
        *,
        seeds: Sequence[int],
        num_generations: int,
        temperature: float,
    ) -> list[Trajectory]:
        """Play one group of `num_generations` episodes per seed with the present policy.

        Args:
            env: What to play; the training environments when not given. Of several, the first
                plays the first seed, the second the second, and so on in turn.
            seeds: Seed of each group's start state.
            num_generations: Episodes per seed; they share the start and differ in luck.
            temperature: Sampling temperature; 0 takes the most probable token.

        Returns:
            The trajectories, group by group.
        """
        check_rollout_arguments(seeds, num_generations, temperature)
        pools = self._pools if env is None else make_pools(env, self.args.agent_turns)
        groups = [(pools[i % len(pools)], seed) for i, seed in enumerate(seeds)]
        return self._play(groups, num_generations=num_generations, temperature=temperature)

    def evaluate(
        self,
        eval_dataset: None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Play the evaluation episodes and log what came out.

        Every evaluation plays the same start states with the same luck, leaves the random state of
        training alone, and is written to `<output_dir>/trajectories` like a rollout.

        Returns:
            The metrics of `evaluation_metrics`, prefixed with `eval_`; with several environments
            once per environment (`eval_<name>_...`) and averaged over them.
        """
        if eval_dataset is not None:
            raise ValueError("`eval_dataset` must be left unset. Pass `eval_env` to the trainer.")
        begin = time.perf_counter()
        per_env = {name: self._evaluate_one(name) for name in self.eval_panel.names}
        metrics = merge_evaluations(per_env, metric_key_prefix)
        metrics[f"{metric_key_prefix}_runtime"] = time.perf_counter() - begin
        with self._policy_at_rest():
            self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def describe(self) -> str:
        """Say in a few lines what will be played and trained."""
        names = ", ".join(pool.name for pool in self._pools)
        trainable = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return (
            f"Playing {names}.\n{self.args.describe_iteration()}\n"
            f"Trainable parameters: {trainable:,}."
        )

    # --- Rollout ------------------------------------------------------------------------------

    def _play(
        self,
        groups: Sequence[tuple[EnvPool, int]],
        *,
        num_generations: int,
        temperature: float,
        wave_size: int | None = None,
        timer: RolloutTimer | None = None,
    ) -> list[Trajectory]:
        """Play all groups, shared evenly between the processes; every process gets all episodes."""
        episodes = [
            (pool, seed, group_id, member)
            for group_id, (pool, seed) in enumerate(groups)
            for member in range(num_generations)
        ]
        share = split_evenly(len(episodes), self.accelerator.num_processes)
        own = episodes[share[self.accelerator.process_index]]
        wave_size = wave_size or max(len(own), 1)
        trajectories: list[Trajectory] = []
        with self._policy_at_rest():
            for first in range(0, len(own), wave_size):
                trajectories += play_episodes(
                    start_episodes(own[first : first + wave_size]),
                    generate=lambda ids, most: self._generate_replies(ids, most, temperature),
                    chat=self._chat,
                    limits=self._limits,
                    timer=timer,
                )
        return list(gather_object(trajectories))

    def _generate_replies(
        self, prompt_ids: list[list[int]], max_new_tokens: int, temperature: float
    ) -> list[Reply]:
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
            self.vllm_generation.max_completion_length = max_new_tokens
            ids, logps = self._generate_single_turn(prompt_ids, None, {}, 1)
            return [Reply(i, p) for i, p in zip(ids, logps, strict=True)]
        kwargs = {
            **self.generation_kwargs,
            "max_new_tokens": max_new_tokens,
            "do_sample": temperature > 0,
            "temperature": temperature or 1.0,
        }
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                generation_kwargs=kwargs,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),
        ):
            return sample_replies(
                model,
                prompt_ids,
                GenerationConfig(**kwargs, disable_compile=True),
                eos_token_ids=self.eos_token_ids,
            )

    @contextmanager
    def _policy_at_rest(self) -> Iterator[None]:
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)

    # --- One iteration ------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[int]:
        """Return a loader of placeholders: one per micro-batch of the whole run."""
        num_micro_batches = self.args.max_steps * self.args.gradient_accumulation_steps
        placeholders: Any = range(num_micro_batches)
        return DataLoader(placeholders, batch_size=1, collate_fn=list)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        if not self._pending:
            self._start_iteration()
        return self._pending.popleft()

    def _start_iteration(self) -> None:
        begin = time.perf_counter()
        timer = RolloutTimer()
        groups = self._dealer.deal(self.args.num_env_groups)
        trajectories = self._play(
            [(self._pools[index], seed) for index, seed in groups],
            num_generations=self.args.num_generations,
            temperature=self.args.temperature,
            timer=timer,
        )
        seconds = time.perf_counter() - begin
        selection = select_trajectories(
            trajectories,
            advantage_estimator=self.args.advantage_estimator,
            rollout_filter=self.args.rollout_filter,
            rollout_filter_ratio=self.args.rollout_filter_ratio,
        )
        self._log_rollout(trajectories, selection, seconds, timer)
        self._queue_updates(selection)
        self._iteration += 1
        self._rollout_seconds += seconds

    def _queue_updates(self, selection: Selection) -> None:
        args, accelerator = self.args, self.accelerator
        updates = plan_updates(
            selection.rows,
            update_batch_size=args.update_batch_size,
            generator=torch.Generator().manual_seed(args.seed + self._iteration),
        )
        batches = [
            {name: tensor.to(accelerator.device) for name, tensor in batch.items()}
            # With nothing to learn the update still happens, without a gradient.
            for rows in updates or [[]]
            for batch in build_micro_batches(
                rows,
                loss_type=args.loss_type,
                max_tokens=args.max_trajectory_tokens,
                num_micro_batches=args.gradient_accumulation_steps,
                process_index=accelerator.process_index,
                num_processes=accelerator.num_processes,
                pad_token_id=self._tokenizer.pad_token_id,
                pad_to_multiple_of=self.pad_to_multiple_of,
            )
        ]
        self._add_fixed_logps(batches, is_single_update=len(updates) * self.num_iterations <= 1)
        for _ in range(self.num_iterations):
            self._pending.extend(batches)

    def _add_fixed_logps(self, batches: list[dict[str, Tensor]], *, is_single_update: bool) -> None:
        """Add the log-probabilities of the policy that played and of the reference, where needed.

        With a single update per rollout the ratio to the policy that played is 1, whatever the
        tokens, and its log-probabilities need no pass of their own.
        """
        corrects_vllm = self.use_vllm and self.vllm_importance_sampling_correction
        needs_old = corrects_vllm or not is_single_update
        if not needs_old and self.beta == 0.0:
            return
        checkpointing = disable_gradient_checkpointing(
            self.model, self.args.gradient_checkpointing_kwargs
        )
        with torch.no_grad(), checkpointing, self._policy_at_rest():
            for batch in batches:
                if needs_old:
                    batch["old_per_token_logps"] = self._logps(self.model, batch)
                if corrects_vllm:
                    batch["importance_weights"] = importance_weights(
                        batch["old_per_token_logps"],
                        batch["sampling_per_token_logps"],
                        batch["action_mask"],
                        mode=self.vllm_importance_sampling_mode,
                        clip_min=self.vllm_importance_sampling_clip_min,
                        clip_max=self.vllm_importance_sampling_clip_max,
                    )
                if self.beta != 0.0:
                    batch["ref_per_token_logps"] = self._reference_logps(batch)

    def _logps(self, model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        logps, _, _ = self._get_per_token_logps_and_entropies(
            model, batch["input_ids"], batch["attention_mask"], batch["action_mask"].size(1)
        )
        return logps

    def _reference_logps(self, batch: Mapping[str, Tensor]) -> Tensor:
        if self.ref_model is not None:
            return self._logps(self.ref_model, batch)
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            return self._logps(self.model, batch)

    # --- Update -------------------------------------------------------------------------------

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Run one micro-batch; the time of a rollout that it begins with is not the update's."""
        begin, rollout_before = time.perf_counter(), self._rollout_seconds
        loss = super().training_step(model, inputs, num_items_in_batch)
        rollout_seconds = self._rollout_seconds - rollout_before
        self._update_seconds += time.perf_counter() - begin - rollout_seconds
        if not self._pending:
            self._metrics["train"]["time/update"].append(self._update_seconds)
            self._update_seconds = 0.0
        return loss

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        logps, entropies, _ = self._get_per_token_logps_and_entropies(
            model,
            inputs["input_ids"],
            inputs["attention_mask"],
            inputs["action_mask"].size(1),
            compute_entropy=True,
        )
        loss, parts = starpo_loss(
            logps,
            entropies,
            inputs,
            epsilon_low=self.epsilon_low,
            epsilon_high=self.epsilon_high,
            entropy_coef=self.entropy_coef,
            beta=self.beta,
        )
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"The loss is {loss.item()} in update {self.state.global_step + 1}. Lower "
                "`learning_rate` or `max_grad_norm`; checkpoints saved so far are unharmed."
            )
        sums = torch.stack([part.float() for part in parts])
        self._update_sums = sums if self._update_sums is None else self._update_sums + sums
        if self.accelerator.sync_gradients:
            totals = self.accelerator.reduce(self._update_sums, reduction="sum").tolist()
            self._append_metrics(update_metrics(totals, has_reference=self.beta != 0.0))
            self._update_sums = None
        # DDP averages gradients over the processes, whose parts of the loss add up.
        return loss * self.accelerator.num_processes

    # --- Records ------------------------------------------------------------------------------

    def _log_rollout(
        self,
        trajectories: Sequence[Trajectory],
        selection: Selection,
        seconds: float,
        timer: RolloutTimer,
    ) -> None:
        metrics = rollout_metrics(trajectories, seconds=seconds, timer=timer) | selection.metrics()
        self._append_metrics(metrics)
        self.state.num_input_tokens_seen += sum(
            len(t.prompt_ids) + len(t.completion_ids) for t in trajectories
        )
        warn_about_dead_groups(self._iteration, metrics["rollout/zero_variance_ratio"])
        per_row = zip(
            trajectories, selection.advantages.tolist(), selection.is_kept.tolist(), strict=True
        )
        self._write(
            f"train-{self._iteration:05d}",
            [(t, {"advantage": advantage, "is_kept": kept}) for t, advantage, kept in per_row],
        )

    def _append_metrics(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _write(self, name: str, rows: Sequence[tuple[Trajectory, dict[str, Any]]]) -> None:
        if not (self.args.log_trajectories and self.accelerator.is_main_process):
            return
        position = {"iteration": self._iteration, "step": self.state.global_step}
        write_trajectories(
            Path(self.args.output_dir) / "trajectories" / f"{name}.jsonl",
            [(trajectory, position | further) for trajectory, further in rows],
        )

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            state = {"num_groups_dealt": self._dealer.num_dealt, "iteration": self._iteration}
            path = Path(self._get_output_dir(trial=trial)) / folder / STATE_FILE
            path.write_text(json.dumps(state), encoding="utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (path := Path(checkpoint) / STATE_FILE).exists():
            state = json.loads(path.read_text(encoding="utf-8"))
            self._dealer.resume(state["num_groups_dealt"])
            self._iteration = state["iteration"]
            self._pending.clear()

    # --- Evaluation ---------------------------------------------------------------------------

    def _evaluate_one(self, name: str) -> dict[str, float]:
        args, panel = self.args, self.eval_panel
        with torch.random.fork_rng():
            torch.manual_seed(args.eval_seed + self.accelerator.process_index)
            trajectories = self._play(
                [(panel.pools[name], seed) for seed in panel.seeds],
                num_generations=self.num_generations_eval,
                temperature=args.eval_temperature,
                wave_size=args.per_device_eval_batch_size,
            )
        label = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        self._write(f"eval-{self.state.global_step:05d}-{label}", [(t, {}) for t in trajectories])
        return evaluation_metrics(trajectories, optimal_success=panel.optimal_success(name))
