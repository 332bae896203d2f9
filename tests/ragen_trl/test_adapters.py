import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from ragen_trl.adapters import plain_copy
from tests.training import copy_model, train_logs

IDS = torch.arange(4, 16).view(1, -1)
# Each takes something from the base weights, or starts at random.
ALTERING = ["pissa", "pissa_niter_4", "olora", False]


def make_config(**options):
    torch.manual_seed(0)
    return LoraConfig(**{"r": 4, "target_modules": "all-linear", **options})


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize("init", [*ALTERING, "orthogonal", "mica", "gaussian", True])
@pytest.mark.parametrize("has_reference", [False, True])
def test_building_a_trainer_moves_no_logit(make_trainer, start, init, has_reference, tmp_path):
    model = get_peft_model(copy_model(start[0]), make_config(init_lora_weights=init))
    before = logits(model)
    # The critic, and with `beta` the reference, are adapters on the same base.
    trainer = make_trainer(model=model, advantage_estimator="gae", beta=0.1 * has_reference)
    torch.testing.assert_close(logits(trainer.model), before, rtol=0, atol=0)
    assert trainer.model.peft_config["default"].init_lora_weights == init
    if has_reference:
        trainer.train()
        assert train_logs(trainer)[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    if init != "pissa_niter_4":  # Its decomposition is drawn anew when the adapter is loaded.
        trainer.model.save_pretrained(tmp_path / "adapter")
        loaded = PeftModel.from_pretrained(copy_model(start[0]), tmp_path / "adapter")
        torch.testing.assert_close(logits(loaded), logits(trainer.model), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("option", ["beta", "kl_in_reward_coef"])
@pytest.mark.parametrize("init", ALTERING)
def test_reference_without_the_adapter_is_refused_where_the_policy_does_not_start_there(
    make_trainer, init, option
):
    with pytest.raises(ValueError, match=f"`init_lora_weights` must be .*got {init!r}"):
        make_trainer(peft_config=make_config(init_lora_weights=init), **{option: 0.1})


def test_biases_that_critic_or_reference_would_share_are_refused(make_trainer):
    config = make_config(bias="all")
    for options in ({"beta": 0.1}, {"advantage_estimator": "gae"}):
        with pytest.raises(ValueError, match=r"`bias` of a `LoraConfig` must be 'none'.*got 'all'"):
            make_trainer(peft_config=config, **options)
    make_trainer(peft_config=config, advantage_estimator="grpo")


def test_plain_copy_leaves_the_original_alone():
    config = make_config(
        init_lora_weights="pissa", use_rslora=True, layer_replication=[(0, 1), (0, 1)]
    )
    other = plain_copy(config)
    # PEFT replicates layers whenever an adapter is added.
    assert (other.layer_replication, config.layer_replication) == (None, [(0, 1), (0, 1)])
    assert (other.init_lora_weights, other.use_rslora, other.r) == (True, True, 4)
    assert config.init_lora_weights == "pissa"
