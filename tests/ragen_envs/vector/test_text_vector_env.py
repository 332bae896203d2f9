import ast
import copy
import inspect
import pickle
import textwrap
import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode

from ragen_envs.vector import TextVectorEnv
from tests.vectors import assert_same_outcome, make_pair, play_pair, reset_pair

IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("ragen/"))
LAKE = "ragen/FrozenLake-v0"
LOOPS = (ast.For, ast.While, ast.comprehension)

each_id = pytest.mark.parametrize("env_id", IDS)


def make_native(env_id=LAKE, num_envs=4, **arguments):
    return gym.make_vec(
        env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **arguments
    )


def play_on(envs, num_steps=20):
    """Return everything that random play gives from here on, as one text."""
    rng = np.random.default_rng(0)
    actions = rng.integers(envs.single_action_space.n, size=(num_steps, envs.num_envs))
    return repr([envs.step(each) for each in actions])


@each_id
def test_make_vec_makes_the_native_environment_without_a_warning_and_by_default(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("vector_entry_point", None):
            envs = gym.make_vec(env_id, num_envs=3, vectorization_mode=mode)
            assert isinstance(envs, TextVectorEnv)
            assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
            assert envs.spec.id == env_id
            texts, _ = envs.reset(seed=1)
            assert texts == tuple(gym.make(env_id).reset(seed=1 + i)[0] for i in range(3))


@each_id
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_spaces_and_metadata_equal_those_of_the_sync_environment(env_id, mode):
    native, sync = make_pair(env_id, num_envs=3, mode=mode, render_mode="ansi")
    for name in ("num_envs", "metadata", "render_mode", "single_action_space", "action_space"):
        assert getattr(native, name) == getattr(sync, name)
    assert native.single_observation_space == sync.single_observation_space
    assert native.observation_space == sync.observation_space
    native.action_space.seed(0)
    native.reset(seed=0)
    native.step(native.action_space.sample())


@each_id
def test_spec_makes_the_same_vector_environment_again(env_id):
    envs = make_native(env_id, autoreset_mode="SameStep", max_episode_steps=7)
    again = gym.make_vec(pickle.loads(pickle.dumps(envs.spec)))
    assert again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.reset(seed=0)[0] == again.reset(seed=0)[0]
    assert play_on(envs) == play_on(again)


@each_id
def test_spec_of_a_single_environment_makes_a_native_vector_environment(env_id):
    envs = gym.make_vec(gym.make(env_id, max_episode_steps=7).spec, num_envs=2)
    assert isinstance(envs, TextVectorEnv)
    assert envs.reset(seed=0)[0] == make_native(env_id, 2).reset(seed=0)[0]


def test_make_vec_still_refuses_wrappers_that_nobody_would_apply():
    env = gym.wrappers.TimeAwareObservation(gym.make("CartPole-v1"))
    with pytest.raises(gym.error.Error, match="additional_wrappers"):
        gym.make_vec(env.spec, vectorization_mode="vector_entry_point")
    wrapped = gym.wrappers.RecordEpisodeStatistics(gym.make(LAKE))
    with pytest.raises(gym.error.Error, match="additional_wrappers"):
        gym.make_vec(wrapped.spec, vectorization_mode="vector_entry_point")


@pytest.mark.parametrize("limit", [-1, None, 1, 3])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_step_limit_truncates_as_in_single_environments(mode, limit):
    native, sync = make_pair(LAKE, mode=mode, limit=limit, frozen_probability=1.0, size=(9, 9))
    reset_pair(native, sync, seed=0)
    play_pair(native, sync, num_steps=12 if limit in (1, 3) else 110)


def test_episode_that_ends_at_the_limit_is_terminated_and_truncated():
    envs = make_native(desc=["SG"], is_slippery=False, max_episode_steps=2)
    envs.reset(seed=0)
    envs.step([0, 0, 2, 0])
    _, rewards, terminated, truncated, _ = envs.step([0, 2, 0, 3])
    assert rewards.tolist() == [0, 1, 0, 0]
    # The third was at the goal a step ago and has been reset.
    assert terminated.tolist() == [False, True, False, False]
    assert truncated.tolist() == [True, True, False, True]


@each_id
@pytest.mark.parametrize(
    "seed", [None, 3, np.int64(3), [5, 6, 7, 8], [5, None, 5, None], (1, 2, 3, 4)], ids=repr
)
def test_seeds_give_the_starts_of_single_environments(env_id, seed):
    envs = make_native(env_id)
    envs.reset(seed=[20, 21, 22, 23])
    texts, _ = envs.reset(seed=seed)
    singles = [gym.make(env_id) for _ in range(4)]
    seeds = [int(seed) + i for i in range(4)] if np.isscalar(seed) else seed or [None] * 4
    for index, (env, own_seed) in enumerate(zip(singles, seeds, strict=True)):
        env.reset(seed=20 + index)
        assert env.reset(seed=own_seed)[0] == texts[index]


def test_first_reset_without_a_seed_differs_between_environments():
    assert len(set(make_native("ragen/Sokoban-v0", 8).reset()[0])) > 1
    envs = make_native(LAKE, 8)
    assert len(set(envs.np_random_seed)) == 8


@each_id
def test_generators_and_attributes_are_those_of_the_single_environments(env_id):
    native, sync = make_pair(env_id, num_envs=4)
    reset_pair(native, sync, seed=30)
    play_pair(native, sync, num_steps=7)
    states = [[g.bit_generator.state for g in envs.np_random] for envs in (native, sync)]
    assert states[0] == states[1]
    assert native.np_random_seed == sync.np_random_seed == (30, 31, 32, 33)
    names = ["action_names", "task_description", "has_state", "np_random_seed"]
    names += ["arms", "pulled"] if "Bandit" in env_id else ["layout", "state", "size"]
    names += ["solution_length"] if "Sokoban" in env_id else []
    for name in names:
        assert native.get_attr(name) == sync.get_attr(name), name
    # Looking changes nothing.
    play_pair(native, sync, num_steps=20)
    for name, arguments in (("render", ()), ("get_wrapper_attr", ("action_names",)), ("size", ())):
        if name != "size" or "Bandit" not in env_id:
            assert native.call(name, *arguments) == sync.call(name, *arguments), name
    play_pair(native, sync, num_steps=20)
    with pytest.raises(AttributeError):
        native.get_attr("no_such_attribute")


@pytest.mark.parametrize("name", ["reset", "step", "close"])
def test_calls_that_would_move_the_lent_environment_are_refused(name):
    envs = make_native()
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=rf"`name` must be a method that looks .*got '{name}'"):
        envs.call(name)


