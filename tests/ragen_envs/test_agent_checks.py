import math
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from ragen_envs.agent_checks import check_action_names, check_limit, check_penalty, check_reward
from ragen_envs.agent_turns import AgentTurns
from tests.fakes import ScriptedTextEnv, Step, UnnamedTextEnv, reply, start

UP, DOWN = "Up", "Down"


@pytest.mark.parametrize("value", [1, 7, np.int64(3)])
def test_check_limit_with_positive_integer_returns_plain_int(value):
    assert check_limit("max_turns", value) == value
    assert type(check_limit("max_turns", value)) is int


@pytest.mark.parametrize("value", [0, -0.5, np.float32(-0.5)])
def test_check_penalty_with_number_up_to_zero_returns_float(value):
    assert check_penalty(value) == value
    assert type(check_penalty(value)) is float


@pytest.mark.parametrize("reward", [1, -0.5, np.float32(0.5), np.int8(2), True, Fraction(1, 2)])
def test_check_reward_with_finite_number_returns_float(reward):
    assert check_reward(reward, "Door-v0", "in turn 1") == float(reward)
    assert type(check_reward(reward, "Door-v0", "in turn 1")) is float


def test_check_action_names_with_names_that_differ_in_case_folding_only_raises():
    check_action_names(["Go up", "Go"], 2, "||", "Door-v0")
    with pytest.raises(
        ValueError, match=r"of Door-v0 must be visible and differ in more than case"
    ):
        check_action_names(["Straße", "STRASSE"], 2, "||", "Door-v0")
    with pytest.raises(ValueError, match=r"differ in more than case"):
        check_action_names(["go  up", "Go up"], 2, "||", "Door-v0")


@pytest.mark.parametrize(
    "names", [["Ren\u00e9", "Rene\u0301"], ["Up", "Up\ufe0f"], ["Up", "\u2800"]]
)
def test_check_action_names_that_cannot_be_told_apart_by_eye_raises(names):
    with pytest.raises(ValueError, match=r"must be visible and differ in more than case"):
        check_action_names(names, 2, "||", "Door-v0")


@pytest.mark.parametrize(("separator", "name"), [("u", "Up"), ("P", "Up"), ("SS", "Straße")])
def test_check_action_names_with_letters_of_the_separator_in_another_case_raises(separator, name):
    with pytest.raises(ValueError, match=rf"must not contain '{separator}'.*another `separator`"):
        check_action_names([name, "Left"], 2, separator, "Door-v0")


@pytest.mark.parametrize(
    ("agent_turns", "error", "pattern"),
    [
        ({"max_turns": 0}, ValueError, r"`max_turns` must be at least 1, got 0"),
        ({"max_turns": 2.0}, TypeError, r"`max_turns` must be a positive integer, got 2.0"),
        ({"max_turns": True}, TypeError, r"`max_turns` must be a positive integer, got True"),
        ({"max_actions_per_turn": -1}, ValueError, r"`max_actions_per_turn` must be at least 1"),
        ({"max_actions_per_episode": 0}, ValueError, r"`max_actions_per_episode` must be at least"),
        ({"format_penalty": 0.1}, ValueError, r"`format_penalty` must be finite and at most 0"),
        ({"format_penalty": -math.inf}, ValueError, r"`format_penalty` must be finite"),
        ({"format_penalty": math.nan}, ValueError, r"`format_penalty` must be finite"),
        ({"format_penalty": None}, TypeError, r"`format_penalty` must be a number, got None"),
        ({"format_penalty": -(10**400)}, ValueError, r"`format_penalty` must be finite"),
        ({"max_turns": -(10**5000)}, ValueError, r"`max_turns` must be at least 1, got an int of "),
        ({"think": 10**5000}, TypeError, r"`think` must be True or False, got an int of too many"),
        ({"separator": ""}, ValueError, r"`separator` must be a non-empty text"),
        ({"separator": "</think>"}, ValueError, r"`separator` must be a non-empty text"),
        ({"separator": 3}, TypeError, r"`separator` must be a str, got 3"),
        ({"separator": "p"}, ValueError, r"must not contain 'p', .* Pass another `separator`"),
    ],
)
def test_constructor_with_wrong_argument_names_rule_and_value(agent_turns, error, pattern):
    with pytest.raises(error, match=pattern):
        AgentTurns(ScriptedTextEnv(), **agent_turns)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (
            ("Up",),
            r"`action_names` of ScriptedTextEnv must be a tuple of 2 names, .* got \('Up',\)",
        ),
        ("ab", r"must be a tuple of 2 names"),
        ((1, 2), r"must be a tuple of 2 names"),
        (None, r"must be a tuple of 2 names, one per action, got None"),
        (("Up", "u" + "P"), r"differ in more than case"),
        (("Up", " "), r"must be visible"),
        (("Up", "a||b"), r"must not contain '\|\|'"),
        (("Up", "</answer>"), r"must not contain '</answer>'"),
    ],
)
def test_constructor_with_unusable_action_names_says_what_is_wrong(names, pattern):
    inner = ScriptedTextEnv(action_names=names, action_space=spaces.Discrete(2))
    with pytest.raises(ValueError, match=pattern):
        AgentTurns(inner)


