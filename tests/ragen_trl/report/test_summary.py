from ragen_trl.report.run_folder import RunFolder
from ragen_trl.report.series import make_success_panels
from ragen_trl.report.summary import summarize
from tests.runs import LAKE, REFERENCES, make_log


def summarize_log(log, folder, references=REFERENCES):
    run = RunFolder(folder, "run", log, references, [], [])
    return summarize(run, 0, make_success_panels([(run, [LAKE])]))


def test_summary_is_that_of_evaluations_where_there_are_any(tmp_path):
    log = make_log(10)
    log[-1]["eval_success_rate"] = 0.125  # was 0.25 at step 5
    (row,) = summarize_log(log, tmp_path)
    assert row == {
        "env": LAKE,
        "is_evaluated": True,
        "last": {"step": 10, "y": 0.125, "low": 0.4, "high": 0.6},
        "best": {"step": 5, "y": 0.25, "low": 0.15, "high": 0.35},
        "random_play": 0.2,
        "optimum": 1.0,
        "num_updates": 10,
    }


def test_summary_without_evaluations_or_references(tmp_path):
    (row,) = summarize_log(make_log(3), tmp_path, references={})
    assert row["is_evaluated"] is False
    assert row["last"] == row["best"] == {"step": 3, "y": 0.5}
    assert (row["random_play"], row["optimum"]) == (None, None)
    assert summarize_log([], tmp_path) == []
