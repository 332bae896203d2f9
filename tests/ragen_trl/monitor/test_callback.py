"""The callback in whole training runs: what it writes, when it stops, how it goes back."""

import json
import math
from dataclasses import replace

import pytest
import torch
from transformers import TrainerCallback

from ragen_trl import EchoTrapCallback, RolloutCallback
from ragen_trl.monitor import default_signals
from ragen_trl.monitor.rules import Rule, Verdict
from ragen_trl.monitor.signals import Signal
from ragen_trl.report.run_folder import read_run
from tests.training import BANDIT, copy_tensors, make_lora, train_logs


class FromMeasurement(Rule):
    """Bad: everything from the n-th measurement on."""

    words = "when the test says so"

    def __init__(self, first):
        self.first, self.count = first, 0

    def judge(self, value):
        self.count += 1
        return Verdict(self.count, self.first, self.count >= self.first)


def from_update(first, *, patience=1, metric="learning_rate"):
    """A sign of collapse from an update on, whatever happens."""
    rule = FromMeasurement(first)
    return Signal("late", metric, "the update", rule, patience, "none", "here", "`nothing`")


def read_events(output_dir):
    lines = (output_dir / "collapse.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def state_of(trainer):
    """Everything that training goes on from, as tensors and numbers."""
    tensors = dict(trainer.model.named_parameters())
    moments = trainer.optimizer.state_dict()["state"]
    if trainer.critic is not None:
        tensors |= {f"critic.{n}": p for n, p in trainer.critic.critic.trained_parameters().items()}
        critic_moments = trainer.critic.optimizer.state_dict()["state"]
        moments = moments | {f"critic.{i}": state for i, state in critic_moments.items()}
    tensors |= {f"{i}.{name}": x for i, state in moments.items() for name, x in state.items()}
    numbers = {
        "step": trainer.state.global_step,
        "iteration": trainer._iteration,
        "groups dealt": trainer._dealer.num_dealt,
        "pending": len(trainer._pending),
        "random": torch.random.get_rng_state().tolist(),
        "schedules": [s.last_epoch for s in trainer._schedulers],
        "log": [(e["step"], e["success_rate"]) for e in train_logs(trainer)],
    }
    return copy_tensors((n, t) for n, t in tensors.items() if torch.is_tensor(t)), numbers


class KeepStates(TrainerCallback):
    """Copies the state of training after every save, and before the first update of every leg."""

    def __init__(self):
        self.saves, self.saved, self.restored, self.rates = [], {}, [], []
        self.is_first = False

    def on_save(self, args, state, control, **kwargs):
        self.saves.append(state.global_step)
        self.saved[state.global_step] = state_of(self.trainer)

    def on_train_begin(self, args, state, control, **kwargs):
        self.is_first = True

    def on_step_begin(self, args, state, control, **kwargs):
        rates = [
            group["lr"] for s in self.trainer._schedulers for group in s.optimizer.param_groups
        ]
        self.rates.append((state.global_step, rates[0], rates[-1]))
        if self.is_first:
            self.restored.append(state_of(self.trainer))
        self.is_first = False


@pytest.fixture
def run(make_trainer, tmp_path):
    """Train with a callback, and return trainer, states and events."""

    def train(callback, **options):
        states = KeepStates()
        defaults = {
            "env": BANDIT,
            "callbacks": [states, callback],
            "output_dir": str(tmp_path / "run"),
            "save_strategy": "steps",
            "save_steps": 1,
            "max_steps": 6,
            "max_turns": 1,
            "max_new_tokens_per_turn": 8,
        }
        trainer = make_trainer(**{**defaults, **options})
        states.trainer = trainer
        play = trainer._play
        # Health depends on the signals of a test alone.
        trainer._play = lambda *args, **kwargs: [
            replace(trajectory, success=True) for trajectory in play(*args, **kwargs)
        ]
        trainer.train()
        events = read_events(tmp_path / "run") if (tmp_path / "run/collapse.jsonl").exists() else []
        return trainer, states, events

    return train


def test_warning_writes_the_event_and_training_goes_on(run, caplog):
    trainer, _, events = run(EchoTrapCallback(signals=[from_update(3)]), save_strategy="no")
    assert trainer.state.global_step == 6
    (event,) = events
    assert event == {
        "step": 3,
        "since": 3,
        "signal": "late",
        "value": 3,
        "threshold": 3,
        "message": event["message"],
        "action": "warn",
    }
    assert event["message"] in caplog.text
    assert "Signs of collapse at update 3. Training goes on." in caplog.text


def test_stop_ends_training_at_once(run, caplog):
    callback = EchoTrapCallback(on_collapse="stop", signals=[from_update(2)])
    trainer, states, events = run(callback)
    assert trainer.state.global_step == 2
    assert [event["action"] for event in events] == ["stop"]
    assert set(states.saved) == {1, 2}
    assert "Training stops." in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"advantage_estimator": "grpo", "save_total_limit": 1},
        # Eight updates per rollout: checkpoint 4 falls between two of them.
        {"num_iterations": 2, "rollout_filter": "none", "per_device_train_batch_size": 4},
        {"peft_config": "lora"},
        {"lr_scheduler_type": "cosine", "save_steps": 2},
    ],
    ids=["critic", "rotation", "between updates", "lora", "cosine"],
)
def test_rollback_restores_the_healthy_checkpoint_exactly(run, options):
    if "peft_config" in options:
        options = {**options, "peft_config": make_lora()}
    # Update 5 is bad once; the checkpoint after 4 is the last healthy one.
    callback = EchoTrapCallback(
        on_collapse="rollback",
        signals=[from_update(5)],
        max_rollbacks=1,
        learning_rate_factor=0.25,
    )
    _, states, events = run(callback, **options)
    assert [(e["step"], e["action"]) for e in events] == [(5, "rollback"), (5, "stop")]
    assert len(states.restored) == 2
    tensors, numbers = states.restored[1]
    saved_tensors, saved_numbers = states.saved[4]
    assert numbers == saved_numbers
    assert tensors.keys() == saved_tensors.keys()
    assert all(torch.equal(tensors[name], saved_tensors[name]) for name in tensors)
    # Update 5 was trained twice from there, at a quarter of its rates.
    first, second = [rates for step, *rates in states.rates if step == 4]
    assert second == pytest.approx([rate / 4 for rate in first])


