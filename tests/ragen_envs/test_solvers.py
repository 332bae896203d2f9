import copy
import itertools

import gymnasium as gym
import pytest
from gymnasium.error import ResetNeeded

import ragen_envs  # noqa: F401  # registers the ids
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv, planning
from ragen_envs.frozen_lake.dynamics import Layout, State
from ragen_envs.solvers import (
    find_agent_turns,
    optimal_success,
    optimal_turn_success,
    solve,
    solve_turn,
)

MOVES = [(0, -1), (1, 0), (0, 1), (-1, 0)]


def make_lake(*rows, success_rate=None):
    """Put the player on `S` of a hand-written lake; slippery if `success_rate` is given."""
    cells = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    where = {mark: [cell for cell, m in cells.items() if m == mark] for mark in "SGH"}
    slip = {} if success_rate is None else {"success_rate": success_rate}
    env = FrozenLakeEnv(is_slippery=success_rate is not None, **slip)
    env.reset(seed=0)
    size = (len(rows), len(rows[0]))
    env.layout = Layout(size, frozenset(where["H"]), where["S"][0], where["G"][0])
    env.state = State(env.layout.start)
    return env


def move(layout, cell, direction):
    row, column = (a + b for a, b in zip(cell, MOVES[direction], strict=True))
    inside = 0 <= row < layout.size[0] and 0 <= column < layout.size[1]
    return (row, column) if inside else cell


def best_by_recursion(layout, cell, horizon, success_rate):
    """Definition of the best reachable success, action tree by action tree."""
    if cell == layout.goal:
        return 1.0
    if cell in layout.holes or horizon == 0:
        return 0.0
    totals = []
    for action in range(4):
        total = 0.0
        for turn, probability in [
            (0, success_rate),
            (1, (1 - success_rate) / 2),
            (3, (1 - success_rate) / 2),
        ]:
            following = move(layout, cell, (action + turn) % 4)
            total += probability * best_by_recursion(layout, following, horizon - 1, success_rate)
        totals.append(total)
    return max(totals)


def success_of_plan(layout, plan, success_rate):
    """Success probability of a fixed action sequence, by pushing a distribution forward."""
    weights, won = {layout.start: 1.0}, 0.0
    for action in plan:
        following = {}
        for cell, weight in weights.items():
            for turn, probability in [
                (0, success_rate),
                (1, (1 - success_rate) / 2),
                (3, (1 - success_rate) / 2),
            ]:
                arrival = move(layout, cell, (action + turn) % 4)
                if arrival == layout.goal:
                    won += weight * probability
                elif arrival not in layout.holes:
                    following[arrival] = following.get(arrival, 0.0) + weight * probability
        weights = following
    return won


def test_solve_bandit_names_the_arm_with_the_higher_expected_reward():
    env = BanditEnv()
    for seed in range(6):
        env.reset(seed=seed)
        assert [env.action_names[action] for action in solve(env)] == ["Dragon"]
    env = BanditEnv(low_arm_reward=0.3)  # more than 0.25 * 1.0
    env.reset(seed=0)
    assert [env.action_names[action] for action in solve(env)] == ["Phoenix"]


def test_solve_bandit_prefers_the_high_arm_in_a_tie():
    env = BanditEnv(low_arm_reward=0.25)
    for seed in range(6):
        env.reset(seed=seed)
        assert [env.action_names[action] for action in solve(env)] == ["Dragon"]


def test_bandit_after_the_pull_is_either_solved_or_lost():
    env = BanditEnv()
    env.reset(seed=0)
    env.step(env.action_names.index("Dragon"))
    assert solve(env) == []
    assert optimal_success(env, 0) == optimal_success(env, 3) == 1.0
    env.reset(seed=0)
    env.step(env.action_names.index("Phoenix"))
    assert solve(env) is None
    assert optimal_success(env, 3) == 0.0


def test_optimal_success_bandit_needs_one_action():
    env = BanditEnv()
    env.reset(seed=0)
    assert optimal_success(env, 0) == 0.0
    assert optimal_success(env, 1) == 1.0


def test_solve_lake_reaches_the_goal_in_the_fewest_moves():
    env = gym.make("ragen/FrozenLake-v0", is_slippery=False)
    for seed in range(60):
        env.reset(seed=seed)
        layout, before = env.unwrapped.layout, copy.copy(env.unwrapped.state)
        plan = solve(env)
        assert env.unwrapped.state == before
        assert optimal_success(env, len(plan)) == 1.0
        assert optimal_success(env, len(plan) - 1) == 0.0
        shorter = range(min(len(plan), 6))
        candidates = (p for n in shorter for p in itertools.product(range(4), repeat=n))
        assert not any(success_of_plan(layout, p, success_rate=1.0) for p in candidates)
        for action in plan:
            _, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["success"]) == (1.0, True, True)
        assert solve(env) == []
        assert optimal_success(env, 0) == 1.0


