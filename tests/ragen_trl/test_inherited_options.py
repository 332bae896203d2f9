import dataclasses

import pytest
import torch
from transformers import TrainingArguments
from trl import GRPOConfig

from ragen_trl import StarPOConfig
from ragen_trl.inherited_options import REFUSED_OPTIONS

# Options of GRPOConfig that do here what they do in TRL. An option that a new TRL brings must be
# tried and put here, or be refused.
WORKING_OPTIONS = {
    # model
    "model_init_kwargs",
    "trust_remote_code",
    "disable_dropout",
    "cast_lm_head_to_fp32",
    # rollout
    "num_generations",
    "num_generations_eval",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "generation_kwargs",
    "chat_template_kwargs",
    "cache_implementation",
    "pad_to_multiple_of",
    # update
    "beta",
    "num_iterations",
    "epsilon",
    "epsilon_high",
    "entropy_coef",
    "sync_ref_model",
    "ref_model_mixup_alpha",
    "ref_model_sync_steps",
    # vLLM
    "use_vllm",
    "vllm_mode",
    "vllm_model_impl",
    "vllm_enable_sleep_mode",
    "vllm_structured_outputs_regex",
    "vllm_server_base_url",
    "vllm_server_host",
    "vllm_server_port",
    "vllm_server_timeout",
    "vllm_group_port",
    "vllm_gpu_memory_utilization",
    "vllm_max_model_length",
    "vllm_tensor_parallel_size",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_cap",
}
# The same for TrainingArguments.
WORKING_ARGUMENTS = {
    # optimizer and schedule
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "gradient_accumulation_steps",
    "learning_rate",
    "lr_scheduler_kwargs",
    "lr_scheduler_type",
    "max_grad_norm",
    "max_steps",
    "optim",
    "optim_args",
    "optim_target_modules",
    "per_device_train_batch_size",
    "warmup_steps",
    "weight_decay",
    # device and precision
    "accelerator_config",
    "activation_checkpointing",
    "activation_checkpointing_kwargs",
    "bf16",
    "ddp_backend",
    "ddp_broadcast_buffers",
    "ddp_bucket_cap_mb",
    "ddp_find_unused_parameters",
    "ddp_static_graph",
    "ddp_timeout",
    "debug",
    "deepspeed",  # in one process; see check_trainer
    "fp16",
    "fsdp",
    "fsdp_config",
    "full_determinism",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "local_rank",
    "parallelism_config",
    "seed",
    "tf32",
    "torch_compile",
    "torch_compile_backend",
    "torch_compile_mode",
    "torch_empty_cache_steps",
    "use_cpu",
    # evaluation
    "eval_delay",
    "eval_on_start",
    "eval_steps",
    "eval_strategy",
    "greater_is_better",
    "load_best_model_at_end",
    "metric_for_best_model",
    "per_device_eval_batch_size",
    # logs and checkpoints
    "disable_tqdm",
    "enable_jit_checkpoint",
    "hub_always_push",
    "hub_model_id",
    "hub_private_repo",
    "hub_revision",
    "hub_strategy",
    "hub_token",
    "log_level",
    "log_level_replica",
    "log_on_each_node",
    "logging_first_step",
    "logging_nan_inf_filter",
    "logging_steps",
    "logging_strategy",
    "output_dir",
    "project",
    "push_to_hub",
    "report_to",
    "restore_callback_states_from_checkpoint",
    "run_name",
    "save_on_each_node",
    "save_only_model",
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "skip_memory_metrics",
    "trackio_bucket_id",
    "trackio_space_id",
    "trackio_static_space_id",
}
# Arguments about a dataset, its labels or its metrics, and those that only scripts read: none of
# them changes what is trained. With the values to try.
ARGUMENTS_WITHOUT_EFFECT = {
    "average_tokens_across_devices": False,
    "batch_eval_metrics": True,
    "bf16_full_eval": True,
    "data_seed": 5,
    "dataloader_drop_last": True,
    "dataloader_in_order": False,
    "dataloader_multiprocessing_context": "spawn",
    "dataloader_num_workers": 2,
    "dataloader_persistent_workers": True,
    "dataloader_pin_memory": False,
    "dataloader_prefetch_factor": 3,
    "do_eval": True,
    "do_predict": True,
    "do_train": True,
    "eval_accumulation_steps": 2,
    "eval_do_concat_batches": False,
    "eval_use_gather_object": True,
    "fp16_full_eval": True,
    "ignore_data_skip": True,
    "include_for_metrics": ["loss"],
    "include_num_input_tokens_seen": "all",
    "label_names": ["answers"],
    "num_train_epochs": 7,
    "prediction_loss_only": True,
    "remove_unused_columns": True,
    "resume_from_checkpoint": "somewhere",
    "use_cache": True,
}
# Filled in from other fields, and refused where they are given; see test_starpo_config.
DERIVED_OPTIONS = {"max_completion_length", "generation_batch_size", "steps_per_generation"}
# An old name; TRL carries its value over to an option that is refused.
ALIASES = {"use_transformers_paged": "use_transformers_continuous_batching"}

