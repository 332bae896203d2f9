import json
import math
import typing
from dataclasses import replace

import pytest
import torch
from accelerate.logging import MultiProcessAdapter
from peft import LoraConfig, get_peft_model

from ragen_trl import EnvSpec, StarPOConfig
from ragen_trl.config_choices import AdvantageEstimator
from ragen_trl.selection import select_trajectories
from ragen_trl.update import build_micro_batches
from tests.training import (
    BANDIT,
    KeepCriticGradients,
    KeepGradients,
    assert_same_tensors,
    copy_tensors,
    make_lora,
    pay_alike,
    train_logs,
)

PER_TOKEN = ("sampling_per_token_logps", "old_per_token_logps", "advantages")
TRAIN_METRICS = [
    "reward",
    "success_rate",
    "rollout/in_group_reward_std",
    "rollout/kept_group_ratio",
    "rollout/zero_variance_ratio",
    "rollout/response_length",
    "rollout/turns",
    "rollout/actions",
    "rollout/valid_reply_ratio",
    "rollout/effective_action_ratio",
    "rollout/tokens_per_second",
    "entropy",
    "grad_norm",
    "policy_loss",
    "clip_ratio/low_mean",
    "clip_ratio/high_mean",
    "clip_ratio/region_mean",
    "sampling_logp_difference",
    "update_kl",
    "time/rollout",
    "time/update",
    "time/env",
    "time/generate",
    "time/filter",
    "time/logps",
    "rollout/cache_megabytes",
    "memory/peak_megabytes",
]
CRITIC_METRICS = [
    "value_loss",
    "critic/explained_variance",
    "critic/clip_ratio",
    "critic/return_mean",
    "critic/value_mean",
    "critic/grad_norm",
    "critic/learning_rate",
]


@pytest.mark.parametrize("estimator", typing.get_args(AdvantageEstimator))
def test_train_two_steps_moves_every_parameter_and_logs_every_metric(estimator, make_trainer):
    trainer = make_trainer(advantage_estimator=estimator, max_steps=2)
    parameters = dict(trainer.model.named_parameters())
    expected = TRAIN_METRICS
    if trainer.critic is not None:
        expected = TRAIN_METRICS + CRITIC_METRICS
        parameters |= trainer.critic.critic.trained_parameters()
    before = copy_tensors(parameters.items())
    trainer.train()
    assert [name for name, p in parameters.items() if torch.equal(p, before[name])] == []
    logs, _ = train_logs(trainer)
    assert [name for name in expected if not math.isfinite(logs[name])] == []
    assert ("value_loss" in logs) is (estimator in ("gae", "bi_level_gae"))
    assert logs["rollout/valid_reply_ratio"] > 0.5
    assert logs["rollout/kept_group_ratio"] == 0.25
    assert "kl" not in logs
    assert trainer.ref_model is None


def test_train_logged_reward_equals_the_recorded_episodes(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=2, validation_share=0)
    trainer.train()
    for iteration, logs in enumerate(train_logs(trainer)):
        path = tmp_path / "run" / "trajectories" / f"train-{iteration:05d}.jsonl"
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert len(records) == 16
        assert sum(r["is_kept"] for r in records) == 4
        assert len({r["group_id"] for r in records if r["is_kept"]}) == 1
        returns = [
            sum(t["reward"] + t["format_penalty"] for t in record["turns"]) for record in records
        ]
        assert logs["reward"] == pytest.approx(sum(returns) / 16)
        first_seed = 10_000 + 4 * iteration
        assert {r["seed"] for r in records} == set(range(first_seed, first_seed + 4))
        assert all(
            r["action_tokens"] == sum(t["action_tokens"] for t in r["turns"]) for r in records
        )


def test_sampled_tokens_are_the_trained_tokens_in_every_iteration(make_trainer):
    trainer = make_trainer(max_steps=3, learning_rate=1e-2)
    trainer.train()
    differences = [logs["sampling_logp_difference"] for logs in train_logs(trainer)]
    # Rollouts with stale weights would differ from the second iteration on.
    assert len(differences) == 3
    assert max(differences) < 1e-4