def test_log_says_that_training_was_taken_back(run, caplog, tmp_path):
    callback = EchoTrapCallback(
        on_collapse="rollback",
        signals=[from_update(5)],
        max_rollbacks=1,
        filter_ratio_factor=0.5,
    )
    trainer, *_ = run(callback, save_steps=2, rollout_filter_ratio=1.0)
    logs = {entry["step"]: entry for entry in train_logs(trainer)}
    assert list(logs) == [1, 2, 3, 4, 5]
    assert logs[5]["rollback/from_step"] == 5
    assert logs[5]["rollback/to_step"] == 4
    assert logs[5]["rollback/filter_ratio"] == trainer.args.rollout_filter_ratio == 0.5
    assert [logs[step]["rollout/kept_group_ratio"] for step in (4, 5)] == [1.0, 0.5]
    assert f"Training returns to {tmp_path / 'run/healthy/checkpoint-4'}." in caplog.text
    assert "Training stops after 1 rollbacks." in caplog.text


def test_second_rollback_goes_further_back_and_rates_fall_each_time(run, tmp_path):
    callback = EchoTrapCallback(on_collapse="rollback", signals=[from_update(3)])
    _, states, events = run(callback)
    assert [(e["step"], e["action"]) for e in events] == [
        (3, "rollback"),
        (3, "rollback"),
        (3, "stop"),
    ]
    # First to checkpoint 2, where 2 is kept no more; then to 1, from where it is saved again.
    assert [numbers["step"] for _, numbers in states.restored] == [0, 2, 1]
    base = states.rates[0][1]
    assert [(step, pytest.approx(rate / base)) for step, rate, _ in states.rates] == [
        (0, 1), (1, 1), (2, 1), (2, 0.5), (1, 0.25), (2, 0.25)
    ]  # fmt: skip


