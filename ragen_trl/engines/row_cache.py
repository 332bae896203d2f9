"""Keys and values of a batch of rows that grow, move and leave."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

# Slots that a buffer grows by at least; each growth copies it once.
GROWTH = 64


class _BufferedLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Writes new tokens into a buffer with room to spare, instead of copying all for each token."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.store(key_states[:, :, :0], value_states[:, :, :0])

    def store(self, keys: Tensor, values: Tensor) -> None:
        """Take these as all that was read so far, shape (R, heads, S, size)."""
        self._buffers = (keys, values)
        self.keys, self.values = keys, values

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the new tokens and return everything."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if end > self._buffers[0].shape[2]:
            room = end + max(GROWTH, end // 2)
            self._buffers = (
                _with_room(self.keys, key_states, room),
                _with_room(self.values, value_states, room),
            )
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values


def _with_room(old: Tensor, new: Tensor, room: int) -> Tensor:
    rows, heads, _, size = new.shape
    buffer = new.new_empty(rows, heads, room, size)
    buffer[:, :, : old.shape[2]] = old
    return buffer


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
        self._mask = torch.zeros(num_rows, 0, dtype=torch.long, device=model.device)
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
        old = self._mask
        self._mask = torch.cat([old, mask], dim=1)
        positions = (old.sum(1, keepdim=True) + mask.cumsum(1) - 1).clamp(min=0)
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.peak_bytes = max(self.peak_bytes, self._count_bytes())
        logits: Tensor = output.logits[:, -1]
        return logits

    def take(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order, repeated where named twice; close empty slots."""
        index = torch.tensor(rows, device=self._model.device)
        mask = self._mask[index]
        width = int(mask.sum(1).max())
        # A stable sort moves the empty slots of every row to the left.
        slots = mask.argsort(dim=1, stable=True)[:, mask.shape[1] - width :]
        self._mask = mask.gather(1, slots)
        for layer in self._cache.layers:
            layer.store(*(_gather(states, index, slots) for states in (layer.keys, layer.values)))

    def _count_bytes(self) -> int:
        return sum(
            states.numel() * states.element_size()
            for layer in self._cache.layers
            for states in layer._buffers
        )


def _gather(states: Tensor, index: Tensor, slots: Tensor) -> Tensor:
    _, heads, _, size = states.shape
    where = slots[:, None, :, None].expand(-1, heads, -1, size)
    return states[index].gather(2, where)
