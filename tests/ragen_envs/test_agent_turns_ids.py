import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ragen_envs  # noqa: F401  (registers the ids)
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.baselines import random_reply
from ragen_envs.parsing import format_reply
from tests.fakes import reply

IDS = [
    "ragen/Bandit-v0",
    "ragen/Sokoban-v0",
    "ragen/LargeSokoban-v0",
    "ragen/SokobanNewVocab-v0",
    "ragen/FrozenLake-v0",
]


def play_legal_episode(env, seed, rng):
    messages = [env.reset(seed=seed)[0]]
    rewards, infos = [], []
    ended = False
    while not ended:
        text = random_reply(env.get_wrapper_attr("action_names"), rng, num_actions=3)
        text = text if rng.random() < 0.8 else "no tags"
        message, reward, terminated, truncated, info = env.step(text)
        messages.append(message)
        rewards.append(reward)
        infos.append(info)
        ended = terminated or truncated
    return messages, rewards, infos


@pytest.mark.parametrize("env_id", IDS)
def test_registered_env_keeps_every_message_in_the_space(env_id):
    env = AgentTurns(gym.make(env_id))
    rng = np.random.default_rng(0)
    for seed in range(15):
        messages, rewards, infos = play_legal_episode(env, seed, rng)
        for message in messages:
            assert message in env.observation_space
        for reward, info in zip(rewards, infos, strict=True):
            assert reward == info["turn_reward"] + info["format_penalty"]
            assert isinstance(info["success"], bool)
        assert infos[-1]["num_turns"] <= 5
        assert infos[-1]["num_actions"] <= 10


@pytest.mark.parametrize("env_id", IDS)
def test_registered_env_passes_check_env_with_warnings_as_errors(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The checker prefers bare environments; a wrapper is what is checked here.
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        check_env(AgentTurns(gym.make(env_id)))


@pytest.mark.parametrize("env_id", IDS)
def test_registered_env_is_the_same_after_spec_and_pickle(env_id):
    env = AgentTurns(gym.make(env_id), max_turns=2, separator=";", format_penalty=-0.5)
    copies = [env, gym.make(env.spec), pickle.loads(pickle.dumps(env))]
    transcripts = []
    for copy in copies:
        first, _ = copy.reset(seed=3)
        name = copy.get_wrapper_attr("action_names")[0]
        turn = copy.step(format_reply((name, name), separator=";"))
        transcripts.append((first, turn, copy.observation_space, copy.action_space))
    assert transcripts[0] == transcripts[1] == transcripts[2]
    assert "Turns left: 2." in transcripts[1][0]
    assert transcripts[1][1][4]["reply"].is_valid


@pytest.mark.parametrize(
    ("mode", "options"),
    # Gymnasium reads shared memory only once, so that text never changes there (Gymnasium#1164).
    [("sync", {}), ("async", {"shared_memory": False})],
)
def test_registered_env_plays_in_a_vector_env(mode, options):
    vector_env = gym.make_vec(
        "ragen/Sokoban-v0",
        num_envs=2,
        vectorization_mode=mode,
        vector_kwargs=options,
        wrappers=[AgentTurns],
    )
    messages, _ = vector_env.reset(seed=5)
    single, _ = AgentTurns(gym.make("ragen/Sokoban-v0")).reset(seed=6)
    assert messages[1] == single
    _, rewards, _, _, info = vector_env.step((reply("Up", "Up"), "no tags"))
    assert rewards[1] == pytest.approx(-0.1)
    assert info["num_actions"].tolist() == [2, 0]
    vector_env.close()


def test_bandit_order_in_the_message_is_the_order_of_the_actions():
    env = AgentTurns(gym.make("ragen/Bandit-v0"))
    orders = set()
    for seed in range(20):
        message, _ = env.reset(seed=seed)
        order = message.split("Actions: ")[1].split("\n")[0]
        orders.add(order)
        info = env.step(reply("phoenix"))[4]
        assert (info["arm"], info["success"]) == ("Phoenix", False)
    assert orders == {"Dragon, Phoenix", "Phoenix, Dragon"}
