import bisect
import functools
import itertools
import time

import numpy as np
import pytest

from ragen_envs.frozen_lake import planning as planning_module
from ragen_envs.frozen_lake.dynamics import Layout, State, draw_direction, is_over, is_solved, step
from ragen_envs.frozen_lake.layout import generate_layout
from ragen_envs.frozen_lake.planning import PlanTooLargeError, TurnPlanner, turn_planner

LEFT, DOWN, RIGHT, UP = range(4)
MOVES = [(0, -1), (1, 0), (0, 1), (-1, 0)]


def read_lake(*rows):
    cells = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    where = {mark: [cell for cell, m in cells.items() if m == mark] for mark in "SGH"}
    goal, *others = where["G"]
    size = (len(rows), len(rows[0]))
    return Layout(size, frozenset(where["H"]), where["S"][0], goal, frozenset(others))


def list_outcomes(layout, cell, action, success_rate):
    side = (1 - success_rate) / 2
    for turn, probability in [(0, success_rate), (1, side), (3, side)]:
        row, column = (a + b for a, b in zip(cell, MOVES[(action + turn) % 4], strict=True))
        inside = 0 <= row < layout.size[0] and 0 <= column < layout.size[1]
        yield (row, column) if inside else cell, probability


def best_by_enumeration(
    layout, start, success_rate, *, num_turns, num_actions_per_turn, num_actions
):
    """Try every action sequence of every turn from every cell: the definition, without shortcuts."""
    goals = {layout.goal, *layout.other_goals}

    @functools.cache
    def best(cell, turns, actions):
        if cell in goals:
            return 1.0
        if cell in layout.holes or turns == 0:
            return 0.0
        sequences = (
            sequence
            for length in range(min(num_actions_per_turn, actions) + 1)
            for sequence in itertools.product(range(4), repeat=length)
        )
        return max(play(cell, sequence, turns - 1, actions) for sequence in sequences)

    def play(cell, sequence, turns, actions):
        belief = {cell: 1.0}
        for action in sequence:
            following = dict.fromkeys(belief, 0.0)
            for here, weight in belief.items():
                if here in goals or here in layout.holes:
                    following[here] += weight
                    continue
                for arrival, probability in list_outcomes(layout, here, action, success_rate):
                    following[arrival] = following.get(arrival, 0.0) + weight * probability
            belief = following
        return sum(
            weight * best(here, turns, actions - len(sequence)) for here, weight in belief.items()
        )

    return best(start, num_turns, num_actions)


def simulate(layout, success_rate, rng, *, num_turns, num_actions_per_turn, num_actions):
    """Play one episode by the planner's turns; return whether it was solved."""
    planner = turn_planner(layout, success_rate, num_actions_per_turn)
    state = State(layout.start)
    while num_turns and num_actions and not is_over(layout, state):
        actions = planner.plan(state, num_turns, num_actions).actions
        assert 1 <= len(actions) <= min(num_actions_per_turn, num_actions)
        num_turns -= 1
        for action in actions:
            num_actions -= 1
            state = step(layout, state, draw_direction(action, success_rate, rng))
            if is_over(layout, state):
                break
    return is_solved(layout, state)


def test_plan_on_a_two_by_two_lake_has_the_values_worked_out_by_hand():
    # The goal is right of the start; each way has probability 1/3.
    planner = TurnPlanner(read_lake("SG", "FF"), 1 / 3, max_actions_per_turn=2)
    start = State((0, 0))
    # One action: Right, Up and Down go right with probability 1/3.
    assert planner.plan(start, 1, 1).success == pytest.approx(1 / 3, abs=1e-12)
    # Two turns of one action: Up and again Up, 1/3 + 2/3 * 1/3 = 5/9.
    assert planner.plan(start, 2, 2).success == pytest.approx(5 / 9, abs=1e-12)
    # One turn of two actions, blind: Up stays or arrives, so what follows is as good as seen.
    plan = planner.plan(start, 1, 2)
    assert plan.success == pytest.approx(5 / 9, abs=1e-12)
    assert plan.actions[0] == UP
    assert plan.actions[1] != LEFT


