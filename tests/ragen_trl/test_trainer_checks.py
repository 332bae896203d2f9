import pytest
import torch
from accelerate import PartialState
from transformers import AutoModelForCausalLM

from ragen_trl.trainer_checks import warn_about_small_steps
from tests.training import copy_model, make_lora

WARNING = "are bfloat16, and a step of"


def make_weights(dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    weights = 0.02 * torch.randn(200, 200, generator=generator)
    return torch.nn.Parameter(weights.to(dtype))


def share_moved(parameter, rate, num_updates):
    """Return the share of weights that updates with random gradients leave elsewhere."""
    before = parameter.detach().clone()
    optimizer = torch.optim.AdamW([parameter], lr=rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_updates):
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()
    return (parameter != before).float().mean().item()


def test_rule_is_what_adam_makes_of_it(caplog):
    PartialState()  # accelerate's loggers ask it which process they are in.
    rate, weights = 1e-6, make_weights()
    warn_about_small_steps([weights], rate, option="learning_rate", optim="adamw_torch")
    assert (
        "99% of the trained weights are bfloat16, and a step of `learning_rate` 1e-06"
        in caplog.text
    )
    assert share_moved(weights, rate, 4) < 0.03
    # The rate that it names: eps / 2 of the weights' size.
    assert "`learning_rate` to 7.8e-05 or more" in caplog.text
    assert share_moved(make_weights(), 7.8e-5, 1) > 0.5
    caplog.clear()
    warn_about_small_steps([make_weights()], 7.8e-5, option="learning_rate", optim="adamw_torch")
    warn_about_small_steps(
        [make_weights(torch.float32)], rate, option="learning_rate", optim="adamw_torch"
    )
    assert not caplog.text
    assert share_moved(make_weights(torch.float32), rate, 4) > 0.99


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"learning_rate": 1e-6}, ["learning_rate", "critic_learning_rate"]),
        ({"learning_rate": 1e-6, "critic_learning_rate": 1e-2}, ["learning_rate"]),
        ({"learning_rate": 1e-6, "advantage_estimator": "grpo"}, ["learning_rate"]),
        ({"learning_rate": 1e-2, "critic_learning_rate": 1e-6}, ["critic_learning_rate"]),
        ({"learning_rate": 1e-2}, []),
        # Steps of others are not of the size of the rate.
        ({"learning_rate": 1e-6, "optim": "sgd"}, []),
        ({"learning_rate": 1e-6, "peft_config": "lora"}, []),
    ],
)
def test_steps_too_small_for_bfloat16_are_said(make_trainer, start, caplog, options, named):
    if "peft_config" in options:
        # PEFT keeps adapters in float32.
        options = options | {"peft_config": make_lora()}
    make_trainer(model=copy_model(start[0]).bfloat16(), **{"advantage_estimator": "gae"} | options)
    found = [r.getMessage() for r in caplog.records if WARNING in r.getMessage()]
    assert [message.split("`")[1] for message in found] == named


def test_a_model_by_name_is_trained_in_float32_a_loaded_one_in_its_own_numbers(
    make_trainer, saved_start, caplog
):
    AutoModelForCausalLM.from_pretrained(saved_start).bfloat16().save_pretrained(saved_start)
    trainer = make_trainer(model=saved_start, learning_rate=1e-6)
    assert trainer.model.dtype == torch.float32
    assert WARNING not in caplog.text
    loaded = AutoModelForCausalLM.from_pretrained(saved_start)
    make_trainer(model=loaded, learning_rate=1e-6)
    assert WARNING in caplog.text
