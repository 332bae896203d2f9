import math
import os
import subprocess
import sys

import gymnasium as gym
import pytest

from ragen_envs import AgentTurns, from_gym
from ragen_trl.environments import (
    EnvPool,
    EnvSpec,
    make_eval_pools,
    make_pools,
    reset_options,
    resolve_env_specs,
)
from tests.fakes import CountedEnvs, ScriptedTextEnv

BANDIT, LAKE = "ragen/Bandit-v0", "ragen/FrozenLake-v0"


def make_door(**kwargs):
    return ScriptedTextEnv(**kwargs)


def make_lake(**kwargs):
    return gym.make(LAKE, **kwargs)


FULL_SPEC = EnvSpec(LAKE, 3.0, {"is_slippery": False}, {"max_turns": 2})

# --- Accepted forms ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (BANDIT, [EnvSpec(BANDIT)]),
        (make_door, [EnvSpec(make_door)]),
        (ScriptedTextEnv, [EnvSpec(ScriptedTextEnv)]),
        (FULL_SPEC, [FULL_SPEC]),
        ((BANDIT, 2), [EnvSpec(BANDIT, 2)]),
        ([BANDIT], [EnvSpec(BANDIT)]),
        (
            [BANDIT, make_door, FULL_SPEC],
            [EnvSpec(BANDIT), EnvSpec(make_door), FULL_SPEC],
        ),
        (
            [(BANDIT, 0.5), (make_door, 2), (FULL_SPEC, 7)],
            [
                EnvSpec(BANDIT, 0.5),
                EnvSpec(make_door, 2),
                EnvSpec(LAKE, 7, {"is_slippery": False}, {"max_turns": 2}),
            ],
        ),
    ],
)
def test_resolve_env_specs_every_accepted_form(env, expected):
    assert resolve_env_specs(env) == expected


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (None, TypeError, "`env` must be a Gymnasium id, a callable .* got None"),
        (3, TypeError, "`env` must be .* got 3"),
        ({"a": BANDIT}, TypeError, "`env` must be "),
        ([[BANDIT]], TypeError, "`env` must be .* got \\['ragen/Bandit-v0'\\]"),
        ([], ValueError, "`env` must name at least one environment"),
        ((BANDIT, 1, 2), TypeError, "`env` must hold .*pairs.* given as a list"),
        ((BANDIT, LAKE), TypeError, f"`weight` must be a number, got '{LAKE}'.*as a list"),
        ((BANDIT, 0), ValueError, "`weight` must be positive and finite, got 0"),
        ((BANDIT, -1.0), ValueError, "`weight` must be .* got -1.0 .*Leave the environment out"),
        ((BANDIT, math.inf), ValueError, "`weight` must be .* got inf"),
        ((BANDIT, math.nan), ValueError, "`weight` must be .* got nan"),
    ],
)
def test_resolve_env_specs_refuses_with_the_argument_and_the_value(env, error, message):
    with pytest.raises(error, match=message):
        resolve_env_specs(env)


def test_env_instance_is_refused_instead_of_shared():
    with pytest.raises(TypeError, match=r"`env` must be .* callable"):
        resolve_env_specs(make_door())


# --- Pools ------------------------------------------------------------------------------------


def test_pool_take_makes_what_is_missing_and_gives_the_rest_again():
    pool = EnvPool(EnvSpec(make_door), {})
    two = pool.take(2)
    three = pool.take(3)
    assert [a is b for a, b in zip(two, three, strict=False)] == [True, True]
    assert len({id(env.unwrapped) for env in three}) == 3
    assert all(isinstance(env, AgentTurns) for env in three)


def test_pool_passes_the_kwargs_of_the_specification():
    (env,) = EnvPool(EnvSpec(LAKE, kwargs={"size": (2, 3)}), {}).take(1)
    assert env.unwrapped.size == (2, 3)
    (env,) = EnvPool(EnvSpec(make_door, kwargs={"first_observation": "hello"}), {}).take(1)
    assert "hello" in env.reset(seed=0)[0]


def test_pool_agent_turns_of_the_specification_take_precedence():
    spec = EnvSpec(make_door, agent_turns={"max_turns": 2})
    (env,) = EnvPool(spec, {"max_turns": 9, "max_actions_per_turn": 3}).take(1)
    assert (env.max_turns, env.max_actions_per_turn) == (2, 3)


def test_pool_leaves_an_agent_turns_as_it_is():
    (env,) = EnvPool(EnvSpec(lambda: AgentTurns(make_door(), max_turns=7)), {"max_turns": 2}).take(
        1
    )
    assert env.max_turns == 7
    assert isinstance(env.env, ScriptedTextEnv)


def test_pool_callable_that_returns_something_else_is_refused():
    with pytest.raises(TypeError, match=r"`env` must return a `gymnasium\.Env`.* returned dict"):
        EnvPool(EnvSpec(dict), {})


@pytest.mark.parametrize("wrap", [lambda env: env, AgentTurns])
def test_pool_callable_that_returns_one_instance_twice_is_refused(wrap):
    shared = make_door()
    pool = EnvPool(EnvSpec(lambda: wrap(shared)), {})
    with pytest.raises(ValueError, match="`env` must return a new environment on every call"):
        pool.take(2)


def test_make_pools_unknown_id_is_gymnasiums_own_error():
    with pytest.raises(gym.error.NameNotFound):
        make_pools("ragen/Nonsense-v0", {})


@pytest.mark.parametrize(
    ("env", "name"),
    [(BANDIT, BANDIT), (make_door, "make_door"), (make_lake, LAKE)],
)
def test_pool_name_is_the_id_where_there_is_one(env, name):
    assert EnvPool(EnvSpec(env), {}).name == name


