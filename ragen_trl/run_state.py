"""What a checkpoint says about the rollouts of a run, beside weights and optimizers."""

import json
from pathlib import Path
from typing import Any

from ragen_trl.starpo_config import StarPOConfig

STATE_FILE = "starpo_state.json"

# What the batches that wait for their update depend on: how they were dealt, and what they hold.
_BATCH_OPTIONS = (
    "gradient_accumulation_steps",
    "advantage_estimator",
    "beta",
    "kl_in_reward_coef",
)


def batch_settings(args: StarPOConfig, *, num_processes: int) -> dict[str, Any]:
    """Return the settings that a run must share with a checkpoint to train on its batches."""
    options = {name: getattr(args, name) for name in _BATCH_OPTIONS}
    return {"num_processes": num_processes, **options}


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write into a checkpoint what `read_state` returns."""
    (folder / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")


def read_state(folder: Path) -> dict[str, Any]:
    """Read what `write_state` wrote.

    Raises:
        FileNotFoundError: If no `StarPOTrainer` wrote the checkpoint.
        ValueError: If an older version did, which does not say which start states come next.
    """
    path = folder / STATE_FILE
    remedy = f"To begin a new run with its weights, pass {str(folder)!r} as `model`."
    if not path.exists():
        raise FileNotFoundError(
            f"`resume_from_checkpoint` must be a checkpoint of `StarPOTrainer`, but {folder} holds "
            f"no {STATE_FILE}. {remedy}"
        )
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if missing := {"dealer", "iteration", "batches"} - state.keys():
        raise ValueError(
            f"`resume_from_checkpoint` must be a checkpoint of this version, but {STATE_FILE} in "
            f"{folder} lacks {sorted(missing)}. {remedy}"
        )
    return state
