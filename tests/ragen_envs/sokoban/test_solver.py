import numpy as np
import pytest

from ragen_envs.sokoban.dynamics import is_solved, step
from ragen_envs.sokoban.layout import generate_level
from ragen_envs.sokoban.solver import count_pushes_to_target, shortest_solution

UP, DOWN, LEFT, RIGHT = range(4)


def _follow(layout, state, plan):
    for action in plan:
        state = step(layout, state, action).state
    return state


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("###### #@$.-# ######", [RIGHT]),
        ("####### #@$-.-# #######", [RIGHT, RIGHT]),
        ("###### #-*@-# ######", []),
        ("###### #.$@-# ######", [LEFT]),
        ("####### ###.-## #--$@-# #-----# #######", [DOWN, LEFT, UP]),
    ],
)
def test_shortest_solution_hand_worked_level_gives_the_only_optimal_plan(read_level, text, plan):
    assert shortest_solution(*read_level(text)) == plan


@pytest.mark.parametrize(
    "text",
    [
        "##### #$@-# #--.# #####",  # box in a corner
        "###### #@-$## #--.## ######",  # a push down would start inside the wall
        "####### #@#$.-# #######",  # the player cannot get to the box
        "####### #@$$.-# ##-.### #######",  # the two boxes block each other
    ],
)
def test_shortest_solution_unsolvable_level_gives_none(read_level, search_length, text):
    layout, state = read_level(text)
    assert search_length(layout, state) is None
    assert shortest_solution(layout, state) is None


@pytest.mark.parametrize(
    ("size", "num_boxes", "num_seeds"), [((6, 6), 1, 40), ((8, 8), 2, 30), ((6, 7), 3, 20)]
)
def test_shortest_solution_solves_generated_levels_in_the_claimed_length(
    size, num_boxes, num_seeds
):
    for seed in range(num_seeds):
        layout, state, solution_length = generate_level(
            np.random.default_rng(seed), size=size, num_boxes=num_boxes
        )
        plan = shortest_solution(layout, state)
        assert len(plan) == solution_length
        assert is_solved(layout, _follow(layout, state, plan))
        assert not is_solved(layout, _follow(layout, state, plan[:-1]))


def test_shortest_solution_agrees_with_search_from_states_of_random_play(search_length):
    # States in mid-play, dead ones among them, that no generator has chosen.
    rng = np.random.default_rng(0)
    lengths = []
    for _ in range(60):
        layout, state, _ = generate_level(rng, size=(6, 6), num_boxes=2)
        state = _follow(layout, state, rng.integers(4, size=12).tolist())
        plan = shortest_solution(layout, state)
        lengths.append(None if plan is None else len(plan))
        assert lengths[-1] == search_length(layout, state)
    assert None in lengths
    assert max(length or 0 for length in lengths) > 5


def test_shortest_solution_state_bound_raises(read_level):
    layout, state = read_level("####### #-----# #-$---# #@--.-# #######")
    plan = shortest_solution(layout, state)
    with pytest.raises(ValueError, match=r"`max_states` must be .* got 5"):
        shortest_solution(layout, state, max_states=5)
    assert len(plan) == 6


def test_count_pushes_to_target_leaves_out_dead_cells(read_level):
    layout, _ = read_level("##### #.--# #-$-# #--@# #####")
    # Cells are 5 * row + column. The last row and column cannot be left towards the corner target:
    # the player would have to stand in the wall.
    assert count_pushes_to_target(layout) == {6: 0, 7: 1, 11: 1, 12: 2}
