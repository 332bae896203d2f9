import pickle

import numpy as np
import pytest

from ragen_envs.sokoban import level_set as level_set_module
from ragen_envs.sokoban.level_file import parse_levels
from ragen_envs.sokoban.level_set import LevelSet, measure_level


def corridor(length):
    """Write a level that is solved by `length` pushes to the right and in no shorter way."""
    inside = f"@${' ' * (length - 1)}."
    wall = "#" * (len(inside) + 2)
    return f"{wall}\n#{inside}#\n{wall}"


DEAD = "#####\n#$ .#\n#@  #\n#####"  # the box stands in a corner


def draw_lengths(levels, count, **length_range):
    rng = np.random.default_rng(0)
    return [levels.draw(rng, **length_range).solution_length for _ in range(count)]


def test_level_set_draws_all_levels_evenly_and_knows_their_lengths(search_length):
    levels = LevelSet([corridor(length) for length in range(1, 6)])
    assert len(levels) == 5
    assert (levels.size, levels.num_boxes) == ((3, 9), 1)
    lengths = draw_lengths(levels, 1000)
    for length in range(1, 6):
        # Expected 200 with standard deviation 12.6; four of them.
        assert abs(lengths.count(length) - 200) < 51
    rng = np.random.default_rng(1)
    for _ in range(20):
        layout, state, length = levels.draw(rng)
        assert search_length(layout, state) == length


def test_level_set_size_and_boxes_hold_every_level():
    tall = "#####\n# @ #\n# $ #\n# $ #\n#...#\n#####".replace("...", ". .")
    levels = LevelSet([corridor(7), tall])
    assert (levels.size, levels.num_boxes) == ((6, 11), 2)


def test_level_set_draws_evenly_from_the_levels_in_the_range():
    levels = LevelSet([corridor(length) for length in range(1, 11)])
    lengths = draw_lengths(levels, 900, min_solution_length=3, max_solution_length=5)
    assert set(lengths) == {3, 4, 5}
    for length in (3, 4, 5):
        # Expected 300 with standard deviation 14.1; four of them.
        assert abs(lengths.count(length) - 300) < 57
    assert set(draw_lengths(levels, 50, min_solution_length=10)) == {10}


def test_level_set_draw_does_not_depend_on_what_was_drawn_before():
    texts = [corridor(length) for length in range(1, 11)]
    fresh, used = LevelSet(texts), LevelSet(texts)
    draw_lengths(used, 50)
    request = {"min_solution_length": 2, "max_solution_length": 4}
    assert draw_lengths(used, 50, **request) == draw_lengths(fresh, 50, **request)
    assert draw_lengths(pickle.loads(pickle.dumps(used)), 50) == draw_lengths(fresh, 50)


def test_level_set_without_a_level_in_the_range_raises():
    levels = LevelSet([corridor(1), corridor(2)])
    with pytest.raises(ValueError, match=r"^`levels` must hold .* 2 of 2 levels .*length` 3"):
        draw_lengths(levels, 1, min_solution_length=3, max_solution_length=9)


def test_level_set_looks_at_a_bounded_number_of_levels(monkeypatch):
    monkeypatch.setattr(level_set_module, "MAX_LEVELS_PER_DRAW", 3)
    levels = LevelSet([corridor(1)] * 50)
    with pytest.raises(ValueError, match="found none in 3 of 50 levels"):
        draw_lengths(levels, 1, min_solution_length=2)


def test_level_set_unsolvable_level_raises_with_its_place_when_it_is_drawn(tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text(f"{corridor(1)}\n\n; dead\n{DEAD}\n")
    levels = LevelSet(path)
    with pytest.raises(ValueError, match=r"levels\.txt, line 6: the level cannot be solved"):
        draw_lengths(levels, 50)


def test_level_set_level_beyond_the_search_is_drawn_only_if_every_length_is_welcome(monkeypatch):
    monkeypatch.setattr(level_set_module, "MAX_STATES_PER_CHECK", 5)
    levels = LevelSet([corridor(1), corridor(30)])
    assert set(draw_lengths(levels, 30)) == {1, None}
    for request in ({"max_solution_length": 90}, {"max_solution_length": 1}):
        assert set(draw_lengths(levels, 30, **request)) == {1}
    with pytest.raises(ValueError, match="not known after 5 states"):
        draw_lengths(levels, 1, min_solution_length=2)


def test_measure_level_gives_the_optimal_length_or_says_that_there_is_none(search_length):
    [written] = parse_levels("#######\n#  .  #\n# $$@ #\n#  .  #\n#######", "x")
    layout, state, length = measure_level(written)
    assert length == search_length(layout, state) is not None
    [written] = parse_levels(DEAD, "x")
    with pytest.raises(ValueError, match=r"^x, line 1: the level cannot be solved"):
        measure_level(written)
