"""Options of `GRPOConfig` that StarPO does not have: refused by name rather than ignored."""

from typing import Any

from trl import GRPOConfig

from ragen_trl.generation_options import check_generation_kwargs

# Options of GRPOConfig, and of TrainingArguments below it, that cannot be meant here: the value that
# leaves them off, and what to use.
REFUSED_OPTIONS: dict[str, tuple[Any, str]] = {
    "reward_weights": (None, "The reward is the environment's; scale it there."),
    "multi_objective_aggregation": ("sum_then_normalize", "There is one reward."),
    "scale_rewards": (
        "group",
        "Choose `advantage_estimator`: 'grpo' divides by the std, 'dr_grpo' does not.",
    ),
    "delta": (None, "Only `epsilon` and `epsilon_high` clip the ratio."),
    "importance_sampling_level": (
        "token",
        "Products of ratios over several turns vanish or explode.",
    ),
    "top_entropy_quantile": (1.0, "All sampled tokens are trained."),
    "use_adaptive_entropy": (False, "Set a fixed `entropy_coef`."),
    "mask_truncated_completions": (False, "Truncated episodes keep their rewards."),
    "off_policy_mask_threshold": (None, "Lower `num_iterations` to stay closer to the policy."),
    "use_bias_correction_kl": (False, "The KL term is the plain k3 estimator."),
    "max_tool_calling_iterations": (None, "Set `max_turns`."),
    "log_completions": (False, "Every episode is written to `<output_dir>/trajectories`."),
    "use_transformers_continuous_batching": (False, "Set `use_vllm` for a faster back end."),
    "router_aux_loss_coef": (None, "The load-balancing loss of mixtures of experts is not added."),
    "auto_find_batch_size": (False, "Lower `per_device_train_batch_size`."),
    "use_liger_kernel": (False, "TRL's own fused head is used."),
    "shuffle_dataset": (
        True,
        "There is no dataset; start states come in the order of their seeds.",
    ),
    "ds3_gather_for_generation": (True, "Generation needs the whole model."),
    "neftune_noise_alpha": (
        None,
        "Noise in the training pass alone gives probabilities that nothing was sampled with.",
    ),
    "label_smoothing_factor": (0.0, "There are no labels; `entropy_coef` keeps replies diverse."),
    "train_sampling_strategy": (
        "random",
        "There is no dataset; start states come in the order of their seeds.",
    ),
}

# Options that act only together with a value of the first one that StarPO does not have.
_COMPANIONS = {
    "loss_type": (
        "sapo_temperature_neg",
        "sapo_temperature_pos",
        "vespo_k_pos",
        "vespo_lambda_pos",
        "vespo_k_neg",
        "vespo_lambda_neg",
    ),
    "use_adaptive_entropy": (
        "entropy_coef_min",
        "entropy_coef_max",
        "entropy_coef_delta",
        "entropy_target",
    ),
    "log_completions": (
        "log_multimodal",
        "num_completions_to_print",
        "log_unique_prompts",
        "log_completions_hub_repo",
    ),
    "use_transformers_continuous_batching": ("transformers_continuous_batching_config",),
    "use_liger_kernel": ("liger_kernel_config",),
    "train_sampling_strategy": ("length_column_name",),
}
REFUSED_OPTIONS |= {
    name: (
        GRPOConfig.__dataclass_fields__[name].default,
        f"It acts only together with a value of `{leader}` that StarPO does not have.",
    )
    for leader, names in _COMPANIONS.items()
    for name in names
}


def check_inherited_options(config: GRPOConfig) -> None:
    """Refuse every inherited option that would have no effect.

    Raises:
        TypeError: As `check_generation_kwargs`.
        ValueError: Naming the option, its value, and what to use instead.
    """
    for name, (off, remedy) in REFUSED_OPTIONS.items():
        value = getattr(config, name)
        if value != off:
            raise ValueError(f"`{name}` must be left at {off!r} in StarPO, got {value!r}. {remedy}")
    check_generation_kwargs(config)
