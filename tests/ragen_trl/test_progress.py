import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from ragen_trl.progress import LineProgressCallback, RolloutBar, describe_iteration
from ragen_trl.rollout import TurnReport

UPDATE = {
    "loss": -0.0123,
    "reward": 0.25,
    "success_rate": 0.5,
    "rollout/valid_reply_ratio": 1.0,
    "rollout/in_group_reward_std": 0.4321,
    "rollout/kept_group_ratio": 0.25,
    "rollout/turns": 2.0,
    "entropy": 0.8,
    "grad_norm": 1.5,
    "rollout/tokens_per_second": 5432.1,
}
UPDATE_LINE = (
    "update   12 | reward +0.250 | success 50.0% | valid 100% | group std 0.432 | kept  25% | "
    "entropy 0.800 | grad 1.50 | tok/s 5432"
)


def test_describe_iteration_of_an_update():
    assert describe_iteration(UPDATE, 12) == UPDATE_LINE


def test_describe_iteration_leaves_out_what_was_not_logged():
    logs = {"reward": -0.1, "rollout/turns": 1.0, "grad_norm": None}
    assert describe_iteration(logs, 3) == "update    3 | reward -0.100"


def test_describe_iteration_of_one_evaluation():
    logs = {
        "eval_success_rate": 0.75,
        "eval_success_rate_low": 0.5,
        "eval_success_rate_high": 0.875,
        "eval_rollout/turns": 2.0,
    }
    expected = "evaluation after 40 updates | success 75.0% [50.0%, 87.5%]"
    assert describe_iteration(logs, 40) == expected


def test_describe_iteration_of_several_evaluations_names_each():
    logs = {"eval_success_rate": 0.5}
    for name, rate in (("a", 0.25), ("ragen/Bandit-v0", 0.75)):
        logs |= {
            f"eval_{name}_success_rate": rate,
            f"eval_{name}_success_rate_low": rate - 0.125,
            f"eval_{name}_success_rate_high": rate + 0.125,
        }
    assert describe_iteration(logs, 0) == (
        "evaluation after 0 updates | a success 25.0% [12.5%, 37.5%] | "
        "ragen/Bandit-v0 success 75.0% [62.5%, 87.5%]"
    )


def test_describe_iteration_of_the_closing_entry_is_empty():
    assert describe_iteration({"train_runtime": 5.0, "train_loss": 0.1}, 9) == ""


class Bar:
    """A progress bar that only remembers."""

    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)


@pytest.fixture
def log(tmp_path):
    """Send logs through the callback; return what stands above the bar."""
    arguments = TrainingArguments(str(tmp_path), report_to=[])

    def send(logs, *, is_main=True, has_bar=True):
        callback = LineProgressCallback()
        bar = Bar()
        callback.training_bar = bar if has_bar else None
        state = TrainerState(global_step=12, is_world_process_zero=is_main)
        callback.on_log(arguments, state, TrainerControl(), logs=logs)
        return bar.lines

    return send


def test_progress_callback_writes_one_line_above_the_bar(log):
    assert log(UPDATE) == [UPDATE_LINE]


def test_progress_callback_is_silent_for_other_entries_processes_and_without_a_bar(log):
    assert log({"train_runtime": 5.0}) == []
    assert log(None) == []
    assert log(UPDATE, is_main=False) == []
    assert log(UPDATE, has_bar=False) == []


def test_rollout_bar_counts_episodes_and_shows_turn_and_speed(capsys):
    with RolloutBar(8, is_shown=True) as bar:
        bar.update(TurnReport(turn=1, num_finished=3, num_tokens=50))
        bar.update(TurnReport(turn=2, num_finished=5, num_tokens=10))
        assert bar._bar.n == 8
        assert bar._bar.postfix.startswith("turn 2, ")
        assert bar._bar.postfix.endswith(" tokens/s")
    with RolloutBar(8, is_shown=False) as bar:
        bar.update(TurnReport(turn=1, num_finished=3, num_tokens=50))
    assert "rollout" in capsys.readouterr().err
