import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import TrainerCallback

from ragen_trl.adapters import plain_copy
from ragen_trl.loading import load_policy
from tests.training import copy_model, logits, train_logs

# Each takes something from the base weights, or starts at random.
ALTERING = ["pissa", "olora", False]


def make_config(**options):
    torch.manual_seed(0)
    return LoraConfig(**{"r": 4, "target_modules": "all-linear", **options})


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


@pytest.mark.parametrize(
    "options",
    [
        {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"},
        {"beta": 0.1},
        {"kl_in_reward_coef": 0.1},
        {},
    ],
)
def test_adapters_for_which_another_would_be_taken_are_refused(make_trainer, start, options):
    def make(*names):
        model = get_peft_model(copy_model(start[0]), make_config(), adapter_name=names[0])
        for name in names[1:]:
            model.add_adapter(name, make_config())
        return make_trainer(model=model, **options)

    make("default", "mine")
    names = ("mine",) if options else ("mine", "default")
    reason = f"`{next(iter(options))}`" if options else "a second adapter of that name"
    message = f"must call the adapter that is trained 'default' with {reason}, got 'mine'"
    with pytest.raises(ValueError, match=message):
        make(*names)


class FirstIsBest(TrainerCallback):
    """Makes evaluations worse and worse."""

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        metrics["eval_lateness"] = state.global_step


@pytest.mark.parametrize("estimator", ["grpo", "gae"])
def test_best_model_at_the_end_is_the_best_one(make_trainer, start, tmp_path, estimator):
    trainer = make_trainer(
        model=get_peft_model(copy_model(start[0]), make_config()),
        advantage_estimator=estimator,
        max_steps=3,
        learning_rate=1e-2,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_lateness",
        greater_is_better=False,
        callbacks=[FirstIsBest()],
    )
    trainer.train()
    run = tmp_path / "run"
    first, last = (
        logits(PeftModel.from_pretrained(copy_model(start[0]), run / f"checkpoint-{step}"))
        for step in (1, 3)
    )
    assert (first - last).abs().max() > 0.1
    torch.testing.assert_close(logits(trainer.model), first)


def test_adapter_by_a_name_of_its_own_is_trained_and_can_be_evaluated(
    make_trainer, saved_start, tmp_path
):
    model = get_peft_model(load_policy(saved_start)[0], make_config(), adapter_name="mine")
    trainer = make_trainer(model=model, advantage_estimator="gae", learning_rate=1e-2)
    before = logits(model)
    trainer.train()
    trainer.save_model()
    after = logits(model)
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(logits(load_policy(str(tmp_path / "run"))[0]), after)


def test_tokens_that_are_trained_get_the_gradients_of_a_tied_output_layer(make_trainer):
    config = make_config(trainable_token_indices=[5, 6, 7])
    model = make_trainer(peft_config=config).model
    ids = torch.arange(4, 16).view(1, -1)
    tokens = next(p for name, p in model.named_parameters() if "trainable_tokens_delta" in name)
    assert model.get_output_embeddings().bias is None
    assert not any(name.endswith("lm_head.bias") for name in model.state_dict())
    gradients = []
    for logps in (
        model(ids[:, :-1], shift_labels=ids[:, 1:], fused_lm_head=True).log_probs,
        model(ids[:, :-1]).logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0],
    ):
        model.zero_grad()
        logps.sum().backward()
        gradients.append(tokens.grad.clone())
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_plain_copy_leaves_the_original_alone():
    config = make_config(
        init_lora_weights="pissa", use_rslora=True, layer_replication=[(0, 1), (0, 1)]
    )
    other = plain_copy(config)
    # PEFT replicates layers whenever an adapter is added.
    assert (other.layer_replication, config.layer_replication) == (None, [(0, 1), (0, 1)])
    assert (other.init_lora_weights, other.use_rslora, other.r) == (True, True, 4)
    assert config.init_lora_weights == "pissa"
