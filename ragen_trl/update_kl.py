"""How far the updates on one rollout move the policy."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from ragen_trl.collation import Row, collate
from ragen_trl.functional import kl_k1

# Episodes that every process reads once more after the updates on a rollout.
MAX_EPISODES = 16


class AfterUpdate(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Calls a function after every step of the optimizer, before the log of the update is written."""

    def __init__(self, measure: Callable[[], None]) -> None:
        self._measure = measure

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """See the class."""
        self._measure()


def spread_rows(rows: Sequence[Row]) -> list[Row]:
    """Return at most `MAX_EPISODES` rows, evenly spaced."""
    return list(rows[:: -(-len(rows) // MAX_EPISODES) or 1])


def collate_spread(
    rows: Sequence[Row], *, pad_token_id: int, device: torch.device
) -> dict[str, Tensor]:
    """Return the batch of `collate` of some rows, evenly spaced."""
    batch = collate(spread_rows(rows), pad_token_id=pad_token_id)
    return {name: tensor.to(device) for name, tensor in batch.items()}


def as_finite(value: float) -> float:
    """Return the largest float in place of one that is not finite: logs leave it out, JSON has none."""
    return value if math.isfinite(value) else sys.float_info.max


def update_kl_sums(logps: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Sum up how much less probable the sampled tokens of a batch have become.

    Their mean estimates the KL divergence from the policy that played to the one after the updates
    (k1 of Schulman 2020, over tokens that the former sampled). It is below 0 where luck or a better
    policy makes them more probable.

    Args:
        logps: Log-probabilities after the updates. Shape `(B, T)`.
        batch: A batch of `collate`.

    Returns:
        The sum of differences and the number of tokens. Shape `(2,)`.
    """
    # vLLM reports NaN where it has no number.
    old_logps = batch["sampling_per_token_logps"]
    mask = batch["action_mask"] & ~old_logps.isnan()
    return torch.stack([kl_k1(old_logps, logps, mask).sum(), mask.sum()])
