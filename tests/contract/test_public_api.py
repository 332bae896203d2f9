"""The names that other people's code may import, and that each says what it is."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import ragen_envs
import ragen_trl

PUBLIC_NAMES = {
    "ragen_envs": {
        "AgentTurns",
        "BanditEnv",
        "FrozenLakeEnv",
        "OptimalActions",
        "ParsedReply",
        "SokobanEnv",
        "TextEnv",
        "demonstrations",
        "from_gym",
        "optimal_success",
        "optimal_turn_success",
        "parse_reply",
        "render_gif",
        "solve",
        "solve_turn",
    },
    "ragen_envs.baselines": {
        "Baseline",
        "EpisodeResult",
        "Policy",
        "greedy_policy",
        "measure_baseline",
        "play",
        "play_random",
        "random_policy",
        "random_reply",
        "solver_policy",
    },
    "ragen_envs.curriculum": {"Curriculum"},
    "ragen_envs.splits": {"Split", "Splits", "canonical_form", "is_held_out", "split_seeds"},
    "ragen_envs.statistics": {"wilson_interval"},
    "ragen_envs.tools": {
        "BanditTools",
        "FrozenLakeTools",
        "SokobanTools",
        "environment_success",
    },
    "ragen_trl.evaluate": {
        "EnvSummary",
        "EpisodeJob",
        "EpisodeRecord",
        "EvaluationResult",
        "EvaluationSettings",
        "LocalPlayer",
        "PairedComparison",
        "Player",
        "compare_results",
        "evaluate",
        "mcnemar_p_value",
        "read_result",
    },
    "ragen_envs.vector": {
        "BanditVectorEnv",
        "FrozenLakeVectorEnv",
        "SokobanVectorEnv",
        "TextVectorEnv",
    },
    "ragen_trl": {
        "EchoTrapCallback",
        "EnvSpec",
        "MutualInformationCallback",
        "RolloutCallback",
        "StarPOConfig",
        "StarPOTrainer",
        "Trajectory",
        "Turn",
        "evaluate",
    },
    "ragen_trl.functional": {
        "GAEOutput",
        "Information",
        "Moments",
        "PolicyLoss",
        "ValueLoss",
        "clipped_policy_loss",
        "clipped_value_loss",
        "combine_moments",
        "compute_bi_level_gae",
        "compute_gae",
        "discounted_turn_returns",
        "explained_variance",
        "explained_variance_from_moments",
        "gigpo_advantages",
        "group_advantages",
        "group_scores",
        "has_no_variance",
        "importance_weights",
        "kl_k1",
        "kl_k2",
        "kl_k3",
        "loss_scale",
        "masked_mean",
        "masked_moments",
        "masked_sum",
        "measure_information",
        "normalize_returns",
        "rebn_advantages",
        "row_weights",
        "select_groups",
        "select_within_groups",
        "soft_group_weights",
        "turns_to_tokens",
        "whiten",
    },
    "ragen_trl.report": {"write_report"},
    "ragen_trl.monitor": {
        "Alarm",
        "CollapseWatch",
        "EchoTrapCallback",
        "Signal",
        "default_signals",
    },
    "ragen_trl.tiny": {"build_tiny_policy", "load_tiny_policy", "warm_start"},
}
PUBLIC_OBJECTS = sorted((module, name) for module, names in PUBLIC_NAMES.items() for name in names)
MODULES = sorted(
    info.name
    for package in (ragen_envs, ragen_trl)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


def find(module, name):
    return vars(importlib.import_module(module))[name]


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_public_names_are_the_promised_ones(module):
    names = importlib.import_module(module).__all__
    assert set(names) == PUBLIC_NAMES[module]
    assert names == sorted(names)


@pytest.mark.parametrize(("module", "name"), PUBLIC_OBJECTS)
def test_public_objects_and_their_methods_are_documented(module, name):
    thing = find(module, name)
    assert thing.__doc__
    # A dataclass or a named tuple without a docstring gets its signature for one.
    assert not thing.__doc__.startswith(f"{name}(")
    if inspect.isclass(thing):
        for member_name, member in vars(thing).items():
            is_function = inspect.isfunction(member) or isinstance(member, property)
            if is_function and not member_name.startswith("_"):
                assert member.__doc__, member_name


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_documented(module):
    assert importlib.import_module(module).__doc__


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in PUBLIC_NAMES["ragen_trl.functional"]
        if not inspect.isclass(find("ragen_trl.functional", name))
    ),
)
def test_kernels_show_a_runnable_example(name):
    assert ">>> " in find("ragen_trl.functional", name).__doc__


@pytest.mark.parametrize("module", ["ragen_envs", "ragen_trl", *MODULES])
def test_examples_in_docstrings_give_what_they_say(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.failed == 0


def test_examples_in_docstrings_are_found():
    finder = doctest.DocTestFinder()
    found = {m: finder.find(importlib.import_module(m)) for m in MODULES}
    examples = {m: sum(len(test.examples) for test in tests) for m, tests in found.items()}
    assert examples["ragen_envs.solvers"] >= 8
    assert examples["ragen_trl.functional.losses"] >= 8


def test_package_of_the_evaluation_is_its_function_as_well():
    # In a new process: here the modules are loaded already, in whatever order.
    code = (
        "import ragen_trl.evaluate as package, ragen_trl\n"
        "from ragen_trl import evaluate\n"
        "from ragen_trl.evaluate import store, EvaluationSettings\n"
        "assert ragen_trl.evaluate is package is evaluate\n"
        "few = EvaluationSettings(episodes=2, think=False, max_new_tokens_per_turn=24)\n"
        "for call in (evaluate, package.evaluate):\n"
        "    result = call('tiny', 'ragen/Bandit-v0', settings=few)\n"
        "    assert type(result) is package.EvaluationResult\n"
        "assert store.EpisodeStore.__module__ == 'ragen_trl.evaluate.store'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
