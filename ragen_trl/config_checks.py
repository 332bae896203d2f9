"""Types and ranges of `StarPOConfig`, as tables."""

import math
from numbers import Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transformers import SchedulerType

from ragen_envs.agent_checks import check_penalty
from ragen_trl.start_states import check_validation_share

# Smallest value of every whole number.
_INTEGERS = {
    "num_env_groups": 1,
    "num_generations": 2,
    "num_generations_eval": 1,
    "max_turns": 1,
    "max_actions_per_turn": 1,
    "max_actions_per_episode": 1,
    "train_seed": 0,
    "eval_seed": 0,
    "eval_episodes": 1,
    "max_new_tokens_per_turn": 1,
    "max_trajectory_tokens": 2,
    "max_steps": 1,
    "num_iterations": 1,
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "top_k": 0,
    "gradient_accumulation_steps": 1,
    "rollout_refill_tries": 0,
    "critic_warmup_steps": 0,
}
# Those that may be left unset; at least 1.
_OPTIONAL_INTEGERS = ("rollout_row_budget",)
_BOOLEANS = (
    "enable_think",
    "log_trajectories",
    "turn_rewards",
    "rollout_filter_include_zero",
    "gigpo_divide_by_std",
    "stop_at_answer",
    "disable_dropout",
)
_NOT_NEGATIVE = (
    "eval_temperature",
    "beta",
    "epsilon",
    "epsilon_high",
    "entropy_coef",
    "kl_in_reward_coef",
    "gigpo_step_weight",
    "critic_learning_rate",
    "max_grad_norm",
)
# Those of them that may be left open.
_OPTIONAL_NUMBERS = ("epsilon_high", "critic_learning_rate", "max_grad_norm")
_CRITIC_OPTIONS = (
    "critic_learning_rate",
    "critic_lr_scheduler_type",
    "critic_warmup_steps",
    "critic_model_name_or_path",
)
# They wait for a metric of an evaluation.
_MEASURING_SCHEDULES = ("reduce_lr_on_plateau", "greedy")
# Those of TRL's losses that are weights of PPO's clipped loss.
LOSS_TYPES = ("dapo", "grpo", "dr_grpo")
_SHARES = ("gamma", "gae_lambda", "turn_gamma")
_REASONS = {
    "num_generations": " A group of one episode has no spread to compare with.",
    "num_generations_eval": " Use 1 for one episode per evaluation seed.",
    "top_k": " Use 0 to keep every token.",
    "max_steps": " There is no dataset whose end could stop the training.",
}


def check_types_and_ranges(config: Any) -> None:
    """Refuse values that no training could mean.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If it is out of range; the message names option, rule and value.
    """
    given = {name: 1 for name in _OPTIONAL_INTEGERS if getattr(config, name) is not None}
    for name, least in (_INTEGERS | given).items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
        if value < least:
            reason = _REASONS.get(name, "")
            raise ValueError(f"`{name}` must be at least {least}, got {value}.{reason}")
    for name in _BOOLEANS:
        if not isinstance(getattr(config, name), bool):
            raise TypeError(f"`{name}` must be True or False, got {getattr(config, name)!r}.")
    _check_choices(config)
    _check_numbers(config)
    _check_filter_values(config)
    if config.max_trajectory_tokens <= config.max_new_tokens_per_turn:
        raise ValueError(
            f"`max_trajectory_tokens` ({config.max_trajectory_tokens}) must exceed "
            f"`max_new_tokens_per_turn` ({config.max_new_tokens_per_turn}): it also holds the "
            "prompt and all later turns."
        )


