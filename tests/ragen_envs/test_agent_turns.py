import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.parsing import ParsedReply
from tests.fakes import ScriptedTextEnv, Step, reply, start

UP, DOWN = "Up", "Down"


def test_step_executes_actions_in_order_and_sums_their_rewards():
    env, inner = start(Step(0.25), Step(-0.5), Step(2.0))
    _, reward, terminated, truncated, info = env.step(reply(UP, DOWN, DOWN))
    assert inner.received == [0, 1, 1]
    assert (reward, terminated, truncated) == (1.75, False, False)
    assert info["reply"] == ParsedReply("hm", (UP, DOWN, DOWN), is_valid=True)
    assert info["executed_actions"] == (UP, DOWN, DOWN)
    assert (info["turn_reward"], info["format_penalty"]) == (1.75, 0.0)
    assert (info["num_actions"], info["num_turns"]) == (3, 1)


def test_step_with_malformed_reply_executes_nothing_and_uses_up_a_turn():
    env, inner = start(agent_turns={"format_penalty": -0.3})
    _, reward, terminated, truncated, info = env.step("Up")
    assert inner.received == []
    assert (reward, terminated, truncated) == (-0.3, False, False)
    assert info["executed_actions"] == ()
    assert (info["turn_reward"], info["format_penalty"]) == (0.0, -0.3)
    assert (info["num_actions"], info["num_turns"]) == (0, 1)


def test_step_with_several_unknown_actions_pays_penalty_once_and_executes_the_known():
    env, inner = start(Step(1.0))
    _, reward, _, _, info = env.step(reply("jump", UP, "fly", "swim"))
    assert inner.received == [0]
    assert reward == pytest.approx(1.0 - 0.1)
    assert (info["turn_reward"], info["format_penalty"]) == (1.0, -0.1)
    assert info["executed_actions"] == (UP,)


def test_step_with_too_many_actions_cuts_them_without_penalty():
    env, inner = start(agent_turns={"max_actions_per_turn": 2, "max_actions_per_episode": 3})
    _, reward, _, truncated, info = env.step(reply(UP, UP, DOWN))
    assert (inner.received, reward, truncated) == ([0, 0], 0.0, False)
    assert info["reply"].actions == (UP, UP, DOWN)
    assert info["executed_actions"] == (UP, UP)
    _, reward, terminated, truncated, info = env.step(reply(DOWN, UP))
    assert (inner.received, reward) == ([0, 0, 1], 0.0)
    assert (terminated, truncated) == (False, True)
    assert info["executed_actions"] == (DOWN,)
    assert (info["num_actions"], info["num_turns"]) == (3, 2)


def test_step_with_unknown_action_beyond_the_cut_still_pays_the_penalty():
    env, inner = start(agent_turns={"max_actions_per_turn": 1})
    _, reward, _, _, info = env.step(reply(UP, "fly"))
    assert (inner.received, reward, info["format_penalty"]) == ([0], -0.1, -0.1)


def test_step_truncates_when_turns_are_used_up():
    env, _ = start(agent_turns={"max_turns": 2})
    assert env.step("nonsense")[2:4] == (False, False)
    assert env.step("nonsense")[2:4] == (False, True)


def test_step_with_last_action_that_terminates_is_not_truncated():
    steps = (Step(), Step(10.0, terminated=True, info={"success": True}))
    env, _ = start(*steps, agent_turns={"max_turns": 1, "max_actions_per_episode": 2})
    _, reward, terminated, truncated, info = env.step(reply(UP, UP))
    assert (reward, terminated, truncated, info["success"]) == (10.0, True, False, True)


@pytest.mark.parametrize("end", [{"terminated": True}, {"truncated": True}])
def test_step_stops_at_the_end_of_the_environment(end):
    env, inner = start(Step(1.0), Step(2.0, **end), Step(100.0))
    _, reward, terminated, truncated, info = env.step(reply(UP, DOWN, UP, UP))
    assert (inner.received, reward) == ([0, 1], 3.0)
    assert (terminated, truncated) == (end.get("terminated", False), end.get("truncated", False))
    assert (info["executed_actions"], info["num_actions"]) == ((UP, DOWN), 2)


def test_step_returns_plain_bools_whatever_the_environment_returns():
    env, _ = start(Step(np.float32(0.5), terminated=np.bool_(False), truncated=np.bool_(True)))
    _, reward, terminated, truncated, _ = env.step(reply(UP))
    assert terminated is False
    assert truncated is True
    assert type(reward) is float


def test_step_before_reset_and_after_the_end_raises_reset_needed():
    inner = ScriptedTextEnv([Step(terminated=True)])
    env = AgentTurns(inner)
    with pytest.raises(ResetNeeded, match=r"Call `reset\(\)`"):
        env.step(reply(UP))
    env.reset()
    env.step(reply(UP))
    with pytest.raises(ResetNeeded, match=r"Call `reset\(\)`"):
        env.step(reply(UP))
    assert inner.received == [0]
    env.reset()
    assert env.step(reply(DOWN))[2] is True


