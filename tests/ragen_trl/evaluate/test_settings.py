import math

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.evaluate import EvaluationSettings


def test_defaults_are_those_of_training(tmp_path):
    settings, config = EvaluationSettings(), StarPOConfig(str(tmp_path))
    assert settings.agent_turns == config.agent_turns
    assert settings.episodes == config.eval_episodes
    assert settings.seed == config.eval_seed
    assert settings.validation_share == config.validation_share
    assert settings.temperature == config.eval_temperature
    assert settings.max_new_tokens_per_turn == config.max_new_tokens_per_turn
    assert settings.max_trajectory_tokens == config.max_trajectory_tokens
    assert settings.stop_at_answer == config.stop_at_answer


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("episodes", -3, "at least 1"),
        ("samples", 0, "at least 1"),
        ("max_new_tokens_per_turn", 0, "at least 1"),
        ("max_trajectory_tokens", 0, "at least 1"),
        ("seed", -1, "at least 0"),
        ("validation_share", 1.0, r"in \[0, 1\)"),
        ("validation_share", -0.1, r"in \[0, 1\)"),
        ("temperature", -0.1, "finite and at least 0"),
        ("temperature", math.inf, "finite and at least 0"),
        ("temperature", math.nan, "finite and at least 0"),
    ],
)
def test_numbers_out_of_range_are_refused(name, value, rule):
    with pytest.raises(ValueError, match=f"`{name}` must be {rule}, got {value}"):
        EvaluationSettings(**{name: value})


@pytest.mark.parametrize("value", ["x", [1], {1: 2}, {"a": {3}}, {"a": math.nan}, {"a": (1,)}])
def test_template_arguments_that_json_cannot_hold_are_refused(value):
    with pytest.raises(
        TypeError, match="`chat_template_kwargs` must be a dict of names and values"
    ):
        EvaluationSettings(chat_template_kwargs=value)


def test_template_arguments_are_kept():
    kwargs = {"enable_thinking": False, "tools": ["a"]}
    assert EvaluationSettings(chat_template_kwargs=kwargs).chat_template_kwargs == kwargs
