import pickle

import numpy as np
import pytest
from gymnasium.utils import seeding

from ragen_envs.vector.streams import MIN_BLOCK_LENGTH, RandomStreams


def seeded_streams(num_streams, first_seed=0):
    streams = RandomStreams(num_streams)
    for index in range(num_streams):
        streams.seed(index, first_seed + index)
    return streams


def test_draw_gives_the_numbers_of_each_generator_whatever_is_asked_when():
    streams = seeded_streams(5)
    expected = [seeding.np_random(seed)[0] for seed in range(5)]
    rng = np.random.default_rng(0)
    for _ in range(400):
        indices = np.flatnonzero(rng.random(5) < 0.6)
        # Now and then more than the blocks hold, which makes them longer.
        num_numbers = int(rng.choice([1, 2, 18, 3 * MIN_BLOCK_LENGTH], p=[0.6, 0.2, 0.19, 0.01]))
        drawn = streams.draw(indices, num_numbers)
        assert drawn.shape == (len(indices), num_numbers)
        for row, index in zip(drawn, indices, strict=True):
            assert row.tolist() == expected[index].random(num_numbers).tolist()


@pytest.mark.parametrize("num_drawn", [0, 1, 7, MIN_BLOCK_LENGTH, MIN_BLOCK_LENGTH + 1])
def test_generator_stands_where_single_draws_would_have_left_it(num_drawn):
    streams = seeded_streams(2)
    expected = seeding.np_random(1)[0]
    for _ in range(num_drawn):
        streams.draw(np.array([1]), 1)
        expected.random()
    generator = streams.generator(1)
    assert generator.bit_generator.state == expected.bit_generator.state
    # Draws of other kinds, and then numbers again.
    assert generator.permutation(9).tolist() == expected.permutation(9).tolist()
    assert streams.draw(np.array([1]), 1)[0, 0] == expected.random()


def test_seed_forgets_what_was_drawn_ahead():
    streams = seeded_streams(2)
    streams.draw(np.array([0, 1]), 3)
    streams.seed(1, 77)
    expected = [seeding.np_random(0)[0], seeding.np_random(77)[0]]
    expected[0].random(3)
    assert streams.draw(np.array([0, 1]), 2).tolist() == [
        generator.random(2).tolist() for generator in expected
    ]
    assert streams.seeds == [0, 77]


def test_streams_without_seeds_differ():
    assert len(set(RandomStreams(20).draw(np.arange(20), 1)[:, 0])) == 20


def test_copies_go_on_alike():
    streams = seeded_streams(3)
    streams.draw(np.array([0, 2]), 5)
    copied = pickle.loads(pickle.dumps(streams))
    everyone = np.arange(3)
    for _ in range(3 * MIN_BLOCK_LENGTH):
        assert streams.draw(everyone, 1).tolist() == copied.draw(everyone, 1).tolist()
