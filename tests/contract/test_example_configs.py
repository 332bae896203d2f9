"""The YAML files under examples/configs: each one runs as it stands, and says what it is for."""

import importlib.util
import typing
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONFIGS = {path.stem: path for path in sorted((ROOT / "examples/configs").glob("*.yaml"))}
# The methods side by side; the others are demonstrations, which spell their settings out.
METHODS = [name for name in CONFIGS if name.startswith("starpo_")]
VANILLA = ["starpo_grpo", "starpo_ppo"]

by_name = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train_script", ROOT / "examples/train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def parse(script):
    from trl import TrlParser

    from ragen_trl import StarPOConfig

    def parse(name):
        parser = TrlParser((script.ScriptArguments, StarPOConfig))
        return parser.parse_args_and_config(["--config", str(CONFIGS[name])])

    return parse


def read(name):
    return yaml.safe_load(CONFIGS[name].read_text(encoding="utf-8"))


@by_name
def test_file_parses_into_a_configuration_of_what_it_says(name, parse):
    script, args = parse(name)
    for option, value in read(name).items():
        owner = args if option in vars(args) else script
        # transformers turns "none" into a list of no trackers.
        expected = [] if option == "report_to" else value
        assert getattr(owner, option) == expected, option
    assert script.env_specs()


@by_name
def test_file_names_its_estimator_and_a_folder_of_its_own(name):
    assert "advantage_estimator" in read(name)
    others = [read(other)["output_dir"] for other in CONFIGS if other != name]
    assert read(name)["output_dir"] not in others


@pytest.mark.parametrize("name", METHODS)
def test_methods_say_only_what_differs_from_the_defaults(name, parse, script, tmp_path):
    from ragen_trl import StarPOConfig

    defaults = vars(script.ScriptArguments()) | vars(StarPOConfig(str(tmp_path)))
    same = [option for option, value in read(name).items() if defaults[option] == value]
    assert set(same) <= {"advantage_estimator"}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_named_after_their_estimator(name):
    called = name.removeprefix("starpo_").removeprefix("s_")
    assert read(name)["advantage_estimator"] == {"ppo": "gae"}.get(called, called)


def test_every_estimator_has_a_file_with_the_three_stabilisers(parse):
    from ragen_trl.config_choices import AdvantageEstimator

    stabilised = [parse(name)[1] for name in METHODS if name not in VANILLA]
    estimators = [args.advantage_estimator for args in stabilised]
    assert sorted(estimators) == sorted(typing.get_args(AdvantageEstimator))
    for args in stabilised:
        assert (args.rollout_filter, args.rollout_filter_ratio) == ("top_k", 0.25)
        assert (args.beta, args.kl_in_reward_coef) == (0.0, 0.0)
        assert (args.epsilon, args.epsilon_high, args.entropy_coef) == (0.2, 0.28, 0.001)


@pytest.mark.parametrize(
    ("name", "estimator", "kl_loss", "kl_reward"),
    [("starpo_grpo", "grpo", 0.001, 0.0), ("starpo_ppo", "gae", 0.0, 0.001)],
)
def test_vanilla_files_have_none_of_the_stabilisers(name, estimator, kl_loss, kl_reward, parse):
    _, args = parse(name)
    assert args.advantage_estimator == estimator
    assert args.rollout_filter == "none"
    assert (args.beta, args.kl_in_reward_coef) == (kl_loss, kl_reward)
    assert (args.epsilon, args.epsilon_high) == (0.2, 0.2)
    # As many rollouts as with a quarter of the groups.
    assert args.max_steps == 4 * 200
