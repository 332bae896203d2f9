import json
import math
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainerCallback

from ragen_trl import EnvSpec, StarPOConfig, StarPOTrainer
from ragen_trl.selection import select_trajectories
from ragen_trl.tiny import build_tiny_policy, warm_start
from ragen_trl.update import build_micro_batches
from tests.fakes import ScriptedTextEnv, Step

BANDIT = "ragen/Bandit-v0"
LAKE = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})
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
    "time/rollout",
    "time/update",
    "time/env",
]


@pytest.fixture(scope="module")
def start():
    """Weights and tokenizer of a policy that has learned the reply format."""
    envs = [BANDIT, LAKE]
    model, tokenizer = build_tiny_policy(envs, hidden_size=32, num_layers=1, think=False)
    warm_start(model, tokenizer, envs, num_steps=60, batch_size=16, learning_rate=1e-2, think=False)
    return model, tokenizer


@pytest.fixture
def make_trainer(start, tmp_path):
    """Make trainers that all start from the same weights."""
    trained, tokenizer = start

    def make(env=(BANDIT, LAKE), *, model=None, callbacks=None, peft_config=None, **options):
        if model is None:
            model = type(trained)(trained.config)
            model.load_state_dict(trained.state_dict())
        defaults = {
            "output_dir": str(tmp_path / "run"),
            "num_env_groups": 4,
            "num_generations": 4,
            "enable_think": False,
            "max_new_tokens_per_turn": 20,
            "max_trajectory_tokens": 1200,
            "max_steps": 1,
            "learning_rate": 1e-3,
            "per_device_train_batch_size": 16,
            "gradient_accumulation_steps": 1,
            "gradient_checkpointing": False,
            "eval_episodes": 6,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        return StarPOTrainer(
            model,
            StarPOConfig(**{**defaults, **options}),
            env=list(env) if isinstance(env, tuple) else env,
            processing_class=tokenizer,
            callbacks=callbacks,
            peft_config=peft_config,
        )

    return make


class KeepGradients(TrainerCallback):
    """Seeds every rollout and copies every gradient just before the optimizer uses it."""

    def __init__(self, seed):
        self.seed = seed
        self.steps = []

    def on_step_begin(self, args, state, control, **kwargs):
        torch.manual_seed(self.seed)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )


def train_logs(trainer):
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def assert_same_tensors(left, right, *, atol):
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=atol, msg=name)


def test_train_one_step_moves_every_parameter_and_logs_every_metric(make_trainer):
    trainer = make_trainer()
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    assert all(not torch.equal(p, before[name]) for name, p in trainer.model.named_parameters())
    (logs,) = train_logs(trainer)
    assert [name for name in TRAIN_METRICS if not math.isfinite(logs[name])] == []
    assert logs["rollout/valid_reply_ratio"] > 0.5
    assert logs["rollout/kept_group_ratio"] == 0.25
    assert "kl" not in logs
    assert trainer.ref_model is None


def test_train_logged_reward_equals_the_recorded_episodes(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=2)
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


def test_filtered_update_gradient_equals_training_on_the_kept_groups_alone(make_trainer):
    gradients = KeepGradients(seed=7)
    trainer = make_trainer(callbacks=[gradients], rollout_filter_ratio=0.25, max_grad_norm=0.0)
    torch.manual_seed(7)
    trajectories = trainer.rollout(seeds=range(10_000, 10_004), num_generations=4, temperature=1.0)
    trainer.train()
    (logs,) = train_logs(trainer)
    assert logs["reward"] == pytest.approx(sum(t.total_reward for t in trajectories) / 16)

    returns = torch.tensor([t.total_reward for t in trajectories]).view(4, 4)
    kept = int(returns.std(dim=1).argmax())
    alone = select_trajectories(
        trajectories[4 * kept : 4 * kept + 4],
        advantage_estimator="grpo",
        rollout_filter="none",
        rollout_filter_ratio=1.0,
    )
    other = make_trainer()
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


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_gradient_accumulation_does_not_change_the_update(make_trainer, loss_type):
    collected = []
    for batch_size, accumulation in ((16, 1), (4, 4), (3, 6)):
        gradients = KeepGradients(seed=3)
        trainer = make_trainer(
            callbacks=[gradients],
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            rollout_filter="none",
            loss_type=loss_type,
            entropy_coef=0.1,
            max_grad_norm=0.0,
        )
        trainer.train()
        collected.append((gradients.steps[0], train_logs(trainer)[0]))
    for gradients, logs in collected[1:]:
        assert_same_tensors(gradients, collected[0][0], atol=1e-6)
        for name in ("policy_loss", "entropy", "loss", "reward"):
            assert logs[name] == pytest.approx(collected[0][1][name], rel=1e-4, abs=1e-6)


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


