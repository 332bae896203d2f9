import time

import numpy as np
import pytest

from ragen_envs.sokoban import solver as solver_module
from ragen_envs.sokoban.dynamics import Layout, State, is_solved, step
from ragen_envs.sokoban.layout import generate_level
from ragen_envs.sokoban.solver import Push, find_walk, list_pushes, shortest_solution

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


def scatter(rng, *, rows, columns, num_boxes, floor_share):
    """Throw walls, targets, boxes and the player anywhere: most of these levels cannot be solved."""
    cells = [r * columns + c for r in range(1, rows - 1) for c in range(1, columns - 1)]
    floor = [cell for cell in cells if rng.random() < floor_share]
    if len(floor) < 2 * num_boxes + 1:
        return scatter(
            rng, rows=rows, columns=columns, num_boxes=num_boxes, floor_share=floor_share
        )
    walls = (1 << rows * columns) - 1 - sum(1 << cell for cell in floor)
    targets = rng.choice(floor, num_boxes, replace=False).tolist()
    *boxes, player = rng.choice(floor, num_boxes + 1, replace=False).tolist()
    layout = Layout(rows, columns, walls, sum(1 << cell for cell in targets))
    return layout, State(player, sum(1 << cell for cell in boxes))


@pytest.mark.parametrize(
    ("rows", "columns", "num_boxes", "num_levels"), [(5, 6, 2, 400), (6, 6, 3, 120), (6, 7, 2, 150)]
)
def test_shortest_solution_agrees_with_search_on_levels_thrown_together(
    search_length, rows, columns, num_boxes, num_levels
):
    rng = np.random.default_rng(rows * columns + num_boxes)
    lengths = []
    for _ in range(num_levels):
        layout, state = scatter(
            rng, rows=rows, columns=columns, num_boxes=num_boxes, floor_share=0.9
        )
        plan = shortest_solution(layout, state)
        lengths.append(None if plan is None else len(plan))
        assert lengths[-1] == search_length(layout, state)
        if plan:
            assert is_solved(layout, _follow(layout, state, plan))
    assert lengths.count(None) > num_levels // 10
    assert sum(length is not None and length > 8 for length in lengths) > 5


def test_shortest_solution_ten_by_ten_with_four_boxes_is_found_within_the_default_bound(read_level):
    layout, state = read_level(
        "########## #--------# #-$-#----# #--$#-.--# #----.-$-# ##-##----# #-----##-#"
        " #-.-$----# #-@---.--# ##########"
    )
    plan = shortest_solution(layout, state)
    assert is_solved(layout, _follow(layout, state, plan))
    # Found once by A* over single moves, which shares no code with the package.
    assert len(plan) == 38


def test_shortest_solution_generated_ten_by_ten_levels_match_the_claimed_length():
    for seed in range(25):
        layout, state, solution_length = generate_level(
            np.random.default_rng(seed), size=(10, 10), num_boxes=4
        )
        assert len(shortest_solution(layout, state)) == solution_length


def test_shortest_solution_max_moves_tells_apart_one_move(read_level):
    layout, state = read_level("####### ###.-## #--$@-# #-----# #######")
    assert shortest_solution(layout, state, max_moves=3) == [DOWN, LEFT, UP]
    assert shortest_solution(layout, state, max_moves=2) is None
    assert shortest_solution(layout, state, max_moves=0) is None
    solved = _follow(layout, state, [DOWN, LEFT, UP])
    assert shortest_solution(layout, solved, max_moves=0) == []


def test_shortest_solution_more_targets_than_boxes_chooses_among_them(read_level):
    layout, state = read_level("######### #.-$@-$.# #-------# #.-----.# #########")
    # One side first and back to the other; the two targets below stay free.
    assert shortest_solution(layout, state) in ([LEFT] * 2 + [RIGHT] * 4, [RIGHT] * 2 + [LEFT] * 4)


def test_shortest_solution_many_boxes_uses_the_sum_of_nearest_targets(read_level, search_length):
    # Ten targets in a room where ten boxes have little room to move.
    layout, state = read_level("####### #.....# #$$$$$# #--@--# #$$$$$# #.....# #######")
    plan = shortest_solution(layout, state)
    assert len(plan) == search_length(layout, state) > 20


def test_shortest_solution_state_bound_raises_and_claims_nothing(read_level):
    layout, state = read_level("####### #-----# #-$---# #@--.-# #######")
    plan = shortest_solution(layout, state)
    with pytest.raises(ValueError, match=r"`max_states` must be .* got 2\. .* solvable or not"):
        shortest_solution(layout, state, max_states=2)
    assert len(plan) == 6


def test_shortest_solution_of_a_hundred_boxes_gives_up_soon(read_level):
    middle = "#--" + "$." * 7 + "---#"
    rows = [*15 * [middle], *2 * ["#" + "-" * 18 + "#"]]
    layout, state = read_level(" ".join(["#" * 20, "#@" + "-" * 17 + "#", *rows, "#" * 20]))
    assert state.boxes.bit_count() == 105
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"`max_states` must be large enough"):
        shortest_solution(layout, state, max_states=20_000)
    # Measured 0.1 s; with the distances to all targets for every box of every state, 18 s.
    assert time.process_time() - begin < 3


def test_shortest_solution_counts_long_ways_for_more_than_short_ones(read_level, monkeypatch):
    layout, state = read_level("####### #-----# #-$---# #@--.-# #######")
    plan = shortest_solution(layout, state, max_states=20)
    monkeypatch.setattr(solver_module, "_STEPS_PER_STATE", 3)
    assert shortest_solution(layout, state, max_states=2000) == plan
    with pytest.raises(ValueError, match=r"`max_states` must be large enough.* got 20\."):
        shortest_solution(layout, state, max_states=20)


def test_list_pushes_gives_the_nearest_first_and_only_those_within_reach(read_level):
    # Cells are 7 * row + column: the player on 9, boxes on 10 and 17.
    layout, state = read_level("####### #-@$--# #--$--# #---.-# #######")
    everywhere = ~layout.walls
    pushes = list(list_pushes(layout, state, everywhere))
    # Right at once; the lower box from the left; both from the right after a walk around, the upper
    # box to the player's own cell. Neither moves up or down: wall and box are in the way.
    assert pushes[0] == Push(1, RIGHT, 10, 11)
    assert Push(2, RIGHT, 17, 18) in pushes
    assert [push.num_moves for push in pushes] == sorted(push.num_moves for push in pushes)
    for push in pushes:
        near_side = 2 * push.origin - push.destination
        walk = find_walk(layout, state, near_side)
        after = _follow(layout, state, [*walk, push.action])
        assert len(walk) + 1 == push.num_moves
        assert after == State(push.origin, state.boxes ^ (1 << push.origin | 1 << push.destination))
    assert {(push.origin, push.action) for push in pushes} == {
        (10, RIGHT),
        (17, RIGHT),
        (10, LEFT),
        (17, LEFT),
    }
    landing = 1 << 18
    assert list(list_pushes(layout, state, landing)) == [Push(2, RIGHT, 17, 18)]


def test_find_walk_goes_around_boxes_and_says_when_there_is_no_way(read_level):
    layout, state = read_level(
        "####### #@$--# #--#--# #--$.-# #######".replace("#@$--#", "#@$-.-#")
    )
    assert find_walk(layout, state, state.player) == []
    walk = find_walk(layout, state, 7 * 3 + 2)
    assert sorted(walk) == [DOWN, DOWN, RIGHT]
    assert find_walk(layout, state, 7 * 1 + 3) is None
