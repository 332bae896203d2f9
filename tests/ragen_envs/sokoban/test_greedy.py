import numpy as np
import pytest

from ragen_envs.sokoban.dynamics import is_solved, step
from ragen_envs.sokoban.greedy import push_greedily
from ragen_envs.sokoban.layout import generate_level

UP, DOWN, LEFT, RIGHT = range(4)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("####### #@$-.-# #######", [RIGHT, RIGHT]),
        ("####### ###.-## #--$@-# #-----# #######", [DOWN, LEFT, UP]),
        ("###### #-*@-# ######", []),  # solved
        ("##### #$@-# #--.# #####", []),  # stuck
        # The nearer box first, although the level would be solved by the same moves otherwise.
        ("######### #.$--@$.# #-------# #########", [RIGHT, LEFT, LEFT, LEFT, LEFT]),
    ],
)
def test_push_greedily_hand_worked_level(read_level, text, plan):
    assert push_greedily(*read_level(text), 20) == plan


def test_push_greedily_is_cut_to_the_asked_length(read_level):
    layout, state = read_level("######### #.$--@$.# #-------# #########")
    whole = push_greedily(layout, state, 20)
    for length in range(6):
        assert push_greedily(layout, state, length) == whole[:length]


def test_push_greedily_walks_into_a_dead_end_that_the_solver_avoids(read_level):
    # The nearest target of the left box is the middle one; taking it, the right target would do for
    # the right box, but the left box blocks the corridor for the other one.
    layout, state = read_level("########## #@$-.$--.# ##########")
    plan = push_greedily(layout, state, 20)
    assert plan == [RIGHT, RIGHT]


def test_push_greedily_solves_many_generated_levels_but_not_all():
    outcomes = []
    for seed in range(100):
        layout, state, _ = generate_level(np.random.default_rng(seed), size=(7, 7), num_boxes=2)
        plan = push_greedily(layout, state, 200)
        assert len(plan) < 200
        for action in plan:
            state = step(layout, state, action).state
        outcomes.append(is_solved(layout, state))
    assert 40 < sum(outcomes) < 95