def test_plan_blind_turn_past_a_hole_has_the_value_worked_out_by_hand():
    # A corridor, start and goal two apart, a hole below its middle; p = 0.8, sides 0.1 each.
    layout = read_lake("SFG", "HHH")
    # Blind, two actions. Right, Right: 0.8 * 0.8 = 0.64. Nothing is better.
    planner = TurnPlanner(layout, 0.8, max_actions_per_turn=3)
    assert planner.plan(State(layout.start), 1, 2).success == pytest.approx(0.64, abs=1e-12)
    # Three actions, blind: Right, Right, Right. After two: goal 0.64; middle 0.8 * 0.1 (slipped up)
    # + 0.1 * 0.8 (slipped up first) = 0.16. The third: 0.64 + 0.16 * 0.8 = 0.768.
    assert planner.plan(State(layout.start), 1, 3) == (pytest.approx(0.768, abs=1e-12), [RIGHT] * 3)
    # Seen after each action it is the same plan here, since Right is best from both cells.
    assert planner.plan(State(layout.start), 3, 3).success == pytest.approx(0.768, abs=1e-12)


def test_plan_seen_beats_blind_where_the_cell_decides():
    layout = read_lake("HGH", "FSF", "HFH")
    arguments = {"success_rate": 0.5, "num_turns": 1, "num_actions_per_turn": 3, "num_actions": 3}
    planner = TurnPlanner(layout, 0.5, 3)
    blind = planner.plan(State(layout.start), 1, 3).success
    seen = planner.plan(State(layout.start), 3, 3).success
    assert blind == pytest.approx(best_by_enumeration(layout, layout.start, **arguments))
    assert seen > blind + 0.05


LAKES = [
    ("SG", "FF"),
    ("SFF", "FHG"),
    ("SFF", "HFH", "FFG"),
    ("FSF", "GHF", "FFG"),
    ("SHG", "FFH", "FFF"),
]


@pytest.mark.parametrize("success_rate", [1 / 3, 0.7, 1.0])
@pytest.mark.parametrize("rows", LAKES)
def test_plan_agrees_with_the_enumeration_of_everything(rows, success_rate):
    layout = read_lake(*rows)
    for num_turns, num_actions_per_turn, num_actions in [
        (1, 4, 4),
        (2, 3, 4),
        (2, 3, 6),
        (3, 2, 5),
        (3, 3, 4),
        (4, 1, 3),
        (5, 2, 3),
    ]:
        budget = {
            "num_turns": num_turns,
            "num_actions_per_turn": num_actions_per_turn,
            "num_actions": num_actions,
        }
        planner = TurnPlanner(layout, success_rate, num_actions_per_turn)
        for row, column in itertools.product(range(layout.size[0]), range(layout.size[1])):
            expected = best_by_enumeration(layout, (row, column), success_rate, **budget)
            plan = planner.plan(State((row, column)), num_turns, num_actions)
            assert plan.success == pytest.approx(expected, abs=1e-12)
            assert bool(plan.actions) != is_over(layout, State((row, column)))


def test_plan_default_budget_agrees_with_the_enumeration_on_a_small_lake():
    layout = read_lake("SFF", "FHG")
    budget = {"num_turns": 5, "num_actions_per_turn": 4, "num_actions": 8}
    expected = best_by_enumeration(layout, layout.start, 1 / 3, **budget)
    success = TurnPlanner(layout, 1 / 3, 4).plan(State(layout.start), 5, 8).success
    assert success == pytest.approx(expected, abs=1e-12)


def test_plan_sorting_out_sequences_loses_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    layouts = [generate_layout((4, 4), 0.8, rng) for _ in range(10)]
    budgets = [(1, 6), (2, 7), (3, 8)]

    def plan_all():
        return [
            TurnPlanner(layout, 1 / 3, 5).plan(State(layout.start), *budget).success
            for layout in layouts
            for budget in budgets
        ]

    everything = plan_all()
    monkeypatch.setattr(planning_module, "NUM_SEQUENCES_TO_SORT", 0)
    assert plan_all() == pytest.approx(everything, abs=1e-10)


