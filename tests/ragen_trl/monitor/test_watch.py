"""Which logs raise an alarm, and when."""

import math

import pytest

from ragen_trl.monitor import CollapseWatch, default_signals
from ragen_trl.monitor.rules import Below, BelowStart
from ragen_trl.monitor.signals import Signal
from tests.ragen_trl.monitor import logs

SEEDS = range(20)


def watch_log(entries, signals=None):
    """Alarms of a whole log, and the watch at its end."""
    watch = CollapseWatch(default_signals() if signals is None else signals)
    return [alarm for entry in entries for alarm in watch.feed(entry["step"], entry)], watch


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "make", [logs.healthy_log, logs.flat_log, logs.hard_log, logs.mastered_log]
)
def test_healthy_training_raises_no_alarm(make, seed):
    alarms, watch = watch_log(make(seed))
    assert [alarm.message for alarm in alarms] == []
    if make is logs.mastered_log:
        assert watch.is_healthy


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            logs.echo_trap_log,
            {"reward_std", "entropy", "near_duplicates", "distinct_ngrams", "response_length"},
        ),
        (logs.gradient_explosion_log, {"gradient_spike"}),
        (logs.slow_decline_log, {"success_decline"}),
    ],
)
def test_collapse_raises_its_alarms_before_half_of_the_success_is_lost(make, expected, seed):
    entries = make(seed)
    alarms, watch = watch_log(entries)
    names = {alarm.signal.name for alarm in alarms}
    assert expected <= names
    curve = [entry["success_rate"] for entry in entries]
    # Levels, since single rollouts are noisy; the one of a step ends with it.
    level = {step: sum(curve[step - 5 : step]) / 5 for step in range(5, len(curve) + 1)}
    lost = next(s for s, x in level.items() if s > 60 and x < max(level.values()) / 2)
    assert 50 <= min(alarm.step for alarm in alarms) < lost
    assert not watch.is_healthy


def test_slow_decline_is_not_mistaken_for_anything_else():
    alarms, _ = watch_log(logs.slow_decline_log(0))
    assert {alarm.signal.name for alarm in alarms} == {"success_decline"}


def test_gradient_explosion_is_seen_before_success_falls():
    for seed in SEEDS:
        alarms, _ = watch_log(logs.gradient_explosion_log(seed))
        # At update 71, 10 % of the success are gone.
        assert 60 < alarms[0].step <= 71
        assert alarms[0].signal.name == "gradient_spike"


@pytest.mark.parametrize(("divergence", "is_jump"), [(0.99, False), (1.0, True), (20.0, True)])
def test_policy_that_jumps_in_one_update_is_seen_with_that_update(divergence, is_jump):
    entries = logs.healthy_log(0)
    entries[70]["update_kl"] = divergence
    alarms, _ = watch_log(entries)
    assert [(a.signal.name, a.step) for a in alarms] == [("policy_jump", 71)] * is_jump


def make_signal(metric="x", *, patience=3, excuse="none", rule=None, name="low"):
    return Signal(name, metric, "the x", rule or Below(1.0), patience, excuse, "here", "`this`")


def feed_values(signal, values):
    entries = [{"step": 10 * (i + 1), signal.metric: value} for i, value in enumerate(values)]
    return watch_log(entries, [signal])


def test_alarm_is_raised_once_after_its_patience_and_says_since_when():
    alarms, _ = feed_values(make_signal(), [2, 0, 0, 2, 0, 0.5, 0.25, 0, 0])
    (alarm,) = alarms
    assert (alarm.step, alarm.since, alarm.verdict.value) == (70, 50, 0.25)
    assert alarm.message == (
        "low: the x is 0.25, below 1 (a fixed limit), since update 50. Try `this`."
    )


def test_alarm_is_raised_again_only_after_all_was_well():
    alarms, _ = feed_values(make_signal(patience=2), [0, 0, 0, 0, 2, 0, 0])
    assert [alarm.step for alarm in alarms] == [20, 70]


def test_entries_without_the_metric_change_nothing():
    signal = make_signal(patience=2)
    entries = [
        {"step": 1, "x": 0},
        {"step": 2, "y": 0},
        {"step": 3, "x": None},
        {"step": 4, "x": 0},
    ]
    alarms, _ = watch_log(entries, [signal])
    assert [(alarm.step, alarm.since) for alarm in alarms] == [(4, 1)]


def test_numbers_that_are_not_finite_reach_only_the_rule_for_them():
    entries = [{"step": i + 1, "grad_norm": 1.0} for i in range(20)]
    entries += [{"step": 21, "grad_norm": math.nan}, {"step": 22, "grad_norm": math.inf}]
    alarms, _ = watch_log(entries)
    assert [alarm.signal.name for alarm in alarms] == ["gradient_not_finite"]


def test_excused_measurements_are_no_sign_and_excuses_end():
    signal = make_signal(patience=2, excuse="solved")
    entries = [{"step": i, "x": 0, "success_rate": 1.0} for i in range(5)]
    entries += [{"step": i, "x": 0, "success_rate": 0.0} for i in range(5, 9)]
    alarms, watch = watch_log(entries, [signal])
    # The mean of three is below 0.9 at once, and two bad measurements make the alarm.
    assert [(alarm.step, alarm.since) for alarm in alarms] == [(6, 5)]
    assert not watch.is_healthy


def test_health_ends_with_the_first_bad_measurement_not_with_the_alarm():
    _, watch = feed_values(make_signal(), [2, 2, 0])
    assert not watch.is_healthy
    _, watch = feed_values(make_signal(), [2, 0, 2])
    assert watch.is_healthy


def test_policy_off_its_best_is_not_healthy_though_no_signal_shows():
    entries = [{"step": i, "success_rate": rate} for i, rate in enumerate([0.5] * 5 + [0.43] * 3)]
    alarms, watch = watch_log(entries)
    assert alarms == []
    assert not watch.is_healthy


def test_watches_do_not_share_what_their_signals_have_seen():
    signals = [make_signal(rule=BelowStart(0.5, num_start=1), patience=1)]
    for _ in range(2):
        alarms, _ = watch_log([{"step": 1, "x": 1.0}, {"step": 2, "x": 0.4}], signals)
        assert [alarm.step for alarm in alarms] == [2]
