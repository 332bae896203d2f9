"""What users see of the configuration: its documentation, its defaults, its command line."""

import ast
import dataclasses
import inspect
import json
import re
import types
import typing

import pytest
from transformers import HfArgumentParser
from trl import GRPOConfig, TrlParser

from ragen_trl import StarPOConfig

FIELDS = {field.name: field for field in dataclasses.fields(StarPOConfig)}
INHERITED = {field.name: field for field in dataclasses.fields(GRPOConfig)}
NEW_FIELDS = [name for name in FIELDS if name not in INHERITED]

# --- Documentation ----------------------------------------------------------------------------


class Entry(typing.NamedTuple):
    type_name: str
    default: object
    first_sentence: str


def read_docstring():
    """Read the parameter entries of the class docstring."""
    entries = {}
    text = inspect.getdoc(StarPOConfig).split("> [!NOTE]")[0]
    pattern = (
        r"^    (\w+) \(`(\w+)`, \*optional\*(?:, defaults to `(.+?)`)?\):\n"  # the header
        r"((?: {8}.+\n)+)"  # the description
    )
    for name, type_name, default, description in re.findall(pattern, text + "\n", re.MULTILINE):
        sentence = re.match(r".+?\.(?=\s|$)", " ".join(description.split()))[0]
        entries[name] = Entry(type_name, ast.literal_eval(default or "None"), sentence)
    return entries


ENTRIES = read_docstring()


def test_docstring_lists_the_new_fields_in_the_order_of_the_code():
    assert [name for name in ENTRIES if name in NEW_FIELDS] == NEW_FIELDS
    assert set(ENTRIES) <= set(FIELDS)


@pytest.mark.parametrize("name", NEW_FIELDS)
def test_documented_default_and_type_are_the_real_ones(name):
    default = FIELDS[name].default
    if default is dataclasses.MISSING:
        default = FIELDS[name].default_factory()
    assert ENTRIES[name].default == default
    assert type(ENTRIES[name].default) is type(default)
    annotation = FIELDS[name].type
    if isinstance(annotation, types.UnionType):
        (annotation,) = set(typing.get_args(annotation)) - {type(None)}
    if typing.get_origin(annotation) is typing.Literal:
        annotation = str
    annotation = typing.get_origin(annotation) or annotation
    assert ENTRIES[name].type_name == annotation.__name__


@pytest.mark.parametrize("name", list(ENTRIES))
def test_help_is_the_first_sentence_of_the_documentation(name):
    # The documentation writes values as code, with their quotation marks.
    assert FIELDS[name].metadata["help"] == ENTRIES[name].first_sentence.replace('"', "")


def test_every_changed_default_is_named_with_its_value():
    note = inspect.getdoc(StarPOConfig).split("> [!NOTE]")[1]
    changed = [name for name in INHERITED if FIELDS[name].default != INHERITED[name].default]
    assert len(changed) > 8
    for name in changed:
        if name in ENTRIES:
            assert ENTRIES[name].default == FIELDS[name].default
        elif name == "max_completion_length":
            assert "`max_completion_length`: taken from `max_new_tokens_per_turn`" in note
        else:
            text = re.search(rf"`{name}`: (.+)", note)[1]
            assert re.search(rf"\b{re.escape(str(FIELDS[name].default))}\b", text), name


@pytest.mark.parametrize(
    "name", [name for name in FIELDS if FIELDS[name] is not INHERITED.get(name)]
)
def test_help_is_present_and_survives_argparse(name):
    text = FIELDS[name].metadata["help"]
    assert text
    assert "%" not in text.replace("%%", "")


@pytest.mark.parametrize("parser_class", [HfArgumentParser, TrlParser])
def test_parsers_print_their_help(parser_class):
    text = parser_class(StarPOConfig).format_help()
    assert "Start states per rollout (P in the paper)" in " ".join(text.split())


# --- Defaults --------------------------------------------------------------------------------


# What other people's code relies on.
PROMISED_DEFAULTS = {
    "num_env_groups": 8,
    "num_generations": 16,
    "max_turns": 5,
    "max_actions_per_turn": 5,
    "max_actions_per_episode": 10,
    "action_separator": "||",
    "enable_think": True,
    "format_penalty": -0.1,
    "train_seed": 10_000,
    "eval_seed": 123,
    "eval_episodes": 256,
    "eval_temperature": 0.5,
    "max_new_tokens_per_turn": 400,
    "max_trajectory_tokens": 3600,
    "advantage_estimator": "gae",
    "gamma": 1.0,
    "gae_lambda": 1.0,
    "turn_gamma": 0.95,
    "reward_normalization": "none",
    "reward_grouping": "group",
    "turn_rewards": False,
    "rollout_filter": "top_k",
    "rollout_filter_ratio": 0.25,
    "rollout_filter_score": "reward_std",
    "rollout_filter_include_zero": True,
    "rollout_refill_tries": 0,
    "beta": 0.0,
    "epsilon": 0.2,
    "epsilon_high": 0.28,
    "entropy_coef": 0.001,
    "kl_in_reward_coef": 0.0,
    "critic_learning_rate": None,
    "critic_warmup_steps": 0,
    "value_clip_range": 0.5,
    "critic_model_name_or_path": None,
    "num_iterations": 1,
}


