"""The reference of the KL: the policy as it is when training starts, not what its name stands for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import broadcast
from torch import Tensor
from trl import GRPOTrainer

from ragen_trl.adapters import check_reference_adapter, plain_reference
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trl_compat import policy_is_the_reference


@contextmanager
def reference_for_any_kl(model: Any, args: StarPOConfig, peft_config: Any) -> Iterator[None]:
    """Let GRPOTrainer, while it is built, make a reference of the policy that it is given.

    TRL makes one for `beta` alone; it is wanted for the KL in the reward as well.
    """
    beta = args.beta
    args.beta = beta or args.kl_in_reward_coef
    if args.beta:
        check_reference_adapter(model, peft_config)
    try:
        with plain_reference(model), policy_is_the_reference(model):
            yield
    finally:
        args.beta = beta


class Reference:
    """Keeps a trainer's reference at the policy as it is when training starts for the first time.

    A model of its own, the adapter "ref", or the base model without the adapter. Weights may be
    changed between the making of a trainer and its training: the first two follow, the last cannot.

    Args:
        trainer: Trainer that was just made.
    """

    def __init__(self, trainer: GRPOTrainer) -> None:
        self._trainer: GRPOTrainer | None = None
        self._sums: list[float] = []
        model, args = trainer.model, trainer.args
        if trainer.ref_model is None and not (args.beta or args.kl_in_reward_coef):
            return
        self._trainer = trainer
        if trainer.ref_model is None and "ref" not in model.peft_config:
            self._sums = _sums(model)

    @torch.no_grad()
    def fix(self) -> None:
        """Set the reference to the policy as it is now; later calls leave it where it is.

        Raises:
            ValueError: If the reference is the base model, and the adapter was changed.
        """
        trainer, self._trainer = self._trainer, None
        if trainer is None:
            return
        if self._sums and self._sums != _sums(trainer.model):
            raise ValueError(
                "`model` must start training as the trainer made it, got an adapter whose weights "
                "were changed since. The reference is the base model without the adapter. Pass a "
                "model that has the adapter already (`peft.get_peft_model`) in place of "
                "`peft_config`."
            )
        # Sharded weights are those of when the trainer was made.
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            return
        for target, source in _pairs(trainer):
            target.copy_(source)
            # Of several processes, DDP lets all start from the first one's weights.
            if trainer.accelerator.num_processes > 1:
                target.copy_(broadcast(target))


def _sums(model: Any) -> list[float]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [p.detach().sum(dtype=torch.float64).item() for p in parameters]


def _pairs(trainer: GRPOTrainer) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the reference's tensors, each with the policy's."""
    policy = trainer.model
    if trainer.ref_model is not None:
        reference = trainer.accelerator.unwrap_model(trainer.ref_model)
        yield from zip(reference.parameters(), policy.parameters(), strict=True)
        yield from zip(reference.buffers(), policy.buffers(), strict=True)
    elif "ref" in policy.peft_config:
        own = dict(policy.named_parameters())
        for name, parameter in own.items():
            if ".ref." in name:
                yield parameter, own[name.replace(".ref.", ".default.")]