def test_rollout_without_variance_changes_nothing(make_trainer):
    equal = {"low_arm_reward": 0.15, "high_arm_reward": 0.15, "high_arm_probability": 1.0}
    trainer = make_trainer(
        env=EnvSpec(BANDIT, kwargs=equal), format_penalty=0.0, max_turns=1, entropy_coef=0.1
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    original = trainer._play

    def play_legal_replies_only(*args, **kwargs):
        # An invalid reply pays 0 instead of 0.15 and would make variance.
        played = original(*args, **kwargs)
        return [replace(t, turn_rewards=[0.15] * len(t.turns)) for t in played]

    trainer._play = play_legal_replies_only
    trainer.train()
    (logs,) = train_logs(trainer)
    assert logs["rollout/zero_variance_ratio"] == 1.0
    assert logs["rollout/skipped_update"] == 1.0
    assert logs["grad_norm"] == 0.0
    assert_same_tensors(dict(trainer.model.named_parameters()), before, atol=0.0)


def test_reference_model_is_used_only_with_beta(make_trainer, start, tmp_path):
    trained, tokenizer = start
    trained.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    trainer = make_trainer(model=str(tmp_path / "base"), beta=0.1, max_steps=3)
    trainer.train()
    kl = [logs["kl"] for logs in train_logs(trainer)]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[2] > 1e-5


def test_lora_trains_the_adapter_and_not_the_base(make_trainer):
    trainer = make_trainer(
        max_steps=3, learning_rate=1e-2, peft_config=LoraConfig(r=4, target_modules="all-linear")
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    greedy_before = trainer.rollout(seeds=range(3), num_generations=1, temperature=0)
    trainer.train()
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter, before[name]) is ("lora_" not in name), name
    assert max(logs["sampling_logp_difference"] for logs in train_logs(trainer)) < 1e-4
    # The next rollout is played by the changed adapter: its log-probabilities moved.
    greedy_after = trainer.rollout(seeds=range(3), num_generations=1, temperature=0)
    assert greedy_before[0].prompt_ids == greedy_after[0].prompt_ids
    assert greedy_before[0].logps[0] != pytest.approx(greedy_after[0].logps[0], abs=1e-6)


def test_model_without_trainable_parameters_is_refused(make_trainer, start):
    trained, _ = start
    frozen = type(trained)(trained.config).requires_grad_(False)
    with pytest.raises(ValueError, match="trainable parameters"):
        make_trainer(model=frozen)
    adapter = get_peft_model(type(trained)(trained.config), LoraConfig(target_modules="all-linear"))
    adapter.requires_grad_(False)
    with pytest.raises(ValueError, match="is_trainable=True"):
        make_trainer(model=adapter)


def test_resumed_training_equals_uninterrupted_training(make_trainer, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2}
    whole = make_trainer(max_steps=4, output_dir=str(tmp_path / "whole"), **options)
    torch.manual_seed(11)
    whole.train()
    first = make_trainer(max_steps=2, output_dir=str(tmp_path / "parts"), **options)
    torch.manual_seed(11)
    first.train()
    second = make_trainer(max_steps=4, output_dir=str(tmp_path / "parts"), **options)
    torch.manual_seed(99)
    second.train(resume_from_checkpoint=True)
    assert_same_tensors(
        dict(second.model.named_parameters()), dict(whole.model.named_parameters()), atol=1e-6
    )
    assert second._dealer.num_dealt == whole._dealer.num_dealt == 16
    lines = [
        (tmp_path / run / "trajectories" / "train-00003.jsonl").read_text(encoding="utf-8")
        for run in ("whole", "parts")
    ]
    assert lines[0] == lines[1]


def test_saved_model_loads_and_plays_the_same(make_trainer, tmp_path):
    trainer = make_trainer()
    trainer.train()
    trainer.save_model()
    again = make_trainer(model=str(tmp_path / "run"))
    played = [t.rollout(seeds=range(4), num_generations=1, temperature=0) for t in (trainer, again)]
    assert [t.completion_ids for t in played[0]] == [t.completion_ids for t in played[1]]


def test_evaluate_is_repeatable_and_leaves_training_randomness_alone(make_trainer, tmp_path):
    trainer = make_trainer()
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, second = trainer.evaluate(), trainer.evaluate()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {k: v for k, v in first.items() if "runtime" not in k} == {
        k: v for k, v in second.items() if "runtime" not in k
    }
    for name in ("ragen/Bandit-v0", "ragen/FrozenLake-v0"):
        stem = f"eval_{name}_success_rate"
        assert first[f"{stem}_low"] <= first[stem] <= first[f"{stem}_high"]
        assert first[f"eval_{name}_success_vs_optimal"] == first[stem]
    (bandit, lake) = sorted((tmp_path / "run" / "trajectories").glob("eval-*.jsonl"))
    for path in (bandit, lake):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert [r["seed"] for r in records] == list(range(123, 129))


def test_evaluate_during_training_does_not_change_training(make_trainer):
    ends = []
    for options in (
        {},
        {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
    ):
        trainer = make_trainer(max_steps=2, **options)
        torch.manual_seed(1)
        trainer.train()
        ends.append({n: p.detach() for n, p in trainer.model.named_parameters()})
    assert_same_tensors(ends[0], ends[1], atol=0.0)


def test_evaluate_with_named_environments_and_several_samples(make_trainer):
    trainer = make_trainer(env=BANDIT, num_generations_eval=3)
    metrics = trainer.evaluate()
    assert 0.0 <= metrics["eval_pass@3"] <= 1.0
    assert metrics["eval_num_episodes"] == 18
    with pytest.raises(ValueError, match="eval_env"):
        trainer.evaluate(eval_dataset=[1])


def test_rollout_groups_share_the_start_and_differ_in_luck(make_trainer):
    trainer = make_trainer(env=BANDIT)
    trajectories = trainer.rollout(seeds=[5, 5, 6], num_generations=24, temperature=1.0)
    assert [t.group_id for t in trajectories] == [0] * 24 + [1] * 24 + [2] * 24
    first = {tuple(t.prompt_ids) for t in trajectories[:48]}
    assert len(first) == 1
    paid = {sum(t.turn_rewards) for t in trajectories if t.success}
    assert paid == {0.0, 1.0}


def test_rollout_deals_seeds_round_robin_over_environments(make_trainer):
    trainer = make_trainer()
    trajectories = trainer.rollout(seeds=range(4), num_generations=1, temperature=1.0)
    lake, bandit = "ragen/FrozenLake-v0", "ragen/Bandit-v0"
    assert [t.env_id for t in trajectories] == [bandit, lake, bandit, lake]
    other = trainer.rollout("ragen/Sokoban-v0", seeds=[1, 2], num_generations=2, temperature=1.0)
    assert [(t.env_id, t.seed) for t in other] == [("ragen/Sokoban-v0", s) for s in (1, 1, 2, 2)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("seeds", {"seeds": [-1]}),
        ("seeds", {"seeds": 5}),
        ("num_generations", {"num_generations": 0}),
        ("temperature", {"temperature": -1.0}),
    ],
)
def test_rollout_refuses_what_no_rollout_could_mean(make_trainer, name, arguments):
    trainer = make_trainer(env=BANDIT)
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        trainer.rollout(**{"seeds": [1], "num_generations": 1, "temperature": 1.0, **arguments})
    assert trainer.rollout(seeds=[], num_generations=2, temperature=1.0) == []


def test_training_stops_with_a_message_when_the_loss_is_not_finite(make_trainer):
    trainer = make_trainer(max_steps=2)
    with torch.no_grad():
        trainer.model.model.norm.weight.fill_(float("inf"))
    with pytest.raises((FloatingPointError, RuntimeError)):
        trainer.train()


def test_environment_failure_in_training_names_environment_seed_and_turn(make_trainer):
    def failing():
        return ScriptedTextEnv([Step(reward=math.nan)])

    trainer = make_trainer(env=failing)
    with pytest.raises(RuntimeError, match=r"seed 10000 .*turn \d"):
        trainer.train()


def test_custom_environment_trains_from_a_callable(make_trainer):
    def lake():
        return gym.make("ragen/FrozenLake-v0", is_slippery=False, size=(3, 3))

    trainer = make_trainer(env=lake)
    trainer.train()
    assert train_logs(trainer)[0]["rollout/turns"] >= 1


def test_constructor_refuses_what_cannot_work(make_trainer, start):
    trained, tokenizer = start
    with pytest.raises(ValueError, match="`env` must be given"):
        StarPOTrainer(trained, processing_class=tokenizer)
    with pytest.raises(TypeError, match="`args` must be a `StarPOConfig`"):
        StarPOTrainer(trained, {"max_steps": 1}, env=BANDIT, processing_class=tokenizer)
    with pytest.raises(ValueError, match="`max_trajectory_tokens` must be at most 4096"):
        make_trainer(max_trajectory_tokens=5000)
    with pytest.raises(ValueError, match="first prompt has"):
        make_trainer(max_trajectory_tokens=40).train()


def test_describe_says_what_one_iteration_is(make_trainer):
    text = make_trainer(rollout_filter_ratio=0.5, per_device_train_batch_size=4).describe()
    assert "4 groups of 4 episodes" in text
    assert "8 of 16 episodes" in text
    assert "2 update(s) per rollout" in text
