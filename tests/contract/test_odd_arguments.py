"""Every argument of every public callable x odd values: a result, or an error that names it."""

import time

import gymnasium as gym
import numpy as np
import pytest

import ragen_envs
from ragen_envs import render_gif
from ragen_envs.splits import split_seeds
from ragen_envs.vector import BanditVectorEnv
from tests.odd_arguments import (
    Call,
    TookTooLongError,
    find_fault,
    find_faults,
    find_missing,
    list_surface,
    time_limit,
)
from tests.valid_arguments import FORWARDED, IDS, INNER, list_calls

SURFACE = list_surface()


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return list_calls(tmp_path_factory.mktemp("odd"))


def test_table_holds_every_public_callable(calls):
    assert calls.keys() - INNER == SURFACE.keys()


@pytest.mark.parametrize("name", SURFACE)
def test_table_holds_every_public_argument(name, calls):
    known = set().union(*(call.arguments for call in calls[name]))
    missing = find_missing(SURFACE[name], known)
    for signature in (SURFACE[forwarded] for forwarded in FORWARDED.get(name, ())):
        missing |= find_missing(signature, known | {"env"})
    if name.startswith("make ragen/"):
        missing.discard("render_mode")  # read by Gymnasium itself, before any of our code
    assert missing == set()
    assert takes_more(SURFACE[name]) == (name in FORWARDED)


def takes_more(signature):
    return any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())


@pytest.mark.parametrize("name", sorted({*SURFACE, *INNER}))
def test_odd_arguments_end_soon_and_are_named(name, calls):
    for call in calls[name]:
        if not name.endswith(".set_attr"):  # which refuses whatever it is given
            assert find_fault(call.make, ()) is None
        assert list(find_faults(name, call)) == []


def take_anything(number):
    return number + 1


def take_checked(number):
    if type(number) is not int:
        raise TypeError(f"`number` must be an int, got {number!r:.99}.")
    return number


def spin(number):
    while isinstance(number, str) and number == "x":
        try:
            number.upper()
        except Exception:
            continue


def wait(number):
    time.sleep(60 if number == "x" else 0)


def test_walker_finds_what_is_not_checked():
    faults = list(find_faults("take_anything", Call(take_anything, number=1)))
    assert ("number", "'x'") in [(fault.argument, fault.value) for fault in faults]
    assert all(fault.what.startswith("names no argument: ") for fault in faults)
    assert list(find_faults("take_checked", Call(take_checked, number=1))) == []


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError("`other` must be 1, got 2."), "names no argument"),
        (ValueError("`number` is wrong."), "says no rule"),
        (ValueError(f"`number` must be 1, got {'x' * 3000}."), "3025 characters"),
        (KeyError("`number` must be 1, got 2."), "raises KeyError"),
        (MemoryError(), "raises MemoryError"),
    ],
)
def test_walker_finds_errors_that_say_too_little(error, what):
    def fail():
        raise error

    assert find_fault(fail, ("number",)).startswith(what)


def test_walker_looks_into_lists_dicts_and_iterators():
    def read(states):
        yield states["pairs"][0][0] + 1

    faults = list(find_faults("read", Call(read, states={"pairs": [(1, 2)]})))
    places = {fault.argument for fault in faults}
    assert places == {
        "states", "states['pairs']", "states['pairs'][0]", "states['pairs'][0][0]",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "limits"), [(spin, (0.2, 60.0)), (wait, (60.0, 0.2))], ids=["spin", "wait"]
)
def test_time_limit_ends_what_does_not_end(call, limits):
    with pytest.raises(TookTooLongError), time_limit(*limits):
        call("x")


def test_walker_finds_a_hang():
    (fault,) = find_faults("spin", Call(spin, number=1))
    assert (fault.argument, fault.value, fault.what) == ("number", "'x'", "does not end")


def test_table_notices_a_new_argument(calls):
    (call,) = calls["parse_reply"]
    assert find_missing(SURFACE["parse_reply"], call.arguments.keys() - {"think"}) == {"think"}


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


def test_lists_of_unequal_lengths_are_no_actions():
    envs = BanditVectorEnv(2)
    envs.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="`actions` must hold one index"):
        envs.step([[0], [0, 1]])


def test_bytes_are_no_size():
    with pytest.raises(ValueError, match="`size` must be"):
        ragen_envs.FrozenLakeEnv(size=b"ab")


def test_an_empty_path_of_a_gif_is_refused_before_anything_is_played():
    env = gym.make("ragen/Bandit-v0", render_mode="rgb_array")
    with pytest.raises(ValueError, match="`path` must be the path of a file"):
        render_gif(env, [0], "", seed=0)
    assert not env.unwrapped.has_state


@pytest.mark.parametrize("env_id", IDS)
def test_seeds_that_take_numpy_too_long_are_named(env_id):
    seed, env = 1 << 10**7, gym.make(env_id)
    calls = (
        lambda: env.reset(seed=seed),
        lambda: gym.make_vec(env_id, num_envs=2).reset(seed=seed),
        lambda: gym.make_vec(env_id, num_envs=2).reset(seed=[0, seed]),
        lambda: split_seeds(env_id, num_train=1, num_validation=1, first_seed=seed),
        lambda: ragen_envs.demonstrations(env_id, 1, seed=seed),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"^`(first_)?seed` must be below 2\*\*4096, got "):
            call()
    with pytest.raises(ValueError, match=r"^`options\['dynamics_seed'\]` must be below 2\*\*4096"):
        env.reset(options={"dynamics_seed": seed})
