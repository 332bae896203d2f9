"""The reference of the KL: the policy as it is when training starts, not what its name stands for."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast
from torch import Tensor
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOTrainer

from ragen_trl.adapters import (
    DEFAULT_NAME,
    REFERENCE_NAME,
    adapter_parameters,
    check_reference_adapter,
    plain_reference,
)
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trl_compat import policy_is_the_reference

REFERENCE_FILE = "starpo_reference.json"
# Integers of the size of a number, by its bytes: their sum is exact, in whatever order.
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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

    A model of its own, an adapter, or the base model without the adapter. Weights may be changed
    between the making of a trainer and its training: the first two follow, the last cannot.

    Args:
        trainer: Trainer that was just made.
    """

    def __init__(self, trainer: GRPOTrainer) -> None:
        self._trainer, self._is_fixed = trainer, False
        self._sums: list[float] = []
        self._mark: dict[str, Any] = {}
        if self._kind == "base":
            self._sums = _sums(trainer.model)

    @property
    def adapter_name(self) -> str | None:
        """The adapter to switch to for the reference; `None` switches all off."""
        return REFERENCE_NAME if REFERENCE_NAME in self._trainer.model.peft_config else None

    @property
    def _kind(self) -> str | None:
        trainer = self._trainer
        if trainer.ref_model is not None:
            return "model"
        if not (trainer.args.beta or trainer.args.kl_in_reward_coef):
            return None
        return "base" if self.adapter_name is None else "adapter"

    @torch.no_grad()
    def fix(self, resume_from_checkpoint: str | bool | None) -> None:
        """Set the reference to the policy as it is now; later calls leave it where it is.

        Args:
            resume_from_checkpoint: Of `train`, which has not read it yet.

        Raises:
            ValueError: If the reference is the base model, and the adapter was changed; or if a
                run that is resumed began with another policy.
        """
        trainer = self._trainer
        if self._is_fixed or self._kind is None:
            return
        if self._sums and self._sums != _sums(trainer.model):
            raise ValueError(
                "`model` must start training as the trainer made it, got an adapter whose weights "
                "were changed since. The reference is the base model without the adapter. Pass a "
                "model that has the adapter already (`peft.get_peft_model`) in place of "
                "`peft_config`."
            )
        # Sharded weights are those of when the trainer was made.
        if not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
            self._copy_the_policy()
        checkpoint = resume_from_checkpoint
        if checkpoint is True:
            checkpoint = get_last_checkpoint(trainer.args.output_dir)
        if checkpoint:
            self._check_mark(Path(checkpoint))
        self._is_fixed = True

    def save(self, folder: Path) -> None:
        """Write into a checkpoint which reference the run has."""
        if self._mark:
            (folder / REFERENCE_FILE).write_text(json.dumps(self._mark), encoding="utf-8")

    def _copy_the_policy(self) -> None:
        trainer = self._trainer
        copied = []
        for target, source in _pairs(trainer):
            target.copy_(source)
            # Of several processes, DDP lets all start from the first one's weights.
            if trainer.accelerator.num_processes > 1:
                target.copy_(broadcast(target))
            copied.append(target)
        # An adapter's weights are in the checkpoint themselves, and come back with it.
        self._mark = {"kind": self._kind}
        if self._kind == "model":
            self._mark["bits"] = _sum_bits(copied)

    def _check_mark(self, folder: Path) -> None:
        path = folder / REFERENCE_FILE
        if self._mark and path.exists() and json.loads(path.read_text("utf-8")) != self._mark:
            raise ValueError(
                f"`model` must be the policy that the run of {str(folder)!r} began with, which is the "
                "reference of its KL, got another one. Pass `model` and `peft_config` as then; "
                "the trained weights are read from the checkpoint all the same."
            )


def _sums(model: Any) -> list[float]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [p.detach().sum(dtype=torch.float64).item() for p in parameters]


def _sum_bits(tensors: Iterable[Tensor]) -> int:
    """Sum tensors up so that no weight can change, on whatever device, without changing the sum."""
    total = 0
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(_SAME_SIZE[tensor.element_size()])
        total = (31 * total + int(bits.sum(dtype=torch.int64))) % 2**61
    return total


def _pairs(trainer: GRPOTrainer) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the reference's tensors, each with the policy's."""
    policy = trainer.model
    if trainer.ref_model is not None:
        reference = trainer.accelerator.unwrap_model(trainer.ref_model)
        yield from zip(reference.parameters(), policy.parameters(), strict=True)
        yield from zip(reference.buffers(), policy.buffers(), strict=True)
    elif REFERENCE_NAME in policy.peft_config:
        yield from zip(
            adapter_parameters(policy, REFERENCE_NAME).values(),
            adapter_parameters(policy, DEFAULT_NAME).values(),
            strict=True,
        )
