"""What holds for every id of this package, one parametrised test per promise."""

import pickle
import random
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

import ragen_envs  # noqa: F401  # registers the ids

IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("ragen/"))
BOARD_IDS = [env_id for env_id in IDS if "Bandit" not in env_id]
LEVELS = "########\n#@ $ . #\n########\n\n######\n#    #\n# .$@#\n######\n"
STOCHASTIC = [("ragen/Bandit-v0", {}), ("ragen/FrozenLake-v0", {"size": (8, 8)})]
VARIANTS = [
    *[(env_id, {}) for env_id in IDS],
    *[
        (env_id, {"symbols": symbols, "observation_format": observation_format})
        for env_id in ("ragen/FrozenLake-v0", "ragen/Sokoban-v0")
        for symbols in ("standard", "letters", "ascii")
        for observation_format in ("grid", "coordinates", "grid_coordinates")
    ],
    ("ragen/FrozenLake-v0", {"size": (3, 11), "observation_format": "grid_coordinates"}),
    ("ragen/FrozenLake-v0", {"is_slippery": False}),
    ("ragen/FrozenLake-v0", {"desc": ["SFFHF", "FHFFG"], "observation_format": "grid_coordinates"}),
    ("ragen/Sokoban-v0", {"size": (6, 9), "observation_format": "grid_coordinates"}),
    ("ragen/Sokoban-v0", {"levels": LEVELS, "observation_format": "grid_coordinates"}),
    ("ragen/Bandit-v0", {"low_arm_name": "Bibliothécaire", "high_arm_name": "商人"}),
]


def name_variant(value):
    return str(value).replace("ragen/", "")


each_id = pytest.mark.parametrize("env_id", IDS)
each_board_id = pytest.mark.parametrize("env_id", BOARD_IDS)
each_variant = pytest.mark.parametrize(("env_id", "arguments"), VARIANTS, ids=name_variant)


def find_waiting_action(env):
    """Find an action that leaves the present state as it is and does not end the episode."""
    for action in range(env.action_space.n):
        trial = pickle.loads(pickle.dumps(env.unwrapped))
        if not trial.step(action)[4]["action_is_effective"]:
            return action
    return None


def step_to_truncation(env):
    """Reset until the start has an action without effect, and repeat it until truncation."""
    for seed in range(100):
        env.reset(seed=seed)
        action = find_waiting_action(env)
        if action is None:
            continue
        num_steps, terminated, truncated = 0, False, False
        while not (terminated or truncated):
            _, _, terminated, truncated, _ = env.step(action)
            num_steps += 1
        if truncated:
            return num_steps
    raise AssertionError("no start has an action without effect")


def step_to_termination(env):
    rng = np.random.default_rng(0)
    for seed in range(500):
        env.reset(seed=seed)
        for action in rng.integers(env.action_space.n, size=99).tolist():
            if env.step(action)[2]:
                return
    raise AssertionError("no episode terminated")


@each_variant
def test_check_env_of_gymnasium_finds_nothing(env_id, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id, **arguments).unwrapped)


@each_variant
def test_observation_is_in_the_space_on_every_step_and_info_is_complete(env_id, arguments):
    env = gym.make(env_id, **arguments)
    rng = np.random.default_rng(0)
    endings = 0
    for seed in range(30):
        observation, info = env.reset(seed=seed)
        keys = list(info)
        assert env.observation_space.contains(observation)
        assert (info["success"], info["action_is_effective"]) == (False, False)
        for action in rng.integers(env.action_space.n, size=100).tolist():
            observation, reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(observation)
            assert list(info) == keys
            assert type(info["success"]) is type(info["action_is_effective"]) is bool
            assert type(reward) is float
            assert terminated or not info["success"]
            if terminated or truncated:
                endings += terminated
                break
    assert endings > 0


@each_variant
def test_two_copies_play_the_same_episodes(env_id, arguments):
    first, second = (gym.make(env_id, **arguments) for _ in range(2))
    actions = np.random.default_rng(0).integers(first.action_space.n, size=300).tolist()
    assert first.reset(seed=11) == second.reset(seed=11)
    for action in actions:
        outcome = first.step(action)
        assert outcome == second.step(action)
        if outcome[2] or outcome[3]:
            assert first.reset() == second.reset()


@each_id
def test_seeds_fix_the_start_and_bare_resets_go_on(env_id):
    env = gym.make(env_id)
    seeded = [env.reset(seed=seed)[0] for seed in range(20)]
    assert [env.reset(seed=seed)[0] for seed in range(20)] == seeded
    num_starts = 2 if "Bandit" in env_id else 15
    assert len(set(seeded)) >= num_starts
    env.reset(seed=0)
    bare = [env.reset()[0] for _ in range(20)]
    assert len(set(bare)) >= num_starts
    env.reset(seed=0)
    assert [env.reset()[0] for _ in range(20)] == bare