def test_attributes_of_environments_that_are_made_are_not_set():
    envs = make_native()
    with pytest.raises(ValueError, match=r"`name` must not be set .*got 'size'.*make_vec"):
        envs.set_attr("size", (5, 5))


@each_id
def test_copies_in_the_middle_of_episodes_go_on_alike(env_id):
    envs = make_native(env_id)
    envs.reset(seed=0)
    play_on(envs, 3)
    copies = [pickle.loads(pickle.dumps(envs)), copy.deepcopy(envs)]
    expected = play_on(envs)
    assert [play_on(each) for each in copies] == [expected] * 2


@each_id
@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
def test_render_gives_one_frame_each_of_the_present_states(env_id, render_mode):
    native, sync = make_pair(env_id, num_envs=3, render_mode=render_mode)
    reset_pair(native, sync, seed=0)
    for _ in range(4):
        play_pair(native, sync, num_steps=1)
        frames, expected = native.render(), sync.render()
        assert type(frames) is tuple
        for frame, expected_frame in zip(frames, expected, strict=True):
            np.testing.assert_array_equal(frame, expected_frame)


def test_render_without_a_mode_warns_and_an_unknown_mode_raises():
    envs = make_native()
    envs.reset()
    with pytest.warns(UserWarning, match="without a `render_mode`"):
        assert envs.render() is None
    with pytest.raises(ValueError, match=r"`render_mode` must be one of .* got 'human'"):
        make_native(render_mode="human")


