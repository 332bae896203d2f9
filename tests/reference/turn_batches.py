"""Trajectories of ragged turns, and how they lie in a padded batch between observations."""

import math
from typing import NamedTuple

import torch
from hypothesis import strategies as st


class TokenBatch(NamedTuple):
    rewards: torch.Tensor
    values: torch.Tensor
    action_mask: torch.Tensor
    turn_index: torch.Tensor


@st.composite
def trajectory_lists(draw, max_rows=4, max_turns=4, max_tokens=4):
    """Draw rows of turns of (reward, value) tokens; rows may have no turn, turns a reward of 0."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    lengths = st.lists(st.integers(1, max_tokens), max_size=max_turns)
    rows = []
    for turn_lengths in draw(st.lists(lengths, min_size=1, max_size=max_rows)):
        rows.append([])
        for length in turn_lengths:
            tokens = torch.randn(length, 2, generator=generator, dtype=torch.float64).tolist()
            if draw(st.booleans()):
                tokens[-1][0] = 0.0
            rows[-1].append([tuple(token) for token in tokens])
    return rows


def lay_out(rows, *, observation_length=1, garbage=math.nan, left=0, dtype=torch.float64):
    """Put an observation of unsampled tokens before every turn and pad to a rectangle."""
    tokens = []
    for row in rows:
        tokens.append([(garbage, garbage, False, -1)] * left)
        for index, turn in enumerate(row):
            tokens[-1] += [(garbage, garbage, False, -1)] * observation_length
            tokens[-1] += [(reward, value, True, index) for reward, value in turn]
    width = max(len(row) for row in tokens) + 1
    tokens = [row + [(garbage, garbage, False, -1)] * (width - len(row)) for row in tokens]
    rewards, values, action_mask, turn_index = (
        [[token[field] for token in row] for row in tokens] for field in range(4)
    )
    return TokenBatch(
        torch.tensor(rewards, dtype=dtype),
        torch.tensor(values, dtype=dtype),
        torch.tensor(action_mask),
        torch.tensor(turn_index),
    )


def sampled(x, batch):
    """Return the numbers of each row that stand at sampled tokens."""
    return [row[mask].tolist() for row, mask in zip(x, batch.action_mask, strict=True)]
