"""From trajectories to the tensors of one update: rows, their split, their padding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from ragen_trl.functional import turns_to_tokens
from ragen_trl.trajectory import Trajectory


@dataclass(frozen=True)
class Row:
    """One trajectory with what the update needs besides its tokens.

    Attributes:
        trajectory: The episode.
        advantages: Advantage of every turn, for all tokens of its reply; zeros where a critic finds
            one per token.
        rewards: Reward of every turn as the critic's estimators see it, paid at its last token.
        advantage_scale: Factor of the advantages, from the filter's soft reweighting.
        weight: Factor of the sum of its token losses in the update's loss.
    """

    trajectory: Trajectory
    advantages: tuple[float, ...]
    rewards: tuple[float, ...]
    advantage_scale: float = 1.0
    weight: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Length of the row: prompt and completion."""
        return len(self.trajectory.prompt_ids) + len(self.trajectory.completion_ids)


def split_evenly(count: int, parts: int) -> list[slice]:
    """Cut `range(count)` into `parts` consecutive slices whose lengths differ by at most one."""
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(low, high) for low, high in pairwise(bounds)]


def plan_updates(
    rows: Sequence[Row], *, update_batch_size: int, generator: torch.Generator
) -> list[list[Row]]:
    """Deal rows into updates of nearly equal size, none larger than `update_batch_size`.

    Every row is in exactly one update. With a single update the order is kept; with several the
    rows are shuffled first, so that no update holds one group alone.
    """
    num_updates = -(-len(rows) // update_batch_size)
    if num_updates <= 1:
        return [list(rows)] if rows else []
    order = torch.randperm(len(rows), generator=generator).tolist()
    return [[rows[i] for i in order[part]] for part in split_evenly(len(rows), num_updates)]


def plan_passes(
    rows: Sequence[Row], num_passes: int, update_batch_size: int, *, seed: int
) -> list[list[list[Row]]]:
    """Deal rows into updates once per pass over them, each time in another order (PPO).

    Args:
        rows: What a rollout teaches.
        num_passes: How often they are gone through.
        update_batch_size: Most rows of an update.
        seed: Of the orders.
    """
    generator = torch.Generator().manual_seed(seed)
    return [
        plan_updates(rows, update_batch_size=update_batch_size, generator=generator)
        for _ in range(num_passes)
    ]


def weigh_rows(rows: Sequence[Row], weights: Tensor) -> list[Row]:
    """Return the rows of one update with their loss weights, shape (R,)."""
    return [replace(row, weight=w) for row, w in zip(rows, weights.tolist(), strict=True)]


def split_micro_batches(
    rows: Sequence[Row], *, num_micro_batches: int, process_index: int, num_processes: int
) -> list[list[Row]]:
    """Return one process's micro-batches of an update.

    Rows are sorted by length first: neighbours share a micro-batch, so little is padded, and the
    processes get equal shares of long and short rows. Some micro-batches are empty when there are
    fewer rows than micro-batches.
    """
    by_length = sorted(rows, key=lambda row: row.num_tokens)
    own = by_length[process_index::num_processes]
    return [own[part] for part in split_evenly(len(own), num_micro_batches)]


def place_rewards(trajectory: Trajectory, rewards: Sequence[float]) -> list[float]:
    """Put every turn's reward at the last token that the policy sampled in it.

    A turn without a sampled token pays at the last one sampled before it, or else at the end of
    the first turn that has one; without any sampled token there is nowhere to pay.

    Args:
        trajectory: The episode.
        rewards: One number per turn.

    Returns:
        One number per completion token.
    """
    turn_ends = {turn: t for t, turn in enumerate(trajectory.turn_index) if turn >= 0}
    placed = [0.0] * len(trajectory.completion_ids)
    if not turn_ends:
        return placed
    end = turn_ends[min(turn_ends)]
    for turn, reward in enumerate(rewards):
        end = turn_ends.get(turn, end)
        placed[end] += reward
    return placed


def collate(
    rows: Sequence[Row], *, pad_token_id: int, pad_to_multiple_of: int | None = None
) -> dict[str, Tensor]:
    """Pad rows to tensors.

    Rows stand flush left, so that every token has its natural position whatever its batch mates.
    No rows give one row of two padding tokens without any sampled one: it costs nothing, adds 0 to
    the loss, and keeps the number of micro-batches the same in every process.

    Returns:
        `input_ids`, `attention_mask` of shape (B, S); `action_mask` (bool), `turn_index`,
        `sampling_per_token_logps`, `advantages`, `rewards` of shape (B, T) for the last T
        positions, where T reaches back to the shortest prompt; `advantage_scales`, `loss_weights`,
        `prompt_lengths` of shape (B,).
    """
    prompts = [row.trajectory.prompt_ids for row in rows] or [[pad_token_id]]
    completions = [row.trajectory.completion_ids for row in rows] or [[pad_token_id]]
    lengths = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    multiple = pad_to_multiple_of or 1
    width = -(-max(lengths) // multiple) * multiple
    first = min(len(prompt) for prompt in prompts)

    def padded(parts: Sequence[Sequence[float]], value: float, dtype: torch.dtype) -> Tensor:
        tensor = torch.full((len(prompts), width), value, dtype=dtype)
        for i, part in enumerate(parts):
            tensor[i, lengths[i] - len(part) : lengths[i]] = torch.tensor(part, dtype=dtype)
        return tensor

    episodes = [row.trajectory for row in rows]
    turn_index = padded([t.turn_index for t in episodes], -1, torch.long)[:, first:]
    num_turns = max([len(row.advantages) for row in rows], default=0)
    turn_advantages = torch.zeros(len(prompts), max(num_turns, 1))
    for i, row in enumerate(rows):
        turn_advantages[i, : len(row.advantages)] = torch.tensor(row.advantages)
    rewards = [place_rewards(row.trajectory, row.rewards) for row in rows]
    logps = padded([t.logps for t in episodes], 0.0, torch.float32)
    tokens = [p + c for p, c in zip(prompts, completions, strict=True)]
    return {
        "prompt_lengths": torch.tensor([len(prompt) for prompt in prompts]),
        "input_ids": padded(tokens, pad_token_id, torch.long),
        "attention_mask": padded([[1] * length for length in lengths], 0, torch.long),
        "action_mask": padded([t.action_mask for t in episodes], 0, torch.bool)[:, first:],
        "turn_index": turn_index,
        "sampling_per_token_logps": logps[:, first:],
        "advantages": turns_to_tokens(turn_advantages, turn_index),
        "rewards": padded(rewards, 0.0, torch.float32)[:, first:],
        "advantage_scales": torch.tensor([row.advantage_scale for row in rows] or [1.0]),
        "loss_weights": torch.tensor([row.weight for row in rows] or [0.0]),
    }