def test_filtered_update_gradient_equals_training_on_the_kept_groups_alone(make_trainer, tmp_path):
    gradients = KeepGradients(seed=7)
    trainer = make_trainer(
        callbacks=[gradients],
        advantage_estimator="grpo",
        rollout_filter_ratio=0.25,
        max_grad_norm=0.0,
    )
    torch.manual_seed(7)
    trajectories = trainer.rollout(seeds=range(10_000, 10_004), num_generations=4, temperature=1.0)
    trainer.train()
    (logs,) = train_logs(trainer)
    assert logs["reward"] == pytest.approx(sum(t.total_reward for t in trajectories) / 16)

    returns = torch.tensor([t.total_reward for t in trajectories]).view(4, 4)
    kept = int(returns.std(dim=1).argmax())
    alone = select_trajectories(
        trajectories[4 * kept : 4 * kept + 4],
        StarPOConfig(str(tmp_path), advantage_estimator="grpo", rollout_filter="none"),
    )
    other = make_trainer(advantage_estimator="grpo")
    (batch,) = build_micro_batches(
        alone.rows,
        loss_type="dapo",
        max_tokens=1200,
        num_micro_batches=1,
        process_index=0,
        num_processes=1,
        pad_token_id=other.processing_class.pad_token_id,
        pad_to_multiple_of=None,
    )
    other._compute_loss(other.model, batch).backward()
    expected = {n: p.grad for n, p in other.model.named_parameters() if p.grad is not None}
    assert max(g.abs().max() for g in expected.values()) > 1e-4
    assert_same_tensors(gradients.steps[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "loss_type"),
    [("grpo", "dapo"), ("grpo", "grpo"), ("grpo", "dr_grpo"), ("gae", "dapo"), ("gigpo", "dapo")],
)
def test_gradient_accumulation_does_not_change_the_update(make_trainer, estimator, loss_type):
    collected = []
    for batch_size, accumulation in ((16, 1), (4, 4), (3, 6)):
        gradients = KeepGradients(seed=3)
        trainer = make_trainer(
            callbacks=[gradients],
            advantage_estimator=estimator,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            rollout_filter="none",
            loss_type=loss_type,
            entropy_coef=0.1,
            max_grad_norm=0.0,
        )
        of_critic = KeepCriticGradients(trainer).steps if trainer.critic else [{}]
        trainer.train()
        collected.append((gradients.steps[0] | of_critic[0], train_logs(trainer)[0]))
    assert (estimator == "gae") is ("value_head.weight" in collected[0][0])
    for gradients, logs in collected[1:]:
        assert_same_tensors(gradients, collected[0][0], atol=1e-6)
        for name in {"policy_loss", "entropy", "loss", "reward", "value_loss"} & logs.keys():
            assert logs[name] == pytest.approx(collected[0][1][name], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("uses_lora", [False, True])
def test_gradient_checkpointing_does_not_change_the_update(make_trainer, uses_lora):
    collected = []
    for checkpointing in (False, True):
        gradients = KeepGradients(seed=3)
        trainer = make_trainer(
            callbacks=[gradients],
            gradient_checkpointing=checkpointing,
            peft_config=make_lora() if uses_lora else None,
            max_steps=3,
        )
        of_critic = KeepCriticGradients(trainer)
        trainer.train()
        # The head starts at zero, then LoRA's B: all have a gradient in the third update.
        collected.append(gradients.steps[2] | of_critic.steps[2])
    assert all(gradient.abs().max() > 0 for gradient in collected[0].values())
    assert_same_tensors(collected[1], collected[0], atol=1e-6)


def test_rollout_is_reused_for_all_updates_it_holds(make_trainer):
    trainer = make_trainer(
        max_steps=8, per_device_train_batch_size=8, rollout_filter="none", num_iterations=2
    )
    trainer.train()
    # 16 rows in updates of 8, twice: four updates per rollout.
    assert trainer._iteration == 2
    assert trainer._dealer.num_dealt == 8
    assert not trainer._pending
    logs = [entry for entry in trainer.state.log_history if "policy_loss" in entry]
    assert ["reward" in entry for entry in logs] == [True, False, False, False] * 2
    # The recorded log-probabilities are compared with those before the first update, always.
    assert max(entry["sampling_logp_difference"] for entry in logs) < 1e-4


@pytest.mark.parametrize("estimator", ["grpo", "gae"])
def test_every_pass_over_a_rollout_splits_it_anew(make_trainer, estimator):
    trainer = make_trainer(
        max_steps=4, per_device_train_batch_size=8, rollout_filter="none", num_iterations=2,
        advantage_estimator=estimator,
    )  # fmt: skip
    seen = []
    original = trainer._compute_loss

    def keep(model, inputs):
        own = [
            {name: values[mask] for name, values in row.items()}
            for row, mask in (
                ({n: inputs[n][i] for n in PER_TOKEN}, inputs["action_mask"][i]) for i in range(8)
            )
        ]
        seen.append(own)
        return original(model, inputs)

    trainer._compute_loss = keep
    trainer.train()
    first, second = [*seen[0], *seen[1]], [*seen[2], *seen[3]]

    def by_tokens(rows):
        # Two episodes may say the same, and have another luck.
        return sorted(rows, key=lambda row: [x.sum().item() for x in list(row.values())[::2]])

    def sums(rows):
        return {round(row["sampling_per_token_logps"].sum().item(), 5) for row in rows}

    assert sums(seen[0]) != sums(seen[2])
    # The same tokens, with what they had before the first update.
    for one, other in zip(by_tokens(first), by_tokens(second), strict=True):
        assert_same_tensors(one, other, atol=1e-4)


def test_kept_rows_fill_several_updates_of_the_asked_size(make_trainer):
    trainer = make_trainer(max_steps=3, per_device_train_batch_size=5, rollout_filter_ratio=0.75)
    rows = []
    original = trainer._compute_loss

    def count_rows(model, inputs):
        rows.append(int((inputs["loss_weights"] > 0).sum()))
        return original(model, inputs)

    trainer._compute_loss = count_rows
    trainer.train()
    assert rows == [4, 4, 4]


@pytest.mark.parametrize(("estimator", "kl"), [("grpo", {}), ("gae", {}), ("grpo", {"beta": 0.04})])
def test_rollout_without_variance_changes_nothing(make_trainer, caplog, estimator, kl):
    options = {"advantage_estimator": estimator, "entropy_coef": 0.1, **kl}
    trainer = make_trainer(BANDIT, **options, max_steps=3)
    MultiProcessAdapter.warning_once.cache_clear()
    states, original = [], trainer._play

    def equal_in_the_second_rollout(*args, **kwargs):
        tensors = dict(trainer.model.named_parameters())
        if trainer.critic is not None:
            tensors |= trainer.critic.critic.trained_parameters()
        states.append(copy_tensors(tensors.items()))
        played = original(*args, **kwargs)
        return pay_alike(played) if len(states) == 2 else played

    trainer._play = equal_in_the_second_rollout
    trainer.train()
    logs = train_logs(trainer)
    assert [entry["rollout/skipped_update"] for entry in logs] == [0.0, 1.0, 0.0]
    assert logs[1]["rollout/zero_variance_ratio"] == 1.0
    assert logs[1]["grad_norm"] == 0.0
    assert all(math.isfinite(value) for value in logs[1].values())
    assert ("the KL to the reference included" in caplog.text) is bool(kl)
    # The first update left moments behind that would go on moving the weights.
    assert any(not torch.equal(states[1][name], states[0][name]) for name in states[0])
    assert_same_tensors(states[2], states[1], atol=0.0)


def test_first_rollout_that_teaches_nothing_is_logged_like_any_other(make_trainer):
    trainer = make_trainer(env=BANDIT, advantage_estimator="grpo")
    # As models come from `from_pretrained`.
    trainer.model.eval()
    original = trainer._play
    trainer._play = lambda *args, **kwargs: pay_alike(original(*args, **kwargs))
    trainer.train()
    (logs,) = train_logs(trainer)
    assert logs["rollout/skipped_update"] == 1.0


def test_refill_plays_new_start_states_and_stops(make_trainer, tmp_path):
    equal = {"low_arm_reward": 0.15, "high_arm_reward": 0.15, "high_arm_probability": 1.0}
    trainer = make_trainer(
        env=EnvSpec(BANDIT, kwargs=equal),
        rollout_filter_ratio=0.5,
        rollout_refill_tries=3,
        rollout_filter_include_zero=False,
        format_penalty=0.0,
        max_actions_per_episode=1,
        max_turns=1,
        validation_share=0,
    )
    original = trainer._play

    def equal_returns(*args, **kwargs):
        return [replace(t, turn_rewards=[0.15]) for t in original(*args, **kwargs)]

    trainer._play = equal_returns
    trainer.train()
    (logs,) = train_logs(trainer)
    # Four groups, and three times the two that are missing.
    assert trainer._dealer.num_dealt == 10
    assert logs["rollout/refilled_groups"] == 6
    assert logs["rollout/kept_group_ratio"] == 0.0
    assert logs["rollout/skipped_update"] == 1.0
    path = tmp_path / "run" / "trajectories" / "train-00000.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [r["group_id"] for r in records] == [i // 4 for i in range(40)]
    assert [r["seed"] for r in records] == [10_000 + i // 4 for i in range(40)]


def test_model_without_trainable_parameters_is_refused(make_trainer, start):
    trained, _ = start
    frozen = type(trained)(trained.config).requires_grad_(False)
    with pytest.raises(ValueError, match="trainable parameters"):
        make_trainer(model=frozen)
    adapter = get_peft_model(type(trained)(trained.config), LoraConfig(target_modules="all-linear"))
    adapter.requires_grad_(False)
    with pytest.raises(ValueError, match="is_trainable=True"):
        make_trainer(model=adapter)


@pytest.mark.parametrize(
    ("updates_per_rollout", "further"),
    [
        (1, {}),
        (4, {"num_iterations": 4}),
        # Two passes of two updates, each with a split of its own.
        (4, {"num_iterations": 2, "rollout_filter": "none", "per_device_train_batch_size": 8}),
    ],
)
def test_resumed_training_equals_uninterrupted_training(
    make_trainer, tmp_path, updates_per_rollout, further
):
    # With four updates per rollout, the checkpoint falls between two of them.
    options = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, **further}
    whole = make_trainer(max_steps=4, output_dir=str(tmp_path / "whole"), **options)
    torch.manual_seed(11)
    whole.train()
    first = make_trainer(max_steps=2, output_dir=str(tmp_path / "parts"), **options)
    torch.manual_seed(11)
    first.train()
    second = make_trainer(max_steps=4, output_dir=str(tmp_path / "parts"), **options)
    torch.manual_seed(99)
    second.train(resume_from_checkpoint=True)
    tensors = [
        dict(t.model.named_parameters()) | t.critic.critic.trained_parameters()
        for t in (second, whole)
    ]
    assert_same_tensors(*tensors, atol=1e-6)
    assert second._dealer.num_dealt == whole._dealer.num_dealt == 16 // updates_per_rollout
    last = f"train-{4 // updates_per_rollout - 1:05d}.jsonl"
    lines = [
        (tmp_path / run / "trajectories" / last).read_text(encoding="utf-8")
        for run in ("whole", "parts")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    "change",
    [
        {"gradient_accumulation_steps": 2},
        {"beta": 0.1},
        {"temperature": 0.7},
        {"old_logps": "rollout"},
        {"num_iterations": 2},
        {"max_steps": 5},
    ],
    ids=str,
)
def test_batches_of_other_settings_are_not_trained_on(make_trainer, saved_start, tmp_path, change):
    options = {"save_strategy": "steps", "save_steps": 1, "num_iterations": 4}
    make_trainer(model=saved_start, **options).train()
    trainer = make_trainer(model=saved_start, **{**options, "max_steps": 2, **change})
    batches, compute_loss = [], trainer._compute_loss

    def keep_batch(model, inputs):
        batches.append((trainer._iteration, trainer.state.global_step))
        return compute_loss(model, inputs)

    trainer._compute_loss = keep_batch
    trainer.train(resume_from_checkpoint=True)
    is_same = "max_steps" in change
    # The first rollout is used up where that is possible; otherwise a second one is played.
    assert batches[0] == (1 if is_same else 2, 1)
    assert len(batches) == (4 if is_same else trainer.args.gradient_accumulation_steps)


def test_resume_from_a_checkpoint_of_another_trainer_is_refused(make_trainer, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(**options).train()
    (tmp_path / "run" / "checkpoint-1" / "starpo_state.json").unlink()
    with pytest.raises(FileNotFoundError, match="must be a checkpoint of `StarPOTrainer`"):
        make_trainer(max_steps=2, **options).train(resume_from_checkpoint=True)


def test_saved_model_loads_and_plays_the_same(make_trainer, tmp_path):
    trainer = make_trainer()
    trainer.train()
    trainer.save_model()
    again = make_trainer(model=str(tmp_path / "run"))
    played = [t.rollout(seeds=range(4), num_generations=1, temperature=0) for t in (trainer, again)]
    assert [t.completion_ids for t in played[0]] == [t.completion_ids for t in played[1]]


def test_training_stops_with_a_message_when_the_loss_is_not_finite(make_trainer):
    trainer = make_trainer(max_steps=2)
    with torch.no_grad():
        trainer.model.model.norm.weight.fill_(float("inf"))
    with pytest.raises((FloatingPointError, RuntimeError)):
        trainer.train()


def test_describe_says_what_one_iteration_is(make_trainer):
    text = make_trainer(rollout_filter_ratio=0.5, per_device_train_batch_size=4).describe()
    assert "4 groups of 4 episodes" in text
    assert "8 of 16 episodes" in text
    assert "2 update(s) per rollout" in text
