"""Everything this package takes from TRL beyond its public classes, in one place.

A contract test holds the two tables against the installed TRL, so that an upgrade fails there
first and not in a training run.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

from transformers.integrations import is_deepspeed_zero3_enabled
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer import grpo_trainer
from trl.trainer.utils import disable_dropout_in_model, use_adapter

__all__ = [
    "CALLS",
    "OVERRIDES",
    "disable_dropout_in_model",
    "disable_gradient_checkpointing",
    "policy_is_the_reference",
    "reward_is_the_environments",
    "unwrap_model_for_generation",
    "use_adapter",
]

# Methods of GRPOTrainer that PlayingTrainer and its subclasses replace: parameters, and why.
OVERRIDES: dict[str, tuple[tuple[str, ...], str]] = {
    "train": (
        ("self", "resume_from_checkpoint", "trial", "ignore_keys_for_eval"),
        "Fixes the reference; goes on from a healthy checkpoint after a collapse.",
    ),
    "create_scheduler": (
        ("self", "num_training_steps", "optimizer"),
        "Begins the policy's schedule after the critic's warm-up, and the critic's with it.",
    ),
    "_get_grad_norm": (
        ("self", "model", "grad_norm"),
        "Ends training before a step by gradients that are not finite.",
    ),
    "get_train_dataloader": (("self",), "There is no dataset; rows only count micro-batches."),
    "_prepare_inputs": (
        ("self", "generation_batch"),
        "`training_step` hands over batches that are ready.",
    ),
    "training_step": (
        ("self", "model", "inputs", "num_items_in_batch"),
        "Plays a rollout where none is left, trains the critic after the policy, skips updates.",
    ),
    "_compute_loss": (
        ("self", "model", "inputs"),
        "Tokens the policy did not sample have no effect; means are exact over the whole update.",
    ),
    "evaluate": (
        ("self", "eval_dataset", "ignore_keys", "metric_key_prefix"),
        "Plays episodes on fixed seeds instead of reading a dataset.",
    ),
    "_save_checkpoint": (
        ("self", "model", "trial"),
        "Saves which start states and batches come next, and the critic.",
    ),
    "_load_optimizer_and_scheduler": (("self", "checkpoint"), "Restores them."),
}

# Private methods of GRPOTrainer that they call: its first parameters, in order.
CALLS: dict[str, tuple[str, ...]] = {
    "_generate_single_turn": ("prompt_ids", "images", "multimodal_fields", "num_generations"),
    "_get_output_dir": ("trial",),
}


def reward_is_the_environments(*_args: object, **_kwargs: object) -> list[float]:
    """Stand in for the reward function that GRPOTrainer asks for; never called."""
    raise AssertionError("StarPOTrainer takes its rewards from the environment.")


@contextmanager
def policy_is_the_reference(model: Any) -> Iterator[None]:
    """Let GRPOTrainer, while it is built, copy the policy where it would load it by name again.

    Args:
        model: What it is built with; a name is loaded once.
    """
    load: Any = grpo_trainer.create_model_from_path
    policy = None if isinstance(model, str) else model

    def load_or_copy(*args: Any, **kwargs: Any) -> Any:
        nonlocal policy
        # A copy of sharded weights would be empty.
        if policy is None or is_deepspeed_zero3_enabled():
            policy = load(*args, **kwargs)
            return policy
        reference = copy.deepcopy(policy).eval().requires_grad_(False)
        # Of a policy that another trainer had: its patched `forward` reads the original.
        if isinstance(vars(reference).get("forward"), MethodType):
            del reference.forward
        return reference

    vars(grpo_trainer)["create_model_from_path"] = load_or_copy
    try:
        yield
    finally:
        vars(grpo_trainer)["create_model_from_path"] = load