def test_checkpoints_of_the_collapsed_part_do_not_pass_for_the_latest(run, tmp_path):
    # Bad from update 3 on, but only an alarm at 5: the checkpoints after 3 and 4 are not healthy.
    sign = from_update(3, patience=3)
    callback = EchoTrapCallback(on_collapse="rollback", signals=[sign], max_rollbacks=1)
    _, states, events = run(callback)
    assert [(e["step"], e["since"]) for e in events] == [(5, 3), (5, 3)]
    assert states.restored[1][1]["step"] == 2
    # What is given up in update 5 is not saved; what is stopped there is.
    assert states.saves == [1, 2, 3, 4, 3, 4, 5]
    assert sorted(p.name for p in (tmp_path / "run/collapsed").iterdir()) == [
        "checkpoint-3",
        "checkpoint-4",
        "trajectories",
    ]
    assert sorted(p.name for p in (tmp_path / "run/healthy").iterdir()) == [
        "checkpoint-1",
        "checkpoint-2",
    ]


def test_report_of_a_run_that_went_back_shows_one_version_of_it(run, tmp_path):
    class CountRollouts(RolloutCallback):
        def __init__(self):
            self.iterations = []

        def on_rollout_end(self, *_, iteration, **__):
            self.iterations.append(iteration)
            return {"looks/count": len(self.iterations)}

    count = CountRollouts()
    callback = EchoTrapCallback(
        on_collapse="rollback", signals=[from_update(3, patience=3)], max_rollbacks=1
    )
    trainer, *_ = run(
        callback,
        callbacks=[count, callback],
        eval_strategy="steps",
        eval_steps=1,
        save_steps=2,
    )
    # Alarm at update 5; back to checkpoint 2; the second alarm at 5 ends it.
    assert count.iterations == [0, 1, 2, 3, 4, 2, 3, 4]
    report = read_run(tmp_path / "run")
    updates = [(e["step"], e["looks/count"]) for e in report.log if "reward" in e]
    assert updates == [(1, 1), (2, 2), (3, 6), (4, 7), (5, 8)]
    evaluations = [e["step"] for e in report.log if "eval_success_rate" in e]
    assert evaluations == [1, 2, 3, 4, 5]
    assert updates == [(e["step"], e["looks/count"]) for e in train_logs(trainer)]
    assert [(e["step"], e["action"]) for e in report.collapse] == [(5, "rollback"), (5, "stop")]
    first, second = (
        sorted(path.name.partition("-ragen")[0] for path in folder.glob("*.jsonl"))
        for folder in (tmp_path / "run/collapsed/trajectories", tmp_path / "run/trajectories")
    )
    assert first == ["eval-00003", "eval-00004", *(f"train-0000{i}.jsonl" for i in (2, 3, 4))]
    assert second[-5:] == [f"train-0000{i}.jsonl" for i in range(5)]


def test_without_a_healthy_checkpoint_training_stops(run, caplog):
    callback = EchoTrapCallback(on_collapse="rollback", signals=[from_update(1)])
    trainer, _, events = run(callback)
    assert trainer.state.global_step == 1
    assert [event["action"] for event in events] == ["stop"]
    assert "no checkpoint was saved while all was well" in caplog.text


def test_resumed_run_remembers_what_its_signals_saw(run, make_trainer, tmp_path):
    sign = from_update(2, patience=4)
    run(EchoTrapCallback(signals=[sign]), max_steps=4)
    # Bad in updates 2, 3 and 4 before, and in 5 now.
    again = make_trainer(
        env=BANDIT,
        callbacks=[EchoTrapCallback(signals=[sign])],
        save_strategy="no",
        max_steps=5,
        max_turns=1,
    )
    again.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-4"))
    assert [(e["step"], e["since"]) for e in read_events(tmp_path / "run")] == [(5, 2)]


