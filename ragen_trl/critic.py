"""The critic: a value for every sampled token, as a model of its own or as a second LoRA adapter."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from ragen_trl.adapters import adapter_parameters, plain_copy

ADAPTER_NAME = "critic"


class Critic(nn.Module):
    """V(t), the expected rest of the return before token t is sampled.

    The value of token t is read from the last hidden state of the token before it, the one whose
    logits token t is drawn from; it cannot depend on token t. A linear head that starts at zero
    makes it a number, in float32 under any precision: an untrained critic says 0.

    Args:
        backbone: Model that returns `last_hidden_state`. Trained whole, unless `policy` is given.
        hidden_size: Width of that state.
        policy: The policy whose frozen base model `backbone` is, and whose adapter `ADAPTER_NAME`
            is trained in its place.
    """

    def __init__(
        self, backbone: nn.Module, hidden_size: int, *, policy: PeftModel | None = None
    ) -> None:
        super().__init__()
        # What belongs to the policy stays out of this module's parameters and state.
        self._shared = None if policy is None else (policy, backbone)
        self.own_backbone = backbone if policy is None else None
        self.value_head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        # Only `active` lets the adapter require gradients: neither the policy's optimizer nor DDP
        # may take it for a part of the policy.
        for parameter in self._adapter_parameters().values():
            parameter.requires_grad_(False)

    @property
    def backbone(self) -> Any:
        """The model that reads, the critic's own or the policy's."""
        return self.own_backbone if self._shared is None else self._shared[1]

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Return all that the critic's optimizer moves, by name; also what a checkpoint holds."""
        return dict(self.named_parameters()) | self._adapter_parameters()

    def owners(self) -> list[nn.Module]:
        """Return the modules that name the trained parameters, and some that are not trained."""
        return [self] if self._shared is None else [self, self._shared[0]]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the critic's adapter the active one of a shared model, for forward and backward.

        The backward pass belongs inside as well: gradient checkpointing runs the model anew in it.
        """
        if self._shared is None:
            yield
            return
        policy, _ = self._shared
        # `set_adapter` moves `requires_grad` along with the adapter; the policy gets its own back.
        flags = [(p, p.requires_grad) for p in policy.parameters()]
        previous = policy.active_adapter
        policy.set_adapter(ADAPTER_NAME)
        try:
            yield
        finally:
            policy.set_adapter(previous)
            for parameter, flag in flags:
                parameter.requires_grad_(flag)

    def forward(self, **inputs: Any) -> Tensor:
        """Return the value of the token after each position.

        Args:
            inputs: Arguments of the backbone: `input_ids` of shape `(R, L)` and so on.

        Returns:
            Shape `(R, L)`, float32.
        """
        hidden = self.backbone(**inputs, use_cache=False).last_hidden_state
        with torch.autocast(hidden.device.type, enabled=False):
            values: Tensor = self.value_head(hidden.float())
        return values.squeeze(-1)

    def _adapter_parameters(self) -> dict[str, nn.Parameter]:
        if self._shared is None:
            return {}
        return adapter_parameters(self._shared[0], ADAPTER_NAME)


def build_critic(
    policy: PreTrainedModel | PeftModel, *, model_name_or_path: str | None, dtype: torch.dtype
) -> Critic:
    """Build the critic that goes with a policy.

    Args:
        policy: Causal language model. A LoRA policy gets a critic on the same frozen base, at the
            price of an adapter; any other one gets a copy of its backbone.
        model_name_or_path: A model to start from instead; trained whole. It has to read the
            policy's token ids.
        dtype: Of the weights of that model.

    Raises:
        ValueError: If the given model has another vocabulary, or the policy's adapter is no LoRA,
            trains biases of the base, or has the name of the critic's.
    """
    if model_name_or_path is not None:
        backbone = AutoModel.from_pretrained(model_name_or_path, dtype=dtype)
        _check_vocabulary(backbone, policy, model_name_or_path)
        return Critic(backbone, backbone.config.get_text_config().hidden_size)
    if not isinstance(policy, PeftModel):
        backbone = copy.deepcopy(policy.base_model).requires_grad_(True)
        return Critic(backbone, policy.config.get_text_config().hidden_size)
    config = policy.peft_config[policy.active_adapter]
    if not isinstance(config, LoraConfig):
        raise ValueError(
            "`peft_config` must be a `LoraConfig` for a critic on the same base model, got "
            f"{type(config).__name__}. Set `critic_model_name_or_path` to give the critic a model "
            "of its own."
        )
    if config.bias != "none":
        raise ValueError(
            "`bias` of a `LoraConfig` must be 'none' for a critic on the same base model, got "
            f"{config.bias!r}. Set `critic_model_name_or_path` to give the critic a model of its own."
        )
    if ADAPTER_NAME in policy.peft_config:
        raise ValueError(
            f"`model` must have no adapter named {ADAPTER_NAME!r}, which the critic's is called, got "
            f"{sorted(policy.peft_config)}. Load it under another name, such as 'default'."
        )
    config = plain_copy(config)
    # Like the policy, the critic runs without dropout: its values are compared between updates.
    config.lora_dropout = 0.0
    policy.add_adapter(ADAPTER_NAME, config)
    base = policy.get_base_model()
    return Critic(base.base_model, base.config.get_text_config().hidden_size, policy=policy)


def _check_vocabulary(backbone: PreTrainedModel, policy: Any, name: str) -> None:
    known = backbone.get_input_embeddings().num_embeddings
    needed = policy.get_input_embeddings().num_embeddings
    if known < needed:
        raise ValueError(
            f"`critic_model_name_or_path` must read the policy's {needed} token ids, got {name!r} "
            f"with {known}. Choose a model with the same tokenizer."
        )
