"""How far the updates on one rollout move the policy."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from ragen_trl.functional import kl_k1

# Episodes that are read once more after the last update on a rollout.
MAX_EPISODES = 8


class AfterUpdate(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Calls a function after every step of the optimizer, before the log of the update is written."""

    def __init__(self, measure: Callable[[], None]) -> None:
        self._measure = measure

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """See the class."""
        self._measure()


def first_episodes(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return at most `MAX_EPISODES` rows of a batch."""
    return {name: tensor[:MAX_EPISODES] for name, tensor in batch.items()}


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
