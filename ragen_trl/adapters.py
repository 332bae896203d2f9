"""Adapters beside the policy's own: the critic's and the reference's. None may move the policy."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peft import LoraConfig, PeftModel

from ragen_trl.starpo_config import StarPOConfig

# What PEFT calls an adapter that was given no name.
DEFAULT_NAME = "default"

# What PEFT does to the base model when it adds an adapter, and what undoes it. An initialisation
# such as PiSSA takes a part of the base weights away, and layers are replicated, a second time.
_PLAIN_START: dict[str, Any] = {"init_lora_weights": True, "layer_replication": None}

# Initialisations after which the adapter adds nothing and the base is as it was.
_ADD_NOTHING = (True, "gaussian", "eva", "orthogonal", "mica")


def plain_copy(config: LoraConfig) -> LoraConfig:
    """Copy what describes an adapter for one more that leaves the base model as it is."""
    config = copy.deepcopy(config)
    for name, value in _PLAIN_START.items():
        setattr(config, name, value)
    return config


@contextmanager
def plain_reference(model: Any) -> Iterator[None]:
    """Let TRL's copy of a loaded model's adapter, its reference, leave the base model as it is."""
    config = model.peft_config.get(DEFAULT_NAME) if isinstance(model, PeftModel) else None
    if not isinstance(config, LoraConfig):
        yield
        return
    own = {name: getattr(config, name) for name in _PLAIN_START}
    try:
        for name, value in _PLAIN_START.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in own.items():
            setattr(config, name, value)


def check_adapter_name(model: Any, args: StarPOConfig) -> None:
    """Refuse names of the trained adapter under which something else would be taken for it.

    TRL copies the adapter named `default` for the reference, and transformers looks for the best
    model where PEFT saves that one: adapters of other names go into folders of their own.

    Raises:
        ValueError: Naming the adapter and what asks for another name.
    """
    if not isinstance(model, PeftModel) or model.active_adapter == DEFAULT_NAME:
        return
    options = ("load_best_model_at_end", "beta", "kl_in_reward_coef")
    reasons = [f"`{name}`" for name in options if getattr(args, name)]
    if DEFAULT_NAME in model.peft_config:
        reasons.append("a second adapter of that name")
    if reasons:
        raise ValueError(
            f"`model` must call the adapter that is trained {DEFAULT_NAME!r} with "
            f"{' and '.join(reasons)}, got {model.active_adapter!r}. Load it with "
            "`PeftModel.from_pretrained(base, folder, is_trainable=True)`, which calls it so."
        )


def check_reference_adapter(model: Any, peft_config: Any) -> None:
    """Refuse adapters for which the reference would not be the policy that training starts from.

    Args:
        model: What the trainer was given.
        peft_config: The adapter it is to add; its reference is the base model without it.

    Raises:
        ValueError: Naming the option of `LoraConfig`.
    """
    config = model.peft_config.get(DEFAULT_NAME) if isinstance(model, PeftModel) else peft_config
    if not isinstance(config, LoraConfig):
        return
    if config.bias != "none":
        raise ValueError(
            "`bias` of a `LoraConfig` must be 'none' with `beta` or `kl_in_reward_coef`, got "
            f"{config.bias!r}. The reference shares the biases, and would move with the policy."
        )
    # A loaded adapter is its own reference, as a copy.
    if peft_config is not None and config.init_lora_weights not in _ADD_NOTHING:
        raise ValueError(
            "`init_lora_weights` must be True, 'gaussian', 'eva', 'orthogonal' or 'mica' with "
            f"`beta` or `kl_in_reward_coef`, got {config.init_lora_weights!r}. The reference is "
            "the base model without the adapter, which is not where training starts. Pass a "
            "model that has the adapter already (`peft.get_peft_model`) in place of `peft_config`."
        )
