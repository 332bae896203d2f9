import warnings

import gymnasium as gym
import pytest

from ragen_envs.end_enforcing import EndEnforcing
from ragen_envs.registration import MAX_EPISODE_STEPS, register_all

SPECIAL_ARGUMENTS = {
    "ragen/Bandit-v0": {},
    "ragen/Sokoban-v0": {},
    "ragen/LargeSokoban-v0": {"size": (8, 8), "num_boxes": 2},
    "ragen/SokobanNewVocab-v0": {"symbols": "letters"},
    "ragen/FrozenLake-v0": {},
}


def test_registry_holds_exactly_the_promised_ids():
    assert {env_id for env_id in gym.registry if env_id.startswith("ragen/")} == set(
        SPECIAL_ARGUMENTS
    )


@pytest.mark.parametrize(("env_id", "arguments"), SPECIAL_ARGUMENTS.items())
def test_spec_has_the_promised_arguments_and_step_limit(env_id, arguments):
    spec = gym.spec(env_id)
    assert spec.kwargs == arguments
    assert spec.max_episode_steps == MAX_EPISODE_STEPS == 100


def test_register_all_again_does_nothing_and_does_not_warn():
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_all()
    assert gym.registry == before


@pytest.mark.parametrize("env_id", SPECIAL_ARGUMENTS)
def test_make_puts_the_end_enforcing_wrapper_outside_the_step_limit(env_id):
    env = gym.make(env_id)
    assert isinstance(env, EndEnforcing)
    assert isinstance(env.env, gym.wrappers.TimeLimit)


@pytest.mark.parametrize("env_id", SPECIAL_ARGUMENTS)
def test_make_from_the_spec_of_an_environment_gives_the_same_stack(env_id):
    env = gym.make(env_id)
    assert str(gym.make(env.spec)) == str(env)
    assert gym.make(env.spec).reset(seed=5) == env.reset(seed=5)


@pytest.mark.parametrize(
    ("env_id", "attribute", "value"),
    [
        ("ragen/LargeSokoban-v0", "size", (8, 8)),
        ("ragen/LargeSokoban-v0", "num_boxes", 2),
        ("ragen/Sokoban-v0", "size", (6, 6)),
        ("ragen/Sokoban-v0", "num_boxes", 1),
        ("ragen/FrozenLake-v0", "size", (4, 4)),
    ],
)
def test_make_without_arguments_gives_the_promised_defaults(env_id, attribute, value):
    assert gym.make(env_id).get_wrapper_attr(attribute) == value
