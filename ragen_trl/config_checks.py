"""Types and ranges of `StarPOConfig`, as tables."""

import math
from numbers import Real
from typing import Any

from ragen_envs.agent_checks import check_penalty

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
    "gradient_accumulation_steps": 1,
}
_BOOLEANS = (
    "enable_think",
    "log_trajectories",
    "turn_rewards",
    "rollout_filter_include_zero",
    "disable_dropout",
)
_NOT_NEGATIVE = ("eval_temperature", "beta", "epsilon", "epsilon_high", "entropy_coef")
_REASONS = {
    "num_generations": " A group of one episode has no spread to compare with.",
    "num_generations_eval": " Use 1 for one episode per evaluation seed.",
    "max_steps": " There is no dataset whose end could stop the training.",
}


def check_types_and_ranges(config: Any) -> None:
    """Refuse values that no training could mean.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If it is out of range; the message names option, rule and value.
    """
    for name, least in _INTEGERS.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
        if value < least:
            reason = _REASONS.get(name, "")
            raise ValueError(f"`{name}` must be at least {least}, got {value}.{reason}")
    for name in _BOOLEANS:
        if not isinstance(getattr(config, name), bool):
            raise TypeError(f"`{name}` must be True or False, got {getattr(config, name)!r}.")
    _check_numbers(config)
    if config.max_trajectory_tokens <= config.max_new_tokens_per_turn:
        raise ValueError(
            f"`max_trajectory_tokens` ({config.max_trajectory_tokens}) must exceed "
            f"`max_new_tokens_per_turn` ({config.max_new_tokens_per_turn}): it also holds the "
            "prompt and all later turns."
        )


def _check_numbers(config: Any) -> None:
    for name in _NOT_NEGATIVE:
        value = getattr(config, name)
        if value is not None and not 0 <= _number(name, value) < math.inf:
            raise ValueError(f"`{name}` must be finite and at least 0, got {value}.")
    if not 0 < _number("temperature", config.temperature) < math.inf:
        raise ValueError(
            f"`temperature` must be finite and positive, got {config.temperature}. Training needs "
            "episodes that differ; use `eval_temperature=0` to evaluate greedily."
        )
    if not 0 < _number("rollout_filter_ratio", config.rollout_filter_ratio) <= 1:
        raise ValueError(
            f"`rollout_filter_ratio` must be in (0, 1], got {config.rollout_filter_ratio}. "
            "Use 1.0 to keep every group."
        )
    check_penalty(_number("format_penalty", config.format_penalty))


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    return float(value)