def test_nothing_can_be_done_before_the_first_reset():
    envs = make_native(render_mode="ansi")
    reads = (lambda: envs.get_attr("state"), lambda: envs.call("render"))
    for call in (lambda: envs.step([0] * 4), envs.render, *reads):
        with pytest.raises(ResetNeeded, match=r"Call `reset\(\)` before"):
            call()
    mask = np.array([True, False, False, False])
    with pytest.raises(ResetNeeded, match="Reset all environments"):
        envs.reset(options={"reset_mask": mask})
    envs.reset(seed=0, options={"reset_mask": ~mask | mask})
    envs.step([0] * 4)


def test_disabled_mode_names_the_environments_that_wait_for_a_reset_and_keeps_the_others():
    arguments = {"desc": ["SFG"], "is_slippery": False, "autoreset_mode": AutoresetMode.DISABLED}
    envs = make_native(**arguments)
    envs.reset(seed=0)
    envs.step([2, 0, 2, 0])
    texts, _, terminated, _, infos = envs.step([2, 0, 2, 2])
    assert terminated.tolist() == [True, False, True, False]
    for _ in range(2):
        with pytest.raises(ResetNeeded, match=r"environments 0, 2 are over.*reset_mask"):
            envs.step([0] * 4)
    options = {"reset_mask": terminated}
    after, infos = envs.reset(options=options)
    assert options == {"reset_mask": terminated}
    assert after == ("P_G", texts[1], "P_G", texts[3])
    assert infos["_success"].tolist() == infos["_position"].tolist() == [True, False, True, False]
    assert infos["position"].tolist() == [(0, 0), None, (0, 0), None]
    envs.step([0] * 4)


def test_long_lists_of_environments_are_cut_in_messages():
    envs = make_native(num_envs=30)
    envs.reset(seed=0)
    with pytest.raises(
        InvalidAction, match=r"got 4, 4, .*, \.\.\. for the environments 0, 1, .* 9, "
    ):
        envs.step(np.full(30, 4))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 4, 1, -1], r"`actions` must be in \[0, 4\), got 4, -1 for the environments 1, 3\."),
        ([0.0, 1.0, 2.0, 3.0], r"`actions` must be integers, got array\(\[0\., 1\."),
        (["Up"] * 4, "`actions` must be integers"),
        ([None] * 4, "`actions` must be integers"),
        ([True] * 4, "`actions` must be integers"),
        (
            [0, 1, 2],
            r"`actions` must hold one index for each of 4 environments, got the shape \(3,\)",
        ),
        (1, r"got the shape \(\)"),
        (np.zeros((4, 1), int), r"got the shape \(4, 1\)"),
    ],
)
def test_invalid_actions_raise_and_change_nothing(actions, message):
    envs, twin = make_native(), make_native()
    envs.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(InvalidAction, match=message):
        envs.step(actions)
    assert play_on(envs) == play_on(twin)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_actions_of_every_integer_type_do_the_same(dtype):
    envs, twin = make_native(), make_native()
    envs.reset(seed=0)
    twin.reset(seed=0)
    for actions in np.random.default_rng(0).integers(4, size=(20, 4)):
        assert_same_outcome(envs.step(actions.astype(dtype)), twin.step(actions.tolist()))


def test_action_of_an_environment_that_is_being_reset_is_ignored():
    envs = make_native(desc=["SFG"], is_slippery=False, num_envs=2)
    envs.reset(seed=0)
    envs.step([2, 0])
    envs.step([2, 0])
    texts, rewards, terminated, _, _ = envs.step([99, 2])
    assert texts == ("P_G", "_PG")
    assert rewards.tolist() == [0, 0]
    assert not terminated.any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"no_such_option": 1}, ValueError, "may hold only"),
        (
            {"reset_mask": [True] * 4},
            TypeError,
            "`options\\['reset_mask'\\]` must be an array of bools",
        ),
        ({"reset_mask": np.ones(4, int)}, TypeError, "array of bools"),
        ({"reset_mask": np.ones(3, bool)}, ValueError, r"must have the shape \(4,\)"),
        ({"reset_mask": np.zeros(4, bool)}, ValueError, "hold a True"),
        ({"desc": ["S"]}, ValueError, "must have a goal"),
    ],
)
def test_bad_options_raise_and_change_nothing(options, error, message):
    envs, twin = make_native(), make_native()
    envs.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(error, match=message):
        envs.reset(seed=1, options=options)
    assert play_on(envs) == play_on(twin)


