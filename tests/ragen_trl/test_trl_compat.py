"""What an upgrade of TRL would break, found before a training run finds it."""

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from ragen_trl import StarPOTrainer, trl_compat
from ragen_trl.playing_trainer import PlayingTrainer
from ragen_trl.scoring_trainer import ScoringTrainer
from ragen_trl.trl_compat import CALLS, OVERRIDES

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
OURS = (PlayingTrainer, ScoringTrainer, StarPOTrainer)
OWN = {name for cls in OURS for name in vars(cls)}
# Class attributes with which a TRL trainer names itself.
LABELS = {"_tag_names", "_name", "_paper"}


def parameters(function):
    return tuple(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", OVERRIDES)
def test_overridden_methods_have_the_listed_parameters_on_both_sides(name):
    listed, reason = OVERRIDES[name]
    assert parameters(getattr(GRPOTrainer, name)) == listed
    assert parameters(getattr(StarPOTrainer, name)) == listed
    assert reason.endswith(".")


def test_the_trainer_overrides_exactly_what_is_listed():
    own = {name for name in OWN if not name.startswith("__")}
    assert {name for name in own if hasattr(GRPOTrainer, name)} == set(OVERRIDES) | LABELS


@pytest.mark.parametrize("name", CALLS)
def test_called_methods_begin_with_the_listed_parameters(name):
    first = parameters(getattr(GRPOTrainer, name))[1 : 1 + len(CALLS[name])]
    assert first == CALLS[name]


class Names:
    """Attributes of `self` in the source of classes, by what is done with them."""

    def __init__(self, *classes):
        nodes = [node for cls in classes for node in self.walk(cls)]
        attributes = [
            n
            for n in nodes
            if isinstance(n, ast.Attribute) and ast.unparse(n.value) in ("self", "super()")
        ]
        self.assigned = {n.attr for n in attributes if isinstance(n.ctx, ast.Store)}
        self.read = {n.attr for n in attributes if isinstance(n.ctx, ast.Load)}
        self.called = {
            n.func.attr for n in nodes if isinstance(n, ast.Call) and n.func in attributes
        }

    @staticmethod
    def walk(cls):
        module = ast.parse(inspect.getsource(inspect.getmodule(cls)))
        (node,) = [
            n for n in ast.walk(module) if isinstance(n, ast.ClassDef) and n.name == cls.__name__
        ]
        return list(ast.walk(node))


@pytest.fixture(scope="module")
def ours():
    return Names(*OURS)


@pytest.fixture(scope="module")
def assigned_by_bases():
    bases = [c for c in GRPOTrainer.__mro__ if c.__module__.startswith(("trl", "transformers"))]
    assert len(bases) >= 3
    return set().union(*(Names(base).assigned for base in bases))


def test_private_methods_of_trl_that_are_called_are_exactly_the_listed_ones(ours):
    private = {name for name in ours.called if name.startswith("_") and hasattr(GRPOTrainer, name)}
    assert private - OWN == set(CALLS)


def test_attributes_taken_from_trl_exist_there(ours, assigned_by_bases):
    taken = ours.read - ours.assigned - OWN
    assert len(taken) > 20
    missing = {name for name in taken if not hasattr(GRPOTrainer, name)} - assigned_by_bases
    assert missing == set()


def test_attributes_of_our_own_do_not_overwrite_those_of_trl(ours, assigned_by_bases):
    # `evaluate` passes on the control that the callbacks return, as transformers does; `beta` was
    # that of the KL in the reward while TRL loaded the reference; the end tokens are TRL's and the
    # chat template's.
    assert ours.assigned & assigned_by_bases == {"beta", "control", "eos_token_ids"}
    assert OWN & assigned_by_bases == set()
    assert {name for name in ours.assigned if hasattr(GRPOTrainer, name)} == set()


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("disable_gradient_checkpointing", {"model", "gradient_checkpointing_kwargs"}),
        (
            "unwrap_model_for_generation",
            {"model", "accelerator", "generation_kwargs", "gradient_checkpointing_kwargs"},
        ),
        ("use_adapter", {"model", "adapter_name"}),
        ("disable_dropout_in_model", {"model"}),
    ],
)
def test_helpers_taken_from_trl_have_the_parameters_that_are_used(name, used):
    assert used <= set(parameters(getattr(trl_compat, name)))


def test_grpo_trainer_leaves_the_scaling_of_the_loss_to_compute_loss():
    # Otherwise transformers would divide our loss by the number of micro-batches.
    assert StarPOTrainer.loss_is_scaled_for_ga is True


def test_grpo_trainer_loads_two_models_by_name_the_reference_last():
    # `policy_is_the_reference` replaces the second; with a model in place of a name, the only one.
    source = inspect.getsource(GRPOTrainer.__init__)
    found = re.findall(r"([\w.]+) = create_model_from_path\(", source)
    assert found == ["model", "self.ref_model"]
    assert source.count("create_model_from_path") == 2


def test_the_loader_of_trl_is_put_back(make_trainer):
    load = grpo_trainer.create_model_from_path
    with trl_compat.policy_is_the_reference("name"):
        assert grpo_trainer.create_model_from_path is not load
    assert grpo_trainer.create_model_from_path is load
    with pytest.raises(OSError, match="offline mode"):
        make_trainer(model="no/such", beta=0.1)
    assert grpo_trainer.create_model_from_path is load


def test_the_stand_in_for_a_reward_function_is_never_meant_to_be_called():
    with pytest.raises(AssertionError, match="rewards from the environment"):
        trl_compat.reward_is_the_environments(prompts=[], completions=[])


def read_requirements():
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["trl"]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


@pytest.mark.parametrize(
    "name", ["trl", "transformers", "torch", "peft", "accelerate", "gymnasium"]
)
def test_installed_versions_lie_in_the_pinned_window(name):
    assert read_requirements()[name].specifier.contains(version(name))


def test_the_window_of_trl_is_one_minor_version():
    specifier = read_requirements()["trl"].specifier
    major, minor = map(int, re.match(r"(\d+)\.(\d+)", version("trl")).groups())
    assert not specifier.contains(f"{major}.{minor + 1}.0")
    assert not specifier.contains(f"{major}.{minor - 1}.0")