def test_reset_starts_the_counts_again():
    env, inner = start()
    env.step(reply(UP, UP))
    _, info = env.reset(seed=7)
    assert (info["num_actions"], info["num_turns"]) == (0, 0)
    assert "reply" not in info
    assert inner.episode_seeds == [0, 7]


def test_info_of_the_environment_persists_over_a_turn_without_actions():
    env, _ = start(Step(info={"success": False, "boxes": 1}), first_info={"boxes": 0})
    assert env.step("nonsense")[4]["boxes"] == 0
    env.step(reply(UP))
    assert env.step("nonsense")[4]["boxes"] == 1


def test_effective_actions_follow_the_report_of_the_environment():
    reports = [True, False, True]
    steps = [Step(info={"action_is_effective": report}) for report in reports]
    env, _ = start(*steps)
    assert env.step(reply(UP, UP, UP))[4]["num_effective_actions"] == 2
    assert env.step("nonsense")[4]["num_effective_actions"] == 0


def test_effective_actions_without_report_are_those_that_change_the_observation():
    steps = [Step(observation=text) for text in ("start", "a", "a", "b")]
    env, _ = start(*steps)
    assert env.step(reply(UP, UP))[4]["num_effective_actions"] == 1
    assert env.step(reply(UP, UP))[4]["num_effective_actions"] == 1


def test_effective_actions_are_counted_by_turn_not_by_episode():
    env, _ = start(*[Step(info={"action_is_effective": True})] * 3)
    assert env.step(reply(UP, UP))[4]["num_effective_actions"] == 2
    assert env.step(reply(UP))[4]["num_effective_actions"] == 1


def test_action_names_are_read_again_at_every_reset_and_step():
    def reverse(inner):
        inner.action_names = inner.action_names[::-1]

    env, inner = start(on_reset=reverse)  # the reset in `start` makes it Down, Up
    message, _ = env.reset()  # and this one Up, Down
    assert "Actions: Up, Down\n" in message
    env.step(reply(UP))
    inner.action_names = (DOWN, UP)
    env.step(reply(UP))
    message, _ = env.reset()
    assert inner.received == [0, 1]
    assert "Actions: Up, Down\n" in message


def test_discrete_actions_that_do_not_start_at_zero_are_shifted():
    env, inner = start(action_space=spaces.Discrete(2, start=5))
    env.step(reply(DOWN, UP))
    assert inner.received == [6, 5]


def test_action_names_are_found_on_a_wrapper_between():
    class Renaming(gym.Wrapper):
        action_names = ("Left", "Right")

    inner = ScriptedTextEnv()
    env = AgentTurns(Renaming(inner))
    env.reset()
    env.step(reply("right"))
    assert inner.received == [1]


def test_text_actions_outside_the_space_are_unknown():
    env, inner = start(action_space=spaces.Text(4, charset="abc"))
    _, reward, _, _, info = env.step(reply("abc", "toolong", "A", "cb"))
    assert inner.received == ["abc", "cb"]
    assert (reward, info["executed_actions"]) == (-0.1, ("abc", "cb"))
    assert not info["reply"].is_valid
    _, reward, _, _, info = env.step(reply("a", "b"))
    assert (reward, info["reply"].is_valid) == (0.0, True)
    _, reward, _, _, info = env.step(reply("A"))
    assert (reward, info["reply"]) == (-0.1, ParsedReply("hm", (), is_valid=False))


def test_own_separator_and_no_think_are_obeyed_and_shown():
    env, inner = start(agent_turns={"separator": ";", "think": False})
    message, _ = env.reset()
    assert message.endswith(
        "Reply format (keep the tags): <answer>your action ; your action</answer>"
    )
    assert "with ; between them" in message
    info = env.step("<answer>up; down</answer>")[4]
    assert (inner.received, info["reply"].is_valid) == ([0, 1], True)


def test_agent_turns_twice_or_with_a_flag_that_is_none_is_refused():
    inner = AgentTurns(ScriptedTextEnv())
    with pytest.raises(TypeError, match="must not be wrapped in AgentTurns already"):
        AgentTurns(inner)
    with pytest.raises(TypeError, match="`think` must be True or False, got 'no'"):
        AgentTurns(ScriptedTextEnv(), think="no")


def test_info_holds_the_environments_own_observation_after_reset_and_step():
    env, inner = start(Step(observation="first"), Step(observation="second"))
    _, info = env.reset()
    assert info["state"] == inner.first_observation
    message, *_, info = env.step(reply(UP, DOWN))
    assert info["state"] == "second"
    assert "second" in message != "second"
    *_, info = env.step("nothing to execute")
    assert info["state"] == "second"
