"""The embedded policy learns which arm is better, and learns nothing where there is nothing to learn."""

import pytest

from ragen_trl import EnvSpec, StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy

pytestmark = pytest.mark.slow

UPDATES = 30


def high_arm_rate_after_training(seed, output_dir, **bandit):
    """Train on a bandit from the same start and return the share of high arms in 128 episodes."""
    model, tokenizer = load_tiny_policy()
    args = StarPOConfig(
        output_dir=str(output_dir),
        seed=seed,
        train_seed=10_000 + 1_000 * seed,
        enable_think=False,
        max_new_tokens_per_turn=24,
        max_trajectory_tokens=1200,
        rollout_filter_ratio=0.5,
        max_steps=UPDATES,
        learning_rate=3e-4,
        per_device_train_batch_size=64,
        gradient_accumulation_steps=1,
        gradient_checkpointing=False,
        eval_episodes=128,
        eval_temperature=1.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    env = EnvSpec("ragen/Bandit-v0", kwargs=bandit)
    trainer = StarPOTrainer(model, args, env=env, processing_class=tokenizer)
    trainer.train()
    return trainer.evaluate()["eval_success_rate"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_training_finds_the_better_arm_within_thirty_updates(seed, tmp_path):
    # Random play pulls it in half of the episodes; the optimum is all.
    assert high_arm_rate_after_training(seed, tmp_path) >= 0.9


def test_training_with_equal_arms_does_not_find_an_arm(tmp_path):
    equal = {"low_arm_reward": 0.15, "high_arm_reward": 0.15, "high_arm_probability": 1.0}
    assert high_arm_rate_after_training(0, tmp_path, **equal) < 0.85
