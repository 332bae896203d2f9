import math

import pytest

from ragen_trl import StarPOConfig


def make(tmp_path, **options):
    return StarPOConfig(output_dir=str(tmp_path), **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_env_groups", 1.5),
        ("num_env_groups", True),
        ("num_env_groups", "8"),
        ("num_generations", None),
        ("num_generations_eval", None),
        ("max_turns", 2.5),
        ("eval_seed", math.nan),
        ("enable_think", "no"),
        ("log_trajectories", "no"),
        ("temperature", "hot"),
        ("rollout_filter_ratio", "x"),
    ],
)
def test_value_of_the_wrong_type_is_refused_by_name(tmp_path, name, value):
    with pytest.raises(TypeError, match=f"`{name}` must be .*got {value!r}"):
        make(tmp_path, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_generations", 1),
        ("num_generations_eval", 0),
        ("per_device_eval_batch_size", 0),
        ("per_device_train_batch_size", 0),
        ("gradient_accumulation_steps", 0),
        ("train_seed", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 0.0),
        ("eval_temperature", math.nan),
        ("beta", -1.0),
        ("beta", math.nan),
        ("entropy_coef", math.nan),
        ("epsilon", -0.1),
        ("format_penalty", 0.1),
        ("format_penalty", math.nan),
        ("rollout_filter_ratio", 0.0),
        ("rollout_filter_ratio", 1.01),
    ],
)
def test_value_out_of_range_is_refused_by_name(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .*got {value}"):
        make(tmp_path, **{name: value})


def test_values_at_the_edge_of_their_range_are_accepted(tmp_path):
    config = make(
        tmp_path,
        num_generations=2,
        eval_temperature=0,
        format_penalty=0,
        rollout_filter_ratio=1.0,
        max_new_tokens_per_turn=1,
        max_trajectory_tokens=2,
        epsilon_high=None,
    )
    assert config.num_generations == 2


def test_trajectory_that_cannot_hold_a_reply_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`max_trajectory_tokens` \(400\) must exceed"):
        make(tmp_path, max_trajectory_tokens=400)
