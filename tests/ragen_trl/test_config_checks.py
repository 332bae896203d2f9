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
        ("max_trajectory_tokens", 3600.5),
        ("enable_think", "no"),
        ("disable_dropout", "no"),
        ("log_trajectories", "no"),
        ("temperature", "hot"),
        ("rollout_filter_ratio", "x"),
        ("rollout_filter_num_groups", 2.0),
        ("rollout_filter_num_groups", True),
        ("rollout_row_budget", 1.5),
        ("top_p", None),
        ("top_p", "0.9"),
        ("top_k", None),
        ("top_k", 2.5),
        ("min_p", "a"),
        ("repetition_penalty", None),
        ("generation_kwargs", "abc"),
        ("stop_at_answer", "no"),
        ("turn_rewards", 1),
        ("gigpo_divide_by_std", "no"),
        ("rollout_filter_include_zero", None),
        ("gamma", "1"),
        ("gamma", True),
        ("critic_warmup_steps", 1.5),
        ("critic_learning_rate", "1e-5"),
        ("critic_model_name_or_path", 7),
        ("rollout_refill_tries", True),
        # Only what TRL or the critic can derive may be left open.
        ("beta", None),
        ("epsilon", None),
        ("entropy_coef", None),
        ("eval_temperature", None),
        ("kl_in_reward_coef", None),
        ("gigpo_step_weight", None),
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
        ("epsilon_high", -0.1),
        ("format_penalty", 0.1),
        ("format_penalty", math.nan),
        ("rollout_filter_ratio", 0.0),
        ("rollout_filter_ratio", 1.01),
        ("rollout_filter_num_groups", 0),
        ("rollout_row_budget", 0),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_p", math.nan),
        ("top_k", -5),
        ("min_p", -0.1),
        ("min_p", 2.0),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.nan),
        ("rollout_refill_tries", -1),
        ("critic_warmup_steps", -1),
        ("critic_learning_rate", -1e-5),
        ("critic_learning_rate", math.inf),
        ("max_grad_norm", -1.0),
        ("kl_in_reward_coef", -0.1),
        ("gigpo_step_weight", -1.0),
        ("value_clip_range", 0.0),
        ("value_clip_range", math.nan),
        ("gamma", 1.01),
        ("gae_lambda", -0.1),
        ("gae_lambda", 1.01),
        ("turn_gamma", math.nan),
    ],
)
def test_value_out_of_range_is_refused_by_name(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .*got {value}"):
        make(tmp_path, **{name: value})


def test_values_at_the_edge_of_their_range_are_accepted(tmp_path):
    config = make(
        tmp_path,
        num_generations=2,
        num_generations_eval=1,
        max_turns=1,
        max_actions_per_turn=1,
        max_actions_per_episode=1,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=1,
        rollout_filter_num_groups=1,
        rollout_filter_percentiles=[0, 1],
        gamma=1,
        gae_lambda=0,
        turn_gamma=1,
        value_clip_range=math.inf,
        critic_learning_rate=0.0,
        eval_temperature=0,
        format_penalty=0,
        rollout_filter_ratio=1.0,
        max_new_tokens_per_turn=1,
        max_trajectory_tokens=2,
        epsilon_high=None,
        top_p=1,
        top_k=0,
        min_p=0,
        repetition_penalty=0.1,
    )
    assert config.num_generations == 2


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num_generations", 1, "A group of one episode has no spread"),
        ("num_generations_eval", 0, "Use 1 for one episode per evaluation seed"),
        ("max_steps", 0, "no dataset whose end could stop the training"),
    ],
)
def test_value_out_of_range_comes_with_the_reason_of_the_rule(tmp_path, name, value, reason):
    with pytest.raises(ValueError, match=f"^`{name}` must be at least .* got {value}.*{reason}"):
        make(tmp_path, **{name: value})


@pytest.mark.parametrize("value", ["nonsense", "", 3])
def test_unknown_schedule_of_the_critic_is_refused_before_a_model_is_loaded(tmp_path, value):
    with pytest.raises(ValueError, match=r"`critic_lr_scheduler_type` must be one of .*'cosine'"):
        make(tmp_path, critic_lr_scheduler_type=value)
    assert make(tmp_path, critic_lr_scheduler_type="cosine").critic_lr_scheduler_type == "cosine"


def test_trajectory_that_cannot_hold_a_reply_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`max_trajectory_tokens` \(400\) must exceed"):
        make(tmp_path, max_trajectory_tokens=400)


@pytest.mark.parametrize("percentiles", [[0.5, 0.5], [0.5, 0.2], [-0.1, 0.5], [0.0, 1.1]])
def test_percentiles_that_hold_nothing_are_refused(tmp_path, percentiles):
    with pytest.raises(ValueError, match=r"`rollout_filter_percentiles` must satisfy 0 <= low"):
        make(tmp_path, rollout_filter_percentiles=percentiles)


