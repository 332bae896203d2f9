import math
import sys

import pytest

from ragen_trl.report.run_folder import RunFolder
from ragen_trl.report.series import make_panels, make_success_panels, round_number, thin

BANDIT, LAKE = "ragen/Bandit-v0", "ragen/FrozenLake-v0"


@pytest.fixture
def make_run(tmp_path):
    def make(log, references=None):
        return RunFolder(tmp_path, "run", log, references or {}, [], [])

    return make


def interval(stem, rate):
    low, high = rate - 0.1, rate + 0.1
    names = (f"{stem}success_rate{end}" for end in ("", "_low", "_high"))
    return dict(zip(names, (rate, low, high), strict=True))


def test_success_of_one_environment_with_its_interval_and_references(make_run):
    log = [
        {"step": 0, **interval("eval_", 0.25)},
        {"step": 1, "success_rate": 0.5, "reward": 1.0},
        {"step": 2, "success_rate": 0.75, "reward": 2.0},
    ]
    references = {LAKE: {"random_play": {"rate": 0.2, "low": 0.1, "high": 0.3}, "optimum": 1.0}}
    (panel,) = make_success_panels([(make_run(log, references), [LAKE])])
    assert (panel["env"], panel["is_share"]) == (LAKE, True)
    train, evaluated = panel["lines"]
    assert (train["kind"], train["x"], train["y"]) == ("train", (1, 2), (0.5, 0.75))
    assert (evaluated["kind"], evaluated["x"], evaluated["y"]) == ("eval", (0,), (0.25,))
    assert (evaluated["low"], evaluated["high"]) == ((0.15,), (0.35,))
    assert panel["rules"] == [
        {"kind": "random_play", "y": 0.2},
        {"kind": "optimum", "y": 1.0},
    ]


def test_success_of_several_environments_has_a_panel_each(make_run):
    log = [
        {
            "step": 1,
            "success_rate": 0.5,
            f"{BANDIT}/success_rate": 0.9,
            f"{LAKE}/success_rate": 0.1,
        },
        {"step": 1, **interval(f"eval_{LAKE}_", 0.3), **interval("eval_larger_", 0.2)},
    ]
    run = make_run(log, {"larger": {"random_play": None, "optimum": 0.6}})
    panels = {p["env"]: p for p in make_success_panels([(run, [BANDIT, LAKE])])}
    kinds = {name: [line["kind"] for line in p["lines"]] for name, p in panels.items()}
    assert kinds == {BANDIT: ["train"], LAKE: ["train", "eval"], "larger": ["eval"]}
    assert panels["larger"]["rules"] == [{"kind": "optimum", "y": 0.6}]


@pytest.mark.parametrize(
    ("references", "names", "expected"),
    [({LAKE: {}}, [], [LAKE]), ({}, [LAKE], [LAKE]), ({}, [], ["training", "evaluation"])],
)
def test_success_of_one_environment_is_named_by_what_is_known(
    references, names, expected, make_run
):
    log = [{"step": 1, "success_rate": 0.5}, {"step": 1, **interval("eval_", 0.3)}]
    panels = make_success_panels([(make_run(log, references), names)])
    assert [panel["env"] for panel in panels] == expected


def test_success_of_several_runs_shares_panels_and_equal_references(make_run):
    log = [{"step": 1, "success_rate": 0.5}]
    runs = [(make_run(log, {LAKE: {"optimum": best}}), [LAKE]) for best in (1.0, 1.0, 0.5)]
    (panel,) = make_success_panels(runs)
    assert [line["run"] for line in panel["lines"]] == [0, 1, 2]
    assert [rule["y"] for rule in panel["rules"]] == [1.0, 0.5]


def test_panels_hold_every_number_of_the_log_once(make_run):
    log = [
        {"step": 1, "reward": 1.0, "success_rate": 0.5, "kl": 0.1, "epoch": 0.5, "note": "text"},
        {"step": 2, "eval_reward": 2.0, "eval_runtime": 3.0, "is_good": True, "entropy": math.nan},
    ]
    panels = make_panels([(make_run(log), [LAKE])])
    found = {panel["title"]: [line["kind"] for line in panel["lines"]] for panel in panels}
    assert found == {
        "Return per episode": ["train", "eval"],
        "eval_runtime": ["eval"],
        "kl": ["train"],
    }
    assert [panel["is_main"] for panel in panels] == [True, False, False]


def test_thin_keeps_every_spike():
    points = [(float(x), math.sin(x)) for x in range(10_000)]
    points[4321] = (4321.0, 50.0)
    points[8765] = (8765.0, -50.0)
    kept = thin(points)
    assert 900 < len(kept) <= 1000
    assert {points[4321], points[8765]} <= set(kept)
    assert kept == sorted(kept)
    assert thin(points[:1000]) == points[:1000]


def test_round_number_takes_finite_numbers_alone():
    assert round_number(1 / 3) == 0.333333
    assert round_number(123456789) == 123457000.0
    assert [round_number(x) for x in (None, "1", True, math.nan, -math.inf)] == [None] * 5
    assert [round_number(x) for x in (10**400, -(10**400))] == [None] * 2
    assert round_number(sys.float_info.max) == 1.79769e308


class Counting(dict):
    """An entry that counts how often a value is asked for."""

    asked = 0

    def get(self, *arguments):
        Counting.asked += 1
        return super().get(*arguments)


def test_panels_of_names_that_few_entries_hold_look_at_those_alone(make_run):
    log = [Counting(step=k, **{f"name {k}": 1.0}) for k in range(200)]
    Counting.asked = 0
    assert len(make_panels([(make_run(log), [])])) == 200
    assert Counting.asked == 2 * len(log)
