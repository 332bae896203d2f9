"""Everything that docs/paper_index.md names exists, and the estimators and filters are all in it."""

import dataclasses
import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.config_choices import AdvantageEstimator, RolloutFilter, RolloutFilterScore

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/paper_index.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
SYMBOLS = [name for name in NAMES if re.fullmatch(r"ragen_(trl|envs)(\.\w+)+", name)]
FILES = [name for name in NAMES if re.fullmatch(r"[\w/]+\.(py|yaml|md)", name)]


def read_fields():
    """Return (field, value or None) of every entry in the columns headed "fields"."""
    entries = []
    for table in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        header, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        assert all(len(row) == len(header) for row in rows), header
        if header[-1] == "fields":
            for row in rows:
                found = re.findall(r"`(\w+)(?:=(\w+))?`", row[-1])
                assert len(found) == row[-1].count("`") / 2, row[-1]
                entries += found
    return entries


ENTRIES = read_fields()


def resolve(symbol):
    """Import the longest part of a dotted name that is a module, and look the rest up in it."""
    parts = symbol.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = vars(found)[name]
        return found
    raise LookupError(symbol)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_named_symbol_exists(symbol):
    assert resolve(symbol) is not None


def test_unknown_symbols_would_be_noticed():
    for symbol in ("ragen_trl.no_module.compute_gae", "ragen_trl.functional.compute_nothing"):
        with pytest.raises(LookupError):
            resolve(symbol)


@pytest.mark.parametrize("path", FILES)
def test_named_file_exists(path):
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("path", re.findall(r"\]\((\w[\w./]*)\)", TEXT))
def test_linked_page_exists(path):
    assert (ROOT / "docs" / path).is_file()


def test_named_fields_exist_and_take_the_named_values(tmp_path):
    fields = {field.name for field in dataclasses.fields(StarPOConfig)}
    assert len(ENTRIES) > 80
    assert {name for name, _ in ENTRIES} <= fields
    # `gae` alone takes every value of these fields, the filters included.
    for name, value in {entry for entry in ENTRIES if entry[1]}:
        StarPOConfig(str(tmp_path), **{name: value})


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("advantage_estimator", AdvantageEstimator),
        ("rollout_filter", RolloutFilter),
        ("rollout_filter_score", RolloutFilterScore),
    ],
)
def test_every_choice_has_its_row(field, choices):
    assert {value for name, value in ENTRIES if name == field and value} == set(get_args(choices))


def test_settings_called_the_same_are_the_defaults(tmp_path):
    args = StarPOConfig(str(tmp_path))
    ours = (args.num_env_groups, args.num_generations, args.update_batch_size, args.max_steps)
    assert ours == (8, 16, 32, 200)
    assert (args.max_turns, args.max_actions_per_turn, args.max_actions_per_episode) == (5, 5, 10)
    assert (args.max_new_tokens_per_turn, args.temperature) == (400, 1.0)
    assert (args.adam_beta1, args.adam_beta2, args.learning_rate) == (0.9, 0.999, 1e-6)
    assert (args.gamma, args.gae_lambda, args.turn_gamma) == (1.0, 1.0, 0.95)
    assert (args.entropy_coef, args.format_penalty, args.value_clip_range) == (0.001, -0.1, 0.5)
    assert (args.epsilon, args.epsilon_high, args.rollout_filter_ratio) == (0.2, 0.28, 0.25)
    assert (args.beta, args.kl_in_reward_coef) == (0.0, 0.0)
    assert (args.eval_episodes, args.num_generations_eval, args.eval_temperature) == (256, 1, 0.5)
