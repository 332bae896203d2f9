"""Every option of PEFT's `LoraConfig`: it holds through training and saving, or is refused by name."""

import dataclasses

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import config as lora

from ragen_trl.loading import load_policy
from tests.training import BANDIT, change, copy_model, logits, reference_logits, train_logs

# Those that say nothing about the numbers, or not here: in one adapter.
NEUTRAL = {
    "auto_mapping": {
        "base_model_class": "Qwen2ForCausalLM",
        "parent_library": "transformers.models.qwen2.modeling_qwen2",
    },
    # PEFT sets it itself.
    "peft_type": "IA3",
    "peft_version": "0.1",
    "base_model_name_or_path": "another",
    "revision": "main",
    "task_type": "CAUSAL_LM",
    # PEFT takes it back for layers that are not GPT-2's.
    "fan_in_fan_out": True,
    "megatron_core": "another",
    # They act on layers of GPTQ alone.
    "use_qalora": True,
    "qalora_group_size": 8,
    "runtime_config": lora.LoraRuntimeConfig(ephemeral_gpu_offload=True),
    # Dropout is switched off, as everywhere.
    "lora_dropout": 0.5,
    "lora_alpha": 32,
    "r": 3,
}

BLOCKS = lora.BdLoraConfig(
    nblocks=2, target_modules_bd_a=["o_proj"], target_modules_bd_b=["q_proj"], match_strict=False
)
KEPT = [
    NEUTRAL,
    {"target_modules": ["q_proj", "embed_tokens"]},
    {"exclude_modules": ["q_proj"], "use_rslora": True, "alpha_pattern": {"v_proj": 2}},
    {"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": "layers"},
    {"rank_pattern": {"q_proj": 2}, "lora_bias": True},
    {"modules_to_save": ["embed_tokens"]},
    {"modules_to_save": ["lm_head", "norm"]},
    {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    {"trainable_token_indices": [5, 6, 7]},
    {"trainable_token_indices": {"embed_tokens": [5, 6]}, "ensure_weight_tying": True},
    {"use_dora": True},
    {"velora_config": lora.VeloraConfig()},
    {"use_bdlora": BLOCKS},
    {"target_modules": [], "target_parameters": ["mlp.gate_proj.weight"]},
    {"layer_replication": [(0, 1)]},
    {"init_lora_weights": "eva", "eva_config": lora.EvaConfig()},
    *({"init_lora_weights": init} for init in ("gaussian", "orthogonal", "mica")),
]
# The base model without them is not where training starts.
KEPT_WITHOUT_KL = [{"init_lora_weights": init} for init in ("pissa", "olora", False)]

REFUSED = [
    ({"inference_mode": True}, "`model` must have trainable parameters"),
    ({"task_type": "SEQ_CLS"}, "`task_type` of a `LoraConfig` must be 'CAUSAL_LM' or None"),
    ({"bias": "all"}, "`bias` of a `LoraConfig` must be 'none'"),
    ({"bias": "lora_only"}, "`bias` of a `LoraConfig` must be 'none'"),
    ({"target_modules": ["lm_head"]}, "`lm_head` is not supported|must leave the output layer out"),
    ({"layer_replication": [(0, 1), (0, 1)]}, "`layer_replication` .* must leave 1 layers"),
    *(
        ({name: value}, f"`{name}` of a `LoraConfig` must be left unset")
        for name, value in {
            "alora_invocation_tokens": [5, 6],
            "arrow_config": lora.ArrowConfig(),
            "kasa_config": lora.KasaConfig(),
            "megatron_config": {"hidden_size": 32},
            "monteclora_config": lora.MontecloraConfig(),
        }.items()
    ),
    *(
        (
            {"init_lora_weights": init, **options},
            "`init_lora_weights` must be True, False, .*'pissa'",
        )
        for init, options in {
            "pissa_niter_4": {},
            "corda": {"corda_config": lora.CordaConfig()},
            "lora_ga": {"lora_ga_config": lora.LoraGAConfig()},
            # As if scipy were there, without which PEFT makes no such configuration.
            "loftq": {"loftq_config": {"loftq_bits": 4}},
        }.items()
    ),
]
# PEFT cannot make a model of them alone: it wants data, or other packages, first.
ONLY_AS_CONFIG = ("corda", "loftq", "arrow_config", "megatron_config")


def make_config(options):
    torch.manual_seed(0)
    options = {"r": 4, "target_modules": "all-linear", **options}
    init = options.pop("init_lora_weights", True)
    config = LoraConfig(**options)
    config.init_lora_weights = init
    return config


def by_name(options):
    return "+".join(f"{name}" for name in options)


def test_every_option_is_judged():
    judged = {name for options in (*KEPT, *KEPT_WITHOUT_KL) for name in options}
    judged |= {name for options, _ in REFUSED for name in options}
    assert judged == {field.name for field in dataclasses.fields(LoraConfig)}


def assert_that_it_holds(trainer, before, folder, base):
    """Train once; only the policy moves, and it is loaded again as it was saved."""
    torch.testing.assert_close(logits(trainer.model), before, rtol=0, atol=0)
    trainer.train()
    after = logits(trainer.model)
    assert (after - before).abs().max() > 1e-3
    if trainer.beta:
        assert train_logs(trainer)[0]["kl"] == pytest.approx(0.0, abs=1e-6)
        torch.testing.assert_close(reference_logits(trainer), before, rtol=0, atol=1e-5)
    trainer.save_model()
    torch.manual_seed(9)
    for loaded in (PeftModel.from_pretrained(copy_model(base), folder), load_policy(folder)[0]):
        torch.testing.assert_close(logits(loaded), after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [*KEPT, *KEPT_WITHOUT_KL], ids=by_name)
def test_a_loaded_adapter_holds(make_trainer, start, saved_start, tmp_path, options):
    model = change(get_peft_model(load_policy(saved_start)[0], make_config(options)))
    before = logits(model)
    trainer = make_trainer(
        BANDIT, model=model, advantage_estimator="gae", beta=0.1, learning_rate=1e-2
    )
    assert_that_it_holds(trainer, before, str(tmp_path / "run"), start[0])


@pytest.mark.parametrize("options", [*KEPT, *KEPT_WITHOUT_KL], ids=by_name)
def test_a_new_adapter_holds(make_trainer, start, saved_start, tmp_path, options):
    beta = 0.0 if options in KEPT_WITHOUT_KL else 0.1
    trainer = make_trainer(
        BANDIT,
        model=load_policy(saved_start)[0],
        peft_config=make_config(options),
        advantage_estimator="gae",
        beta=beta,
        learning_rate=1e-2,
    )
    before = logits(trainer.model)
    if beta:
        # 'orthogonal' adds a product that is 0 but for rounding.
        torch.testing.assert_close(before, logits(start[0]), rtol=0, atol=1e-5)
    assert_that_it_holds(trainer, before, str(tmp_path / "run"), start[0])


@pytest.mark.parametrize(
    ("options", "message"), REFUSED, ids=[by_name(options) for options, _ in REFUSED]
)
def test_what_cannot_hold_is_refused(make_trainer, saved_start, options, message):
    def refuses(model, **further):
        with pytest.raises(ValueError, match=message):
            make_trainer(model=model, advantage_estimator="gae", **further)

    refuses(load_policy(saved_start)[0], peft_config=make_config(options))
    if not any(name in ONLY_AS_CONFIG for name in (*options, options.get("init_lora_weights"))):
        refuses(get_peft_model(load_policy(saved_start)[0], make_config(options)), beta=0.1)
