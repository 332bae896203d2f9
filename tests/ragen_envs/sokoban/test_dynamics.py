import numpy as np
import pytest

from ragen_envs.sokoban.dynamics import (
    ACTION_NAMES,
    Layout,
    State,
    is_solved,
    list_cells,
    step,
)

UP, DOWN, LEFT, RIGHT = range(4)

TWO_BOXES = """
    #######
    #@$.--#
    #-$-.-#
    #######
"""


def _play(layout, state, actions):
    outcomes = []
    for action in actions:
        outcomes.append(step(layout, state, action))
        state = outcomes[-1].state
    return outcomes


def test_action_names_are_in_index_order():
    assert ACTION_NAMES == ("Up", "Down", "Left", "Right")


@pytest.mark.parametrize(
    ("action", "cell"), [(UP, (1, 2)), (DOWN, (3, 2)), (LEFT, (2, 1)), (RIGHT, (2, 3))]
)
def test_step_onto_free_floor_moves_by_one_cell(read_level, action, cell):
    layout, state = read_level(
        """
        #######
        #----.#
        #-@--$#
        #-----#
        #######
        """
    )
    outcome = step(layout, state, action)
    assert divmod(outcome.state.player, layout.columns) == cell
    assert outcome.state.boxes == state.boxes
    assert outcome.reward == pytest.approx(-0.1)
    assert outcome.is_effective


def test_step_that_solves_pays_step_box_and_finish(read_level):
    layout, state = read_level("###### #@$.-# ######")
    outcome = step(layout, state, RIGHT)
    assert outcome.reward == pytest.approx(-0.1 + 1 + 10)
    assert is_solved(layout, outcome.state)
    assert not is_solved(layout, state)


def test_step_scripted_solution_pays_the_reward_table(read_level):
    layout, state = read_level(TWO_BOXES)
    # Box one onto its target; bump into it from below is not possible, so walk round: Down is
    # blocked by box two against the wall; then two pushes of box two, the second one solves.
    actions = (RIGHT, DOWN, LEFT, DOWN, RIGHT, RIGHT)
    outcomes = _play(layout, state, actions)
    assert [outcome.reward for outcome in outcomes] == pytest.approx(
        [0.9, -0.1, -0.1, -0.1, -0.1, 10.9]
    )
    assert [outcome.is_effective for outcome in outcomes] == [True, False, True, True, True, True]
    assert [is_solved(layout, outcome.state) for outcome in outcomes] == [False] * 5 + [True]


def test_step_push_off_target_costs_one_and_back_on_earns_it(read_level):
    # The second box keeps the level from being solved by the first one.
    layout, state = read_level(
        """
        #######
        #@*---#
        #----.#
        #---$-#
        #######
        """
    )
    off, *_, back = _play(layout, state, (RIGHT, DOWN, RIGHT, RIGHT, UP, LEFT))
    assert off.reward == pytest.approx(-1.1)
    assert back.reward == pytest.approx(0.9)


def test_step_push_from_target_to_target_costs_the_step_only(read_level):
    layout, state = read_level("######## #@*.-$-# ########")
    outcome = step(layout, state, RIGHT)
    assert outcome.reward == pytest.approx(-0.1)
    assert not is_solved(layout, outcome.state)


def test_step_in_a_solved_room_is_not_paid_again(read_level):
    layout, state = read_level("###### #-@*-# ######")
    assert [step(layout, state, action).reward for action in (LEFT, UP)] == [-0.1, -0.1]


@pytest.mark.parametrize(
    "row",
    ["#@#$.#", "#@$#.#", "#@$$.#", "#@*$.#", "#@*#-#"],
    ids=["wall", "box-wall", "box-box", "target-box", "target-wall"],
)
def test_step_blocked_costs_the_step_and_changes_nothing(read_level, row):
    layout, state = read_level(f"###### {row} ######")
    outcome = step(layout, state, RIGHT)
    assert outcome == (state, -0.1, False)


def test_step_random_walks_conserve_boxes_and_stay_off_walls(read_level):
    layout, state = read_level(TWO_BOXES)
    start = state
    for action in np.random.default_rng(0).integers(4, size=2000).tolist():
        state, _, _ = step(layout, state, action)
        assert state.boxes.bit_count() == 2
        assert not state.boxes & layout.walls
        assert not (layout.walls | state.boxes) >> state.player & 1
        if is_solved(layout, state):
            state = start


def test_list_cells_ascends():
    assert list(list_cells(0)) == []
    assert list(list_cells(1 << 70 | 0b1101)) == [0, 2, 3, 70]


def test_layout_and_state_are_values():
    layout = Layout(3, 5, walls=0b11111_10001_11111, targets=1 << 8)
    assert layout == Layout(3, 5, walls=0b11111_10001_11111, targets=1 << 8)
    assert {layout, layout} == {layout}
    assert State(6, 1 << 7) == State(6, 1 << 7)
    with pytest.raises(AttributeError):
        layout.walls = 0
