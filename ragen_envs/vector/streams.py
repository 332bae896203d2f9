"""One random generator per environment, read for a whole batch at once."""

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding

Indices = npt.NDArray[np.intp]

# A call of a generator costs about as much as this many numbers do.
MIN_BLOCK_LENGTH = 512
# So many of the largest requests fit into a block.
REQUESTS_PER_BLOCK = 4


class RandomStreams:
    """The generators of many environments, seeded as `gymnasium.Env.reset` seeds one.

    `draw` returns what `Generator.random` would return, number by number, but from blocks that were
    drawn ahead: a generator is called once per block, not once per number.

    Args:
        num_streams: Number of generators. Before `seed` they hold what the operating system gives.

    Attributes:
        seeds: Seed of each generator.
    """

    def __init__(self, num_streams: int) -> None:
        drawn = [seeding.np_random() for _ in range(num_streams)]
        self._generators = [generator for generator, _ in drawn]
        self.seeds = [seed for _, seed in drawn]
        self._blocks = np.empty((num_streams, 0))
        self._num_read = np.zeros(num_streams, np.intp)  # of each block

    def seed(self, index: int, seed: int) -> None:
        """Give one environment a new generator.

        Raises:
            gymnasium.error.Error: If `seed` is not a non-negative integer.
        """
        self._generators[index], self.seeds[index] = seeding.np_random(seed)
        self._num_read[index] = self._blocks.shape[1]

    def generator(self, index: int) -> np.random.Generator:
        """Return the generator of one environment, set back to the first number not yet read."""
        generator = self._generators[index]
        num_unread = self._blocks.shape[1] - int(self._num_read[index])
        if num_unread:
            bits = generator.bit_generator
            assert isinstance(bits, np.random.PCG64)  # one state per number of `random`
            bits.advance(-num_unread)
            self._num_read[index] += num_unread
        return generator

    def draw(self, indices: Indices, num_numbers: int) -> npt.NDArray[np.float64]:
        """Draw the next numbers in [0, 1) of each of these environments.

        Args:
            indices: Environments, each at most once. Shape `(M,)`.
            num_numbers: How many each.

        Returns:
            Shape `(M, num_numbers)`.
        """
        if num_numbers > self._blocks.shape[1]:
            self._widen(max(MIN_BLOCK_LENGTH, REQUESTS_PER_BLOCK * num_numbers))
        first = self._num_read[indices]
        is_short = first > self._blocks.shape[1] - num_numbers
        if is_short.any():
            for index in indices[is_short].tolist():
                self._refill(index)
            first[is_short] = 0
        self._num_read[indices] = first + num_numbers
        first += indices * self._blocks.shape[1]
        return self._blocks.take(first[:, None] + np.arange(num_numbers))

    def _widen(self, block_length: int) -> None:
        num_streams = len(self._generators)
        for index in range(num_streams):
            self.generator(index)
        self._blocks = np.empty((num_streams, block_length))
        self._num_read = np.full(num_streams, block_length)

    def _refill(self, index: int) -> None:
        block = self._blocks[index]
        unread = block[self._num_read[index] :].copy()
        block[: len(unread)] = unread
        self._generators[index].random(out=block[len(unread) :])
