"""From trajectories to the tensors of one update: rows, their split, their padding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from ragen_trl.trajectory import Trajectory


@dataclass(frozen=True)
class Row:
    """One trajectory with what the update needs besides its tokens.

    Attributes:
        trajectory: The episode.
        advantage: Its advantage, one number for all sampled tokens.
        weight: Factor of the sum of its token losses in the update's loss.
    """

    trajectory: Trajectory
    advantage: float
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


def collate(
    rows: Sequence[Row], *, pad_token_id: int, pad_to_multiple_of: int | None = None
) -> dict[str, Tensor]:
    """Pad rows to tensors.

    Rows stand flush left, so that every token has its natural position whatever its batch mates.
    No rows give one row of two padding tokens without any sampled one: it costs nothing, adds 0 to
    the loss, and keeps the number of micro-batches the same in every process.

    Returns:
        `input_ids`, `attention_mask` of shape (B, S); `action_mask` (bool),
        `sampling_per_token_logps` of shape (B, T) for the last T positions, where T reaches back to
        the shortest prompt; `advantages`, `loss_weights` of shape (B,).
    """
    prompts = [row.trajectory.prompt_ids for row in rows] or [[pad_token_id]]
    completions = [row.trajectory.completion_ids for row in rows] or [[pad_token_id]]
    lengths = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    multiple = pad_to_multiple_of or 1
    width = -(-max(lengths) // multiple) * multiple
    input_ids = torch.full((len(prompts), width), pad_token_id, dtype=torch.long)
    attention_mask = torch.zeros((len(prompts), width), dtype=torch.long)
    action_mask = torch.zeros((len(prompts), width), dtype=torch.bool)
    logps = torch.zeros((len(prompts), width))
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        input_ids[i, : lengths[i]] = torch.tensor(prompt + completion)
        attention_mask[i, : lengths[i]] = 1
    for i, row in enumerate(rows):
        completion_part = slice(len(prompts[i]), lengths[i])
        action_mask[i, completion_part] = torch.tensor(row.trajectory.action_mask, dtype=torch.bool)
        logps[i, completion_part] = torch.tensor(row.trajectory.logps)
    kept = width - min(len(prompt) for prompt in prompts)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "action_mask": action_mask[:, -kept:],
        "sampling_per_token_logps": logps[:, -kept:],
        "advantages": torch.tensor([row.advantage for row in rows] or [0.0]),
        "loss_weights": torch.tensor([row.weight for row in rows] or [0.0]),
    }
