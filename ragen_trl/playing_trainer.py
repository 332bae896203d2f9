"""A TRL trainer that plays episodes: rollouts, evaluation and their records. It does not learn."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from ragen_trl.adapters import (
    check_adapter,
    check_adapter_name,
    check_replicated_layers,
    let_head_be_read,
)
from ragen_trl.chat import ChatCodec
from ragen_trl.collation import split_evenly
from ragen_trl.engines import (
    AnswerStop,
    CachedEngine,
    Engine,
    JointEngine,
    ReferenceEngine,
    Reply,
    ReplyLuck,
    SamplingRules,
)
from ragen_trl.environments import (
    EnvLike,
    EnvPool,
    close_after_error,
    make_eval_pools,
    make_pools,
    open_pools,
)
from ragen_trl.evaluation import EvaluationPanel
from ragen_trl.generation import sample_replies
from ragen_trl.loading import check_folder, load_tokenizer
from ragen_trl.metrics import evaluation_metrics, merge_evaluations
from ragen_trl.progress import RolloutBar
from ragen_trl.records import EPISODES_FOLDER, write_trajectories
from ragen_trl.reference import Reference, reference_for_any_kl
from ragen_trl.rollout import RolloutTimer, TokenLimits, play_episodes, start_episodes
from ragen_trl.run_log import RunLogCallback
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.start_states import GroupStart
from ragen_trl.trainer_checks import (
    check_rollout_arguments,
    check_trainer,
    generates_jointly,
    uses_reference_engine,
    warn_about_open_think,
    warn_about_template_end,
)
from ragen_trl.trajectory import Trajectory
from ragen_trl.trl_compat import reward_is_the_environments, unwrap_model_for_generation


class PlayingTrainer(GRPOTrainer):
    """GRPOTrainer whose policy plays environments instead of answering prompts.

    See [`StarPOTrainer`], which adds how it learns; the arguments are described there. Those that
    are not named here go on to GRPOTrainer.
    """

    def __init__(
        self,
        *,
        model: str | PreTrainedModel,
        args: StarPOConfig | None,
        env: EnvLike | list[EnvLike] | None,
        eval_env: EnvLike | list[EnvLike] | dict[str, EnvLike] | None,
        processing_class: PreTrainedTokenizerBase | None,
        **further: Any,
    ) -> None:
        if env is None:
            raise ValueError('`env` must be given, such as `env="ragen/Sokoban-v0"`.')
        if args is None:
            args = StarPOConfig("starpo")
        if not isinstance(args, StarPOConfig):
            raise TypeError(f"`args` must be a `StarPOConfig`, got {type(args).__name__}.")
        self._pools = make_pools(env, args.agent_turns)
        with close_after_error(self._pools):
            eval_pools = make_eval_pools(eval_env, self._pools, args.agent_turns)
        self.eval_panel = EvaluationPanel(
            eval_pools,
            first_seed=args.eval_seed,
            num_seeds=args.eval_episodes,
            validation_share=args.validation_share,
        )
        with close_after_error(self._all_pools):
            if isinstance(model, str):
                check_folder(model)
                if processing_class is None:
                    processing_class = load_tokenizer(model)
            placeholder = Dataset.from_dict({"prompt": [""]})
            check_adapter_name(model, args)
            check_adapter(model, further.get("peft_config"))
            with reference_for_any_kl(model, args, further.get("peft_config")):
                super().__init__(
                    model=model,
                    reward_funcs=reward_is_the_environments,
                    args=args,
                    train_dataset=placeholder,
                    eval_dataset=placeholder,
                    processing_class=processing_class,
                    **further,
                )
            self.beta = args.beta
            check_trainer(self)
            check_replicated_layers(self.model)
            let_head_be_read(self.model)
            self._reference = Reference(self)
            self._prepare_to_play()

    def _prepare_to_play(self) -> None:
        args = self.args
        self.add_callback(RunLogCallback(self.eval_panel))
        self._chat = ChatCodec(
            self._tokenizer,
            eos_token_ids=self.eos_token_ids,
            chat_template_kwargs=self.chat_template_kwargs,
        )
        self._stop_at_template_end()
        warn_about_open_think(self._chat, think=args.enable_think, option="enable_think")
        self._stop = AnswerStop(self._tokenizer) if args.stop_at_answer else None
        self._is_reference_engine = uses_reference_engine(self)
        self._limits = TokenLimits(args.max_new_tokens_per_turn, args.max_trajectory_tokens)
        self._iteration = 0

    @property
    def _all_pools(self) -> list[EnvPool]:
        return [*self._pools, *self.eval_panel.pools.values()]

    def _stop_at_template_end(self) -> None:
        if self._chat.end_ids == self.eos_token_ids:
            return
        if self.use_vllm:
            warn_about_template_end(self._tokenizer, self._chat.end_ids[-1])
            return
        self.eos_token_ids = self._chat.end_ids
        self.generation_kwargs["eos_token_id"] = self.eos_token_ids

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
        groups = [GroupStart(pools[i % len(pools)], seed) for i, seed in enumerate(seeds)]
        with open_pools(pools):
            return self._play(groups, num_generations=num_generations, temperature=temperature)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """Train as `GRPOTrainer` does, and close the environments at the end, or after an error.

        The first call fixes the reference, which later calls leave where it is.
        """
        # Before a checkpoint is read: a resumed run has the reference of its start.
        self._reference.fix(resume_from_checkpoint)
        with open_pools(self._all_pools):
            return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)

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
        with open_pools(self.eval_panel.pools.values()):
            per_env = {name: self._evaluate_one(name) for name in self.eval_panel.names}
            metrics = merge_evaluations(per_env, metric_key_prefix)
            metrics[f"{metric_key_prefix}_runtime"] = time.perf_counter() - begin
            with self._policy_at_rest():
                self.log(metrics)
            self.control = self.callback_handler.on_evaluate(
                self.args, self.state, self.control, metrics
            )
        return metrics

    def _play(
        self,
        groups: Sequence[GroupStart],
        *,
        num_generations: int,
        temperature: float,
        has_own_luck: bool = False,
        wave_size: int | None = None,
        timer: RolloutTimer | None = None,
    ) -> list[Trajectory]:
        """Play all groups, shared evenly between the processes; every process gets all episodes."""
        episodes = [
            (start, group_id, member)
            for group_id, start in enumerate(groups)
            for member in range(num_generations)
        ]
        share = split_evenly(len(episodes), self.accelerator.num_processes)
        own = episodes[share[self.accelerator.process_index]]
        wave_sizes = (wave_size, self.args.rollout_row_budget, len(own))
        wave_size = min((size for size in wave_sizes if size), default=1)
        engine = self._make_engine(temperature)
        trajectories: list[Trajectory] = []
        shows = self.accelerator.is_main_process and not self.args.disable_tqdm
        with self._policy_at_rest(), RolloutBar(len(own), is_shown=shows) as bar:
            for first in range(0, len(own), wave_size):
                trajectories += play_episodes(
                    start_episodes(own[first : first + wave_size]),
                    engine=engine,
                    chat=self._chat,
                    limits=self._limits,
                    has_own_luck=has_own_luck,
                    timer=timer,
                    on_turn=bar.update,
                )
            engine.finish()
        return list(gather_object(trajectories))

    def _make_engine(self, temperature: float) -> Engine:
        def write(
            prompt_ids: list[list[int]], most: int, luck: ReplyLuck | None = None
        ) -> list[Reply]:
            return self._generate_replies(prompt_ids, most, temperature, luck)

        if self.use_vllm and generates_jointly(self):
            return JointEngine(
                write,
                gather=gather_object,
                filler_ids=[self._tokenizer.pad_token_id],
                stop=self._stop,
                name="vllm",
            )
        if self.use_vllm:
            return ReferenceEngine(write, stop=self._stop, name="vllm")
        if self._is_reference_engine:
            return ReferenceEngine(write, stop=self._stop)
        rules = SamplingRules(
            temperature=temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )
        return CachedEngine(
            self._open_model, rules, eos_token_ids=self.eos_token_ids, stop=self._stop
        )

    @contextmanager
    def _open_model(self, generation_kwargs: dict[str, Any] | None = None) -> Iterator[Any]:
        """Hand out the model, ready to generate."""
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                generation_kwargs=generation_kwargs,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),
        ):
            yield model

    def _generate_replies(
        self,
        prompt_ids: list[list[int]],
        max_new_tokens: int,
        temperature: float,
        luck: ReplyLuck | None = None,
    ) -> list[Reply]:
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
            self.vllm_generation.max_completion_length = max_new_tokens
            ids, logps = self._generate_single_turn(prompt_ids, None, {}, 1)
            # TRL puts None where vLLM reports no number.
            return [
                Reply(row, [math.nan if logp is None else logp for logp in row_logps])
                for row, row_logps in zip(ids, logps, strict=True)
            ]
        kwargs = {
            **self.generation_kwargs,
            "max_new_tokens": max_new_tokens,
            "do_sample": temperature > 0,
            "temperature": temperature or 1.0,
        }
        with self._open_model(kwargs) as model:
            return sample_replies(
                model,
                prompt_ids,
                GenerationConfig(**kwargs, disable_compile=True),
                eos_token_ids=self.eos_token_ids,
                luck=luck,
            )

    @contextmanager
    def _policy_at_rest(self) -> Iterator[None]:
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)

    def _evaluate_one(self, name: str) -> dict[str, float]:
        args, panel = self.args, self.eval_panel
        with torch.random.fork_rng():
            torch.manual_seed(args.eval_seed + self.accelerator.process_index)
            trajectories = self._play(
                [GroupStart(panel.pools[name], seed) for seed in panel.seeds(name)],
                num_generations=self.num_generations_eval,
                temperature=args.eval_temperature,
                has_own_luck=True,
                wave_size=args.per_device_eval_batch_size,
            )
        label = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        self._write(f"eval-{self.state.global_step:05d}-{label}", [(t, {}) for t in trajectories])
        return evaluation_metrics(trajectories, optimal_success=panel.optimal_success(name))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            self._reference.save(self._checkpoint_folder(trial))

    def _checkpoint_folder(self, trial: Any) -> Path:
        """Return where the checkpoint of this step lies."""
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        return Path(self._get_output_dir(trial=trial)) / name

    def _append_metrics(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _write(self, name: str, rows: Iterable[tuple[Trajectory, dict[str, Any]]]) -> None:
        # Rows may be made while they are read: one process alone writes them.
        if not (self.args.log_trajectories and self.accelerator.is_main_process):
            return
        position = {"iteration": self._iteration, "step": self.state.global_step}
        write_trajectories(
            Path(self.args.output_dir) / EPISODES_FOLDER / f"{name}.jsonl",
            ((trajectory, position | further) for trajectory, further in rows),
        )
