"""The critic beside the policy, in whole training runs."""

import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainerCallback

from ragen_trl.critic import ADAPTER_NAME
from tests.training import (
    KeepGradients,
    assert_same_tensors,
    copy_model,
    copy_tensors,
    make_lora,
    train_logs,
)


@pytest.mark.parametrize("policy", ["whole", "new adapter", "trained adapter"])
def test_kl_in_the_reward_lowers_the_critics_targets_by_k1(
    policy, make_trainer, start, saved_start
):
    trained, _ = start
    model, peft_config = saved_start, None
    if policy == "new adapter":
        peft_config = make_lora()
    elif policy == "trained adapter":
        base = copy_model(trained)
        model = get_peft_model(base, LoraConfig(target_modules="all-linear"))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.02)
    trainer = make_trainer(
        model=model, peft_config=peft_config, kl_in_reward_coef=0.5, learning_rate=1e-2, max_steps=2
    )
    assert trainer.beta == trainer.args.beta == 0.0
    batches, compute_loss = [], trainer._compute_loss

    def keep_batch(model, inputs):
        batches.append(inputs)
        return compute_loss(model, inputs)

    trainer._compute_loss = keep_batch
    trainer.train()
    for batch, has_moved in zip(batches, (False, True), strict=True):
        mask = batch["action_mask"]
        k1 = (batch["old_per_token_logps"] - batch["ref_per_token_logps"])[mask]
        # The reference is where the policy started, also where that is an adapter.
        assert bool(k1.abs().max() > 1e-3) is has_moved
        rewards = batch["rewards"].clone()
        rewards[mask] -= 0.5 * k1
        # With gamma = lambda = 1 the target is what is still to come.
        to_come = rewards.flip(1).cumsum(1).flip(1)
        torch.testing.assert_close(batch["returns"][mask], to_come[mask], rtol=1e-4, atol=1e-5)
    assert "kl" in train_logs(trainer)[0]


def test_lora_trains_policy_and_critic_adapters_and_not_the_base(make_trainer):
    trainer = make_trainer(max_steps=3, learning_rate=1e-2, peft_config=make_lora())
    assert trainer.critic.critic.own_backbone is None
    parameters = dict(trainer.model.named_parameters())
    parameters |= trainer.critic.critic.trained_parameters()
    before = copy_tensors(parameters.items())
    greedy_before = trainer.rollout(seeds=range(3), num_generations=1, temperature=0)
    trainer.train()
    for name, parameter in parameters.items():
        is_trained = "lora_" in name or "value_head" in name
        assert torch.equal(parameter, before[name]) is not is_trained, name
    assert sum(f".{ADAPTER_NAME}." in name for name in parameters) > 10
    assert max(logs["sampling_logp_difference"] for logs in train_logs(trainer)) < 1e-4
    # The next rollout is played by the changed adapter: its log-probabilities moved.
    greedy_after = trainer.rollout(seeds=range(3), num_generations=1, temperature=0)
    assert greedy_before[0].prompt_ids == greedy_after[0].prompt_ids
    assert greedy_before[0].logps[0] != pytest.approx(greedy_after[0].logps[0], abs=1e-6)


def test_critic_changes_neither_what_the_policy_plays_nor_its_gradient(make_trainer):
    # With grpo's advantages in place, a LoRA policy learns the same with a critic beside it.
    collected = []
    for estimator in ("grpo", "gae"):
        gradients = KeepGradients(seed=3)
        trainer = make_trainer(
            callbacks=[gradients],
            advantage_estimator=estimator,
            peft_config=make_lora(),
            max_steps=3,
            critic_learning_rate=0.1 if estimator == "gae" else None,
        )
        compute_loss = trainer._compute_loss

        def with_advantages_of_one(model, inputs, compute_loss=compute_loss):
            ones = torch.where(inputs["action_mask"], 1.0, 0.0)
            return compute_loss(model, {**inputs, "advantages": ones})

        trainer._compute_loss = with_advantages_of_one
        trainer.train()
        collected.append(gradients.steps)
    for without, beside in zip(*collected, strict=True):
        assert_same_tensors(beside, without, atol=1e-6)


class StopAfterTwoSteps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 2