def test_lake_with_the_player_in_a_hole_is_lost():
    env = make_lake("SHG", "FFF")
    _, _, terminated, _, _ = env.step(2)
    assert terminated
    assert solve(env) is None
    assert optimal_success(env, 50) == 0.0


def test_lake_with_the_goal_behind_holes_cannot_be_solved():
    env = make_lake("SHG", "HFF")
    assert solve(env) is None
    assert optimal_success(env, 50) == 0.0


def test_solve_on_slippery_ice_raises_and_points_to_optimal_success():
    env = FrozenLakeEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"`is_slippery` must be False.*`optimal_success`"):
        solve(env)


def test_optimal_success_on_a_two_by_two_lake_has_the_values_worked_out_by_hand():
    env = make_lake("SG", "FF", success_rate=1 / 3)
    # One action: Right, Up and Down all go right with probability 1/3.
    # Two: Up stays with probability 2/3 and tries again: 1/3 + 2/3 * 1/3 = 5/9. Right would also
    # go down with probability 1/3, from where one action does not reach the goal.
    # n: Up again and again, 1 - (2/3)^n.
    assert optimal_success(env, 0) == 0.0
    assert optimal_success(env, 1) == pytest.approx(1 / 3, abs=1e-12)
    assert optimal_success(env, 2) == pytest.approx(5 / 9, abs=1e-12)
    assert optimal_success(env, 10) == pytest.approx(1 - (2 / 3) ** 10, abs=1e-12)


def test_optimal_success_past_a_hole_has_the_value_worked_out_by_hand():
    env = make_lake("SFG", "FHF", success_rate=0.8)
    # Two actions: Right (0.8), then Right (0.8); every slip costs the second action.
    assert optimal_success(env, 2) == pytest.approx(0.64, abs=1e-12)
    # Three actions. In the middle (v): Right 0.8, up (0.1) stays, down (0.1) is the hole.
    # With one action v1 = 0.8, with two v2 = 0.8 + 0.1 * 0.8 = 0.88. From the start (s): Right 0.8
    # to the middle, up (0.1) stays with s2 = 0.64, down (0.1) to the lower left with two actions
    # left, too few: s3 = 0.8 * 0.88 + 0.1 * 0.64 = 0.768.
    assert optimal_success(env, 3) == pytest.approx(0.768, abs=1e-12)


@pytest.mark.parametrize("success_rate", [1 / 3, 0.6, 1.0])
@pytest.mark.parametrize("rows", [("SFG", "FHF", "FFF"), ("SFF", "HFH", "FFG"), ("SHGF", "FFFH")])
def test_optimal_success_agrees_with_the_definition(rows, success_rate):
    env = make_lake(*rows, success_rate=success_rate)
    for horizon in range(5):
        expected = best_by_recursion(env.layout, env.layout.start, horizon, success_rate)
        assert optimal_success(env, horizon) == pytest.approx(expected, abs=1e-12)


def test_optimal_success_with_feedback_beats_every_fixed_plan():
    env = make_lake("FSF", "FFF", "FGH", success_rate=1 / 3)
    blind = max(
        success_of_plan(env.layout, plan, 1 / 3) for plan in itertools.product(range(4), repeat=5)
    )
    assert optimal_success(env, 5) > blind + 0.01 > 0.3


def test_optimal_success_sokoban_is_one_from_the_plan_length_on():
    env = gym.make("ragen/Sokoban-v0")
    for seed in range(5):
        env.reset(seed=seed)
        plan = solve(env)
        assert plan
        assert optimal_success(env, len(plan) - 1) == 0.0
        assert optimal_success(env, len(plan)) == 1.0
        for action in plan:
            _, reward, terminated, _, info = env.step(action)
        assert (terminated, info["success"]) == (True, True)
        assert reward > 10
        assert solve(env) == []
        assert optimal_success(env, 0) == 1.0


def test_solvers_with_a_foreign_environment_raise_type_error():
    class Foreign(gym.Env):
        pass

    with pytest.raises(TypeError, match="got Foreign"):
        solve(Foreign())
    with pytest.raises(TypeError, match="got Foreign"):
        optimal_success(Foreign(), 1)


@pytest.mark.parametrize("env_id", ["Bandit-v0", "FrozenLake-v0", "Sokoban-v0"])
def test_solvers_before_the_first_reset_raise_reset_needed(env_id):
    env = gym.make(f"ragen/{env_id}")
    with pytest.raises(ResetNeeded, match=r"Call `reset\(\)`"):
        solve(env)
    with pytest.raises(ResetNeeded, match=r"Call `reset\(\)`"):
        optimal_success(env, 1)


