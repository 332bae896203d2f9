import itertools

import numpy as np
import pytest

from ragen_envs.frozen_lake import layout as layout_module
from ragen_envs.frozen_lake.dynamics import find_path, initial_state
from ragen_envs.frozen_lake.layout import count_tries, generate_layout


def flood(layout):
    rows, columns = layout.size
    reached, frontier = {layout.start}, [layout.start]
    while frontier:
        row, column = frontier.pop()
        for cell in ((row, column - 1), (row, column + 1), (row - 1, column), (row + 1, column)):
            inside = 0 <= cell[0] < rows and 0 <= cell[1] < columns
            if inside and cell not in reached and cell not in layout.holes:
                reached.add(cell)
                frontier.append(cell)
    return reached


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (3, 7), (7, 3), (8, 8)])
@pytest.mark.parametrize("frozen_probability", [0.5, 0.8])
def test_generate_layout_always_leaves_a_path_between_two_different_cells(size, frozen_probability):
    rng = np.random.default_rng(0)
    for _ in range(100):
        layout = generate_layout(size, frozen_probability, rng)
        assert layout.size == size
        assert layout.start != layout.goal
        assert layout.start not in layout.holes
        assert layout.goal in flood(layout)
        for row, column in [*layout.holes, layout.start, layout.goal]:
            assert type(row) is type(column) is int
            assert 0 <= row < size[0]
            assert 0 <= column < size[1]


def test_generate_layout_with_probability_one_has_no_holes():
    assert generate_layout((4, 4), 1.0, np.random.default_rng(0)).holes == frozenset()


def test_generate_layout_with_probability_zero_puts_the_goal_beside_the_start():
    rng = np.random.default_rng(0)
    for _ in range(50):
        layout = generate_layout((4, 4), 0.0, rng)
        assert len(layout.holes) == 14
        assert sum(abs(a - b) for a, b in zip(layout.start, layout.goal, strict=True)) == 1


def test_generate_layout_on_a_large_lake_has_the_asked_share_of_holes():
    rng = np.random.default_rng(0)
    shares = [len(generate_layout((20, 20), 0.9, rng).holes) / 398 for _ in range(20)]
    # Standard error sqrt(0.1 * 0.9 / 7960) = 0.0034; rejected maps shift it by far less.
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)


def test_generate_layout_draws_every_pair_of_start_and_goal_evenly():
    rng = np.random.default_rng(0)
    layouts = [generate_layout((2, 2), 1.0, rng) for _ in range(2400)]
    pairs = [(layout.start, layout.goal) for layout in layouts]
    cells = [(0, 0), (0, 1), (1, 0), (1, 1)]
    for pair in itertools.permutations(cells, 2):
        # Expected 200 with standard deviation 13.5; four of them.
        assert abs(pairs.count(pair) - 200) < 55


def test_generate_layout_tries_again_with_the_same_generator_until_it_gives_up(monkeypatch):
    rng = np.random.default_rng(3)
    layout = generate_layout((4, 4), 0.1, rng)
    assert find_path(layout, initial_state(layout)) is not None
    assert (count_tries((4, 4)), count_tries((100, 100))) == (1000, 500)
    monkeypatch.setattr(layout_module, "MAX_TRIES", 1)
    with pytest.raises(ValueError, match=r"`frozen_probability`.* got 0\.1 with `size` \(4, 4\)"):
        generate_layout((4, 4), 0.1, np.random.default_rng(3))