def test_constructor_without_action_names_says_where_to_set_them():
    with pytest.raises(ValueError, match=r"UnnamedTextEnv .* Set `action_names` on the env"):
        AgentTurns(UnnamedTextEnv())


def test_constructor_with_other_spaces_names_env_and_remedy():
    with pytest.raises(TypeError, match=r"`env` must have a Text observation space.*CartPole-v1"):
        AgentTurns(gym.make("CartPole-v1"))
    inner = ScriptedTextEnv(action_space=spaces.Box(-1, 1))
    with pytest.raises(TypeError, match=r"or a Text action space, but that of ScriptedTextEnv is"):
        AgentTurns(inner)


def test_constructor_with_description_that_is_not_text_raises():
    inner = ScriptedTextEnv()
    inner.task_description = 5
    with pytest.raises(TypeError, match=r"`task_description` of ScriptedTextEnv must be a str"):
        AgentTurns(inner)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_step_with_reward_that_is_not_finite_names_env_turn_and_value(reward):
    env, _ = start(Step(), Step(reward))
    env.step(reply(UP))
    pattern = (
        rf"ScriptedTextEnv must be a finite number, got {reward} in turn 2 after action 'Down'"
    )
    with pytest.raises(ValueError, match=pattern):
        env.step(reply(DOWN))


def test_step_with_reward_that_no_float_can_hold_names_it():
    env, _ = start(Step(10**400))
    with pytest.raises(ValueError, match=r"ScriptedTextEnv must be a finite number, got 1000"):
        env.step(reply(UP))


def test_constructor_around_what_is_no_environment_names_env():
    with pytest.raises(TypeError, match=r"^`env` must be a Gymnasium environment, got None"):
        AgentTurns(None)


@pytest.mark.parametrize("reward", [None, "1.0", [1.0]])
def test_step_with_reward_that_is_no_number_raises_type_error(reward):
    env, _ = start(Step(reward))
    with pytest.raises(TypeError, match=r"ScriptedTextEnv must be a finite number, got .* turn 1"):
        env.step(reply(UP))


def test_step_with_observation_that_is_not_text_names_env_turn_and_value():
    env, _ = start(Step(observation=42))
    with pytest.raises(TypeError, match=r"ScriptedTextEnv must be a str, got 42 in turn 1"):
        env.step(reply(UP))


def test_reset_with_observation_that_is_not_text_names_env_and_value():
    env = AgentTurns(ScriptedTextEnv(first_observation=b"x"))
    with pytest.raises(TypeError, match=r"ScriptedTextEnv must be a str, got b'x' at reset"):
        env.reset()
    with pytest.raises(ResetNeeded):
        env.step(reply(UP))


def test_step_after_an_error_of_the_environment_needs_a_reset():
    env, inner = start(Step(error=RuntimeError("broken door")))
    with pytest.raises(RuntimeError, match="broken door"):
        env.step(reply(UP, UP))
    with pytest.raises(ResetNeeded):
        env.step(reply(UP))
    inner.script.clear()
    env.reset()
    assert env.step(reply(UP))[4]["num_turns"] == 1


def test_step_with_reply_that_is_no_text_raises_and_uses_up_nothing():
    env, _ = start()
    with pytest.raises(TypeError, match=r"^`action` must be a str, .*, got "):
        env.step(3)
    assert env.step(reply(UP))[4]["num_turns"] == 1
