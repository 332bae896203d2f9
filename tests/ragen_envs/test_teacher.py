import itertools
import json

import gymnasium as gym
import numpy as np
import pytest

from ragen_envs import AgentTurns, FrozenLakeEnv, demonstrations, optimal_turn_success, solve
from ragen_envs.frozen_lake import planning
from ragen_envs.parsing import parse_reply
from tests.fakes import CountedEnvs

SLIPPERY = ("ragen/FrozenLake-v0", {})
FIRM = ("ragen/FrozenLake-v0", {"is_slippery": False})
ALL = [
    ("ragen/Bandit-v0", {}),
    SLIPPERY,
    FIRM,
    ("ragen/Sokoban-v0", {}),
    ("ragen/LargeSokoban-v0", {}),
]

each_task = pytest.mark.parametrize(("env_id", "env_kwargs"), ALL)


def teach(env_id, num_episodes=12, *, seed=0, **kwargs):
    return list(demonstrations(env_id, num_episodes, seed=seed, **kwargs))


@each_task
def test_demonstrations_can_be_played_again_word_by_word(env_id, env_kwargs):
    env = AgentTurns(gym.make(env_id, **env_kwargs), max_actions_per_turn=3)
    for episode in teach(env_id, env_kwargs=env_kwargs, max_actions_per_turn=3, thoughts=True):
        messages = episode["messages"]
        message, info = env.reset(seed=episode["seed"])
        over = False
        for index, (shown, reply) in enumerate(zip(messages[::2], messages[1::2], strict=True)):
            assert not over
            assert shown == {"role": "user", "content": message}
            assert reply["role"] == "assistant"
            message, reward, terminated, truncated, info = env.step(reply["content"])
            assert info["reply"].is_valid
            assert info["reply"].thought
            assert len(info["executed_actions"]) == len(info["reply"].actions) or terminated
            assert reward == episode["rewards"][index]
            over = terminated or truncated
        assert over
        assert len(messages) == 2 * len(episode["rewards"])
        assert info["success"] is episode["success"]
        assert episode["env_id"] == env_id


@each_task
def test_demonstrations_are_plain_data_and_the_same_every_time(env_id, env_kwargs):
    first, second = (teach(env_id, 4, seed=5, env_kwargs=env_kwargs) for _ in range(2))
    assert first == second == json.loads(json.dumps(first))
    assert teach(env_id, 4, seed=105, env_kwargs=env_kwargs) != first


def test_demonstrations_without_luck_are_solved_in_the_fewest_actions():
    for env_id, env_kwargs in (FIRM, ("ragen/LargeSokoban-v0", {})):
        env = gym.make(env_id, **env_kwargs)
        names = env.unwrapped.action_names
        for episode in teach(env_id, env_kwargs=env_kwargs):
            replies = [m["content"] for m in episode["messages"] if m["role"] == "assistant"]
            num_actions = sum(len(parse_reply(reply, names).actions) for reply in replies)
            env.reset(seed=episode["seed"])
            assert episode["success"]
            assert num_actions == len(solve(env))


def test_demonstrations_leave_out_what_is_out_of_reach():
    env = AgentTurns(gym.make("ragen/LargeSokoban-v0"), max_actions_per_episode=6)
    within = []
    for seed in range(20, 200):
        env.reset(seed=seed)
        if optimal_turn_success(env) > 0:
            within.append(seed)
    episodes = teach("ragen/LargeSokoban-v0", 15, seed=20, max_actions_per_episode=6)
    assert [episode["seed"] for episode in episodes] == within[:15]
    assert within[:15] != list(range(20, 35))
    # The rest of a stream begins after its last seed.
    later = teach("ragen/LargeSokoban-v0", 5, seed=within[9] + 1, max_actions_per_episode=6)
    assert later == episodes[10:]


def test_demonstrations_out_of_reach_for_good_raise():
    with pytest.raises(ValueError, match=r"none of 1000 seeds from 3 on can, got 1 and 5"):
        teach(
            "ragen/Sokoban-v0",
            1,
            seed=3,
            max_actions_per_episode=1,
            env_kwargs={"levels": "#######\n#@ $ .#\n#######"},
        )