OTHER_VALUES = {
    "reward_weights": [1.0],
    "multi_objective_aggregation": "normalize_then_sum",
    "scale_rewards": "batch",
    "delta": 2.0,
    "importance_sampling_level": "sequence",
    "top_entropy_quantile": 0.2,
    "use_adaptive_entropy": True,
    "mask_truncated_completions": True,
    "off_policy_mask_threshold": 0.1,
    "use_bias_correction_kl": True,
    "max_tool_calling_iterations": 3,
    "log_completions": True,
    "use_transformers_continuous_batching": True,
    "router_aux_loss_coef": 0.001,
    "auto_find_batch_size": True,
    "use_liger_kernel": True,
    "shuffle_dataset": False,
    "ds3_gather_for_generation": False,
    "sapo_temperature_neg": 2.0,
    "sapo_temperature_pos": 2.0,
    "vespo_k_pos": 9.0,
    "vespo_lambda_pos": 9.0,
    "vespo_k_neg": 9.0,
    "vespo_lambda_neg": 9.0,
    "entropy_coef_min": 0.1,
    "entropy_coef_max": 0.5,
    "entropy_coef_delta": 0.1,
    "entropy_target": 0.7,
    "log_multimodal": False,
    "num_completions_to_print": 3,
    "log_unique_prompts": True,
    "log_completions_hub_repo": "me/them",
    "neftune_noise_alpha": 5.0,
    "label_smoothing_factor": 0.1,
    "train_sampling_strategy": "group_by_length",
    "length_column_name": "size",
    "liger_kernel_config": {"rope": True},
    "transformers_continuous_batching_config": {"max_batch_tokens": 9},
}


def names(config):
    return {field.name for field in dataclasses.fields(config)}


def test_every_option_of_grpo_is_either_known_to_work_or_refused():
    options = names(GRPOConfig) - names(TrainingArguments)
    accounted = (
        WORKING_OPTIONS
        | DERIVED_OPTIONS
        | set(ALIASES)
        | set(REFUSED_OPTIONS)
        | {"loss_type"}  # three of its values work; see test_config_checks
    )
    assert options - accounted == set()
    # No entry may outlive the option it is about.
    assert WORKING_OPTIONS | DERIVED_OPTIONS | set(ALIASES) <= options
    assert set(REFUSED_OPTIONS) <= names(StarPOConfig)
    assert not WORKING_OPTIONS & set(REFUSED_OPTIONS)


def test_every_training_argument_works_is_refused_or_has_no_effect_on_training():
    arguments = names(TrainingArguments)
    verdicts = [WORKING_ARGUMENTS, set(ARGUMENTS_WITHOUT_EFFECT), set(REFUSED_OPTIONS) & arguments]
    assert sorted(name for names_of in verdicts for name in names_of) == sorted(arguments)


def test_arguments_without_effect_train_the_same_weights(make_trainer):
    trained = []
    half = {"fp16_full_eval": True}  # not both at once
    without_half = {k: v for k, v in ARGUMENTS_WITHOUT_EFFECT.items() if k not in half}
    for options in ({}, without_half, half, {"seed": 43}):
        trainer = make_trainer(max_steps=2, use_cpu=True, **options)
        trainer.train()
        trained.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    plain, *others, control = trained
    assert all(torch.equal(plain, other) for other in others)
    assert not torch.equal(plain, control)


def test_every_refused_option_has_a_value_to_try():
    assert set(OTHER_VALUES) == set(REFUSED_OPTIONS)


@pytest.mark.parametrize(("name", "value"), OTHER_VALUES.items())
def test_refused_options_name_the_option_and_the_remedy(name, value, tmp_path):
    off, remedy = REFUSED_OPTIONS[name]
    assert remedy.endswith(".")
    assert off != value
    with pytest.raises(ValueError, match=name) as error:
        StarPOConfig(str(tmp_path), **{name: value})
    # Two of them are refused by TRL before we come to it, with a remedy of its own.
    if name not in ("auto_find_batch_size", "log_completions_hub_repo"):
        assert str(error.value) == (
            f"`{name}` must be left at {off!r} in StarPO, got {value!r}. {remedy}"
        )


@pytest.mark.parametrize(
    "name", [name for name in OTHER_VALUES if name != "use_bias_correction_kl"]
)
def test_refused_options_off_is_the_default_of_trl(name):
    (default,) = [f.default for f in dataclasses.fields(GRPOConfig) if f.name == name]
    assert default == REFUSED_OPTIONS[name][0]


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_aliases_of_refused_options_are_refused_as_well(alias, name, tmp_path):
    with pytest.raises(ValueError, match=f"`{name}` must be left at False"):
        StarPOConfig(str(tmp_path), **{alias: True})