def _check_numbers(config: Any) -> None:
    for name in _NOT_NEGATIVE:
        value = getattr(config, name)
        if value is None and name in _OPTIONAL_NUMBERS:
            continue
        if not 0 <= _number(name, value) < math.inf:
            raise ValueError(f"`{name}` must be finite and at least 0, got {value}.")
    if not 0 < _number("temperature", config.temperature) < math.inf:
        raise ValueError(
            f"`temperature` must be finite and positive, got {config.temperature}. Training needs "
            "episodes that differ; use `eval_temperature=0` to evaluate greedily."
        )
    _check_sampling(config)
    for name in _SHARES:
        if not 0 <= _number(name, getattr(config, name)) <= 1:
            raise ValueError(f"`{name}` must be in [0, 1], got {getattr(config, name)}.")
    if not _number("value_clip_range", config.value_clip_range) > 0:
        raise ValueError(
            f"`value_clip_range` must be positive, got {config.value_clip_range}. Use a large "
            "number to switch the clip off."
        )
    check_validation_share(_number("validation_share", config.validation_share))
    if not 0 < _number("rollout_filter_ratio", config.rollout_filter_ratio) <= 1:
        raise ValueError(
            f"`rollout_filter_ratio` must be in (0, 1], got {config.rollout_filter_ratio}. "
            "Use 1.0 to keep every group."
        )
    check_penalty(_number("format_penalty", config.format_penalty))


def _check_sampling(config: Any) -> None:
    if not 0 < _number("top_p", config.top_p) <= 1:
        raise ValueError(f"`top_p` must be in (0, 1], got {config.top_p}. 1.0 keeps every token.")
    if config.min_p is not None and not 0 <= _number("min_p", config.min_p) <= 1:
        raise ValueError(f"`min_p` must be in [0, 1], got {config.min_p}. None keeps every token.")
    if not 0 < _number("repetition_penalty", config.repetition_penalty) < math.inf:
        raise ValueError(
            "`repetition_penalty` must be finite and positive, got "
            f"{config.repetition_penalty}. 1.0 does nothing."
        )


def _check_choices(config: Any) -> None:
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            choices = ", ".join(map(repr, get_args(hint)))
            raise ValueError(f"`{name}` must be one of {choices}, got {getattr(config, name)!r}.")
    schedules, schedule = [kind.value for kind in SchedulerType], config.critic_lr_scheduler_type
    if schedule is not None and schedule not in schedules:
        raise ValueError(
            f"`critic_lr_scheduler_type` must be one of {', '.join(map(repr, schedules))}, got "
            f"{schedule!r}."
        )


def _check_filter_values(config: Any) -> None:
    count = config.rollout_filter_num_groups
    if count is not None:
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"`rollout_filter_num_groups` must be a whole number, got {count!r}.")
        if count < 1 or config.rollout_filter != "top_k":
            raise ValueError(
                "`rollout_filter_num_groups` must be at least 1 and belongs to "
                f"`rollout_filter='top_k'`, got {count} with {config.rollout_filter!r}."
            )
    percentiles = config.rollout_filter_percentiles
    if not isinstance(percentiles, list | tuple) or len(percentiles) != 2:
        raise TypeError(f"`rollout_filter_percentiles` must hold two numbers, got {percentiles!r}.")
    low, high = (_number("rollout_filter_percentiles", value) for value in percentiles)
    if not 0 <= low < high <= 1:
        raise ValueError(
            "`rollout_filter_percentiles` must satisfy 0 <= low < high <= 1, got "
            f"{percentiles!r}. [0, 0.25] keeps the best quarter."
        )


