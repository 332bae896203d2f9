import subprocess
import sys

import matplotlib
import pytest
from matplotlib.figure import Figure

import ragen_trl.curves
from ragen_trl.curves import Reference, plot_curves

BANDIT, LAKE = "ragen/Bandit-v0", "ragen/FrozenLake-v0"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Draw a picture; return its axes by title, as they were when it was saved."""
    figures = []
    save = Figure.savefig

    def remember(figure, path, **kwargs):
        figures.append(figure)
        save(figure, path, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)

    def plot(log, references, **kwargs):
        path = tmp_path / "curves.png"
        plot_curves(log, path, references=references, **kwargs)
        assert path.read_bytes().startswith(PNG_SIGNATURE)
        return figures[-1], {axis.get_title(): axis for axis in figures[-1].axes}

    return plot


def lines(axis):
    """Points of every line by its label; unlabelled ones begin with an underscore."""
    return {
        line.get_label(): list(zip(*(map(float, data) for data in line.get_data()), strict=True))
        for line in axis.get_lines()
    }


def test_plot_curves_of_one_environment(draw):
    log = [
        {"step": 0, "eval_success_rate": 0.1, **interval("eval_", 0.0, 0.2)},
        {"step": 1, "reward": 0.25, "success_rate": 0.5, "entropy": 1.5},
        {"step": 2, "reward": 0.5, "success_rate": 0.75, "entropy": None},
        {"step": 2, "eval_success_rate": 0.9, **interval("eval_", 0.8, 1.0)},
        {"step": 2, "train_runtime": 3.0},
    ]
    figure, axes = draw(log, {BANDIT: Reference(0.5, 1.0)}, title="A run")
    assert figure.get_suptitle() == "A run"
    success = axes[f"success, {BANDIT}"]
    drawn = lines(success)
    assert drawn["training"] == [(1.0, 0.5), (2.0, 0.75)]
    assert drawn["evaluation, 95 % interval"] == [(0.0, 0.1), (2.0, 0.9)]
    assert [y for _, y in drawn["random play"]] == [0.5, 0.5]
    assert [y for _, y in drawn["optimum"]] == [1.0, 1.0]
    (band,) = success.collections
    assert {tuple(point) for path in band.get_paths() for point in path.vertices} == {
        (0.0, 0.0),
        (0.0, 0.2),
        (2.0, 0.8),
        (2.0, 1.0),
    }
    assert list(lines(axes["return per episode"]).values()) == [[(1.0, 0.25), (2.0, 0.5)]]
    assert list(lines(axes["entropy of sampled tokens (nats)"]).values()) == [[(1.0, 1.5)]]
    assert list(lines(axes["std of returns within a group"]).values()) == [[]]


def interval(stem, low, high):
    return {f"{stem}success_rate_low": low, f"{stem}success_rate_high": high}


def test_plot_curves_of_several_environments_gives_each_its_panel(draw):
    log = [
        {"step": 1, "success_rate": 0.9, f"{BANDIT}/success_rate": 0.4},
        {"step": 2, f"eval_{LAKE}_success_rate": 0.3, **interval(f"eval_{LAKE}_", 0.2, 0.4)},
    ]
    _, axes = draw(log, {BANDIT: Reference(0.5, 0.0), LAKE: Reference(0.1, None)})
    assert len(axes) == 5
    bandit, lake = lines(axes[f"success, {BANDIT}"]), lines(axes[f"success, {LAKE}"])
    assert bandit["training"] == [(1.0, 0.4)]
    assert bandit["evaluation, 95 % interval"] == []
    assert lake["evaluation, 95 % interval"] == [(2.0, 0.3)]
    # Where the optimum is unknown there is no line for it.
    assert "optimum" in bandit
    assert "optimum" not in lake


def test_plot_curves_of_an_empty_log_is_still_a_picture(draw):
    _, axes = draw([], {BANDIT: Reference(0.5, 1.0)})
    assert lines(axes[f"success, {BANDIT}"])["training"] == []


@pytest.mark.parametrize("odd", ["x", [0.5], {}, float("nan"), float("inf"), 1.7e308, 10**400])
def test_plot_curves_leaves_out_what_is_no_number(odd, draw):
    log = [
        {"step": 1, "success_rate": odd, "reward": odd},
        {"step": 2, "success_rate": 0.5, "reward": 0.25},
        {"step": 3, "eval_success_rate": 0.5, **interval("eval_", odd, 0.5)},
        {"step": 4, "eval_success_rate": 0.5, **interval("eval_", 0.25, 0.75)},
    ]
    _, axes = draw(log, {BANDIT: Reference(odd, odd)})
    assert lines(axes[f"success, {BANDIT}"]) == {
        "training": [(2.0, 0.5)],
        "evaluation, 95 % interval": [(4.0, 0.5)],
    }
    assert list(lines(axes["return per episode"]).values()) == [[(2.0, 0.25)]]


@pytest.mark.parametrize("name", ["$", "a$b^$c", "$\\frac{$", "\\"])
def test_plot_curves_takes_names_as_they_are(name, draw):
    figure, axes = draw([{"step": 1, "success_rate": 0.5}], {name: Reference(0.5, 1.0)}, title=name)
    assert figure.get_suptitle() == name
    assert f"success, {name}" in axes


def test_plot_curves_of_too_many_environments_shows_some_and_says_so(draw, monkeypatch):
    monkeypatch.setattr(ragen_trl.curves, "MAX_ENVIRONMENTS", 2)
    references = {f"env{k}": Reference(0.5, 1.0) for k in range(5)}
    figure, axes = draw([], references, title="A run")
    assert figure.get_suptitle() == "A run (the first 2 of 5 environments)"
    assert [title for title in axes if "env" in title] == ["success, env0", "success, env1"]


def test_picture_of_the_most_environments_is_no_wider_than_the_library_can_draw():
    # As `plot_curves` sets it: inches per panel and dots per inch.
    assert 4.2 * 110 * (ragen_trl.curves.MAX_ENVIRONMENTS + 3) < 2**16


def test_plot_curves_needs_no_display_whatever_the_back_end(tmp_path):
    # By path: the rest of the package would take seconds to import.
    code = """
import runpy, sys
from pathlib import Path
curves = runpy.run_path(sys.argv[1])
references = {"a": curves["Reference"](0.5, None)}
curves["plot_curves"]([], Path(sys.argv[2]), references=references)
print("matplotlib.pyplot" in sys.modules)
"""
    path = tmp_path / "x.png"
    result = subprocess.run(
        [sys.executable, "-c", code, ragen_trl.curves.__file__, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"MPLBACKEND": "qtagg", "MPLCONFIGDIR": matplotlib.get_configdir()},
    )
    assert result.stdout.strip() == "False"
    assert path.read_bytes().startswith(PNG_SIGNATURE)
