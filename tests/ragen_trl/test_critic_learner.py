import math
from functools import partial

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import Trainer

from ragen_trl import StarPOConfig
from ragen_trl.critic import build_critic
from ragen_trl.critic_learner import (
    OPTIMIZER_FILE,
    WEIGHTS_FILE,
    CriticLearner,
    ValueParts,
    value_loss,
    value_metrics,
)
from tests.training import assert_same_tensors, copy_model, copy_tensors


@pytest.fixture
def make_learner(start, tmp_path):
    trained, _ = start

    def make(*, uses_lora=False, rank=2, **options):
        policy = copy_model(trained)
        if uses_lora:
            torch.manual_seed(0)
            policy = get_peft_model(policy, LoraConfig(r=rank, target_modules="all-linear"))
        args = StarPOConfig(
            str(tmp_path), use_cpu=True, **{"gradient_checkpointing": False, **options}
        )
        critic = build_critic(policy, model_name_or_path=None, dtype=torch.float32)
        # The rule of the policy needs nothing of a trainer.
        decay_names = partial(Trainer.get_decay_parameter_names, None)
        return CriticLearner(critic, args, Accelerator(cpu=True), decay_names)

    return make


def make_batch():
    """Two rows of six tokens; the last four are trained on, but for one."""
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1, 3] = False
    return {
        "input_ids": torch.arange(4, 16).view(2, 6),
        "attention_mask": torch.ones(2, 6, dtype=torch.long),
        "prompt_lengths": torch.tensor([2, 2]),
        "action_mask": mask,
        "old_values": torch.zeros(2, 4),
        "returns": torch.tensor([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, math.nan]]),
        "loss_weights": torch.full((2,), 1 / 7),
    }


def test_value_loss_by_hand():
    # Row of two tokens with weight 1/2. Token 0: V 1, V_old 0, R 2, range 0.5: the clipped value is
    # 0.5, and max(1, 2.25) / 2 = 1.125. Token 1: V 0.25 within the range, R 0: 0.0625 / 2.
    batch = {
        "action_mask": torch.tensor([[True, True, False]]),
        "old_values": torch.zeros(1, 3),
        "returns": torch.tensor([[2.0, 0.0, math.inf]]),
        "loss_weights": torch.tensor([0.5]),
    }
    values = torch.tensor([[1.0, 0.25, math.nan]], requires_grad=True)
    loss, parts = value_loss(values, batch, clip_range=0.5)
    assert loss.item() == pytest.approx(0.5 * (1.125 + 0.03125))
    loss.backward()
    # The clipped token has no gradient, the other one w * (V - R).
    assert values.grad.tolist() == [[0.0, 0.125, 0.0]]
    assert [part.item() for part in parts] == pytest.approx(
        [0.578125, 1, 2.0, 4.0, 0.75, 1.0625, 2], abs=1e-7
    )


def test_value_metrics_by_hand():
    # Returns 0 and 2, values 0.5 and 2: errors -0.5 and 0. Var R = 1, Var error = 0.0625.
    parts = ValueParts(0.3, 1, 2.0, 4.0, -0.5, 0.25, 2)
    assert value_metrics(parts) == {
        "value_loss": 0.3,
        "critic/explained_variance": pytest.approx(0.9375),
        "critic/clip_ratio": 0.5,
        "critic/return_mean": 1.0,
        "critic/value_mean": 1.25,
    }
    equal = ValueParts(0.0, 0, 4 * 0.15, 4 * 0.15**2, 0.1, 0.01, 4)
    assert value_metrics(equal)["critic/explained_variance"] == 0.0
    assert value_metrics(ValueParts(0.0, 0, 0.0, 0.0, 0.0, 0.0, 0)) == {}


def test_explained_variance_of_equal_returns_is_zero_and_not_a_rounding_error():
    # Of 296 float32 numbers 0.15, float32 sums have a variance of about 1e-9.
    batch = {
        "action_mask": torch.ones(8, 37, dtype=torch.bool),
        "old_values": torch.zeros(8, 37),
        "returns": torch.full((8, 37), 0.15),
        "loss_weights": torch.full((8,), 1 / 296),
    }
    values = torch.randn(8, 37, generator=torch.Generator().manual_seed(0))
    _, parts = value_loss(values, batch, clip_range=0.5)
    assert value_metrics([p.item() for p in parts])["critic/explained_variance"] == 0.0


