import json
import math

import gymnasium as gym
import pytest
import torch

from ragen_trl import StarPOTrainer
from tests.fakes import ScriptedTextEnv, Step
from tests.training import BANDIT, assert_same_tensors, train_logs


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