@pytest.mark.parametrize(("name", "default"), PROMISED_DEFAULTS.items())
def test_promised_names_and_defaults(name, default, tmp_path):
    assert getattr(StarPOConfig(str(tmp_path)), name) == default


def test_every_new_field_is_promised_or_known_to_be_an_extra():
    assert set(NEW_FIELDS) - set(PROMISED_DEFAULTS) == {
        "validation_share",
        "rollout_engine",
        "rollout_row_budget",
        "stop_at_answer",
        "log_trajectories",
        "gigpo_step_weight",
        "gigpo_divide_by_std",
        "rollout_filter_num_groups",
        "rollout_filter_top_p",
        "rollout_filter_percentiles",
        "rollout_loss_scale",
        "critic_lr_scheduler_type",
        "old_logps",
    }


# --- Command line -----------------------------------------------------------------------------

# One other value of every new field.
OTHER_VALUES = {
    "num_env_groups": 3,
    "num_generations": 4,
    "max_turns": 2,
    "max_actions_per_turn": 3,
    "max_actions_per_episode": 6,
    "action_separator": ";",
    "enable_think": False,
    "format_penalty": -0.5,
    "train_seed": 20_000,
    "eval_seed": 7,
    "eval_episodes": 9,
    "validation_share": 0.2,
    "eval_temperature": 0.0,
    "max_new_tokens_per_turn": 50,
    "max_trajectory_tokens": 500,
    "rollout_engine": "reference",
    "rollout_row_budget": 16,
    "stop_at_answer": True,
    "log_trajectories": False,
    "advantage_estimator": "bi_level_gae",
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "turn_gamma": 0.7,
    "turn_rewards": True,
    "gigpo_step_weight": 0.5,
    "gigpo_divide_by_std": False,
    "rollout_filter": "top_p",
    "rollout_filter_ratio": 0.5,
    "rollout_filter_top_p": "softmax",
    "rollout_filter_percentiles": [0.25, 0.75],
    "rollout_filter_score": "entropy",
    "rollout_filter_include_zero": False,
    "rollout_refill_tries": 2,
    "rollout_loss_scale": "sqrt",
    "kl_in_reward_coef": 0.001,
    "critic_learning_rate": 1e-4,
    "critic_lr_scheduler_type": "linear",
    "critic_warmup_steps": 3,
    "value_clip_range": 0.2,
    "critic_model_name_or_path": "other",
    "old_logps": "rollout",
    "epsilon_high": 0.2,
    "entropy_coef": 0.0,
    "num_generations_eval": 4,
    "max_steps": 5,
    "gradient_accumulation_steps": 2,
    "per_device_eval_batch_size": 16,
    "lr_scheduler_type": "cosine",
    "logging_steps": 3.0,
    "disable_dropout": False,
}
# Those that exclude one of the above.
EXCLUSIVE_VALUES = {
    "reward_normalization": "mean_std",
    "reward_grouping": "env",
    "rollout_filter_num_groups": 3,
}
BOTH_SETS = pytest.mark.parametrize("values", [OTHER_VALUES, EXCLUSIVE_VALUES])


@BOTH_SETS
@pytest.mark.parametrize("parser_class", [HfArgumentParser, TrlParser])
def test_command_line_gives_what_the_constructor_gives(parser_class, values, tmp_path):
    assert set(NEW_FIELDS) <= OTHER_VALUES.keys() | EXCLUSIVE_VALUES.keys()
    arguments = ["--output_dir", str(tmp_path)]
    for name, value in values.items():
        words = value if isinstance(value, list) else [value]
        arguments += [f"--{name}", *map(str, words)]
    (parsed,) = parser_class(StarPOConfig).parse_args_into_dataclasses(arguments)
    expected = StarPOConfig(str(tmp_path), **values)
    differing = [name for name in FIELDS if getattr(parsed, name) != getattr(expected, name)]
    assert differing == []
    defaults = StarPOConfig(str(tmp_path))
    assert [name for name in values if getattr(parsed, name) == getattr(defaults, name)] == []


@BOTH_SETS
def test_config_file_gives_what_the_constructor_gives(values, tmp_path):
    path = tmp_path / "run.yaml"
    lines = [f"{name}: {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join([f"output_dir: {tmp_path}", *lines]), encoding="utf-8")
    (parsed,) = TrlParser(StarPOConfig).parse_args_and_config(["--config", str(path)])
    expected = StarPOConfig(str(tmp_path), **values)
    assert [n for n in FIELDS if getattr(parsed, n) != getattr(expected, n)] == []


def test_command_line_unknown_choice_is_refused(tmp_path, capsys):
    arguments = ["--output_dir", str(tmp_path), "--rollout_filter", "nonsense"]
    with pytest.raises(SystemExit):
        HfArgumentParser(StarPOConfig).parse_args_into_dataclasses(arguments)
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err
