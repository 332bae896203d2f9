import dataclasses
import inspect
import json
import math
import pickle
import typing
import warnings

import gymnasium as gym
import pytest
import torch
from trl import GRPOConfig

from ragen_envs import AgentTurns
from ragen_trl import StarPOConfig
from ragen_trl.config_choices import CRITIC_ESTIMATORS

FIELDS = {field.name: field for field in dataclasses.fields(StarPOConfig)}
INHERITED = {field.name: field for field in dataclasses.fields(GRPOConfig)}


@pytest.fixture
def make(tmp_path):
    return lambda **kwargs: StarPOConfig(str(tmp_path), **kwargs)


# --- Refusals ---------------------------------------------------------------------------------

CHOICES = {
    name: typing.get_args(field.type)
    for name, field in FIELDS.items()
    if name not in INHERITED and typing.get_origin(field.type) is typing.Literal
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CHOICES.items() for value in values]
)
def test_every_choice_is_accepted(name, value, make):
    assert getattr(make(**{name: value}), name) == value


@pytest.mark.parametrize("name", CHOICES)
def test_unknown_choices_are_refused_with_the_known_ones(name, make):
    with pytest.raises(ValueError, match=f"^`{name}` must be one of .* got 'other'") as error:
        make(**{name: "other"})
    assert all(repr(choice) in str(error.value) for choice in CHOICES[name])


def test_estimators_with_a_critic_are_those_that_need_values(make):
    for estimator in CHOICES["advantage_estimator"]:
        assert make(advantage_estimator=estimator).has_critic is (estimator in CRITIC_ESTIMATORS)
    assert CRITIC_ESTIMATORS == ("gae", "bi_level_gae")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_env_groups": 0}, "`num_env_groups` must be at least 1, got 0"),
        ({"max_turns": 0}, "`max_turns` must be at least 1, got 0"),
        ({"max_actions_per_turn": 0}, "`max_actions_per_turn` must be at least 1"),
        ({"max_actions_per_episode": -3}, "`max_actions_per_episode` must be .* got -3"),
        ({"eval_episodes": 0}, "`eval_episodes` must be at least 1"),
        ({"max_new_tokens_per_turn": 0}, "`max_new_tokens_per_turn` must be at least 1"),
        ({"max_steps": -1}, "`max_steps` must be at least 1, got -1"),
        ({"num_iterations": 0}, "`num_iterations` must be at least 1"),
        ({"train_seed": -1, "eval_seed": 5000}, "`train_seed` must be at least 0, got -1"),
        ({"eval_seed": -1}, "`eval_seed` must be at least 0, got -1"),
        ({"num_generations": 1}, "`num_generations` must be at least 2, got 1.* no spread"),
        (
            {"rollout_filter_ratio": 0.0},
            r"`rollout_filter_ratio` must be in \(0, 1\], got 0.0.*1.0 to",
        ),
        ({"rollout_filter_ratio": 1.5}, "`rollout_filter_ratio` .* got 1.5.* keep every group"),
        ({"rollout_filter_ratio": math.nan}, "`rollout_filter_ratio` .* got nan"),
        ({"temperature": 0.0}, "`temperature` must be finite and positive"),
        ({"eval_temperature": -0.1}, "`eval_temperature` must be finite and at least 0, got -0.1"),
        (
            {"max_trajectory_tokens": 400},
            r"`max_trajectory_tokens` \(400\) must exceed `max_new_tokens_per_turn` \(400\)",
        ),
        (
            {"max_completion_length": 512},
            "`max_completion_length` must be left unset, got 512. Set `max_new_tokens_per_turn`",
        ),
        (
            {"steps_per_generation": 3},
            "`steps_per_generation` .*unset.* got 3 and None.* `num_env_groups`",
        ),
        (
            {"generation_batch_size": 64},
            "`generation_batch_size` must be left unset .* got None and 64",
        ),
    ],
)
def test_values_out_of_range_are_refused_with_argument_value_and_rule(options, message, make):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("eval_seed", [0, 5, 6, 9, 10, 11, 12, 15, 20, 25, 26, 27, 40])
@pytest.mark.parametrize("train_seed", [0, 10, 16])
def test_seeds_are_refused_exactly_where_training_and_evaluation_could_meet(
    train_seed, eval_seed, make
):
    options = {"train_seed": train_seed, "eval_seed": eval_seed, "eval_episodes": 5}
    make(max_steps=5, num_env_groups=2, **options)  # a split keeps levels apart, whatever the seeds
    options["validation_share"] = 0
    # Five updates of two groups each use at most ten seeds.
    meet = set(range(train_seed, train_seed + 10)) & set(range(eval_seed, eval_seed + 5))
    if meet:
        with pytest.raises(ValueError, match=r"^`(train|eval)_seed` \(\d+\) must lie"):
            make(max_steps=5, num_env_groups=2, **options)
    else:
        make(max_steps=5, num_env_groups=2, **options)