@pytest.mark.parametrize("function", [solve, solve_turn, optimal_turn_success])
@pytest.mark.parametrize("env", [None, "ragen/Bandit-v0", BanditEnv])
def test_solvers_of_what_is_no_environment_name_it(function, env):
    with pytest.raises(TypeError, match=r"^`env` must be a Gymnasium environment, got "):
        function(env)


@pytest.mark.parametrize("horizon", ["3", None, 2.0, True])
def test_optimal_success_with_a_horizon_that_is_no_integer_names_it(horizon):
    env = BanditEnv()
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"^`horizon` must be an integer of at least 0, got "):
        optimal_success(env, horizon)


def test_solve_with_a_bound_that_is_no_number_of_states_names_it():
    env = BanditEnv()
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"^`max_states` must be a positive integer, got '9'"):
        solve(env, max_states="9")
    with pytest.raises(ValueError, match=r"^`max_states` must be at least 1, got 0"):
        solve(env, max_states=0)


@pytest.mark.parametrize("env_id", ["ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0"])
def test_optimal_success_of_a_horizon_without_end_is_that_of_a_long_one(env_id):
    env = gym.make(env_id)
    env.reset(seed=1)
    assert optimal_success(env, 10**400) == optimal_success(env, 10**9) > 0.99
    assert optimal_success(env, 10**9) == pytest.approx(optimal_success(env, 1000), abs=1e-12)


def test_optimal_success_of_a_horizon_that_takes_too_long_names_it(monkeypatch):
    monkeypatch.setattr(planning, "MAX_WORK", 10**6)
    env = gym.make("ragen/FrozenLake-v0", size=(20, 20))
    env.reset(seed=1)
    assert optimal_success(env, 100) > 0
    with pytest.raises(ValueError, match=r"^`horizon` must be small enough .*, got 1000000000 on "):
        optimal_success(env, 10**9)


@pytest.mark.parametrize("plan", [optimal_turn_success, solve_turn])
def test_turns_of_too_many_actions_to_compare_name_the_limits(plan, monkeypatch):
    monkeypatch.setattr(planning, "MAX_WORK", planning.MAX_WORK // 10)
    env = gym.make("ragen/FrozenLake-v0")
    env.reset(seed=1)
    limits = {"max_turns": 5, "max_actions_per_turn": 12, "max_actions_per_episode": 60}
    message = (
        r"^`max_actions_per_turn`, `max_turns` and .*, got 12, 5 and 60 on a lake of \(4, 4\)\."
    )
    with pytest.raises(ValueError, match=message):
        plan(env, **limits)
    assert plan(env, **limits | {"max_actions_per_turn": 5})


def test_optimal_turn_success_with_a_turn_for_each_action_is_that_of_single_actions():
    env = gym.make("ragen/FrozenLake-v0")
    env.reset(seed=1)
    limits = {"max_turns": 10**9, "max_actions_per_episode": 10**9}
    for actions in (5, 10**9):
        success = optimal_turn_success(env, max_actions_per_turn=actions, **limits)
        assert success == optimal_success(env, 10**9)


def test_optimal_success_with_a_negative_horizon_raises_value_error():
    env = BanditEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="`horizon` must be at least 0, got -1"):
        optimal_success(env, -1)


def write_reply(*names):
    return f"<think></think><answer>{' || '.join(names)}</answer>"


def test_optimal_turn_success_of_one_action_a_turn_is_the_optimum_with_feedback():
    env = gym.make("ragen/FrozenLake-v0")
    for seed in range(10):
        env.reset(seed=seed)
        budget = {"max_turns": 6, "max_actions_per_turn": 1, "max_actions_per_episode": 4}
        assert optimal_turn_success(env, **budget) == optimal_success(env, 4)
        assert optimal_turn_success(env, **{**budget, "max_turns": 3}) == optimal_success(env, 3)


def test_optimal_turn_success_in_one_turn_is_that_of_the_best_fixed_plan():
    env = make_lake("FSF", "FFF", "FGH", success_rate=1 / 3)
    best = max(
        success_of_plan(env.layout, plan, 1 / 3) for plan in itertools.product(range(4), repeat=5)
    )
    blind = optimal_turn_success(
        env, max_turns=1, max_actions_per_turn=5, max_actions_per_episode=10
    )
    assert blind == pytest.approx(best, abs=1e-12)
    plan = solve_turn(env, max_turns=1, max_actions_per_turn=5, max_actions_per_episode=10)
    assert success_of_plan(env.layout, plan, 1 / 3) == pytest.approx(best, abs=1e-12)