def test_demonstrations_with_turns_of_too_many_actions_to_compare_name_the_limit(monkeypatch):
    monkeypatch.setattr(planning, "MAX_WORK", planning.MAX_WORK // 10)
    limits = {"max_actions_per_turn": 12, "max_actions_per_episode": 60}
    with pytest.raises(ValueError, match=r"^`max_actions_per_turn`, .*, got 12, 5 and 60 on"):
        teach("ragen/FrozenLake-v0", 1, **limits)


def test_demonstrations_on_slippery_ice_keep_the_unlucky_ones_and_reach_the_optimum():
    episodes = teach(SLIPPERY[0], 150)
    env = AgentTurns(gym.make(SLIPPERY[0]))
    optima = []
    for episode in episodes:
        env.reset(seed=episode["seed"])
        optima.append(optimal_turn_success(env))
    outcomes = [episode["success"] for episode in episodes]
    # Independent Bernoulli draws with these probabilities: five standard deviations.
    spread = 5 * np.sqrt(np.sum(np.multiply(optima, np.subtract(1, optima))))
    assert abs(sum(outcomes) - sum(optima)) < spread
    assert 0 < sum(outcomes) < 150
    # Every turn begins from the player's place: a turn after a slip is another one.
    assert max(len(episode["rewards"]) for episode in episodes) == 5


def test_demonstrations_of_the_bandit_pull_the_high_arm_for_whatever_it_pays():
    episodes = teach("ragen/Bandit-v0", 40)
    assert all(episode["success"] for episode in episodes)
    assert {reward for episode in episodes for reward in episode["rewards"]} == {0.0, 1.0}


def test_demonstrations_without_thoughts_have_empty_blocks_or_none():
    (with_block,) = teach("ragen/Sokoban-v0", 1)
    (without_block,) = teach("ragen/Sokoban-v0", 1, think=False)
    assert with_block["messages"][1]["content"].startswith("<think></think><answer>")
    assert without_block["messages"][1]["content"].startswith("<answer>")


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"think": False, "thoughts": True}, ValueError, "`thoughts` must be False with"),
        ({"num_episodes": 0}, ValueError, "`num_episodes` must be at least 1"),
        ({"seed": -1}, ValueError, "`seed` must be at least 0"),
        ({"seed": None}, TypeError, "`seed` must be an integer"),
        ({"env_kwargs": 5}, TypeError, "`env_kwargs` must be a dict or None, got 5"),
        ({"env_kwargs": {"render_mode": 5}}, TypeError, "`render_mode` must be a str or None"),
        ({"max_turns": 0}, ValueError, "`max_turns` must be at least 1"),
        ({"env_kwargs": {"size": (1, 1)}}, ValueError, "`size`"),
    ],
)
def test_demonstrations_wrong_arguments_raise_at_once(kwargs, error, message):
    arguments = {"num_episodes": 1, "seed": 0, **kwargs}
    with pytest.raises(error, match=message):
        demonstrations("ragen/Sokoban-v0", **arguments)


def test_demonstrations_of_what_is_no_id_raise():
    with pytest.raises(TypeError, match=r"^`id` must be an id, got None"):
        demonstrations(None, 1, seed=0)
    with pytest.raises(ValueError, match=r"^`id` must be an id such as"):
        demonstrations("a:b:c", 1, seed=0)


def test_demonstrations_of_a_foreign_environment_raise():
    gym.register("test/Foreign-v0", "tests.fakes:ScriptedTextEnv")
    try:
        with pytest.raises(TypeError, match="got ScriptedTextEnv"):
            teach("test/Foreign-v0", 1)
    finally:
        del gym.registry["test/Foreign-v0"]


@pytest.mark.parametrize(
    ("num_episodes", "options"),
    [
        (0, {}),
        (1, {"seed": -1}),
        (1, {"thoughts": "yes"}),
        (1, {"thoughts": True, "think": False}),
        (1, {"max_turns": 0}),
        (1, {"nothing": 0}),
    ],
)
def test_demonstrations_close_the_environment_where_arguments_are_wrong(num_episodes, options):
    lakes = CountedEnvs(FrozenLakeEnv)
    with lakes.registered() as env_id, pytest.raises((TypeError, ValueError)):
        demonstrations(env_id, num_episodes, **({"seed": 0} | options))
    assert lakes.num_open == 0


@pytest.mark.parametrize("num_read", [0, 1, 2])
def test_demonstrations_close_the_environment_however_many_are_read(num_read):
    lakes = CountedEnvs(FrozenLakeEnv)
    with lakes.registered() as env_id:
        episodes = demonstrations(env_id, 1, seed=0)
        assert lakes.num_open == 1
        assert sum(1 for _ in itertools.islice(episodes, num_read)) == min(num_read, 1)
        del episodes
    assert lakes.num_open == 0
