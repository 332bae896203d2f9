import json
import math

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.run_state import STATE_FILE, batch_settings, read_state, write_state

STATE = {"dealer": {"num_dealt": 3}, "iteration": 2, "batches": {"num_processes": 1}}


def test_state_is_read_as_it_was_written(tmp_path):
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE


def test_state_is_json_and_replaces_the_one_of_before_once_it_is_whole(tmp_path):
    def refuse(text):
        raise AssertionError(f"{text} is no JSON.")

    write_state(tmp_path, STATE | {"dealer": {"share": math.inf}})
    text = (tmp_path / STATE_FILE).read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=refuse)["dealer"] == {"share": None}
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_state(tmp_path, STATE | {"dealer": object()})
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == [text]


def test_settings_that_are_not_finite_are_those_of_their_file(tmp_path):
    options = {"output_dir": str(tmp_path), "report_to": "none"}
    args = StarPOConfig(**options, vllm_importance_sampling_clip_max=math.inf)
    settings = batch_settings(args, num_processes=1)
    write_state(tmp_path, STATE | {"batches": settings})
    assert read_state(tmp_path)["batches"] == settings


def test_folder_without_a_state_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"holds no {STATE_FILE}.*as `model`"):
        read_state(tmp_path)


def test_state_of_an_older_version_is_refused(tmp_path):
    # As versions wrote it that dealt seeds without a split of levels.
    old = {"num_groups_dealt": 12, "iteration": 3, "num_processes": 1}
    (tmp_path / STATE_FILE).write_text(json.dumps(old), encoding="utf-8")
    with pytest.raises(ValueError, match=r"this version.*\['batches', 'dealer'\].*as `model`"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b'{"dealer": ', b"[1]", b"null", b"\xff", b"[" * 50_000, b"9" * 5000]
)
def test_state_that_is_damaged_is_named(content, tmp_path):
    (tmp_path / STATE_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=rf"a whole checkpoint, but {STATE_FILE} .*as `model`"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"per_device_train_batch_size": 2},
        {"gradient_accumulation_steps": 2},
        {"num_iterations": 2},
        {"temperature": 0.7},
        {"old_logps": "rollout"},
        {"beta": 0.1},
        {"use_vllm": True},
        {"vllm_importance_sampling_correction": False},
        {"vllm_importance_sampling_mode": "token_mask"},
        {"vllm_importance_sampling_clip_min": 0.1},
        {"vllm_importance_sampling_clip_max": 2.0},
        {"format_penalty": -0.2},
        {"kl_in_reward_coef": 0.1},
        {"advantage_estimator": "bi_level_gae"},
        {"gamma": 0.9},
        {"gae_lambda": 0.9},
        {"advantage_estimator": "gigpo", "turn_gamma": 0.9},
        {"advantage_estimator": "gigpo", "gigpo_step_weight": 0.5},
        {"advantage_estimator": "gigpo", "gigpo_divide_by_std": False},
        {"advantage_estimator": "grpo", "reward_normalization": "mean"},
        {"reward_normalization": "mean", "reward_grouping": "batch"},
        {"turn_rewards": True},
        {"rollout_filter": "none"},
        {"rollout_filter_ratio": 0.5},
        {"rollout_filter_num_groups": 3},
        {"rollout_filter": "top_p", "rollout_filter_top_p": "softmax"},
        {"rollout_filter": "percentile_range", "rollout_filter_percentiles": [0.0, 0.5]},
        {"rollout_filter_score": "reward_sum"},
        {"rollout_filter_include_zero": False},
        {"rollout_loss_scale": "sqrt"},
        {"loss_type": "dr_grpo"},
        {"max_trajectory_tokens": 1000},
    ],
)
def test_settings_of_batches_differ_where_batches_would(change, tmp_path):
    options = {"output_dir": str(tmp_path), "report_to": "none"}
    # The last one is compared; those before it only make it one that is allowed.
    *needed, _ = change.items()
    options |= dict(needed)
    settings = batch_settings(StarPOConfig(**options), num_processes=1)
    assert json.loads(json.dumps(settings)) == settings
    assert settings == batch_settings(StarPOConfig(**options, max_steps=7), num_processes=1)
    assert settings != batch_settings(StarPOConfig(**options), num_processes=2)
    assert settings != batch_settings(StarPOConfig(**options | change), num_processes=1)
