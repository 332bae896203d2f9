import pytest
from gymnasium import spaces

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.parsing import format_reply
from tests.fakes import DescribedTextEnv, Step, reply, start

UP, DOWN = "Up", "Down"


def test_messages_of_one_episode_read_as_documented():
    inner = DescribedTextEnv([Step(-0.1, "one\ntwo"), Step(-0.1), Step(10.9, "end", True)])
    env = AgentTurns(inner, max_turns=4)
    request = "Reply format (keep the tags): <think>your reasoning</think><answer>your action || your action</answer>"
    first, _ = env.reset()
    assert first == (
        "Walk to the door (naïve: 100 %).\n"
        "Each turn, reply with at most 5 actions, with || between them.\n"
        "State:\nstart\nActions: Up, Down\nTurns left: 4. Actions left: 10.\n" + request
    )
    assert env.step(reply(UP, DOWN))[0] == (
        "Reward: -0.20\nState:\none\ntwo\n"
        "Actions: Up, Down\nTurns left: 3. Actions left: 8.\n" + request
    )
    assert env.step("nonsense")[0] == (
        "Reward: -0.10\nNo legal action found in the last reply.\nState:\none\ntwo\n"
        "Actions: Up, Down\nTurns left: 2. Actions left: 8.\n" + request
    )
    assert env.step(reply(UP, "fly"))[0] == "Reward: 10.80\nState:\nend"


def test_messages_later_on_are_shorter_than_45_words():
    env, _ = start(agent_turns={"max_actions_per_turn": 5})
    message = env.step(reply(UP, "fly"))[0]
    assert len(message.split()) < 45


def test_message_of_an_environment_without_description_begins_with_the_limit():
    env, _ = start()
    assert env.reset()[0].startswith("Each turn, reply with at most 5 actions")


@pytest.mark.parametrize("agent_turns", [{}, {"separator": "→", "think": False, "max_turns": 100}])
@pytest.mark.parametrize("reward", [-0.1, -999_999.999, 1e300, -1e300])
def test_messages_lie_in_the_space_at_the_longest_state_and_reward(agent_turns, reward):
    state = "z9\n" * 10
    space = spaces.Text(30, charset="z9\n")
    inner = DescribedTextEnv(
        [Step(reward, state)] * 12,
        first_observation=state,
        observation_space=space,
        action_names=("Süd", "Nord"),
    )
    env = AgentTurns(inner, **agent_turns)
    messages = [env.reset()[0]]
    ended = False
    texts = iter(["", format_reply(["Nord", "x"], think=env.think, separator=env.separator)] * 50)
    while not ended:
        message, _, terminated, truncated, _ = env.step(next(texts))
        messages.append(message)
        ended = terminated or truncated
    for message in messages:
        assert message in env.observation_space
    assert max(map(len, messages)) <= env.observation_space.max_length


def test_space_is_as_long_as_the_longest_later_message():
    state = "z" * 30
    options = {"max_actions_per_turn": 1, "format_penalty": -999_999.999}
    env, _ = start(first_observation=state, agent_turns=options)
    first, _ = env.reset()
    later = env.step("nonsense")[0]
    assert later.startswith("Reward: -1000000.00\nNo legal action")
    assert len(first) < len(later) == env.observation_space.max_length
    assert later in env.observation_space


def test_spaces_hold_the_characters_of_the_environment_and_refuse_others():
    env, _ = start(observation_space=spaces.Text(5, charset="√"), action_names=("Süd", "Nord"))
    assert {"√", "ü", "\n", "9"} <= env.observation_space.character_set
    assert "é" not in env.observation_space.character_set
    assert reply("Süd") in env.action_space
    assert "" in env.action_space