def test_resumed_run_keeps_the_filter_ratio_and_the_number_of_rollbacks(
    run, make_trainer, tmp_path
):
    def echo_trap(first):
        return EchoTrapCallback(
            on_collapse="rollback",
            signals=[from_update(first)],
            filter_ratio_factor=0.5,
            max_rollbacks=1,
        )

    # Back from update 3 to checkpoint 2, and stopped at 3, where it is saved.
    before, _, events = run(echo_trap(3), rollout_filter_ratio=1.0)
    assert [event["action"] for event in events] == ["rollback", "stop"]
    assert before.args.rollout_filter_ratio == 0.5
    callback = echo_trap(99)
    again = make_trainer(
        env=BANDIT,
        callbacks=[callback],
        rollout_filter_ratio=1.0,
        save_strategy="steps",
        save_steps=1,
        max_steps=4,
        max_turns=1,
    )
    again.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-3"))
    assert again.args.rollout_filter_ratio == 0.5
    assert callback.num_rollbacks == 1


def test_events_of_an_earlier_run_in_the_folder_are_not_this_ones(run, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/collapse.jsonl").write_text('{"signal": "old"}\n')
    _, _, events = run(EchoTrapCallback(signals=[from_update(2)]), max_steps=2)
    assert [event["signal"] for event in events] == ["late"]


def test_evaluations_outside_of_training_are_not_judged(make_trainer, tmp_path):
    sign = from_update(1, metric="eval_success_rate")
    trainer = make_trainer(env=BANDIT, callbacks=[EchoTrapCallback(signals=[sign])])
    trainer.evaluate()
    trainer.train()
    trainer.evaluate()
    assert not (tmp_path / "run/collapse.jsonl").exists()


def test_gradient_that_is_not_finite_is_an_event_of_valid_json(run):
    class BreakGradient(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            logs["grad_norm"] = math.nan

    _, _, events = run(
        EchoTrapCallback(), callbacks=[BreakGradient(), EchoTrapCallback()], max_steps=1
    )
    assert [event["signal"] for event in events] == ["gradient_not_finite"]
    assert events[0]["value"] > 1e300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patience": 0}, "`patience`"),
        ({"patience": 2.5}, "`patience` must be a whole number of at least 1, got 2.5"),
        ({"signals": [from_update(1, patience=0)]}, "`patience` of signal 'late' must be"),
        ({"signals": []}, "`signals` must hold at least one, got none"),
        ({"signals": [*default_signals(), from_update(1), from_update(2)]}, "named 'late'"),
        ({"on_collapse": "explode"}, "`on_collapse`"),
        ({"learning_rate_factor": 0.0}, "`learning_rate_factor`"),
        ({"filter_ratio_factor": 1.5}, "`filter_ratio_factor`"),
        ({"on_collapse": "rollback", "learning_rate_factor": 1.0}, "both be 1.0"),
        ({"max_rollbacks": 0}, "`max_rollbacks`"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        EchoTrapCallback(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save_strategy": "no"}, "`save_strategy` 'no'"),
        ({"save_steps": 6}, "`save_steps=10`"),
        ({"save_only_model": True}, "`save_only_model`"),
        ({"logging_strategy": "no"}, "`logging_strategy`"),
        ({"rollout_filter": "none"}, "`filter_ratio_factor`"),
        ({"rollout_filter_num_groups": 2}, "`filter_ratio_factor`"),
        (
            {
                "lr_scheduler_type": "reduce_lr_on_plateau",
                "critic_lr_scheduler_type": "constant",
                "eval_strategy": "steps",
                "metric_for_best_model": "success_rate",
            },
            "`lr_scheduler_type`",
        ),
    ],
)
def test_runs_that_leave_nothing_to_return_to_are_refused(run, options, message):
    callback = EchoTrapCallback(on_collapse="rollback", filter_ratio_factor=0.5)
    with pytest.raises(ValueError, match=message):
        run(callback, **options)


def test_patience_reaches_the_default_signals():
    callback = EchoTrapCallback(7)
    assert [s.patience for s in callback.signals] == [s.patience for s in default_signals(7)]
