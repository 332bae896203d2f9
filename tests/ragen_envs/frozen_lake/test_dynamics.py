import itertools

import numpy as np
import pytest

from ragen_envs.frozen_lake.dynamics import (
    ACTION_NAMES,
    Layout,
    State,
    draw_direction,
    find_path,
    initial_state,
    is_over,
    is_solved,
    slip_outcomes,
    step,
)

LEFT, DOWN, RIGHT, UP = range(4)


def read_layout(*rows):
    cells = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    where = {mark: [cell for cell, m in cells.items() if m == mark] for mark in "SGH"}
    return Layout(
        size=(len(rows), len(rows[0])),
        holes=frozenset(where["H"]),
        start=where["S"][0],
        goal=where["G"][0],
    )


class FixedLuck:
    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


def test_action_names_are_in_gymnasium_order():
    assert ACTION_NAMES == ("Left", "Down", "Right", "Up")


@pytest.mark.parametrize(
    ("direction", "arrival"), [(LEFT, (1, 0)), (DOWN, (2, 1)), (RIGHT, (1, 2)), (UP, (0, 1))]
)
def test_step_inside_moves_one_cell(direction, arrival):
    layout = read_layout("FFF", "FSF", "FFG")
    assert step(layout, initial_state(layout), direction) == State(arrival)


@pytest.mark.parametrize(
    ("cell", "direction"), [((0, 0), LEFT), ((0, 0), UP), ((1, 3), RIGHT), ((1, 3), DOWN)]
)
def test_step_over_the_edge_of_a_rectangle_stays(cell, direction):
    layout = read_layout("FSFF", "FGFF")
    assert step(layout, State(cell), direction) == State(cell)


def test_step_to_the_last_row_and_column_of_a_rectangle_moves():
    layout = read_layout("FSFF", "FGFF")
    assert step(layout, State((0, 3)), DOWN) == State((1, 3))
    assert step(layout, State((1, 2)), RIGHT) == State((1, 3))


def test_is_over_at_goal_and_in_hole_only():
    layout = read_layout("SHG", "FFF")
    cells = [(r, c) for r in range(2) for c in range(3)]
    assert [cell for cell in cells if is_over(layout, State(cell))] == [(0, 1), (0, 2)]
    assert [cell for cell in cells if is_solved(layout, State(cell))] == [(0, 2)]


def test_slip_outcomes_split_the_rest_on_the_two_sides():
    assert slip_outcomes(LEFT, 0.5) == ((LEFT, 0.5), (UP, 0.25), (DOWN, 0.25))
    assert slip_outcomes(UP, 1.0) == ((UP, 1.0), (RIGHT, 0.0), (LEFT, 0.0))


@pytest.mark.parametrize("action", range(4))
def test_slip_outcomes_go_to_perpendicular_cells_and_sum_to_one(action):
    layout = read_layout("FFF", "FSF", "FFG")
    outcomes = slip_outcomes(action, 1 / 3)
    assert sum(p for _, p in outcomes) == pytest.approx(1.0, abs=1e-12)
    arrivals = [np.subtract(step(layout, State((1, 1)), d).player, (1, 1)) for d, _ in outcomes]
    assert [int(arrivals[0] @ other) for other in arrivals] == [1, 0, 0]
    assert len({direction for direction, _ in outcomes}) == 3


@pytest.mark.parametrize(
    ("luck", "direction"), [(0.0, DOWN), (0.59, DOWN), (0.6, LEFT), (0.79, LEFT), (0.81, RIGHT)]
)
def test_draw_direction_cuts_the_unit_interval_at_0_6_and_0_8(luck, direction):
    assert draw_direction(DOWN, 0.6, FixedLuck(luck)) == direction


def test_draw_direction_with_rate_one_never_slips_and_with_rate_zero_always():
    rng = np.random.default_rng(0)
    assert {draw_direction(UP, 1.0, rng) for _ in range(200)} == {UP}
    assert {draw_direction(UP, 0.0, rng) for _ in range(200)} == {LEFT, RIGHT}


def test_draw_direction_has_the_frequencies_of_slip_outcomes():
    rng = np.random.default_rng(1)
    draws = [draw_direction(RIGHT, 0.7, rng) for _ in range(8000)]
    for direction, probability in slip_outcomes(RIGHT, 0.7):
        # Largest standard error sqrt(0.7 * 0.3 / 8000) = 0.0051; four of them.
        assert draws.count(direction) / 8000 == pytest.approx(probability, abs=0.021)


def test_find_path_around_a_wall_of_holes_is_the_shortest():
    layout = read_layout("SHG", "FHF", "FFF")
    assert find_path(layout, initial_state(layout)) == [DOWN, DOWN, RIGHT, RIGHT, UP, UP]


def test_find_path_on_the_goal_is_empty():
    layout = read_layout("SG", "FF")
    assert find_path(layout, State(layout.goal)) == []


def test_find_path_from_a_hole_or_behind_holes_is_none():
    layout = read_layout("SHG", "HFF")
    assert find_path(layout, initial_state(layout)) is None
    assert find_path(layout, State((0, 1))) is None


def test_find_path_agrees_with_enumeration_of_all_plans():
    rng = np.random.default_rng(7)
    lengths = []
    for _ in range(25):
        cells = [(r, c) for r in range(3) for c in range(3)]
        start, goal, *rest = (cells[i] for i in rng.permutation(9))
        holes = frozenset(rest[: rng.integers(5)])
        layout = Layout(size=(3, 3), holes=holes, start=start, goal=goal)
        path = find_path(layout, initial_state(layout))
        lengths.append(None if path is None else len(path))
        assert lengths[-1] == shortest_plan_length(start, goal, holes)
    assert None in lengths
    assert max(length for length in lengths if length is not None) >= 4


def shortest_plan_length(start, goal, holes):
    # A shortest path on 3x3 has at most 6 moves: it visits no cell next to an earlier one.
    moves = [(0, -1), (1, 0), (0, 1), (-1, 0)]
    for length in range(7):
        for plan in itertools.product(moves, repeat=length):
            row, column = start
            for down, right in plan:
                if (row, column) in holes:
                    break
                row, column = min(max(row + down, 0), 2), min(max(column + right, 0), 2)
            if (row, column) == goal:
                return length
    return None
