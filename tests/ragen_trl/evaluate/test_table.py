from ragen_trl.evaluate import EvaluationResult, EvaluationSettings, PairedComparison
from ragen_trl.evaluate.table import format_comparison, format_result
from ragen_trl.evaluation import Rate


def make_result(make_record, usage):
    return EvaluationResult(
        settings={
            "model": {"name": "runs/demo"},
            "environments": {"lake": {}, "chat": {}},
            **EvaluationSettings(episodes=1, samples=2).__dict__,
        },
        episodes=[
            make_record("lake", 1, 0, success=True),
            make_record("lake", 1, 1),
            make_record("chat", 1, 0, error="lost"),
        ],
        random_success={"lake": Rate(0.25, 0.125, 0.5), "chat": None},
        optimal_success={"lake": 1.0, "chat": None},
        usage=usage,
        timings={},
    )


def test_format_result_one_line_per_environment(make_record):
    title, *rows = format_result(make_result(make_record, {})).split("\n")
    assert title == (
        "runs/demo: 1 start states from seed 123 on, 2 episode(s) each, temperature 0.5"
    )
    head, _, lake, chat = [[cell.strip() for cell in row.split("|")] for row in rows]
    values = dict(zip(head, lake, strict=True))
    assert values == {
        "environment": "lake",
        "success [95 % interval]": "50.0% [  9.5%,  90.5%]",
        "pass@2": "100.0%",
        "random play": "25.0% [ 12.5%,  50.0%]",
        "optimum": "100.0%",
        "reward": "+0.500",
        "turns": "2.00",
        "actions": "3.00",
        "valid": "50%",
        "effective": "67%",
        "tokens/reply": "5.0",
        "errors": "0",
    }
    assert chat == ["chat", *["-"] * 10, "1"]


def test_format_result_says_what_playing_took(make_record):
    text = format_result(make_result(make_record, {"tokens": 1200.0, "retries": 3}))
    assert text.endswith("\nusage: tokens 1200, retries 3")


def test_format_comparison_shows_counts_and_p():
    text = format_comparison("a", "b", {"lake": PairedComparison(7, 1, 4, 2, 3, 0.375)})
    title, head, _, row = text.split("\n")
    assert title.startswith("a (first) against b (second)")
    assert [cell.strip() for cell in head.split("|")][1:] == [
        *("both", "first only", "second only", "neither", "unpaired", "p"),
    ]
    assert [cell.strip() for cell in row.split("|")] == ["lake", "7", "1", "4", "2", "3", "0.375"]
