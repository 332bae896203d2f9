import time

import numpy as np
import pytest

from ragen_envs.sokoban.dynamics import is_solved, list_cells
from ragen_envs.sokoban.layout import check_request, generate_level


def _generate(seed, size, num_boxes, shortest=1, longest=None):
    return generate_level(
        np.random.default_rng(seed),
        size=size,
        num_boxes=num_boxes,
        min_solution_length=shortest,
        max_solution_length=longest,
    )


def _flood(free, start, columns):
    reached, edge = {start}, [start]
    while edge:
        cell = edge.pop()
        for near in (cell - columns, cell + columns, cell - 1, cell + 1):
            if free >> near & 1 and near not in reached:
                reached.add(near)
                edge.append(near)
    return reached


@pytest.mark.parametrize(
    ("size", "num_boxes", "shortest", "longest", "num_seeds"),
    [
        ((6, 6), 1, 1, None, 100),
        ((8, 8), 2, 1, None, 60),
        ((5, 8), 1, 1, None, 40),
        ((9, 5), 2, 1, None, 30),
        ((6, 6), 3, 1, None, 40),
        ((6, 6), 1, 4, 4, 40),
        ((6, 6), 1, 8, 9, 40),
        ((8, 8), 2, 3, 6, 40),
        ((7, 7), 2, 1, 1, 40),
        ((3, 5), 1, 1, 1, 5),
        ((4, 5), 4, 1, None, 5),  # as full as can be: one free cell
        ((10, 10), 4, 6, 8, 5),
    ],
)
def test_generate_level_claims_the_length_that_an_independent_search_finds(
    search_length, size, num_boxes, shortest, longest, num_seeds
):
    for seed in range(num_seeds):
        layout, state, solution_length = _generate(seed, size, num_boxes, shortest, longest)
        assert not is_solved(layout, state)
        assert search_length(layout, state) == solution_length, (seed, layout, state)
        assert shortest <= solution_length <= (longest or solution_length)


@pytest.mark.parametrize(
    ("size", "num_boxes"),
    [((6, 6), 1), ((8, 8), 2), ((5, 9), 2), ((10, 10), 4), ((4, 7), 6), ((4, 5), 4)],
)
def test_generate_level_makes_one_connected_room_inside_the_outer_wall(size, num_boxes):
    rows, columns = size
    for seed in range(40):
        layout, state, _ = _generate(seed, size, num_boxes)
        assert (layout.rows, layout.columns) == size
        floor = (1 << rows * columns) - 1 & ~layout.walls
        places = [divmod(cell, columns) for cell in list_cells(floor)]
        assert all(0 < row < rows - 1 and 0 < column < columns - 1 for row, column in places)
        assert len(_flood(floor, state.player, columns)) == len(places)
        assert layout.targets.bit_count() == state.boxes.bit_count() == num_boxes
        assert not (layout.targets | state.boxes | 1 << state.player) & ~floor
        assert not state.boxes >> state.player & 1


def test_generate_level_varies():
    levels = [_generate(seed, (6, 6), 1) for seed in range(500)]
    assert len(set(levels)) >= 400
    assert len({level.layout.walls for level in levels}) >= 200
    assert {level.solution_length for level in levels} >= set(range(1, 11))
    # Neither trivial nor out of reach of an agent with ten actions.
    assert 3 <= np.median([level.solution_length for level in levels]) <= 6


def test_generate_level_draws_lengths_uniformly_among_those_available():
    # Nearly every room has lengths 1 to 4; a uniform draw gives 100 each, give or take 35 (4 sigma).
    # Drawn by state, length 4 would come about three times as often as length 1.
    lengths = [_generate(seed, (7, 7), 1, 1, 4).solution_length for seed in range(400)]
    counts = np.bincount(lengths, minlength=5)[1:]
    assert np.abs(counts - 100).max() <= 35


def test_generate_level_same_generator_state_gives_same_level():
    assert _generate(3, (8, 8), 2) == _generate(3, (8, 8), 2)
    rng = np.random.default_rng(3)
    request = {"size": (8, 8), "num_boxes": 2}
    assert generate_level(rng, **request) != generate_level(rng, **request)


def test_generate_level_holds_plain_integers():
    layout, state, solution_length = _generate(0, (8, 8), 2)
    numbers = (layout.walls, layout.targets, *state, solution_length)
    assert {type(number) for number in numbers} == {int}


@pytest.mark.parametrize(
    ("size", "num_boxes", "shortest", "longest", "named"),
    [
        ((4, 4), 3, 1, None, "size"),
        ((4, 4), 1, 1, None, "size"),  # no three cells in a line
        ((3, 4), 1, 1, None, "size"),
        ((2, 9), 1, 1, None, "size"),
        ((6, 6), 15, 1, None, "num_boxes"),
        ((6, 6), 0, 1, None, "num_boxes"),
        ((6, 6), 1, 0, None, "min_solution_length"),
        ((6, 6), 1, 1000, None, "min_solution_length"),
        ((6, 6), 1, 5, 4, "max_solution_length"),
        ((6, 6), 1, 1, 0, "max_solution_length"),
        ((101, 5), 1, 1, None, "size"),
        ((10**6, 10**6), 10**6, 1, None, "size"),
        ((6, 6), 10**400, 1, None, "num_boxes"),
        ((6, 6), 1, 10**400, None, "min_solution_length"),
        ((6, 6), 1, 5, True, "max_solution_length"),
    ],
)
def test_check_request_impossible_raises_naming_the_argument(
    size, num_boxes, shortest, longest, named
):
    with pytest.raises((TypeError, ValueError), match=f"`{named}`|{named}=") as error:
        check_request(
            size=size,
            num_boxes=num_boxes,
            min_solution_length=shortest,
            max_solution_length=longest,
        )
    assert len(str(error.value)) < 700


def test_check_request_no_integer_raises_type_error():
    with pytest.raises(TypeError, match="`num_boxes` must be an integer"):
        check_request(size=(6, 6), num_boxes=1.5, min_solution_length=1, max_solution_length=None)


@pytest.mark.parametrize(
    ("size", "num_boxes", "shortest", "longest"),
    [
        ((6, 6), 1, 100, None),
        ((8, 8), 2, 500, 600),
        ((10, 10), 4, 300, None),
        ((3, 9), 1, 30, None),
        ((20, 20), 320, 50, None),
        ((50, 50), 2302, 1, None),
        ((100, 100), 9602, 1, None),
        ((100, 100), 4800, 10**6, None),
    ],
)
def test_generate_level_hopeless_raises_soon(size, num_boxes, shortest, longest):
    begin = time.process_time()
    with pytest.raises(ValueError, match="found no level") as caught:
        _generate(0, size, num_boxes, shortest, longest)
    # Measured 0.1 s, and 1 s in the largest rooms; an unbounded search would not come back at all.
    assert time.process_time() - begin < (1.0 if max(size) <= 10 else 5.0)
    for named in ("size", "num_boxes", "min_solution_length", "max_solution_length"):
        assert f"{named}=" in str(caught.value)


def test_generate_level_demanding_request_is_met_in_smaller_rooms():
    # Cut short, a search through a wide room sees short solutions only: with rooms of the usual
    # size, 4 of these 12 requests fail.
    for seed in range(12):
        assert _generate(seed, (10, 10), 3, 45).solution_length >= 45
