"""Configuration of `StarPOTrainer`: fields, their help, and the checks that need no model."""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch

from ragen_trl.config_checks import check_combinations, check_seeds, check_types_and_ranges
from ragen_trl.config_choices import (
    CRITIC_ESTIMATORS,
    AdvantageEstimator,
    RolloutFilter,
    RolloutFilterScore,
)
from ragen_trl.functional import select_groups
from ragen_trl.inherited_options import check_inherited_options
from ragen_trl.playing_config import PlayingConfig


class _Derived(int):
    """A number that `__post_init__` filled in, and may fill in anew in `dataclasses.replace`."""


@dataclass
class StarPOConfig(PlayingConfig):
    r"""Configuration of [`StarPOTrainer`]: everything of [`~trl.GRPOConfig`] and the following.

    The defaults are StarPO-S with the settings of RAGEN (arXiv:2504.20073): PPO with a critic, a
    quarter of the groups kept, no KL term, and an asymmetric clip.

    > Parameters that control the environment

    Parameters:
        num_env_groups (`int`, *optional*, defaults to `8`):
            Start states per rollout (P in the paper); each is one group of `num_generations` episodes.
        num_generations (`int`, *optional*, defaults to `16`):
            Episodes per start state (N in the paper).
        max_turns (`int`, *optional*, defaults to `5`):
            Replies per episode.
        max_actions_per_turn (`int`, *optional*, defaults to `5`):
            Actions executed per reply; further ones are cut without penalty.
        max_actions_per_episode (`int`, *optional*, defaults to `10`):
            Actions executed per episode.
        action_separator (`str`, *optional*, defaults to `"||"`):
            Text between two actions of one reply.
        enable_think (`bool`, *optional*, defaults to `True`):
            Whether a reply must hold a closed think block before its answer.
        format_penalty (`float`, *optional*, defaults to `-0.1`):
            Added to the return once per turn whose reply is malformed or holds an illegal action.
        train_seed (`int`, *optional*, defaults to `10000`):
            Seed from which training start states are taken, in ascending order.
        eval_seed (`int`, *optional*, defaults to `123`):
            Seed from which evaluation start states are taken, in ascending order.
        eval_episodes (`int`, *optional*, defaults to `256`):
            Start states per evaluation and environment.
        validation_share (`float`, *optional*, defaults to `0.1`):
            Share of the levels that training never plays, rotated or mirrored neither; 0 takes seeds as they come. See `ragen_envs.splits`.
        eval_temperature (`float`, *optional*, defaults to `0.5`):
            Sampling temperature in evaluation; 0 takes the most probable token.

    > Parameters that control the rollout

        max_new_tokens_per_turn (`int`, *optional*, defaults to `400`):
            Tokens of one reply; a longer reply is cut and counts as it stands.
        max_trajectory_tokens (`int`, *optional*, defaults to `3600`):
            Tokens of one episode, prompt included; where they run out the episode is truncated.
        rollout_engine (`str`, *optional*, defaults to `"transformers"`):
            What writes the replies: `"transformers"` keeps its cache across turns, `"reference"` reads everything anew in every turn.
        rollout_row_budget (`int`, *optional*):
            Most episodes played side by side per process, which bounds the memory of the cache; all when not given.
        stop_at_answer (`bool`, *optional*, defaults to `False`):
            Whether a reply ends where its answer closes, instead of at its end-of-turn token.
        log_trajectories (`bool`, *optional*, defaults to `True`):
            Whether to write every episode as a JSON line under `<output_dir>/trajectories`.

    > Parameters that control the advantage

        advantage_estimator (`str`, *optional*, defaults to `"gae"`):
            How rewards become advantages; `"gae"` and `"bi_level_gae"` learn a critic.
        gamma (`float`, *optional*, defaults to `1.0`):
            Discount per sampled token of `"gae"` and, within a turn, of `"bi_level_gae"`.
        gae_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of `"gae"` and of both levels of `"bi_level_gae"`.
        turn_gamma (`float`, *optional*, defaults to `0.95`):
            Discount per turn of `"bi_level_gae"`, `"gigpo"` and `"rebn"`.
        reward_normalization (`str`, *optional*, defaults to `"none"`):
            How the returns of episodes are normalised before the estimator.
        reward_grouping (`str`, *optional*, defaults to `"group"`):
            Over which episodes returns are normalised: their group, environment or the whole batch.
        turn_rewards (`bool`, *optional*, defaults to `False`):
            Whether each turn's reward stands at its own last sampled token instead of all at the end.
        gigpo_step_weight (`float`, *optional*, defaults to `1.0`):
            Weight of the step advantage of `"gigpo"` beside the episode's.
        gigpo_divide_by_std (`bool`, *optional*, defaults to `True`):
            Whether the episode advantage of `"gigpo"` is divided by the std of the group.

    > Parameters that control StarPO-S

        rollout_filter (`str`, *optional*, defaults to `"top_k"`):
            Which episodes are trained on, chosen by the score of their group.
        rollout_filter_ratio (`float`, *optional*, defaults to `0.25`):
            What the filter keeps: the share of groups of `"top_k"`, the share of the scores' sum of `"top_p"`, the share of the best score of `"min_p"`, the share of each group's episodes of `"within_group"`.
        rollout_filter_num_groups (`int`, *optional*):
            Groups that `"top_k"` keeps, in place of a share.
        rollout_filter_top_p (`str`, *optional*, defaults to `"linear"`):
            Whether `"top_p"` adds up the scores or their softmax.
        rollout_filter_percentiles (`list`, *optional*, defaults to `[0.0, 0.25]`):
            Part of the ranking, from the best score down, that `"percentile_range"` keeps.
        rollout_filter_score (`str`, *optional*, defaults to `"reward_std"`):
            What a group is scored by; the default is its uncertainty, the sample std of its returns.
        rollout_filter_include_zero (`bool`, *optional*, defaults to `True`):
            Whether groups without variance may be kept.
        rollout_refill_tries (`int`, *optional*, defaults to `0`):
            How often new start states are played in place of groups without variance.
        rollout_loss_scale (`str`, *optional*, defaults to `"none"`):
            Factor of the loss after the filter: 1, the share of episodes kept, or its square root.
        kl_in_reward_coef (`float`, *optional*, defaults to `0.0`):
            Coefficient of the KL penalty (k1) inside the token rewards of the critic's estimators.

    > Parameters that control the critic

        critic_learning_rate (`float`, *optional*):
            Learning rate of the critic; ten times `learning_rate` when not set.
        critic_lr_scheduler_type (`str`, *optional*):
            Learning-rate schedule of the critic; the policy's when not set.
        critic_warmup_steps (`int`, *optional*, defaults to `0`):
            Updates at the start in which only the critic learns.
        value_clip_range (`float`, *optional*, defaults to `0.5`):
            How far a value may move from the rollout's before its loss is clipped.
        critic_model_name_or_path (`str`, *optional*):
            Model that the critic starts from; the policy's own backbone when not given.

    > Parameters that control the update

        old_logps (`str`, *optional*, defaults to `"recompute"`):
            Whether the log-probabilities that ratios start from are recomputed or those recorded in the rollout.

    > [!NOTE]
    > These parameters have default values different from [`~trl.GRPOConfig`]:
    > - `max_steps`: 200 updates, since there is no dataset that could end.
    > - `gradient_accumulation_steps`: 4, so that an update takes the paper's 32 trajectories.
    > - `per_device_eval_batch_size`: 64 episodes side by side in evaluation.
    > - `num_generations_eval`: 1 episode per evaluation seed.
    > - `epsilon_high`: 0.28 and `entropy_coef`: 0.001, as in StarPO-S.
    > - `use_bias_correction_kl`: `False`; the KL term is the plain k3 estimator.
    > - `lr_scheduler_type`: "constant", as in the paper's code.
    > - `logging_steps`: 1; every iteration counts.
    > - `disable_dropout`: `True`; otherwise the sampled and the trained policy differ.
    > - `bf16`: only where a GPU supports it.
    > - `max_completion_length`: taken from `max_new_tokens_per_turn`.
    """

    # Changed defaults
    max_steps: int = field(
        default=200, metadata={"help": "Number of optimizer updates; must be positive."}
    )
    gradient_accumulation_steps: int = field(
        default=4, metadata={"help": "Micro-batches per update and process."}
    )
    per_device_eval_batch_size: int = field(
        default=64, metadata={"help": "Episodes played side by side in evaluation, per process."}
    )
    num_generations_eval: int | None = field(
        default=1, metadata={"help": "Episodes per evaluation seed."}
    )
    epsilon_high: float | None = field(
        default=0.28, metadata={"help": "Upper clip range of the ratio (clip-higher)."}
    )
    entropy_coef: float = field(
        default=0.001, metadata={"help": "Coefficient of the entropy bonus."}
    )
    use_bias_correction_kl: bool = field(
        default=False, metadata={"help": "Off: the KL term is the plain k3 estimator."}
    )
    lr_scheduler_type: str = field(default="constant", metadata={"help": "Learning-rate schedule."})
    logging_steps: float = field(default=1, metadata={"help": "Updates between two log lines."})
    disable_dropout: bool = field(
        default=True, metadata={"help": "Whether to switch dropout off, adapters' included."}
    )
    max_completion_length: int | None = field(
        default=None, metadata={"help": "Taken from `max_new_tokens_per_turn`; leave unset."}
    )
    num_generations: int = field(
        default=16, metadata={"help": "Episodes per start state (N in the paper)."}
    )

    # Advantage
    advantage_estimator: AdvantageEstimator = field(
        default="gae",
        metadata={
            "help": "How rewards become advantages; `gae` and `bi_level_gae` learn a critic."
        },
    )
    gamma: float = field(
        default=1.0,
        metadata={
            "help": "Discount per sampled token of `gae` and, within a turn, of `bi_level_gae`."
        },
    )
    gae_lambda: float = field(
        default=1.0, metadata={"help": "Lambda of `gae` and of both levels of `bi_level_gae`."}
    )
    turn_gamma: float = field(
        default=0.95,
        metadata={"help": "Discount per turn of `bi_level_gae`, `gigpo` and `rebn`."},
    )
    reward_normalization: Literal["none", "mean", "mean_std", "asym_clip"] = field(
        default="none",
        metadata={"help": "How the returns of episodes are normalised before the estimator."},
    )
    reward_grouping: Literal["group", "env", "batch"] = field(
        default="group",
        metadata={
            "help": "Over which episodes returns are normalised: their group, environment or the whole batch."
        },
    )
    turn_rewards: bool = field(
        default=False,
        metadata={
            "help": "Whether each turn's reward stands at its own last sampled token instead of all at the end."
        },
    )
    gigpo_step_weight: float = field(
        default=1.0,
        metadata={"help": "Weight of the step advantage of `gigpo` beside the episode's."},
    )
    gigpo_divide_by_std: bool = field(
        default=True,
        metadata={
            "help": "Whether the episode advantage of `gigpo` is divided by the std of the group."
        },
    )

    # StarPO-S
    rollout_filter: RolloutFilter = field(
        default="top_k",
        metadata={"help": "Which episodes are trained on, chosen by the score of their group."},
    )
    rollout_filter_ratio: float = field(
        default=0.25,
        metadata={
            "help": "What the filter keeps: the share of groups of `top_k`, the share of the scores' sum of `top_p`, the share of the best score of `min_p`, the share of each group's episodes of `within_group`."
        },
    )
    rollout_filter_num_groups: int | None = field(
        default=None, metadata={"help": "Groups that `top_k` keeps, in place of a share."}
    )
    rollout_filter_top_p: Literal["linear", "softmax"] = field(
        default="linear",
        metadata={"help": "Whether `top_p` adds up the scores or their softmax."},
    )
    rollout_filter_percentiles: list[float] = field(
        default_factory=lambda: [0.0, 0.25],
        metadata={
            "help": "Part of the ranking, from the best score down, that `percentile_range` keeps."
        },
    )
    rollout_filter_score: RolloutFilterScore = field(
        default="reward_std",
        metadata={
            "help": "What a group is scored by; the default is its uncertainty, the sample std of its returns."
        },
    )
    rollout_filter_include_zero: bool = field(
        default=True, metadata={"help": "Whether groups without variance may be kept."}
    )
    rollout_refill_tries: int = field(
        default=0,
        metadata={
            "help": "How often new start states are played in place of groups without variance."
        },
    )
    rollout_loss_scale: Literal["none", "ratio", "sqrt"] = field(
        default="none",
        metadata={
            "help": "Factor of the loss after the filter: 1, the share of episodes kept, or its square root."
        },
    )
    kl_in_reward_coef: float = field(
        default=0.0,
        metadata={
            "help": "Coefficient of the KL penalty (k1) inside the token rewards of the critic's estimators."
        },
    )

    # Critic
    critic_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of the critic; ten times `learning_rate` when not set."},
    )
    critic_lr_scheduler_type: str | None = field(
        default=None,
        metadata={"help": "Learning-rate schedule of the critic; the policy's when not set."},
    )
    critic_warmup_steps: int = field(
        default=0, metadata={"help": "Updates at the start in which only the critic learns."}
    )
    value_clip_range: float = field(
        default=0.5,
        metadata={
            "help": "How far a value may move from the rollout's before its loss is clipped."
        },
    )
    critic_model_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Model that the critic starts from; the policy's own backbone when not given."
        },
    )

    # Update
    old_logps: Literal["recompute", "rollout"] = field(
        default="recompute",
        metadata={
            "help": "Whether the log-probabilities that ratios start from are recomputed or those recorded in the rollout."
        },
    )

    def __post_init__(self) -> None:
        if self.bf16 is None:
            self.bf16 = (
                not self.fp16 and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
            )
        if self.activation_checkpointing is None:
            # TRL still sets the old name, of which transformers warns; the new one is the same.
            self.activation_checkpointing = self.gradient_checkpointing
        check_types_and_ranges(self)
        self._derive_generation_batch()
        is_given = not isinstance(self.max_completion_length, _Derived | None)
        if is_given and self.max_completion_length != self.max_new_tokens_per_turn:
            raise ValueError(
                "`max_completion_length` must be left unset, got "
                f"{self.max_completion_length}. Set `max_new_tokens_per_turn` (one reply) and "
                "`max_trajectory_tokens` (one episode) instead."
            )
        self.max_completion_length = _Derived(self.max_new_tokens_per_turn)
        super().__post_init__()
        check_inherited_options(self)
        check_combinations(self)
        check_seeds(self)

    @property
    def update_batch_size(self) -> int:
        """Most trajectories that one update takes, over all processes."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * self.world_size

    @property
    def num_episodes_per_rollout(self) -> int:
        """Episodes that one rollout plays, over all processes: P * N."""
        return self.num_env_groups * self.num_generations

    @property
    def has_critic(self) -> bool:
        """Whether the estimator needs values."""
        return self.advantage_estimator in CRITIC_ESTIMATORS

    @property
    def num_kept_groups(self) -> int:
        """Groups per rollout that the filter keeps at most."""
        if self.rollout_filter != "top_k":
            return self.num_env_groups
        if self.rollout_filter_num_groups is not None:
            return min(self.rollout_filter_num_groups, self.num_env_groups)
        scores = torch.zeros(self.num_env_groups)
        return len(select_groups(scores, value=self.rollout_filter_ratio))

    @property
    def num_kept_per_group(self) -> int:
        """Episodes of a kept group that are trained on; two at least, one has no variance."""
        if self.rollout_filter != "within_group":
            return self.num_generations
        return max(2, math.floor(self.rollout_filter_ratio * self.num_generations + 1e-9))

    def describe_iteration(self) -> str:
        """Say in two lines what one iteration is."""
        kept = self.num_kept_groups * self.num_kept_per_group
        updates = math.ceil(kept / self.update_batch_size) * self.num_iterations
        is_fixed = self.rollout_filter in ("top_k", "within_group", "soft", "none")
        up_to = "" if is_fixed else "up to "
        return (
            f"One rollout: {self.num_env_groups} groups of {self.num_generations} episodes, up to "
            f"{self.max_turns} turns each. Trained on: {up_to}{kept} of "
            f"{self.num_episodes_per_rollout} episodes (filter: {self.rollout_filter}), with "
            f"{self.advantage_estimator}.\n"
            f"{up_to}{updates} update(s) per rollout of at most {self.update_batch_size} episodes; "
            f"{self.max_steps} updates in all."
        )

    def _derive_generation_batch(self) -> None:
        # TRL wants a generation batch that is a multiple of the micro-batch and of the group, and
        # sizes its vLLM engine by it. Our rollout does not depend on the update batch, so TRL gets
        # the smallest such number that holds a rollout.
        unit = self.num_generations // math.gcd(
            self.num_generations, self.per_device_train_batch_size
        )
        rows_per_unit = self.per_device_train_batch_size * unit
        steps = unit * math.ceil(self.num_episodes_per_rollout / rows_per_unit)
        is_unset = self.steps_per_generation is None and self.generation_batch_size is None
        if not (is_unset or isinstance(self.steps_per_generation, _Derived)):
            raise ValueError(
                "`steps_per_generation` and `generation_batch_size` must be left unset (None), got "
                f"{self.steps_per_generation} and {self.generation_batch_size}. A rollout plays "
                "`num_env_groups` * `num_generations` episodes; an update takes "
                "`per_device_train_batch_size` * `gradient_accumulation_steps` of them per process."
            )
        self.steps_per_generation, self.generation_batch_size = _Derived(steps), None
