"""What a checkpoint says about the rollouts of a run, beside weights and optimizers."""

import json
from pathlib import Path
from typing import Any

from ragen_envs.output_files import replace_file, to_json
from ragen_trl.starpo_config import StarPOConfig

STATE_FILE = "starpo_state.json"

# What the batches that wait for their update depend on: how they were dealt, and what they hold.
# What acts in the update itself (clips, entropy) or in play (turns, lengths of replies) is not here.
_BATCH_OPTIONS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_iterations",
    # Log-probabilities
    "temperature",
    "old_logps",
    "beta",
    "use_vllm",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_clip_max",
    # Rewards and advantages
    "format_penalty",
    "kl_in_reward_coef",
    "advantage_estimator",
    "gamma",
    "gae_lambda",
    "turn_gamma",
    "reward_normalization",
    "reward_grouping",
    "turn_rewards",
    "gigpo_step_weight",
    "gigpo_divide_by_std",
    # Which rows there are, and their weights
    "rollout_filter",
    "rollout_filter_ratio",
    "rollout_filter_num_groups",
    "rollout_filter_top_p",
    "rollout_filter_percentiles",
    "rollout_filter_score",
    "rollout_filter_include_zero",
    "rollout_loss_scale",
    "loss_type",
    "max_trajectory_tokens",
)


def batch_settings(args: StarPOConfig, *, num_processes: int) -> dict[str, Any]:
    """Return the settings that a run must share with a checkpoint to train on its batches."""
    options = {name: getattr(args, name) for name in _BATCH_OPTIONS}
    # As a checkpoint gives them back: a tuple comes back as a list.
    settings: dict[str, Any] = json.loads(to_json({"num_processes": num_processes, **options}))
    return settings


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write into a checkpoint what `read_state` returns."""
    with replace_file(folder / STATE_FILE) as file:
        file.write(to_json(state))


def read_state(folder: Path) -> dict[str, Any]:
    """Read what `write_state` wrote.

    Raises:
        FileNotFoundError: If no `StarPOTrainer` wrote the checkpoint.
        ValueError: If an older version did, which does not say which start states come next, or
            the file is damaged.
    """
    path = folder / STATE_FILE
    remedy = f"To begin a new run with its weights, pass {str(folder)!r} as `model`."
    if not path.exists():
        raise FileNotFoundError(
            f"`resume_from_checkpoint` must be a checkpoint of `StarPOTrainer`, but {folder} holds "
            f"no {STATE_FILE}. {remedy}"
        )
    try:
        state = json.loads(path.read_bytes())
    except (RecursionError, ValueError):
        state = None
    if not isinstance(state, dict):
        raise ValueError(
            f"`resume_from_checkpoint` must be a whole checkpoint, but {STATE_FILE} in {folder} "
            f"cannot be read. Take an earlier checkpoint. {remedy}"
        )
    if missing := {"dealer", "iteration", "batches"} - state.keys():
        raise ValueError(
            f"`resume_from_checkpoint` must be a checkpoint of this version, but {STATE_FILE} in "
            f"{folder} lacks {sorted(missing)}. {remedy}"
        )
    return state