def test_optimal_turn_success_lies_between_blind_and_seen():
    env = gym.make("ragen/FrozenLake-v0")
    for seed in range(10):
        env.reset(seed=seed)
        limits = {"max_actions_per_turn": 5, "max_actions_per_episode": 8}
        blind, between, more = (
            optimal_turn_success(env, max_turns=turns, **limits) for turns in (2, 4, 6)
        )
        assert blind <= between <= more <= optimal_success(env, 8)


def test_optimal_turn_success_takes_what_agent_turns_has_left():
    env = AgentTurns(gym.make("ragen/FrozenLake-v0"), max_turns=4, max_actions_per_episode=7)
    env.reset(seed=3)
    bare = env.unwrapped
    for names in (["Left"], ["Up", "Up", "Left"]):
        left = (env.turns_left, env.max_actions_per_turn, env.actions_left)
        names_of_limits = ("max_turns", "max_actions_per_turn", "max_actions_per_episode")
        budget = dict(zip(names_of_limits, left, strict=True))
        assert optimal_turn_success(env) == optimal_turn_success(bare, **budget)
        assert solve_turn(gym.Wrapper(env)) == solve_turn(bare, **budget)
        _, _, terminated, truncated, _ = env.step(write_reply(*names))
        assert (terminated, truncated) == (False, False)
    assert left == (3, 5, 6)
    assert optimal_turn_success(env, max_turns=1) == optimal_turn_success(
        bare, max_turns=1, max_actions_per_turn=5, max_actions_per_episode=3
    )


def test_optimal_turn_success_after_the_last_turn_is_what_was_reached():
    env = AgentTurns(gym.make("ragen/FrozenLake-v0", desc=["SFG"], is_slippery=False), max_turns=1)
    env.reset(seed=0)
    assert optimal_turn_success(env) == 1.0
    env.step(write_reply("Right"))
    assert optimal_turn_success(env) == 0.0
    assert solve_turn(env) is None
    env.reset(seed=0)
    env.step(write_reply("Right", "Right"))
    assert optimal_turn_success(env) == 1.0
    assert solve_turn(env) == []


@pytest.mark.parametrize("env_id", ["ragen/Sokoban-v0", "ragen/FrozenLake-v0"])
def test_optimal_turn_success_without_luck_asks_whether_the_plan_fits(env_id):
    kwargs = {} if "Sokoban" in env_id else {"is_slippery": False}
    env = gym.make(env_id, **kwargs)
    for seed in range(15):
        env.reset(seed=seed)
        length = len(solve(env))
        for turns, per_turn, actions in [(2, 2, 10), (5, 5, 3), (1, 6, 10), (9, 1, 9)]:
            budget = {
                "max_turns": turns,
                "max_actions_per_turn": per_turn,
                "max_actions_per_episode": actions,
            }
            fits = length <= min(actions, turns * per_turn)
            assert optimal_turn_success(env, **budget) == float(fits)
            expected = solve(env)[: min(per_turn, actions)] if fits else None
            assert solve_turn(env, **budget) == expected


def test_solve_turn_played_turn_after_turn_is_solve():
    env = AgentTurns(gym.make("ragen/LargeSokoban-v0"), max_turns=20, max_actions_per_episode=60)
    names = env.unwrapped.action_names
    for seed in range(5):
        env.reset(seed=seed)
        plan, played = solve(env), []
        while actions := solve_turn(env):
            played += actions
            _, _, _, _, info = env.step(write_reply(*(names[action] for action in actions)))
        assert info["success"]
        assert len(played) == len(plan)


def test_optimal_turn_success_bandit_is_one():
    env = AgentTurns(gym.make("ragen/Bandit-v0"))
    env.reset(seed=0)
    assert optimal_turn_success(env) == 1.0
    assert [env.unwrapped.action_names[action] for action in solve_turn(env)] == ["Dragon"]


def test_turn_solvers_without_limits_raise():
    env = gym.make("ragen/FrozenLake-v0")
    env.reset(seed=0)
    for function in (optimal_turn_success, solve_turn):
        with pytest.raises(TypeError, match="`max_actions_per_turn` must be given where there is"):
            function(env, max_turns=3, max_actions_per_episode=3)
        with pytest.raises(ValueError, match="`max_turns` must be at least 1, got 0"):
            function(env, max_turns=0, max_actions_per_turn=1, max_actions_per_episode=3)


def test_solve_sokoban_at_its_bound_raises_and_claims_nothing():
    env = gym.make("ragen/Sokoban-v0", size=(10, 10), num_boxes=4, min_solution_length=15)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"`max_states` must be large enough .* got 3"):
        solve(env, max_states=3)
    assert len(solve(env)) == env.unwrapped.solution_length


def test_find_agent_turns_looks_through_wrappers():
    env = AgentTurns(gym.make("ragen/Bandit-v0"))
    assert find_agent_turns(gym.Wrapper(env)) is env
    assert find_agent_turns(env.env) is None
