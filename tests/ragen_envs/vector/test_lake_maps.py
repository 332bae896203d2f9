import numpy as np
import pytest

from ragen_envs.frozen_lake import layout as layout_module
from ragen_envs.frozen_lake.layout import generate_layout
from ragen_envs.vector.lake_maps import GOAL, HOLE, generate_lake_maps
from ragen_envs.vector.streams import RandomStreams


def seeded_streams(num_streams):
    streams = RandomStreams(num_streams)
    for index in range(num_streams):
        streams.seed(index, index)
    return streams


@pytest.mark.parametrize("size", [(4, 4), (2, 2), (2, 9), (9, 2), (8, 8), (12, 15)])
@pytest.mark.parametrize("frozen_probability", [0.35, 0.8, 1.0])
def test_maps_are_those_of_single_environments(size, frozen_probability):
    streams = seeded_streams(40)
    indices = np.arange(0, 40, 2)
    maps = generate_lake_maps(size, frozen_probability, streams, indices)
    for index, board, start in zip(indices.tolist(), maps.boards, maps.starts, strict=True):
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(index)))
        layout = generate_layout(size, frozen_probability, rng)
        assert divmod(start, size[1] + 1) == layout.start
        cells = board.reshape(size[0], -1)[:, : size[1]]
        assert {tuple(cell) for cell in np.argwhere(cells == HOLE).tolist()} == layout.holes
        assert [tuple(cell) for cell in np.argwhere(cells == GOAL).tolist()] == [layout.goal]
        # Also where the generator stands after as many tries.
        assert streams.generator(index).bit_generator.state == rng.bit_generator.state


def test_maps_are_given_up_after_the_same_number_of_tries(monkeypatch):
    monkeypatch.setattr(layout_module, "MAX_TRIES", 1)
    with pytest.raises(ValueError, match=r"none of 1 maps had one, got 0\.1 with `size` \(4, 4\)"):
        generate_lake_maps((4, 4), 0.1, seeded_streams(20), np.arange(20))