@pytest.mark.parametrize("uses_lora", [False, True])
def test_learner_brings_the_values_to_the_returns(make_learner, uses_lora):
    learner = make_learner(uses_lora=uses_lora, critic_learning_rate=0.02, value_clip_range=1e9)
    batch = make_batch()
    assert learner.values(batch).abs().max() == 0.0
    metrics = [learner.learn(batch) for _ in range(60)]
    values = learner.values(batch)
    assert not values.requires_grad
    assert (values - batch["returns"])[batch["action_mask"]].abs().max() < 0.1
    assert metrics[0]["critic/explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert metrics[-1]["critic/explained_variance"] > 0.95
    assert metrics[-1]["value_loss"] < 0.02 < metrics[0]["value_loss"]


def test_learner_steps_once_per_update_with_the_gradient_of_all_micro_batches(make_learner):
    whole, parts = (make_learner(max_grad_norm=0.0) for _ in range(2))
    collected = []
    for learner in (whole, parts):
        with torch.no_grad():
            learner.critic.value_head.weight.fill_(0.1)
        trained = learner.critic.trained_parameters()
        learner.optimizer.register_step_pre_hook(
            lambda *_, t=trained: collected.append({n: p.grad.clone() for n, p in t.items()})
        )
    batch = make_batch()
    whole.learn(batch)
    state = parts._accelerator.gradient_state
    for row, is_last in ((0, False), (1, True)):
        state._set_sync_gradients(is_last)
        metrics = parts.learn({name: tensor[row : row + 1] for name, tensor in batch.items()})
        assert bool(metrics) is is_last
    assert_same_tensors(collected[1], collected[0], atol=1e-7)
    assert all(p.grad is None for p in parts.critic.trained_parameters().values())


def test_learner_clips_the_gradient_like_the_policys(make_learner):
    learner = make_learner(max_grad_norm=0.01)
    norms = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: norms.append(
            torch.cat(
                [p.grad.flatten() for p in learner.critic.trained_parameters().values()]
            ).norm()
        )
    )
    metrics = learner.learn(make_batch())
    assert metrics["critic/grad_norm"] > 0.1
    assert norms[0].item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("uses_lora", [False, True])
def test_learner_goes_on_from_what_it_saved(make_learner, tmp_path, uses_lora):
    options = {"uses_lora": uses_lora, "lr_scheduler_type": "linear", "max_steps": 9}
    first, second = make_learner(**options), make_learner(**options)
    for _ in range(3):
        first.learn(make_batch())
    first.save(tmp_path)
    second.load(tmp_path)
    for learner in (first, second):
        metrics = learner.learn(make_batch())
    assert_same_tensors(
        second.critic.trained_parameters(), first.critic.trained_parameters(), atol=1e-7
    )
    assert metrics["critic/learning_rate"] == pytest.approx(6 / 9 * 1e-5)


def test_learner_refuses_the_checkpoint_of_another_critic(make_learner, tmp_path):
    learner = make_learner()
    with pytest.raises(FileNotFoundError, match=WEIGHTS_FILE):
        learner.load(tmp_path)
    make_learner(uses_lora=True).save(tmp_path)
    assert (tmp_path / OPTIMIZER_FILE).exists()
    before = copy_tensors(learner.critic.trained_parameters().items())
    with pytest.raises(ValueError, match=r"must hold the critic that is configured.* differs in"):
        learner.load(tmp_path)
    assert_same_tensors(learner.critic.trained_parameters(), before, atol=0)


def test_learner_refuses_a_critic_of_other_shapes(make_learner, tmp_path):
    learner = make_learner(uses_lora=True)
    make_learner(uses_lora=True, rank=3).save(tmp_path)
    before = copy_tensors(learner.critic.trained_parameters().items())
    with pytest.raises(ValueError, match=r"differs in .*lora_A"):
        learner.load(tmp_path)
    assert_same_tensors(learner.critic.trained_parameters(), before, atol=0)


def test_learner_refuses_an_optimizer_from_before_there_were_groups_for_decay(
    make_learner, tmp_path
):
    learner, older = make_learner(), make_learner()
    parameters = [p for group in older.optimizer.param_groups for p in group["params"]]
    older.optimizer = torch.optim.AdamW(parameters)
    older.learn(make_batch())
    older.save(tmp_path)
    before = copy_tensors(learner.critic.trained_parameters().items())
    with pytest.raises(
        ValueError, match=rf"{OPTIMIZER_FILE} in .* has groups of \[{len(parameters)}\]"
    ):
        learner.load(tmp_path)
    assert_same_tensors(learner.critic.trained_parameters(), before, atol=0)


def test_learner_stops_at_a_loss_that_is_not_finite(make_learner):
    learner = make_learner()
    with torch.no_grad():
        learner.critic.value_head.bias.fill_(math.inf)
    with pytest.raises(FloatingPointError, match="Lower `critic_learning_rate`"):
        learner.learn(make_batch())
