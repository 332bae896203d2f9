"""Adapters beside the policy's own: the critic's and the reference's. None may move the policy."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import TrainableTokensWrapper
from torch import nn

from ragen_trl.starpo_config import StarPOConfig

# What PEFT calls an adapter that was given no name.
DEFAULT_NAME = "default"
# What TRL calls the copy that is the reference.
REFERENCE_NAME = "ref"

# What PEFT does to the base model when it adds an adapter, and what undoes it. An initialisation
# such as PiSSA takes a part of the base weights away, and layers are replicated, a second time.
_PLAIN_START: dict[str, Any] = {"init_lora_weights": True, "layer_replication": None}

# Initialisations after which the adapter adds nothing and the base is as it was.
_ADD_NOTHING = (True, "gaussian", "eva", "orthogonal", "mica")
# And those that come out alike wherever the adapter is loaded on the base model again. Others take
# a part of the base that is drawn at random (`pissa_niter_4`: logits 4 off), or that was found with
# gradients, data or a quantizer that the checkpoint does not have.
_REPEATABLE = (*_ADD_NOTHING, False, "pissa", "olora")

# Options of `LoraConfig` with which something else would be trained or saved than was played.
_REFUSED_OPTIONS: dict[str, str] = {
    "alora_invocation_tokens": "The adapter would act in the parts of an episode alone that hold them.",
    "arrow_config": "The adapter is a choice among others, of which critic and reference have none.",
    "kasa_config": "Every further adapter truncates the base model again, and its regularizers are no "
    "part of the loss.",
    "megatron_config": "Models are those of transformers.",
    "monteclora_config": "It draws weights in training that nothing was sampled with.",
}


def adapter_parameters(model: nn.Module, name: str) -> dict[str, nn.Parameter]:
    """Return an adapter's parameters by their names: of modules, or alone as in embeddings."""
    return {key: p for key, p in model.named_parameters() if name in key.split(".")}


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


def check_adapter(model: Any, peft_config: Any) -> None:
    """Refuse options of `LoraConfig` that would train or save something else than was played.

    Args:
        model: What the trainer was given.
        peft_config: The adapter it is to add.

    Raises:
        ValueError: Naming the option.
    """
    config = peft_config
    if isinstance(model, PeftModel):
        config = model.peft_config[model.active_adapter]
        # TRL says the same, but after it has tried to copy the adapter for the reference.
        if isinstance(model.get_output_embeddings(), BaseTunerLayer):
            raise ValueError(
                "`target_modules` of a `LoraConfig` must leave the output layer out, got an adapter on "
                "it. Log-probabilities are computed from its weights alone."
            )
    if not isinstance(config, LoraConfig):
        return
    for name, reason in _REFUSED_OPTIONS.items():
        if value := getattr(config, name):
            raise ValueError(
                f"`{name}` of a `LoraConfig` must be left unset, got {value}. {reason}"
            )
    if config.task_type not in (None, "CAUSAL_LM"):
        raise ValueError(
            "`task_type` of a `LoraConfig` must be 'CAUSAL_LM' or None, got "
            f"{str(config.task_type)!r}, as which no policy can be loaded."
        )
    if config.init_lora_weights not in _REPEATABLE:
        raise ValueError(
            "`init_lora_weights` must be True, False, 'gaussian', 'eva', 'orthogonal', 'mica', 'pissa' "
            f"or 'olora', got {config.init_lora_weights!r}. It changes base weights in a way that is "
            "not repeated when the adapter is loaded. Use 'pissa' or 'olora'."
        )


def check_replicated_layers(model: nn.Module) -> None:
    """Refuse `layer_replication` where transformers does not know what the new layers are."""
    config: Any = model.config
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and len(kinds) < config.num_hidden_layers:
        raise ValueError(
            f"`layer_replication` of a `LoraConfig` must leave {len(kinds)} layers, as many as "
            f"`layer_types` of the model's configuration, got {config.num_hidden_layers}. Make the "
            "model longer before the adapter is added."
        )


def let_head_be_read(model: nn.Module) -> None:
    """Let TRL read an output layer that is tied to embeddings with `trainable_token_indices`.

    PEFT's wrapper passes the weights on, the trained tokens' included, but no bias, nor None.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]  # of transformers
    if isinstance(head, TrainableTokensWrapper):
        # Not as a parameter of its own.
        vars(head)["bias"] = getattr(head.original_module, "bias", None)


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
