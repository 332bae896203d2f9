"""Keys and values of a batch of rows that grow, move and leave."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicLayer

# Slots that a buffer grows by at least; each growth copies it once.
GROWTH = 64
# Slots per token of the longest row from which closing the gaps is worth a copy.
MAX_SPREAD = 1.25


class _BufferedLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Writes new tokens into a buffer with room to spare, instead of copying all for each token."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.store(key_states[:, :, :0], value_states[:, :, :0], 0)

    def store(self, keys: Tensor, values: Tensor, num_slots: int) -> None:
        """Take the first slots of these buffers, (R, heads, S, size), as all that was read."""
        self._buffers = (keys, values)
        self.keys, self.values = keys[:, :, :num_slots], values[:, :, :num_slots]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the new tokens and return everything."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if end > self._buffers[0].shape[2]:
            self._buffers = (_with_room(self.keys, end), _with_room(self.values, end))
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values


def _with_room(states: Tensor, num_slots: int) -> Tensor:
    rows, heads, _, size = states.shape
    buffer = states.new_empty(rows, heads, _room(num_slots), size)
    buffer[:, :, : states.shape[2]] = states
    return buffer


def _room(num_slots: int) -> int:
    return num_slots + max(GROWTH, num_slots // 2)


class RowCache:
    """What the model has read of every row, and a forward pass that reads on.

    A slot is a column of the cache. Rows of different lengths leave slots empty; these are masked,
    and positions count real tokens only, so that a row does not depend on its batch mates.

    Args:
        model: Causal language model whose layers all attend to everything before.
        num_rows: R.
    """

    def __init__(self, model: Any, num_rows: int) -> None:
        self._model = model
        self._cache = Cache(layer_class_to_replicate=_BufferedLayer)
        self._mask = torch.zeros(num_rows, 0, dtype=torch.bool, device=model.device)
        # Tokens of every row, the sums of the mask.
        self._lengths = torch.zeros(num_rows, 1, dtype=torch.long, device=model.device)
        self.peak_bytes = 0

    def read(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Read further tokens, at least one per row; return the logits after the last, (R, V)."""
        width = max(map(len, ids))
        # To the right, so that the last slot is everybody's last token.
        padded = torch.tensor([[0] * (width - len(row)) + list(row) for row in ids])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
        device = self._model.device
        return self.read_padded(padded.to(device), mask.to(device))

    def read_padded(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read tokens of shape (R, W) where `mask` is 1; return the logits of the last slot."""
        self._mask = torch.cat([self._mask, mask.bool()], dim=1)
        counts = self._lengths + mask.cumsum(1)
        self._lengths = counts[:, -1:]
        positions = (counts - 1).clamp(min=0)
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._note_bytes()
        logits: Tensor = output.logits[:, -1]
        return logits

    def take(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order, repeated where named twice; close empty slots."""
        index = torch.tensor(rows, device=self._model.device)
        mask = self._mask[index]
        self._lengths = self._lengths[index]
        width = int(self._lengths.max())
        # A stable sort moves the empty slots of every row to the left.
        slots = mask.long().argsort(dim=1, stable=True)[:, mask.shape[1] - width :]
        self._mask = mask.gather(1, slots)
        # What stands in the room behind them is overwritten before it is seen.
        slots = pad(slots, (0, _room(width) - width))
        for layer in self._cache.layers:
            layer.store(*(_take(states, index, slots) for states in layer._buffers), width)
        self._note_bytes()

    @property
    def is_sparse(self) -> bool:
        """Whether replies of different lengths left gaps in many slots."""
        return self._mask.shape[1] > MAX_SPREAD * int(self._lengths.max())

    def _note_bytes(self) -> None:
        buffers = [states for layer in self._cache.layers for states in layer._buffers]
        held = sum(states.numel() * states.element_size() for states in buffers)
        self.peak_bytes = max(self.peak_bytes, held)


def _take(states: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
    _, heads, room, size = states.shape
    head_index = torch.arange(heads, device=rows.device)
    lines = (rows[:, None, None] * heads + head_index[:, None]) * room + slots[:, None]
    taken = states.view(-1, size).index_select(0, lines.flatten())
    return taken.view(*lines.shape, size)