def test_make_pools_equal_names_are_numbered_from_the_second_on():
    pools = make_pools([LAKE, BANDIT, EnvSpec(LAKE, kwargs={"is_slippery": False}), LAKE], {})
    assert [pool.name for pool in pools] == [LAKE, BANDIT, f"{LAKE}#2", f"{LAKE}#3"]


# --- Luck within a group ----------------------------------------------------------------------

LUCK = """
from ragen_envs import AgentTurns
from ragen_trl.environments import reset_options
import gymnasium
env = AgentTurns(gymnasium.make("ragen_envs:ragen/FrozenLake-v0"))
print([[reset_options(env, seed, member) for member in range(4)] for seed in (0, 1, 10_000)])
"""


def test_reset_options_differ_per_member_and_seed_and_agree_across_processes():
    env = AgentTurns(gym.make(LAKE))
    options = [[reset_options(env, seed, member) for member in range(4)] for seed in (0, 1, 10_000)]
    luck = [option["dynamics_seed"] for group in options for option in group]
    assert len(set(luck)) == 12
    # The octets that coreutils' `b2sum -l 64` prints for "0/0" and "10000/3", last one first.
    assert (luck[0], luck[11]) == (0x514A893A552EC42B, 0xD22C4027A1A329EA)
    printed = subprocess.run(
        [sys.executable, "-c", LUCK],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    ).stdout
    assert printed.strip() == str(options)


def test_reset_options_members_share_the_start_and_part_later():
    env = AgentTurns(gym.make(LAKE, size=(6, 6)), think=False)
    starts, ways = set(), set()
    for member in range(12):
        message, _ = env.reset(seed=8, options=reset_options(env, 8, member))
        starts.add(message)
        ways.add(env.step("<answer>Left||Down||Right||Up</answer>")[0])
    assert len(starts) == 1
    assert len(ways) > 3


@pytest.mark.parametrize("wrap", [lambda env: env, gym.wrappers.OrderEnforcing])
def test_reset_options_foreign_environments_get_none(wrap):
    assert reset_options(AgentTurns(wrap(make_door())), 3, 1) is None


def test_reset_options_are_for_every_environment_that_names_the_option():
    lake = AgentTurns(from_gym(gym.make("FrozenLake-v1")))
    assert reset_options(lake, 3, 1) == reset_options(AgentTurns(gym.make(LAKE)), 3, 1)
    door = make_door()
    door.option_names = ("another",)
    assert reset_options(AgentTurns(door), 3, 1) is None
    door.option_names = ("another", "dynamics_seed")
    assert set(reset_options(AgentTurns(door), 3, 1)) == {"dynamics_seed"}


def test_reset_options_see_through_other_wrappers():
    env = AgentTurns(gym.wrappers.OrderEnforcing(gym.make(LAKE)))
    assert set(reset_options(env, 3, 1)) == {"dynamics_seed"}


@pytest.mark.parametrize("eval_env", [{}, {3: BANDIT}, {"both": [BANDIT, BANDIT]}])
def test_make_eval_pools_refuses_what_has_no_name_of_its_own(eval_env):
    with pytest.raises(ValueError, match="`eval_env` must map names to single environments"):
        make_eval_pools(eval_env, [], {})


def test_env_pool_refuses_agent_turns_for_an_environment_that_brings_its_own():
    def make():
        return AgentTurns(gym.make(BANDIT))

    with pytest.raises(ValueError, match="`agent_turns` must be left empty"):
        EnvPool(EnvSpec(make, agent_turns={"max_turns": 1}), {})


def test_pool_closes_what_it_made_when_its_last_user_leaves():
    closed = []

    def make():
        env = ScriptedTextEnv()
        env.close = lambda: closed.append(env)
        return env

    pool = EnvPool(EnvSpec(make), {})

    def leave_by_an_error():
        with pool.open():
            with pool.open():
                first.extend(pool.take(3))
            assert closed == []
            raise OSError("away")

    first = []
    with pytest.raises(OSError, match="away"):
        leave_by_an_error()
    assert {id(env) for env in closed} == {id(each.unwrapped) for each in first}
    assert len(closed) == 3
    (again,) = pool.take(1)
    assert again.unwrapped not in closed


def test_pool_closes_all_where_closing_one_fails():
    closed = []

    def make():
        env = ScriptedTextEnv()

        def close():
            closed.append(env)
            if len(closed) == 1:
                raise OSError("stuck")

        env.close = close
        return env

    pool = EnvPool(EnvSpec(make), {})
    pool.take(3)
    with pytest.raises(OSError, match="stuck"):
        pool.close()
    assert len(closed) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda door: make_pools([door, "ragen/Nonsense-v0"], {}),
        lambda door: make_pools([door, (door, -1)], {}),
        lambda door: make_pools([door, dict], {}),
        lambda door: make_eval_pools({"a": door, "b": "ragen/Nonsense-v0"}, [], {}),
        lambda door: make_eval_pools([door, dict], [], {}),
        lambda door: EnvPool(EnvSpec(door), {"max_turns": 0}),
        lambda door: EnvPool(EnvSpec(lambda: AgentTurns(door()), agent_turns={"max_turns": 1}), {}),
    ],
)
def test_environments_are_closed_where_not_all_can_be_made(make):
    door = CountedEnvs()
    with pytest.raises((gym.error.NameNotFound, TypeError, ValueError)):
        make(door)
    assert door.num_open == 0


def test_pools_that_were_made_stay_open():
    door = CountedEnvs()
    pools = make_eval_pools({"a": door, "b": door}, [], {})
    assert door.num_open == len(pools) == 2
