"""A saved policy, settings and environments that are quick to evaluate."""

import pytest

from ragen_trl.evaluate import EpisodeRecord, EvaluationSettings


@pytest.fixture
def quick():
    """Make settings with few start states and short replies."""

    def make(**options):
        defaults = {
            "episodes": 5,
            "validation_share": 0.0,
            "think": False,
            "max_new_tokens_per_turn": 20,
            "max_trajectory_tokens": 1200,
            "temperature": 1.0,
        }
        return EvaluationSettings(**{**defaults, **options})

    return make


@pytest.fixture
def make_record():
    """Make the record of an episode."""

    def make(env="lake", seed=1, sample=0, *, success=False, error=None, **options):
        defaults = {
            "reward": float(success),
            "turns": 2,
            "valid_turns": 1,
            "actions": 3,
            "effective_actions": 2,
            "response_tokens": 10,
        }
        return EpisodeRecord(
            env=env,
            seed=seed,
            sample=sample,
            success=success,
            error=error,
            **{**defaults, **options},
        )

    return make
