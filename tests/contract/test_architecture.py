"""The layers, the ceilings and the mirrored tests, read from the source."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("ragen_envs", "ragen_trl")
MODULES = sorted(
    path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py")
)
TESTS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

# Modules without a test file of their own, and where they are tested instead.
UNMIRRORED = {
    "ragen_trl/config_choices.py": "test_starpo_config: every choice is tried there",
    "ragen_trl/playing_config.py": "test_starpo_config: the class is a part of `StarPOConfig`",
}

# Imported inside of a function; `test_gif` checks that the package can do without it.
OPTIONAL = {"ragen_envs/gif.py": ("PIL",)}

by_module = pytest.mark.parametrize("module", MODULES, ids=str)


def parse(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def imported_modules(path):
    """Full names of all imported modules, those inside of functions included.

    `from a import b` counts as `a` and as `a.b`, since `b` may be a module.
    """
    names = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def is_within(name, allowed):
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)


def outside(path, allowed):
    allowed = {*allowed, *sys.stdlib_module_names}
    # `from a import b` of an allowed `a` is allowed, too: it is a prefix.
    return {name for name in imported_modules(path) if not is_within(name, allowed)}


@pytest.mark.parametrize("module", [m for m in MODULES if m.parts[0] == "ragen_envs"], ids=str)
def test_environments_need_gymnasium_and_numpy_alone(module):
    optional = OPTIONAL.get(module.as_posix(), ())
    assert outside(module, ("numpy", "gymnasium", "ragen_envs", *optional)) == set()


@pytest.mark.parametrize("module", [m for m in MODULES if m.parts[1] == "functional"], ids=str)
def test_kernels_need_torch_alone(module):
    assert outside(module, ("torch", "ragen_trl.functional")) == set()


@pytest.mark.parametrize("family", ["bandit", "frozen_lake", "sokoban"])
def test_environments_do_not_import_each_other(family):
    others = {f"ragen_envs.{name}" for name in {"bandit", "frozen_lake", "sokoban"} - {family}}
    own = [
        m for m in MODULES if m.parts[0] == "ragen_envs" and m.with_suffix("").parts[1] == family
    ]
    assert own
    for module in own:
        assert not [name for name in imported_modules(module) if is_within(name, others)]


def test_only_the_package_itself_imports_the_trainer():
    trainer = "ragen_trl.starpo_trainer"
    importers = [str(m) for m in MODULES if trainer in imported_modules(m)]
    assert importers == ["ragen_trl/__init__.py"]


@pytest.mark.parametrize("module", [m for m in MODULES if m.parts[0] == "ragen_trl"], ids=str)
def test_what_lies_inside_of_trl_is_imported_in_one_place(module):
    imported = {name for name in imported_modules(module) if is_within(name, ["trl"])}
    assert not [name for name in imported if is_within(name, ["trl.experimental"])]
    if module.name != "trl_compat.py":
        assert imported <= {"trl", "trl.GRPOConfig", "trl.GRPOTrainer"}


@by_module
def test_packages_do_not_print(module):
    calls = [node for node in ast.walk(parse(module)) if isinstance(node, ast.Call)]
    assert not [call.lineno for call in calls if ast.unparse(call.func) == "print"]


@by_module
def test_files_and_functions_stay_below_the_ceilings(module):
    tree = parse(module)
    assert len((ROOT / module).read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert code_lines(node) <= MAX_FUNCTION_LINES, f"{node.name}: {code_lines(node)} lines"


def code_lines(function):
    """Lines from `def` to the end, without the docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "__init__.py"], ids=str)
def test_every_module_has_its_test_file(module):
    mirror = Path("tests") / module.parent / f"test_{module.name}"
    assert (mirror in TESTS) != (str(module) in UNMIRRORED), f"{mirror} is expected"


@pytest.mark.parametrize(
    "test", [t for t in TESTS if t.parts[1] in PACKAGES and t.name.startswith("test_")], ids=str
)
def test_every_test_file_has_its_module(test):
    folder = Path(*test.parts[1:-1])
    names = [m.stem for m in MODULES if m.parent == folder]
    assert any(f"{test.stem}_".startswith(f"test_{name}_") for name in names)


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_tests_neither_mock_nor_hide_in_classes(test):
    assert not [name for name in imported_modules(test) if is_within(name, ["unittest"])]
    classes = [node.name for node in ast.walk(parse(test)) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if name.startswith("Test")]