# --- Derived values ---------------------------------------------------------------------------


@pytest.mark.parametrize("per_device", [1, 3, 8, 16, 48])
@pytest.mark.parametrize(("groups", "generations"), [(8, 16), (1, 2), (3, 5), (8, 7)])
def test_generation_batch_is_the_smallest_that_trl_takes_and_holds_a_rollout(
    per_device, groups, generations, make
):
    config = make(
        per_device_train_batch_size=per_device, num_env_groups=groups, num_generations=generations
    )
    size = config.generation_batch_size
    unit = math.lcm(per_device, generations)
    assert size == -(-groups * generations // unit) * unit
    assert config.steps_per_generation * per_device == size


def test_update_batch_does_not_depend_on_the_rollout(make):
    config = make(per_device_train_batch_size=1, gradient_accumulation_steps=32)
    assert config.update_batch_size == 32
    assert config.num_episodes_per_rollout == 128
    assert make().update_batch_size == 32


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, 2),
        ({"rollout_filter": "none"}, 8),
        ({"rollout_filter_ratio": 0.01}, 1),
        ({"rollout_filter_num_groups": 3}, 3),
        ({"rollout_filter_num_groups": 30}, 8),
        ({"rollout_filter": "top_p"}, 8),
        ({"rollout_filter": "within_group"}, 8),
        ({"rollout_filter_ratio": 0.29, "num_env_groups": 100}, 29),
    ],
)
def test_num_kept_groups(options, kept, make):
    assert make(**options).num_kept_groups == kept


@pytest.mark.parametrize(
    ("ratio", "size", "kept"),
    # One episode has no variance; 0.29 * 100 is a little less than 29.
    [(0.3, 16, 4), (0.01, 16, 2), (0.29, 100, 29), (1.0, 16, 16)],
)
def test_num_kept_per_group(ratio, size, kept, make):
    options = {"rollout_filter_ratio": ratio, "num_generations": size}
    assert make(rollout_filter="within_group", **options).num_kept_per_group == kept
    assert make(**options).num_kept_per_group == size


def test_describe_iteration_counts_groups_episodes_and_updates(make):
    assert make().describe_iteration() == (
        "One rollout: 8 groups of 16 episodes, up to 5 turns each. Trained on: 32 of 128 episodes "
        "(filter: top_k), with gae.\n1 update(s) per rollout of at most 32 episodes; 200 updates in all."
    )
    text = make(rollout_filter="none", num_iterations=3, num_env_groups=9).describe_iteration()
    # 144 episodes in updates of 32 are five, each done three times.
    assert "144 of 144 episodes (filter: none)" in text
    assert "15 update(s) per rollout" in text
    text = make(rollout_filter="min_p").describe_iteration()
    assert "up to 128 of 128 episodes" in text
    assert "up to 4 update(s) per rollout" in text


def test_agent_turns_holds_every_argument_of_the_wrapper(make):
    config = make(
        max_turns=2,
        max_actions_per_turn=3,
        max_actions_per_episode=6,
        action_separator=";",
        enable_think=False,
        format_penalty=-0.5,
    )
    signature = inspect.signature(AgentTurns.__init__)
    wanted = {name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert set(config.agent_turns) == wanted
    env = AgentTurns(gym.make("ragen/FrozenLake-v0"), **config.agent_turns)
    assert {name: getattr(env, name) for name in wanted} == {
        "max_turns": 2,
        "max_actions_per_turn": 3,
        "max_actions_per_episode": 6,
        "separator": ";",
        "think": False,
        "format_penalty": -0.5,
    }


def test_precision_is_bfloat16_only_where_a_gpu_has_it(make):
    assert make().bf16 == (torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    assert make(bf16=False).bf16 is False


def test_config_of_defaults_warns_of_nothing(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"learning_rate": 1e-4},
        {"num_env_groups": 3},
        {"num_generations": 4},
        {"per_device_train_batch_size": 3},
        {"max_new_tokens_per_turn": 77},
        {"rollout_filter": "none", "epsilon_high": 0.2, "beta": 0.001},
    ],
)
@pytest.mark.parametrize("copy", [lambda c: c, lambda c: pickle.loads(pickle.dumps(c))])
def test_replace_gives_what_the_constructor_gives(changes, copy, make):
    replaced = dataclasses.replace(copy(make()), **changes)
    expected = make(**changes)
    assert [n for n in FIELDS if getattr(replaced, n) != getattr(expected, n)] == []


def test_replace_still_refuses_what_is_given(make):
    with pytest.raises(ValueError, match="`max_completion_length` must be left unset, got 64"):
        dataclasses.replace(make(), max_completion_length=64)
    with pytest.raises(ValueError, match=r"`steps_per_generation` .* got 3 and 128"):
        dataclasses.replace(make(), steps_per_generation=3)


def test_config_is_written_as_plain_json(make):
    written = json.loads(make().to_json_string())
    assert (written["max_completion_length"], written["generation_batch_size"]) == (400, 128)
