from fractions import Fraction
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from ragen_envs import argument_checks as checks


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.5), np.int8(1), Fraction(1, 2)])
def test_check_number_returns_a_float(value):
    number = checks.check_number("share", value, minimum=0, maximum=1)
    assert number == float(value)
    assert type(number) is float


@pytest.mark.parametrize("value", ["0.5", None, True, 1j, [0.5]])
def test_check_number_of_another_type_raises(value):
    with pytest.raises(TypeError, match=r"^`share` must be a number, got "):
        checks.check_number("share", value)


@pytest.mark.parametrize("value", [1 << 20_000, float("nan"), float("-inf"), 1.01, -0.01], ids=type)
def test_check_number_out_of_range_raises_a_short_message(value):
    with pytest.raises(ValueError, match=r"^`share` must be in \[0, 1\], got ") as error:
        checks.check_number("share", value, minimum=0, maximum=1)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint64(3)])
def test_check_whole_number_returns_an_int(value):
    number = checks.check_whole_number("seed", value)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", ["3", 3.0, None, False, np.bool_(True), [3]])
def test_check_whole_number_of_another_type_raises(value):
    with pytest.raises(TypeError, match=r"^`seed` must be an integer of at least 0, got "):
        checks.check_whole_number("seed", value)


def test_check_whole_number_below_the_minimum_raises():
    with pytest.raises(ValueError, match=r"^`count` must be at least 2, got 1"):
        checks.check_whole_number("count", 1, minimum=2)


@pytest.mark.parametrize("value", [11, np.uint64(11), 10**400, 1 << 20_000], ids=type)
def test_check_whole_number_above_the_maximum_raises_a_short_message(value):
    assert checks.check_whole_number("count", 10, maximum=10) == 10
    with pytest.raises(ValueError, match=r"^`count` must be at most 10, got .* smaller") as error:
        checks.check_whole_number("count", value, maximum=10)
    assert len(str(error.value)) < 300


def test_check_flag_takes_bools_alone():
    assert checks.check_flag("think", False) is False
    for odd in (1, None, "True", np.bool_(True), 10**5000):
        with pytest.raises(TypeError, match=r"^`think` must be True or False, got "):
            checks.check_flag("think", odd)


def test_check_env_id_takes_what_gymnasium_can_look_up():
    for env_id in ("ragen/Bandit-v0", "my.module:Game-v1", "CartPole"):
        assert checks.check_env_id("env", env_id) == env_id
    for odd in ("", "a b", "a:b:c", "nul\0l", "\ud800"):
        with pytest.raises(ValueError, match=r"^`env` must be an id such as"):
            checks.check_env_id("env", odd)


def test_check_env_kwargs_copies_mappings_and_refuses_the_rest():
    kwargs = {"size": (3, 3), "render_mode": None}
    copy = checks.check_env_kwargs("env_kwargs", kwargs)
    assert copy == kwargs
    assert copy is not kwargs
    assert checks.check_env_kwargs("env_kwargs", None) == {}
    for odd in (5, "x", [("a", 1)], {1: 2}):
        with pytest.raises(TypeError, match=r"^`env_kwargs` must be a dict or None, got "):
            checks.check_env_kwargs("env_kwargs", odd)


def test_check_seeds_lists_them():
    assert checks.check_seeds("seeds", np.array([3, 1])) == [3, 1]
    assert len(checks.check_seeds("seeds", range(10**12))) == 10**12
    with pytest.raises(ValueError, match=r"^`seeds` must be at least 0, got -1"):
        checks.check_seeds("seeds", range(-1, 2))
    for odd in (None, 5, np.array(5), "x", [None], [True]):
        with pytest.raises(TypeError, match=r"^`seeds` must be "):
            checks.check_seeds("seeds", odd)


def test_check_options_copies_mappings_and_refuses_the_rest():
    options = {"dynamics_seed": 1}
    copy = checks.check_options(options)
    assert (copy, copy is options, checks.check_options(None)) == (options, False, {})
    for odd in (5, 0, "dynamics_seed", ["dynamics_seed"], []):
        with pytest.raises(TypeError, match=r"^`options` must be a dict or None, got "):
            checks.check_options(odd)


@pytest.mark.parametrize("path", [5, None, b"a.gif"])
def test_check_path_of_another_type_raises(path):
    checks.check_path("path", Path("a.gif"))
    with pytest.raises(TypeError, match=r"^`path` must be a path, got "):
        checks.check_path("path", path)


@pytest.mark.parametrize("path", ["", "a\0.gif", "\ud800.gif"])
def test_check_path_without_a_usable_name_raises(path):
    with pytest.raises(ValueError, match=r"^`path` must be the path of a file, got "):
        checks.check_path("path", path)


def test_check_env_refuses_what_is_no_environment():
    checks.check_env(gym.make("ragen/Bandit-v0"))
    for odd in (None, "ragen/Bandit-v0", gym.Env):
        with pytest.raises(TypeError, match=r"^`env` must be a Gymnasium environment, got "):
            checks.check_env(odd)


def test_check_picture_refuses_other_kinds_and_shapes():
    checks.check_picture("frames", np.zeros((2, 3, 3), np.uint8))
    for odd in (None, b"picture", np.zeros((2, 3, 3))):
        with pytest.raises(TypeError, match=r"^`frames` must be pictures"):
            checks.check_picture("frames", odd)
    for shape in ((2, 3), (2, 3, 4), (0, 3, 3)):
        with pytest.raises(ValueError, match=r"^`frames` must be pictures of shape"):
            checks.check_picture("frames", np.zeros(shape, np.uint8))


def test_the_seed_of_a_reset_may_be_missing():
    assert checks.check_seed(None) is None
    assert checks.check_seed(np.uint64(7)) == 7
    assert checks.check_seed(2**4096 - 1) == 2**4096 - 1


@pytest.mark.parametrize("check", [checks.check_seed, checks.check_given_seed])
def test_check_seed_of_endless_digits_raises(check):
    for seed in (2**4096, 1 << 10**7):  # numpy takes 20 s for the second
        with pytest.raises(ValueError, match=r"^`first_seed` must be below 2\*\*4096, got "):
            check(seed, "first_seed")
    with pytest.raises(TypeError, match=r"^`seed` must be an integer"):
        checks.check_given_seed(None)