def test_critic_warmup_trains_the_critic_alone(make_trainer):
    trainer = make_trainer(
        max_steps=3, critic_warmup_steps=2, weight_decay=0.1, callbacks=[StopAfterTwoSteps()]
    )
    policy = copy_tensors(trainer.model.named_parameters())
    critic = copy_tensors(trainer.critic.critic.trained_parameters().items())
    trainer.train()
    assert trainer.state.global_step == 2
    assert_same_tensors(dict(trainer.model.named_parameters()), policy, atol=0.0)
    moved = trainer.critic.critic.trained_parameters()
    assert all(not torch.equal(moved[name], critic[name]) for name in critic)
    for logs in train_logs(trainer):
        assert logs["grad_norm"] == 0.0
        assert logs["value_loss"] > 0.0
        assert "policy_loss" not in logs
    after = make_trainer(max_steps=3, critic_warmup_steps=2)
    after.train()
    assert ["policy_loss" in logs for logs in train_logs(after)] == [False, False, True]


def test_critic_learning_rate_has_its_own_schedule(make_trainer):
    trainer = make_trainer(
        max_steps=4,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        critic_learning_rate=4e-3,
        critic_lr_scheduler_type="linear",
    )
    trainer.train()
    logs = train_logs(trainer)
    assert [x["critic/learning_rate"] for x in logs] == pytest.approx([4e-3, 3e-3, 2e-3, 1e-3])
    assert {x["learning_rate"] for x in logs} == {1e-4}
    groups = make_trainer(learning_rate=2e-5).critic.optimizer.param_groups
    assert [group["lr"] for group in groups] == pytest.approx([2e-4, 2e-4])


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
@pytest.mark.parametrize("uses_lora", [False, True])
def test_critic_decays_the_parameters_that_the_policy_decays(make_trainer, uses_lora, weight_decay):
    trainer = make_trainer(
        peft_config=make_lora() if uses_lora else None, weight_decay=weight_decay
    )

    def decays(optimizer, named):
        rates = {
            id(p): group["weight_decay"]
            for group in optimizer.param_groups
            for p in group["params"]
        }
        return {name: rates[id(p)] for name, p in named if id(p) in rates}

    policy = decays(trainer.create_optimizer(), trainer.model.named_parameters())
    trained = trainer.critic.critic.trained_parameters()
    critic = decays(trainer.critic.optimizer, trained.items())
    assert critic.keys() == trained.keys()
    assert critic.pop("value_head.weight") == weight_decay
    assert critic.pop("value_head.bias") == 0.0
    # The same parameters by other names.
    as_policy = {
        name.replace(f".{ADAPTER_NAME}.", ".default.").replace("own_backbone.", "model."): rate
        for name, rate in critic.items()
    }
    policy = {name: rate for name, rate in policy.items() if name != "lm_head.weight"}
    assert as_policy == policy
    assert set(policy.values()) == ({weight_decay} if uses_lora else {weight_decay, 0.0})


def test_arguments_of_the_policys_schedule_are_not_those_of_another_one(make_trainer):
    options = {
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr": 5e-4},
        "learning_rate": 1e-3,
        "critic_learning_rate": 2e-3,
        "max_steps": 2,
    }
    other = make_trainer(**options, critic_lr_scheduler_type="linear")
    other.train()
    rates = [logs["critic/learning_rate"] for logs in train_logs(other)]
    assert rates == pytest.approx([2e-3, 1e-3])
    same = make_trainer(**options)
    same.train()
    rates = [logs["critic/learning_rate"] for logs in train_logs(same)]
    assert rates == pytest.approx([2e-3, (2e-3 + 5e-4) / 2])


def test_bfloat16_autocast_trains_policy_and_critic(make_trainer):
    trainer = make_trainer(bf16=True, use_cpu=True, max_steps=2)
    critic = trainer.critic.critic
    seen = []
    critic.value_head.register_forward_hook(lambda m, i, o: seen.append((i[0].dtype, o.dtype)))
    critic.own_backbone.layers[0].mlp.up_proj.register_forward_hook(
        lambda m, i, o: seen.append(o.dtype)
    )
    trainer.train()
    # The backbone runs in half precision, the head that makes the number does not.
    assert set(seen) == {torch.bfloat16, (torch.float32, torch.float32)}
    assert all(math.isfinite(logs["value_loss"]) for logs in train_logs(trainer))


def test_resume_with_a_critic_needs_one_in_the_checkpoint(make_trainer):
    options = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(advantage_estimator="grpo", **options).train()
    trainer = make_trainer(max_steps=2, **options)
    with pytest.raises(FileNotFoundError, match="must hold a critic"):
        trainer.train(resume_from_checkpoint=True)
