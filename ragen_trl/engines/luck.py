"""Luck that belongs to an episode, so that what it draws does not depend on who plays beside it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class ReplyLuck:
    """The random numbers behind one reply of every row.

    Each row has a generator of its own, seeded by its episode and by the turn. A reply that ends
    early leaves numbers unused; the next turn starts anew, so this changes nothing.

    Args:
        seeds: Seed of every row's episode.
        turn: Number of the reply in its episode, from 0 on.
    """

    def __init__(self, seeds: Sequence[int], turn: int) -> None:
        self._generators = [np.random.default_rng([seed, turn]) for seed in seeds]

    def draw(self) -> list[float]:
        """Return the next number of every row, uniform in [0, 1)."""
        return [generator.random() for generator in self._generators]


def pick_tokens(probabilities: Tensor, numbers: Sequence[float]) -> Tensor:
    """Pick from every row the token in whose share of [0, 1) the row's number falls.

    The shares stand in the order of the vocabulary. They are added up in float64, so that what a
    row picks changes with the rounding of its probabilities alone.

    Args:
        probabilities: Shape (R, V); non-negative, with a positive sum per row.
        numbers: R numbers in [0, 1).

    Returns:
        Token ids of shape (R,).
    """
    bounds = probabilities.double().cumsum(dim=-1)
    targets = torch.tensor(list(numbers), dtype=bounds.dtype, device=bounds.device)
    # To the right of equal bounds: a token of probability 0 has no share.
    return torch.searchsorted(bounds, targets[:, None] * bounds[:, -1:], right=True).squeeze(1)
