"""A real run with a far too high learning rate collapses; the monitor sees it, a rollback undoes it.

The learning rate rises towards 0.1 over sixty updates, thirty times of what teaches this policy the
better arm: success rises first, and then the policy breaks.
"""

import json

import pytest
from transformers import TrainerCallback

from ragen_trl import EchoTrapCallback, StarPOConfig, StarPOTrainer
from ragen_trl.tiny import build_tiny_policy, warm_start
from tests.training import copy_model

pytestmark = pytest.mark.slow

BANDIT = "ragen/Bandit-v0"
SEEDS = (0, 1, 2)
UPDATES = 32
each_seed = pytest.mark.parametrize("seed", SEEDS)


@pytest.fixture(scope="module")
def start():
    envs = [BANDIT]
    model, tokenizer = build_tiny_policy(envs, hidden_size=32, num_layers=1, think=False)
    warm_start(model, tokenizer, envs, num_steps=60, batch_size=16, learning_rate=1e-2, think=False)
    return model, tokenizer


class KeepSuccess(TrainerCallback):
    """Keeps the success rate of every rollout, those before a rollback included."""

    def __init__(self):
        self.rates = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "success_rate" in logs:
            self.rates.append(logs["success_rate"])

    @property
    def levels(self):
        """Means of the latest five: single rollouts of 64 episodes are noisy."""
        parts = [self.rates[max(0, i - 4) : i + 1] for i in range(len(self.rates))]
        return [sum(part) / len(part) for part in parts]


@pytest.fixture
def train(start, tmp_path):
    trained, tokenizer = start

    def run(seed, callback, learning_rate=0.1):
        model = copy_model(trained)
        args = StarPOConfig(
            output_dir=str(tmp_path),
            seed=seed,
            num_env_groups=8,
            num_generations=8,
            enable_think=False,
            max_turns=1,
            max_new_tokens_per_turn=16,
            max_trajectory_tokens=1200,
            rollout_filter_ratio=0.5,
            max_steps=UPDATES,
            learning_rate=learning_rate,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=60,
            per_device_train_batch_size=32,
            gradient_accumulation_steps=1,
            gradient_checkpointing=False,
            save_steps=2,
            save_total_limit=1,
            report_to="none",
            disable_tqdm=True,
            log_trajectories=False,
        )
        success = KeepSuccess()
        trainer = StarPOTrainer(
            model, args, env=BANDIT, processing_class=tokenizer, callbacks=[success, callback]
        )
        trainer.train()
        path = tmp_path / "collapse.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return trainer, success, [json.loads(line) for line in lines]

    return run


@each_seed
def test_collapse_is_seen_before_half_of_the_best_success_is_lost(train, seed):
    _, success, events = train(seed, EchoTrapCallback())
    best = [max(success.rates[: i + 1]) for i in range(UPDATES)]
    lost = [i + 1 for i, rate in enumerate(success.rates) if rate < best[i] / 2]
    assert lost
    # From single rollouts, not means. This small policy breaks within one update, from a rollout
    # that is fine to one that is not, and the divergence of that update is what gives it away.
    assert events[0]["step"] < lost[0]
    assert events[0]["signal"] == "policy_jump"


@each_seed
def test_rollback_recovers(train, seed):
    callback = EchoTrapCallback(on_collapse="rollback", learning_rate_factor=0.05)
    trainer, success, events = train(seed, callback)
    assert {event["action"] for event in events} == {"rollback"}
    assert trainer.state.global_step == UPDATES
    assert success.levels[-1] >= 0.9


@each_seed
def test_learning_at_a_fitting_rate_raises_no_alarm(train, seed):
    _, success, events = train(seed, EchoTrapCallback(), learning_rate=6e-3)
    assert events == []
    assert success.levels[-1] >= 0.9