@pytest.mark.parametrize("seed", [[1, 2, 3], [1, 2, 3, 4, 5], []])
def test_seeds_of_another_number_raise(seed):
    with pytest.raises(ValueError, match=f"`seed` .* 4 environments, got {len(seed)} seeds"):
        make_native().reset(seed=seed)


@pytest.mark.parametrize("seed", [[3, 1, 4, 1], (3, 1, 4, 1), np.array([3, 1, 4, 1])], ids=type)
def test_seeds_come_in_every_kind_of_sequence(seed):
    envs, twin = make_native(), make_native()
    assert_same_outcome(envs.reset(seed=seed), twin.reset(seed=[3, 1, 4, 1]))
    assert envs.np_random_seed == (3, 1, 4, 1)
    for one in (5, np.int64(5), np.array(5)):
        assert_same_outcome(envs.reset(seed=one), twin.reset(seed=[5, 6, 7, 8]))


@pytest.mark.parametrize("seed", ["7", 1.0, {1, 2, 3, 4}, [1, 2, 3.5, 4], ["1"] * 4, np.ones(4)])
def test_seeds_that_are_no_integers_raise(seed):
    with pytest.raises(TypeError, match="`seed` must be an integer of at least 0, got "):
        make_native().reset(seed=seed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "`num_envs` must be at least 1, got 0"),
        ({"num_envs": 2.0}, r"`num_envs` must be an integer of at least 1, got 2\.0"),
        ({"max_episode_steps": 0}, "`max_episode_steps` must be .* got 0"),
        ({"max_episode_steps": 2.5}, r"`max_episode_steps` must be .* got 2\.5"),
        (
            {"autoreset_mode": "Never"},
            r"`autoreset_mode` must be one of \['NextStep', .* got 'Never'",
        ),
        ({"size": (1, 1)}, "`size`"),
    ],
)
def test_bad_arguments_raise(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_native(**arguments)


def test_unknown_argument_raises():
    with pytest.raises(TypeError, match="no_such_argument"):
        make_native(no_such_argument=1)


@each_id
def test_returned_arrays_are_the_callers_own(env_id):
    envs, twin = make_native(env_id), make_native(env_id)
    envs.reset(seed=0)
    twin.reset(seed=0)
    for actions in np.random.default_rng(0).integers(2, size=(12, 4)):
        outcome = envs.step(actions)
        assert_same_outcome(outcome, twin.step(actions))
        for array in (*outcome[1:4], *outcome[4].values()):
            array[:] = array[::-1].copy() if array.dtype == object else ~array.astype(bool)


@each_id
def test_rules_of_a_step_have_no_loop_over_environments(env_id):
    # Resets, which draw rooms and read options, may loop.
    kind = type(make_native(env_id))
    for method in (kind.step, kind._advance, kind._write, kind._is_success, kind._details):
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        assert not [node for node in ast.walk(tree) if isinstance(node, LOOPS)], method


def test_close_can_be_called_twice():
    envs = make_native()
    envs.close()
    envs.close()
    assert envs.closed


@pytest.mark.parametrize("env_id", ["ragen/Bandit-v0", LAKE, "ragen/Sokoban-v0"])
def test_more_environments_than_can_be_made_soon_are_refused(env_id):
    begin = time.process_time()
    assert make_native(env_id, 50_000).num_envs == 50_000
    assert time.process_time() - begin < 8  # about 1.5
    for num_envs in (50_001, 10**7, 10**400):
        with pytest.raises(ValueError, match=r"^`num_envs` must be at most 50,000, got "):
            make_native(env_id, num_envs)
