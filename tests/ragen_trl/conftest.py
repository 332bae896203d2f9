"""Trainers of a small policy that speaks the reply format, for every test that trains."""

import pytest

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import build_tiny_policy, warm_start
from tests.training import BANDIT, LAKE, copy_model


@pytest.fixture(scope="session")
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

    def make(
        env=(BANDIT, LAKE),
        *,
        model=None,
        callbacks=None,
        peft_config=None,
        processing_class=tokenizer,
        eval_env=None,
        **options,
    ):
        if model is None:
            model = copy_model(trained)
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
            eval_env=eval_env,
            processing_class=processing_class,
            callbacks=callbacks,
            peft_config=peft_config,
        )

    return make


@pytest.fixture
def saved_start(start, tmp_path):
    """The common start as a folder: TRL loads references from where the model came from."""
    trained, tokenizer = start
    trained.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")
