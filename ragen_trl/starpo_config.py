"""Configuration of `StarPOTrainer`: fields, their help, and the checks that need no model."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from trl import GRPOConfig

from ragen_trl.config_checks import check_types_and_ranges
from ragen_trl.functional import select_groups
from ragen_trl.inherited_options import check_inherited_options

AdvantageEstimator = Literal[
    "gae", "bi_level_gae", "grpo", "dr_grpo", "rloo", "reinforce_pp", "gigpo", "rebn"
]
RolloutFilter = Literal[
    "top_k", "top_p", "min_p", "percentile_range", "within_group", "soft", "none"
]

# What this version does; the other values of these fields are refused by name.
SUPPORTED_VALUES: dict[str, tuple[Any, ...]] = {
    "advantage_estimator": ("grpo", "dr_grpo"),
    "rollout_filter": ("top_k", "none"),
    "rollout_filter_score": ("reward_std",),
    "rollout_filter_include_zero": (True,),
    "rollout_refill_tries": (0,),
    "reward_normalization": ("none",),
    "reward_grouping": ("group",),
    "turn_rewards": (False,),
    "gamma": (1.0,),
    "gae_lambda": (1.0,),
    "turn_gamma": (0.95,),
    "kl_in_reward_coef": (0.0,),
    "critic_learning_rate": (None,),
    "critic_warmup_steps": (0,),
    "value_clip_range": (0.5,),
    "critic_model_name_or_path": (None,),
    "loss_type": ("dapo", "grpo", "dr_grpo"),
}


class _Derived(int):
    """A number that `__post_init__` filled in, and may fill in anew in `dataclasses.replace`."""


@dataclass
class StarPOConfig(GRPOConfig):
    r"""Configuration of [`StarPOTrainer`]: everything of [`~trl.GRPOConfig`] and the following.

    The defaults are StarPO-S with the settings of RAGEN (arXiv:2504.20073); the estimator is
    `"grpo"`, since this version has no critic.

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
            Seed of the first training start state; each further group takes the next integer.
        eval_seed (`int`, *optional*, defaults to `123`):
            Seed of the first evaluation start state; the others follow.
        eval_episodes (`int`, *optional*, defaults to `256`):
            Start states per evaluation and environment.
        eval_temperature (`float`, *optional*, defaults to `0.5`):
            Sampling temperature in evaluation; 0 takes the most probable token.

    > Parameters that control the rollout

        max_new_tokens_per_turn (`int`, *optional*, defaults to `400`):
            Tokens of one reply; a longer reply is cut and counts as it stands.
        max_trajectory_tokens (`int`, *optional*, defaults to `3600`):
            Tokens of one episode, prompt included; where they run out the episode is truncated.
        log_trajectories (`bool`, *optional*, defaults to `True`):
            Whether to write every episode as a JSON line under `<output_dir>/trajectories`.

    > Parameters that control the advantage

        advantage_estimator (`str`, *optional*, defaults to `"grpo"`):
            How returns become advantages; this version has `"grpo"` and `"dr_grpo"`.
        gamma (`float`, *optional*, defaults to `1.0`):
            Discount per sampled token of `"gae"`.
        gae_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of `"gae"`.
        turn_gamma (`float`, *optional*, defaults to `0.95`):
            Discount per turn of the turn-level estimators.
        reward_normalization (`str`, *optional*, defaults to `"none"`):
            How returns are normalised before the estimator.
        reward_grouping (`str`, *optional*, defaults to `"group"`):
            Over which episodes returns are normalised.
        turn_rewards (`bool`, *optional*, defaults to `False`):
            Whether each turn's reward stands at its own last sampled token instead of all at the end.

    > Parameters that control StarPO-S

        rollout_filter (`str`, *optional*, defaults to `"top_k"`):
            Which groups are trained on; `"top_k"` keeps the share with the most uncertain outcome.
        rollout_filter_ratio (`float`, *optional*, defaults to `0.25`):
            Share of the groups that `"top_k"` keeps; at least one group.
        rollout_filter_score (`str`, *optional*, defaults to `"reward_std"`):
            What makes a group uncertain: the sample standard deviation of its returns.
        rollout_filter_include_zero (`bool`, *optional*, defaults to `True`):
            Whether groups without variance may be kept.
        rollout_refill_tries (`int`, *optional*, defaults to `0`):
            How often new groups are sampled in place of filtered ones.
        kl_in_reward_coef (`float`, *optional*, defaults to `0.0`):
            Coefficient of a KL penalty inside the reward.

    > Parameters that control the critic

        critic_learning_rate (`float`, *optional*):
            Learning rate of the critic.
        critic_warmup_steps (`int`, *optional*, defaults to `0`):
            Updates in which only the critic learns.
        value_clip_range (`float`, *optional*, defaults to `0.5`):
            How far a value may move from the rollout's before its loss is clipped.
        critic_model_name_or_path (`str`, *optional*):
            Model that the critic starts from.

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

    _VALID_DICT_FIELDS = GRPOConfig._VALID_DICT_FIELDS

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

    # Environment
    num_env_groups: int = field(
        default=8,
        metadata={
            "help": "Start states per rollout (P in the paper); each is one group of `num_generations` episodes."
        },
    )
    max_turns: int = field(default=5, metadata={"help": "Replies per episode."})
    max_actions_per_turn: int = field(
        default=5,
        metadata={"help": "Actions executed per reply; further ones are cut without penalty."},
    )
    max_actions_per_episode: int = field(
        default=10, metadata={"help": "Actions executed per episode."}
    )
    action_separator: str = field(
        default="||", metadata={"help": "Text between two actions of one reply."}
    )
    enable_think: bool = field(
        default=True,
        metadata={"help": "Whether a reply must hold a closed think block before its answer."},
    )
    format_penalty: float = field(
        default=-0.1,
        metadata={
            "help": "Added to the return once per turn whose reply is malformed or holds an illegal action."
        },
    )
    train_seed: int = field(
        default=10_000,
        metadata={
            "help": "Seed of the first training start state; each further group takes the next integer."
        },
    )
    eval_seed: int = field(
        default=123,
        metadata={"help": "Seed of the first evaluation start state; the others follow."},
    )
    eval_episodes: int = field(
        default=256, metadata={"help": "Start states per evaluation and environment."}
    )
    eval_temperature: float = field(
        default=0.5,
        metadata={"help": "Sampling temperature in evaluation; 0 takes the most probable token."},
    )

    # Rollout
    max_new_tokens_per_turn: int = field(
        default=400,
        metadata={"help": "Tokens of one reply; a longer reply is cut and counts as it stands."},
    )
    max_trajectory_tokens: int = field(
        default=3600,
        metadata={
            "help": "Tokens of one episode, prompt included; where they run out the episode is truncated."
        },
    )
    log_trajectories: bool = field(
        default=True,
        metadata={
            "help": "Whether to write every episode as a JSON line under `<output_dir>/trajectories`."
        },
    )

    # Advantage
    advantage_estimator: AdvantageEstimator = field(
        default="grpo",
        metadata={"help": "How returns become advantages; this version has `grpo` and `dr_grpo`."},
    )
    gamma: float = field(default=1.0, metadata={"help": "Discount per sampled token of `gae`."})
    gae_lambda: float = field(default=1.0, metadata={"help": "Lambda of `gae`."})
    turn_gamma: float = field(
        default=0.95, metadata={"help": "Discount per turn of the turn-level estimators."}
    )
    reward_normalization: Literal["none", "mean", "mean_std", "asym_clip"] = field(
        default="none", metadata={"help": "How returns are normalised before the estimator."}
    )
    reward_grouping: Literal["group", "env", "batch"] = field(
        default="group", metadata={"help": "Over which episodes returns are normalised."}
    )
    turn_rewards: bool = field(
        default=False,
        metadata={
            "help": "Whether each turn's reward stands at its own last sampled token instead of all at the end."
        },
    )

    # StarPO-S
    rollout_filter: RolloutFilter = field(
        default="top_k",
        metadata={
            "help": "Which groups are trained on; `top_k` keeps the share with the most uncertain outcome."
        },
    )
    rollout_filter_ratio: float = field(
        default=0.25,
        metadata={"help": "Share of the groups that `top_k` keeps; at least one group."},
    )
    rollout_filter_score: str = field(
        default="reward_std",
        metadata={
            "help": "What makes a group uncertain: the sample standard deviation of its returns."
        },
    )
    rollout_filter_include_zero: bool = field(
        default=True, metadata={"help": "Whether groups without variance may be kept."}
    )
    rollout_refill_tries: int = field(
        default=0,
        metadata={"help": "How often new groups are sampled in place of filtered ones."},
    )
    kl_in_reward_coef: float = field(
        default=0.0, metadata={"help": "Coefficient of a KL penalty inside the reward."}
    )

    # Critic
    critic_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the critic."}
    )
    critic_warmup_steps: int = field(
        default=0, metadata={"help": "Updates in which only the critic learns."}
    )
    value_clip_range: float = field(
        default=0.5,
        metadata={
            "help": "How far a value may move from the rollout's before its loss is clipped."
        },
    )
    critic_model_name_or_path: str | None = field(
        default=None, metadata={"help": "Model that the critic starts from."}
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
        self._check_support()
        check_inherited_options(self)
        self._check_seeds()

    @property
    def update_batch_size(self) -> int:
        """Most trajectories that one update takes, over all processes."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * self.world_size

    @property
    def num_episodes_per_rollout(self) -> int:
        """Episodes that one rollout plays, over all processes: P * N."""
        return self.num_env_groups * self.num_generations

    @property
    def num_kept_groups(self) -> int:
        """Groups per rollout that pass the filter."""
        if self.rollout_filter == "none":
            return self.num_env_groups
        scores = torch.zeros(self.num_env_groups)
        return len(select_groups(scores, value=self.rollout_filter_ratio))

    def describe_iteration(self) -> str:
        """Say in two lines what one iteration is."""
        kept = self.num_kept_groups * self.num_generations
        updates = math.ceil(kept / self.update_batch_size) * self.num_iterations
        return (
            f"One rollout: {self.num_env_groups} groups of {self.num_generations} episodes, up to "
            f"{self.max_turns} turns each. Trained on: {kept} of {self.num_episodes_per_rollout} "
            f"episodes (filter: {self.rollout_filter}).\n"
            f"{updates} update(s) per rollout of at most {self.update_batch_size} episodes; "
            f"{self.max_steps} updates in all."
        )

    @property
    def agent_turns(self) -> dict[str, Any]:
        """The arguments of `ragen_envs.AgentTurns` that this configuration stands for."""
        return {
            "max_turns": self.max_turns,
            "max_actions_per_turn": self.max_actions_per_turn,
            "max_actions_per_episode": self.max_actions_per_episode,
            "separator": self.action_separator,
            "think": self.enable_think,
            "format_penalty": self.format_penalty,
        }

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

    def _check_support(self) -> None:
        for name, supported in SUPPORTED_VALUES.items():
            value = getattr(self, name)
            if value not in supported:
                raise ValueError(
                    f"`{name}` must be {' or '.join(map(repr, supported))} in this version, got "
                    f"{value!r}."
                )

    def _check_seeds(self) -> None:
        if (
            self.train_seed < self.eval_seed + self.eval_episodes
            and self.eval_seed <= self.train_seed
        ):
            raise ValueError(
                f"`train_seed` ({self.train_seed}) must lie beyond the evaluation seeds "
                f"{self.eval_seed} to {self.eval_seed + self.eval_episodes - 1}. Raise it, so that "
                "no start state is both trained on and evaluated."
            )
        most_updates = self.max_steps * self.num_env_groups
        if self.train_seed < self.eval_seed < self.train_seed + most_updates:
            raise ValueError(
                f"`eval_seed` ({self.eval_seed}) must lie before `train_seed` "
                f"({self.train_seed}) or beyond the seeds that training can use (up to "
                f"{self.train_seed + most_updates - 1})."
            )
