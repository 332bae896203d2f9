import gymnasium as gym
import pytest

import ragen_envs  # noqa: F401  (registers the ids)
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.frozen_lake.dynamics import step
from ragen_envs.optimal_actions import OptimalActions
from ragen_envs.solvers import optimal_success, solve, solve_turn
from tests.fakes import ScriptedTextEnv


def test_optimal_actions_in_sokoban_are_a_plan_that_solves_it():
    env = OptimalActions(gym.make("ragen/Sokoban-v0"))
    for seed in range(10):
        _, info = env.reset(seed=seed)
        assert list(info["optimal_actions"]) == solve(env)
        num_steps = len(info["optimal_actions"])
        for left in reversed(range(num_steps)):
            _, _, terminated, _, info = env.step(info["optimal_actions"][0])
            assert len(info["optimal_actions"]) == left
        assert terminated
        assert info["optimal_actions"] == ()


def test_optimal_actions_of_what_is_lost_are_none():
    env = OptimalActions(gym.make("ragen/FrozenLake-v0", desc=["SHG", "FFF"], is_slippery=False))
    _, info = env.reset(seed=0)
    assert len(info["optimal_actions"]) == 4
    _, _, terminated, _, info = env.step(2)
    assert terminated
    assert info["optimal_actions"] is None


def test_optimal_actions_on_slippery_ice_are_one_action_that_keeps_the_optimum():
    env = OptimalActions(gym.make("ragen/FrozenLake-v0", desc=["SFF", "FHF", "FFG"]), horizon=20)
    _, info = env.reset(seed=0)
    (action,) = info["optimal_actions"]
    bare = env.unwrapped
    before = optimal_success(env, 20)
    start, afterwards = bare.state, []
    for direction in (action, (action + 1) % 4, (action - 1) % 4):
        bare.state = step(bare.layout, start, direction)
        afterwards.append(optimal_success(env, 19))
    # Bellman's equation for a move that goes each of the three ways with probability 1/3.
    assert sum(afterwards) / 3 == pytest.approx(before, abs=1e-12)


def test_optimal_actions_around_agent_turns_are_the_next_turn():
    env = OptimalActions(AgentTurns(gym.make("ragen/FrozenLake-v0")))
    names = env.unwrapped.action_names
    for seed in range(5):
        _, info = env.reset(seed=seed)
        over = False
        while not over and info["optimal_actions"]:
            assert list(info["optimal_actions"]) == solve_turn(env)
            answer = " || ".join(names[action] for action in info["optimal_actions"])
            _, _, terminated, truncated, info = env.step(
                f"<think></think><answer>{answer}</answer>"
            )
            over = terminated or truncated
        if info["success"]:
            assert info["optimal_actions"] == ()
        elif over:
            assert info["optimal_actions"] is None


def test_optimal_actions_change_nothing_else():
    plain, told = gym.make("ragen/FrozenLake-v0"), OptimalActions(gym.make("ragen/FrozenLake-v0"))
    assert plain.reset(seed=4)[0] == told.reset(seed=4)[0]
    for action in (2, 1, 0, 3):
        expected = plain.step(action)
        *result, info = told.step(action)
        del info["optimal_actions"]
        assert [*result, info] == list(expected)
        if expected[2]:
            break


def test_optimal_actions_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`horizon` must be at least 1"):
        OptimalActions(gym.make("ragen/FrozenLake-v0"), horizon=0)
    with pytest.raises(TypeError, match=r"^`env` must be a Gymnasium environment, got 'ragen/"):
        OptimalActions("ragen/FrozenLake-v0")
    with pytest.raises(TypeError, match="got ScriptedTextEnv"):
        OptimalActions(ScriptedTextEnv()).reset()
