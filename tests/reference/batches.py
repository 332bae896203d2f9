"""Random token batches, and what may stand at the tokens that do not count."""

import math

import torch
from hypothesis import strategies as st

GARBAGE = (1e3, -1e3, math.inf, -math.inf, math.nan)


@st.composite
def batches(draw):
    """Draw log-probabilities now and before, advantages per token, and an action mask."""
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    old_logps, change, advantages = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    action_mask = torch.rand(shape, generator=generator) < 0.6
    return old_logps + 0.4 * change, old_logps, advantages, action_mask


def padded(x, value):
    """Put two columns on the left and three on the right."""
    return torch.nn.functional.pad(x, (2, 3), value=value)
