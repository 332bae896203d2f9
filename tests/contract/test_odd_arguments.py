"""Every public argument x a list of odd values: a result, or an error that names the argument."""

import gymnasium as gym
import numpy as np
import pytest

import ragen_envs
from ragen_envs import render_gif
from ragen_envs.curriculum import Curriculum
from ragen_envs.gif import write_gif
from ragen_envs.vector import BanditVectorEnv

IDS = ("ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0")
HUGE = 10**400
ODD = [
    None, True, -1, 0, 1.5, HUGE, float("nan"), float("-inf"), 1j, "", "x", "0.5", "nul\0l\n#",
    b"", b"ab", [], [1], ["x"], [None, None], (-1, 2.5), {}, {"x": 1}, {1, 2}, object(), type,
    np.uint64(1), np.float32("nan"), np.bool_(True), np.array([1, 2]), np.array([[1, 2], [3, 4]]),
]  # fmt: skip
ERRORS = (TypeError, ValueError, gym.error.Error)


def assert_named(call, *names):
    """Call; an error must be one of `ERRORS` and hold one of the names in backticks."""
    try:
        call()
    except ERRORS as error:
        message = str(error)
        assert any(f"`{name}" in message for name in names), message


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("kind", [ragen_envs.BanditEnv, ragen_envs.FrozenLakeEnv])
def test_odd_arguments_of_environments_are_named(kind, value):
    for name in kind.__init__.__kwdefaults__:
        assert_named(lambda name=name: kind(**{name: value}), name)


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("env_id", IDS)
def test_odd_seeds_options_and_actions_are_named(env_id, value):
    env = gym.make(env_id).unwrapped
    assert_named(lambda: env.reset(seed=value), "seed")
    assert_named(lambda: env.reset(options=value), "options")
    for name in env.option_names:
        assert_named(lambda name=name: env.reset(options={name: value}), "options", name)
    env.reset(seed=0)
    assert_named(lambda: env.step(value), "action")


@pytest.mark.parametrize("env_id", IDS)
def test_bools_are_neither_seeds_nor_actions(env_id):
    env = gym.make(env_id).unwrapped
    for seed in (True, np.bool_(True)):
        with pytest.raises(TypeError, match="`seed` must be an integer"):
            env.reset(seed=seed)
    env.reset(seed=0)
    for action in (True, np.bool_(True)):
        with pytest.raises(gym.error.InvalidAction, match="`action` must be an integer"):
            env.step(action)


@pytest.mark.parametrize("kind", [np.uint64, np.int8, np.array])
@pytest.mark.parametrize("env_id", IDS)
def test_integers_of_numpy_are_actions(env_id, kind):
    env, twin = gym.make(env_id), gym.make(env_id)
    env.reset(seed=0)
    twin.reset(seed=0)
    assert env.step(kind(1)) == twin.step(1)


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_odd_arguments_of_vector_environments_are_named(value):
    for name in ("num_envs", "max_episode_steps", "autoreset_mode"):
        if name == "num_envs" and value is HUGE:
            continue  # how many are too many is a matter of memory
        assert_named(lambda name=name: BanditVectorEnv(**{name: value}), name)
    envs = BanditVectorEnv(2)
    assert_named(lambda: envs.reset(seed=value), "seed")
    assert_named(lambda: envs.reset(options=value), "options")
    assert_named(lambda: envs.reset(options={"reset_mask": value}), "options['reset_mask']")
    envs.reset(seed=0)
    assert_named(lambda: envs.step(value), "actions")


def test_lists_of_unequal_lengths_are_no_actions():
    envs = BanditVectorEnv(2)
    envs.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="`actions` must hold one index"):
        envs.step([[0], [0, 1]])


def test_bytes_are_no_size():
    with pytest.raises(ValueError, match="`size` must be"):
        ragen_envs.FrozenLakeEnv(size=b"ab")


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_odd_arguments_of_a_curriculum_are_named(value):
    assert_named(lambda: Curriculum(value), "ranges")
    assert_named(lambda: Curriculum([value]), "ranges")
    for name in ("raise_above", "lower_below", "window"):
        assert_named(lambda name=name: Curriculum([(1, 2)], **{name: value}), name)
    for name in ("first", "step", "last"):
        steps = {"first": 1, "step": 1, "last": 3, name: value}
        assert_named(lambda steps=steps: Curriculum.by_steps(**steps), name, "step")
    curriculum = Curriculum([(1, 2)])
    assert_named(lambda: curriculum.update(value), "success")
    assert_named(lambda: curriculum.update(0.5, value), "num_episodes")
    assert_named(lambda: curriculum.load_state_dict(value), "state")
    for name in curriculum.state_dict():
        state = {**curriculum.state_dict(), name: value}
        assert_named(lambda state=state: curriculum.load_state_dict(state), "state")


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_odd_arguments_of_render_gif_are_named(value, tmp_path):
    env = gym.make("ragen/Bandit-v0", render_mode="rgb_array")
    path = tmp_path / "bandit.gif"
    usual = {"env": env, "actions": [0], "path": path, "seed": 0, "options": None}
    for name in (*usual, "seconds_per_frame"):
        assert_named(lambda name=name: render_gif(**{**usual, name: value}), name, "action")
    for name in ("frames", "path", "seconds_per_frame", "seconds_at_end"):
        frames = {"frames": [np.zeros((8, 8, 3), np.uint8)], "path": path}
        assert_named(lambda name=name, frames=frames: write_gif(**{**frames, name: value}), name)


def test_an_empty_path_of_a_gif_is_refused_before_anything_is_played():
    env = gym.make("ragen/Bandit-v0", render_mode="rgb_array")
    with pytest.raises(ValueError, match="`path` must be the path of a file"):
        render_gif(env, [0], "", seed=0)
    assert not env.unwrapped.has_state
