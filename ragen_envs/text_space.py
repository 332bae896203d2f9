"""A text space that can be used with the shared memory of `gymnasium.vector.AsyncVectorEnv`."""

import copy
from collections.abc import Sequence
from typing import Any, Self

from gymnasium import spaces
from gymnasium.vector.utils import read_from_shared_memory


class SharedText(spaces.Text):
    """A `Text` space whose batches are read from shared memory when they are asked for.

    Gymnasium 1.4 reads the shared memory once, when the vector environment is made, and returns
    that object from every later `reset` and `step`. Arrays are views and keep up; the strings of a
    plain `Text` stay what they were before the first reset.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A batch holds a copy for each environment. The characters never change and are shared.
        copied = copy.copy(self)
        copied._np_random = copy.deepcopy(self._np_random, memo)
        return copied


class _LiveTexts(Sequence[str]):
    """The texts of all environments as they are in the shared memory at present."""

    def __init__(self, space: SharedText, shared_memory: Any, num_envs: int) -> None:
        self._space = space
        self._shared_memory = shared_memory
        self._num_envs = num_envs

    def _read(self) -> tuple[str, ...]:
        read_texts = read_from_shared_memory.dispatch(spaces.Text)
        texts = read_texts(self._space, self._shared_memory, n=self._num_envs)
        return tuple(str(text) for text in texts)

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __len__(self) -> int:
        return self._num_envs

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        # `AsyncVectorEnv` returns a deep copy of its observations unless asked not to.
        return self._read()


@read_from_shared_memory.register(SharedText)
def _read_live_texts(space: SharedText, shared_memory: Any, n: int = 1) -> Sequence[str]:
    return _LiveTexts(space, shared_memory, n)
