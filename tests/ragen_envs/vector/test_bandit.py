import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from tests.vectors import make_pair, play_pair, reset_pair

ARGUMENTS = [
    {},
    {"high_arm_probability": 1.0},
    {"high_arm_probability": 0.0},
    {"low_arm_name": "Bibliothécaire", "high_arm_name": "商人"},
    {"low_arm_reward": -0.3, "high_arm_reward": 1e6, "high_arm_probability": 0.6},
    {"low_arm_name": "zebra", "high_arm_name": "Yak"},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_batch_equals_single_environments_step_by_step(arguments, mode):
    native, sync = make_pair("ragen/Bandit-v0", mode=mode, **arguments)
    reset_pair(native, sync, seed=17)
    assert play_pair(native, sync, num_steps=100) > 250


def test_dynamics_seed_replaces_the_luck_of_every_environment():
    native, sync = make_pair("ragen/Bandit-v0", mode=AutoresetMode.SAME_STEP)
    play_pair_after = []
    for luck in (1, 2):
        reset_pair(native, sync, seed=3, options={"dynamics_seed": luck})
        play_pair_after.append(play_pair(native, sync, num_steps=30))
    assert min(play_pair_after) == 180


def test_high_arm_pays_as_often_as_asked_and_the_low_arm_always():
    num_envs = 1000
    native = gym.make_vec("ragen/Bandit-v0", num_envs=num_envs, high_arm_probability=0.4)
    texts, _ = native.reset(seed=0)
    high_actions = np.array([text.startswith("Arms: Phoenix") for text in texts], dtype=int)
    # 1000 coins: standard error 0.0158; five of them.
    assert np.mean(high_actions) == pytest.approx(0.5, abs=0.08)
    _, rewards, terminated, _, infos = native.step(high_actions)
    assert set(rewards) == {0.0, 1.0}
    assert np.mean(rewards) == pytest.approx(0.4, abs=0.08)
    assert terminated.all()
    assert infos["success"].all()
    assert set(infos["arm"]) == {"Dragon"}
    native.reset(seed=0)
    _, rewards, _, _, infos = native.step(1 - high_actions)
    assert set(rewards) == {0.15}
    assert not infos["success"].any()