def check_combinations(config: Any) -> None:
    """Refuse options that would have no effect, or a wrong one, beside each other.

    Raises:
        ValueError: Naming both options and their values.
    """
    if config.loss_type not in LOSS_TYPES:
        raise ValueError(
            f"`loss_type` must be one of {', '.join(map(repr, LOSS_TYPES))}, got "
            f"{config.loss_type!r}."
        )
    estimator = config.advantage_estimator
    if config.kl_in_reward_coef != 0 and not config.has_critic:
        raise ValueError(
            f"`kl_in_reward_coef` must be 0 with `advantage_estimator={estimator!r}`, which has no "
            f"token rewards, got {config.kl_in_reward_coef}. Use `beta`, the KL term of the loss."
        )
    _check_critic_options(config)
    has_turn_rewards = config.has_critic or estimator in ("gigpo", "rebn")
    if config.turn_rewards and not has_turn_rewards:
        raise ValueError(
            f"`turn_rewards` must be False with `advantage_estimator={estimator!r}`, which sees "
            "whole episodes. Use 'gae', 'bi_level_gae', 'gigpo' or 'rebn'."
        )
    sees_turns = config.turn_rewards or estimator in ("gigpo", "rebn")
    if config.reward_normalization != "none" and sees_turns:
        raise ValueError(
            "`reward_normalization` must be 'none' where rewards are those of turns "
            f"(`advantage_estimator={estimator!r}`, `turn_rewards={config.turn_rewards}`): it is "
            f"defined for the return of an episode. Got {config.reward_normalization!r}."
        )
    method, score = config.rollout_filter, config.rollout_filter_score
    is_sum = method == "top_p" and config.rollout_filter_top_p == "linear"
    if score in ("reward_mean", "reward_sum") and (is_sum or method in ("min_p", "soft")):
        raise ValueError(
            f"`rollout_filter_score` must not be negative for `rollout_filter={method!r}`, got "
            f"{score!r}. Use 'reward_std', or the filter 'top_k'."
        )
    if config.mixed_precision == "fp16":
        raise ValueError(
            "`fp16` must be False: an update that is skipped has no gradients for the loss scaler. "
            "Use `bf16`, or neither on a GPU without it, also for `accelerate launch`."
        )


def _check_critic_options(config: Any) -> None:
    path = config.critic_model_name_or_path
    if not isinstance(path, str | None):
        raise TypeError(f"`critic_model_name_or_path` must be an id or a folder, got {path!r}.")
    if path == "":
        raise ValueError("`critic_model_name_or_path` must be an id or a folder, got ''.")
    schedule = config.critic_lr_scheduler_type or config.lr_scheduler_type
    if config.has_critic and schedule in _MEASURING_SCHEDULES:
        raise ValueError(
            "`critic_lr_scheduler_type` must be a schedule of the update number, got "
            f"{SchedulerType(schedule).value!r}, which waits for a metric. Use 'constant', 'linear' or 'cosine'."
        )
    for name in _CRITIC_OPTIONS:
        if getattr(config, name) and not config.has_critic:
            raise ValueError(
                f"`{name}` must be left unset with `advantage_estimator="
                f"{config.advantage_estimator!r}`, which has no critic, got {getattr(config, name)!r}."
            )
    if config.critic_warmup_steps >= config.max_steps:
        raise ValueError(
            f"`critic_warmup_steps` ({config.critic_warmup_steps}) must be less than `max_steps` "
            f"({config.max_steps}), or the policy never learns."
        )


def check_seeds(config: Any) -> None:
    """Refuse seeds that could be both trained on and evaluated; a split has them apart already."""
    if config.validation_share:
        return
    first_eval, last_eval = config.eval_seed, config.eval_seed + config.eval_episodes - 1
    if first_eval <= config.train_seed <= last_eval:
        raise ValueError(
            f"`train_seed` ({config.train_seed}) must lie beyond the evaluation seeds "
            f"{first_eval} to {last_eval}. Raise it, so that no start state is both trained on and "
            "evaluated."
        )
    most_groups = config.max_steps * config.num_env_groups * (1 + config.rollout_refill_tries)
    if config.train_seed < first_eval < config.train_seed + most_groups:
        raise ValueError(
            f"`eval_seed` ({first_eval}) must lie before `train_seed` ({config.train_seed}) or "
            "beyond the seeds that training can use (up to "
            f"{config.train_seed + most_groups - 1})."
        )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    return float(value)