@pytest.mark.parametrize(
    ("most", "num_turns", "num_actions"),
    [(12, 5, 60), (10**400, 1, 10**400), (10**9, 2, 10**9 + 3), (2, 10**9, 10**9 + 5)],
)
def test_plan_that_takes_too_long_is_refused_soon(monkeypatch, most, num_turns, num_actions):
    monkeypatch.setattr(planning_module, "MAX_WORK", planning_module.MAX_WORK // 10)
    layout = generate_layout((8, 8), 0.8, np.random.default_rng(2))
    planner = TurnPlanner(layout, 1 / 3, most)
    begin = time.process_time()
    for _ in range(2):  # what the first try has found out does not help the second
        with pytest.raises(PlanTooLargeError):
            planner.plan(State(layout.start), num_turns, num_actions)
    assert time.process_time() - begin < 1  # about 0.2


@pytest.mark.parametrize(("num_turns", "num_actions"), [(1, 5), (4, 9), (4, 20), (9, 9)])
def test_plan_is_refused_at_the_same_bound_whatever_was_planned_before(
    monkeypatch, num_turns, num_actions
):
    monkeypatch.setattr(planning_module, "NUM_SEQUENCES_TO_SORT", 50)
    layout = generate_layout((3, 3), 0.8, np.random.default_rng(2))

    def is_refused(bound, *earlier):
        monkeypatch.setattr(planning_module, "MAX_WORK", bound)
        planner = TurnPlanner(layout, 1 / 3, 5)
        for budget in [*earlier, (num_turns, num_actions)]:
            try:
                planner.plan(State(layout.start), *budget)
                refused = False
            except PlanTooLargeError:
                refused = True
        return refused

    least = bisect.bisect_left(range(10**8), True, key=lambda bound: not is_refused(bound))
    earlier = [(1, 4), (2, 8), (3, 15), (8, 8), (num_turns, num_actions)]
    assert not is_refused(least, *earlier)
    assert is_refused(least - 1, *earlier)


@pytest.mark.parametrize("success_rate", [0.0, 0.2, 1 / 3, 0.7, 1.0])
def test_plan_far_ahead_settles_at_the_values_of_endless_play(success_rate):
    layout = generate_layout((5, 5), 0.8, np.random.default_rng(3))
    planner = TurnPlanner(layout, success_rate, 1)
    endless = planner.plan(State(layout.start), 10**400, 10**400)
    many = TurnPlanner(layout, success_rate, 1).plan(State(layout.start), 3000, 3000)
    assert endless == many
    cells = itertools.product(range(5), repeat=2)
    values = {cell: planner.plan(State(cell), 10**9, 10**9).success for cell in cells}
    for cell, value in values.items():  # where play goes on, Bellman's equation holds
        if not is_over(layout, State(cell)):
            by_action = [
                sum(p * values[there] for there, p in list_outcomes(layout, cell, a, success_rate))
                for a in range(4)
            ]
            assert value == pytest.approx(max(by_action), abs=1e-12)


def test_plan_played_out_succeeds_as_often_as_it_says():
    rng = np.random.default_rng(7)
    num_episodes = 3000
    for _ in range(3):
        layout = generate_layout((4, 4), 0.8, rng)
        success = TurnPlanner(layout, 1 / 3, 5).plan(State(layout.start), 5, 10).success
        budget = {"num_turns": 5, "num_actions_per_turn": 5, "num_actions": 10}
        count = sum(simulate(layout, 1 / 3, rng, **budget) for _ in range(num_episodes))
        # Four standard deviations of a binomial share.
        spread = 4 * np.sqrt(success * (1 - success) / num_episodes)
        assert abs(count / num_episodes - success) < spread


def test_plan_with_nothing_left_is_empty():
    layout = read_lake("SG", "HF")
    planner = TurnPlanner(layout, 1 / 3, 5)
    for turns, actions in [(0, 5), (5, 0), (0, 0)]:
        assert planner.plan(State((0, 0)), turns, actions) == (0.0, [])
        assert planner.plan(State((0, 1)), turns, actions) == (1.0, [])
    assert planner.plan(State((1, 0)), 5, 10) == (0.0, [])


def test_plan_more_turns_than_actions_changes_nothing():
    layout = read_lake("SFF", "FHG")
    planner = TurnPlanner(layout, 1 / 3, 2)
    few, many = (planner.plan(State(layout.start), turns, 6) for turns in (6, 1000))
    assert few == many


def test_plan_of_the_default_budget_takes_well_under_a_second():
    layout = generate_layout((4, 4), 0.8, np.random.default_rng(0))
    begin = time.process_time()
    TurnPlanner(layout, 1 / 3, 5).plan(State(layout.start), 5, 10)
    assert time.process_time() - begin < 0.3  # about 0.01


def test_turn_planner_is_kept_for_equal_arguments():
    layouts = [read_lake("SG", "FF") for _ in range(2)]
    assert turn_planner(layouts[0], 0.5, 3) is turn_planner(layouts[1], 0.5, 3)
    assert turn_planner(layouts[0], 0.5, 3) is not turn_planner(layouts[0], 0.5, 2)