@pytest.mark.parametrize(("env_id", "arguments"), STOCHASTIC, ids=name_variant)
def test_dynamics_seed_keeps_the_start_and_changes_the_luck(env_id, arguments):
    env = gym.make(env_id, **arguments)
    starts, futures = set(), []
    for luck in [*range(40), *range(40)]:
        start, _ = env.reset(seed=3, options={"dynamics_seed": luck})
        starts.add(start)
        names = env.get_wrapper_attr("action_names")
        # The arm that depends on luck; on the lake any direction does.
        action = names.index("Dragon") if "Dragon" in names else 1
        futures.append(env.step(action)[:2])
    assert starts == {env.reset(seed=3)[0]}
    assert futures[:40] == futures[40:]
    # Each outcome has probability 1/4 to 3/4, so 40 draws hold at least two different ones.
    assert len(set(futures)) >= 2


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if "Sokoban" in env_id])
def test_dynamics_seed_changes_nothing_where_there_is_no_luck(env_id):
    env = gym.make(env_id)
    rollouts = set()
    for luck in range(3):
        start, _ = env.reset(seed=3, options={"dynamics_seed": luck})
        rollouts.add((start, *(env.step(action % 4)[0] for action in range(6))))
    assert len(rollouts) == 1


@pytest.mark.parametrize("env_id", BOARD_IDS)
@pytest.mark.parametrize("limit", [None, 3])
def test_step_limit_truncates_and_the_next_step_raises(env_id, limit):
    # Without slipping a step into the edge changes nothing and can be repeated for ever.
    arguments = {"is_slippery": False} if "Lake" in env_id else {}
    env = gym.make(env_id, max_episode_steps=limit, **arguments)
    assert step_to_truncation(env) == (limit or 100)
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset()
    env.step(0)


@each_id
def test_step_after_termination_raises_until_reset(env_id):
    for env in (gym.make(env_id), gym.make(env_id).unwrapped):
        step_to_termination(env)
        for _ in range(2):
            with pytest.raises(ResetNeeded):
                env.step(0)
        env.reset()
        env.step(0)


@each_id
def test_step_before_reset_raises(env_id):
    for env in (gym.make(env_id), gym.make(env_id).unwrapped):
        with pytest.raises(ResetNeeded):
            env.step(0)


@each_id
def test_invalid_actions_and_unknown_options_raise(env_id):
    env = gym.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    for action in (-1, int(env.action_space.n), 0.5, "Up", None):
        with pytest.raises(InvalidAction):
            env.step(action)
    with pytest.raises(ValueError, match=r"may hold only 'dynamics_seed'.*'no_such_option'"):
        env.reset(options={"no_such_option": 1})


@each_id
def test_pickle_in_the_middle_of_an_episode_keeps_level_and_luck(env_id):
    env = gym.make(env_id)
    env.reset(seed=8)
    if "Bandit" not in env_id:
        env.step(find_waiting_action(env) or 0)
    copied = pickle.loads(pickle.dumps(env))
    assert copied.step(1) == env.step(1)
    assert copied.reset() == env.reset()
    assert copied.observation_space == env.observation_space


@each_id
def test_global_generators_are_left_alone(env_id):
    env = gym.make(env_id)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  # the generator that must not be touched
    before = (random.getstate(), pickle.dumps(np.random.get_state()))  # noqa: NPY002
    for seed in (0, 1, None):
        env.reset(seed=seed, options={"dynamics_seed": 5})
        env.step(1)
    assert (random.getstate(), pickle.dumps(np.random.get_state())) == before  # noqa: NPY002


@each_id
def test_thousands_of_random_actions_pass_without_an_exception(env_id):
    env = gym.make(env_id)
    env.reset(seed=0)
    num_effective = 0
    for action in np.random.default_rng(0).integers(env.action_space.n, size=4000).tolist():
        _, _, terminated, truncated, info = env.step(action)
        num_effective += info["action_is_effective"]
        if terminated or truncated:
            env.reset()
    assert num_effective > 1000


@each_board_id
def test_render_modes_give_text_and_picture_of_the_present_state(env_id):
    env = gym.make(env_id, render_mode="ansi")
    observation, _ = env.reset(seed=0)
    assert env.render() == observation
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    rows, columns = env.get_wrapper_attr("size")
    assert env.render().shape == (32 * rows, 32 * columns, 3)


@each_id
def test_names_and_description_are_there_before_the_first_reset(env_id):
    env = gym.make(env_id)
    names = env.get_wrapper_attr("action_names")
    assert len(names) == len(set(names)) == env.action_space.n
    assert len(env.get_wrapper_attr("task_description")) > 100