@pytest.mark.parametrize("percentiles", [0.5, [0.5], [0.1, 0.2, 0.3], ["a", "b"]])
def test_percentiles_that_are_no_pair_of_numbers_are_refused(tmp_path, percentiles):
    with pytest.raises(TypeError, match="`rollout_filter_percentiles` must"):
        make(tmp_path, rollout_filter_percentiles=percentiles)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rollout_filter_num_groups": 2, "rollout_filter": "min_p"},
            r"`rollout_filter_num_groups` must be .* belongs to .*'top_k'.* got 2 with 'min_p'",
        ),
        ({"loss_type": "bnpo"}, "`loss_type` must be one of 'dapo', 'grpo', 'dr_grpo', got 'bnpo'"),
        ({"fp16": True}, "`fp16` must be False.* Use `bf16`"),
        (
            {"kl_in_reward_coef": 0.001, "advantage_estimator": "rloo"},
            "`kl_in_reward_coef` must be 0 with `advantage_estimator='rloo'`.* got 0.001. Use `beta`",
        ),
        (
            {"turn_rewards": True, "advantage_estimator": "grpo"},
            "`turn_rewards` must be False with `advantage_estimator='grpo'`.* Use 'gae'",
        ),
        (
            {"reward_normalization": "mean", "turn_rewards": True},
            "`reward_normalization` must be 'none' where rewards are those of turns.* Got 'mean'",
        ),
        (
            {"reward_normalization": "mean", "advantage_estimator": "gigpo"},
            "`reward_normalization` must be 'none'.*'gigpo'",
        ),
        (
            {"reward_normalization": "mean", "advantage_estimator": "rebn"},
            "`reward_normalization` must be 'none'.*'rebn'",
        ),
        (
            {"rollout_filter": "top_p", "rollout_filter_score": "reward_mean"},
            "`rollout_filter_score` must not be negative for `rollout_filter='top_p'`",
        ),
        (
            {"rollout_filter": "soft", "rollout_filter_score": "reward_sum"},
            "`rollout_filter_score` must not be negative for `rollout_filter='soft'`",
        ),
        (
            {"rollout_filter": "min_p", "rollout_filter_score": "reward_sum"},
            "`rollout_filter_score` must not be negative for `rollout_filter='min_p'`",
        ),
        (
            {"advantage_estimator": "grpo", "critic_warmup_steps": 3},
            "`critic_warmup_steps` must be left unset with .*'grpo'.*, got 3",
        ),
        (
            {"advantage_estimator": "rloo", "critic_learning_rate": 1e-4},
            "`critic_learning_rate` must be left unset with .*'rloo'",
        ),
        (
            {"advantage_estimator": "grpo", "critic_model_name_or_path": "m"},
            "`critic_model_name_or_path` must be left unset",
        ),
        (
            {"advantage_estimator": "grpo", "critic_lr_scheduler_type": "cosine"},
            "`critic_lr_scheduler_type` must be left unset",
        ),
        (
            {"critic_warmup_steps": 5, "max_steps": 5},
            r"`critic_warmup_steps` \(5\) must be less than `max_steps` \(5\)",
        ),
        (
            {"critic_lr_scheduler_type": "reduce_lr_on_plateau"},
            "`critic_lr_scheduler_type` must be a schedule of the update number, got 'reduce_lr",
        ),
        (
            {"lr_scheduler_type": "greedy", "eval_strategy": "steps", "eval_steps": 1},
            "`critic_lr_scheduler_type` must be a schedule of the update number, got 'greedy'",
        ),
        ({"critic_model_name_or_path": ""}, "`critic_model_name_or_path` must be an id or a fol"),
    ],
)
def test_options_that_exclude_each_other_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **options)


def test_float16_of_the_launcher_is_refused_like_our_own(tmp_path, monkeypatch):
    # What `accelerate launch --mixed_precision fp16` sets.
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ValueError, match=r"`fp16` must be False.* Use `bf16`"):
        make(tmp_path, bf16=False)
    assert make(tmp_path, bf16=True, use_cpu=True).mixed_precision == "bf16"


@pytest.mark.parametrize(
    "options",
    [
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo"},
        {"critic_warmup_steps": 4, "max_steps": 5},
        {
            "critic_lr_scheduler_type": "linear",
            "lr_scheduler_type": "greedy",
            "eval_strategy": "steps",
            "eval_steps": 1,
        },
        {"turn_rewards": True, "advantage_estimator": "rebn"},
        {"turn_rewards": True, "advantage_estimator": "gigpo"},
        {"kl_in_reward_coef": 0.001, "advantage_estimator": "bi_level_gae"},
        {"reward_normalization": "asym_clip", "advantage_estimator": "rloo"},
        {
            "rollout_filter": "top_p",
            "rollout_filter_top_p": "softmax",
            "rollout_filter_score": "reward_mean",
        },
        {"rollout_filter": "top_k", "rollout_filter_score": "reward_mean"},
    ],
)
def test_options_that_go_together_are_accepted(tmp_path, options):
    config = make(tmp_path, **options)
    assert {name: getattr(config, name) for name in options} == options


def test_refills_count_among_the_seeds_that_training_can_use(tmp_path):
    options = {"train_seed": 0, "eval_seed": 60, "eval_episodes": 5}
    options |= {"max_steps": 5, "num_env_groups": 4, "validation_share": 0}
    assert make(tmp_path, **options, rollout_refill_tries=2).rollout_refill_tries == 2
    with pytest.raises(ValueError, match=r"`eval_seed` \(60\) must lie .* \(up to 79\)"):
        make(tmp_path, **options, rollout_refill_tries=3)
