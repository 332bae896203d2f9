"""The tables in the class docstrings against real episodes."""

import functools
import inspect
import re

import gymnasium as gym
import numpy as np
import pytest

import ragen_envs  # noqa: F401  # registers the ids
from ragen_envs.solvers import solve

IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("ragen/"))
HEADINGS = [
    "Observation",
    "Actions",
    "Reward",
    "Episode end",
    "Info",
    "Arguments",
    "Versions",
]
TYPES = {"bool": bool, "int": int, "str": str, "None": type(None), "tuple[int, int]": tuple}

each_id = pytest.mark.parametrize("env_id", IDS)


def read_sections(env_id):
    docstring = inspect.getdoc(type(gym.make(env_id).unwrapped))
    parts = re.split(r"^## (.+)$", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_table(section):
    """Return the rows of the only table of a section, without its two header lines."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@functools.cache
def collect_rewards(env_id, num_episodes=200):
    """Play at random, but every second episode by a plan where there is one."""
    env = gym.make(env_id)
    rng = np.random.default_rng(0)
    rewards, infos = [], []
    for seed in range(num_episodes):
        _, info = env.reset(seed=seed)
        infos.append(info)
        plan = solve(env) if "Lake" not in env_id and seed % 2 else None
        for action in plan or rng.integers(env.action_space.n, size=30).tolist():
            _, reward, terminated, _, info = env.step(action)
            rewards.append(reward)
            infos.append(info)
            if terminated:
                break
    return rewards, infos


@each_id
def test_docstring_has_the_fixed_headings_in_order(env_id):
    assert list(read_sections(env_id)) == HEADINGS


@each_id
def test_docstring_action_table_has_the_action_names(env_id):
    rows = read_table(read_sections(env_id)["Actions"])
    env = gym.make(env_id)
    assert [int(index) for index, _ in rows] == list(range(env.action_space.n))
    if "Bandit" not in env_id:
        assert tuple(name for _, name in rows) == env.get_wrapper_attr("action_names")


@each_id
def test_docstring_info_table_has_the_keys_and_types_of_an_episode(env_id):
    rows = read_table(read_sections(env_id)["Info"])
    types = {
        key.strip("`"): {TYPES[name] for name in re.findall("`(.+?)`", kind)}
        for key, kind, _ in rows
    }
    _, infos = collect_rewards(env_id)
    for info in infos:
        assert list(info) == list(types)
    for key, documented in types.items():
        assert {type(info[key]) for info in infos} == documented


@each_id
def test_docstring_reward_table_has_the_rewards_of_an_episode(env_id):
    documented = {float(number) for number, _ in read_table(read_sections(env_id)["Reward"])}
    rewards, _ = collect_rewards(env_id)
    seen = {round(reward, 9) for reward in rewards}
    if "Sokoban" not in env_id:
        assert seen == documented
        return
    # The Sokoban table lists what is summed up: every action, box on, box off, all boxes on.
    assert documented == {-0.1, 1.0, -1.0, 10.0}
    assert {-0.1, 10.9} <= seen <= {-0.1, 0.9, -1.1, 10.9}


@each_id
def test_docstring_arguments_are_those_of_the_constructor(env_id):
    env_class = type(gym.make(env_id).unwrapped)
    described = re.findall(
        r"^(`\w+`(?:, `\w+`)*):", read_sections(env_id)["Arguments"], re.MULTILINE
    )
    names = [name.strip("` ") for group in described for name in group.split(",")]
    parameters = list(inspect.signature(env_class).parameters)
    assert sorted(names) == sorted(parameters)


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if "Bandit" not in env_id])
def test_docstring_symbol_table_has_the_vocabularies(env_id):
    env_class = type(gym.make(env_id).unwrapped)
    vocabularies = inspect.getmodule(env_class).VOCABULARIES
    section = read_sections(env_id)["Observation"]
    header = next(line for line in section.splitlines() if line.startswith("| cell kind"))
    _, *names = (cell.strip() for cell in header.strip("|").split(" | "))
    table = {kind: symbols for kind, *symbols in read_table(section)}
    assert {name: {k: table[k][i] for k in table} for i, name in enumerate(names)} == vocabularies
