"""Every rule, with numbers worked out by hand."""

import math

import numpy as np
import pytest

from ragen_trl.monitor.rules import (
    AboveStart,
    AtLeast,
    Below,
    BelowBest,
    BelowStart,
    Decline,
    NotFinite,
    Spike,
    noise_of,
)


def judge_all(rule, values):
    return [rule.judge(value) for value in values]


def bad(rule, values):
    """Positions of bad values."""
    verdicts = judge_all(rule, values)
    return [i for i, verdict in enumerate(verdicts) if verdict is not None and verdict.is_bad]


def test_fixed_limits():
    assert judge_all(Below(0.01), [0.0, 0.01]) == [(0.0, 0.01, True), (0.01, 0.01, False)]
    assert judge_all(AtLeast(0.9), [0.9, 0.89]) == [(0.9, 0.9, True), (0.89, 0.9, False)]


def test_share_of_the_start_is_of_the_mean_of_the_first_values():
    verdicts = judge_all(BelowStart(0.1, num_start=2), [1.0, 3.0, 0.21, 0.19])
    assert verdicts[:2] == [None, None]
    assert [v.threshold for v in verdicts[2:]] == pytest.approx([0.2, 0.2])
    assert [v.is_bad for v in verdicts[2:]] == [False, True]


def test_share_of_a_start_of_zero_says_nothing():
    assert judge_all(BelowStart(0.5, num_start=2), [0.0, 0.0, 0.0]) == [None, None, None]


def test_way_from_the_start_to_one():
    # Mean of the first two: 0.4; half of the way to 1: 0.7.
    verdicts = judge_all(AboveStart(num_start=2), [0.3, 0.5, 0.69, 0.71])
    assert verdicts[:2] == [None, None]
    assert [v.is_bad for v in verdicts[2:]] == [False, True]
    assert verdicts[3].threshold == pytest.approx(0.7)


def test_share_of_the_best():
    assert bad(BelowBest(0.75), [0.4, 0.8, 0.61, 0.59, 0.8]) == [3]
    # Means of two: 0.6, 0.7; the best is not the 0.8 of a single value.
    verdicts = judge_all(BelowBest(0.5, num_averaged=2), [0.4, 0.8, 0.6, 0.36, 0.34])
    assert verdicts[0] is None
    assert [v.threshold for v in verdicts[1:]] == pytest.approx([0.3, 0.35, 0.35, 0.35])
    assert [v.is_bad for v in verdicts[1:]] == [False, False, False, True]


def test_spike_is_measured_by_median_and_mad_of_the_logs():
    # Logs 0..4: median 2, MAD 1; the value at position 5 is left out by the lag for the next.
    values = [math.exp(x) for x in range(5)]
    limit = 2 + 3 * 1.4826
    rule = Spike(3.0, num_least=5, lag=0)
    judge_all(rule, values)
    verdict = rule.judge(math.exp(limit + 0.01))
    assert verdict.threshold == pytest.approx(math.exp(limit))
    assert verdict.is_bad
    calm = Spike(3.0, num_least=5, lag=0)
    judge_all(calm, values)
    assert not calm.judge(math.exp(limit - 0.01)).is_bad


def test_spike_needs_enough_values_and_leaves_skipped_updates_out():
    rule = Spike(3.0, num_least=3, lag=0)
    assert judge_all(rule, [1.0, 0.0, 1.0, -1.0, 1.0]) == [None] * 5
    # The spread of equal logs is taken for 0.1.
    assert rule.judge(1.34).threshold == pytest.approx(math.exp(0.3))
    assert bad(Spike(3.0, num_least=3, lag=0), [1.0, 1.0, 1.0, 1.36]) == [3]


def test_explosion_does_not_hide_itself():
    values = [1.0] * 10 + [3.0, 9.0]
    assert bad(Spike(6.0, num_least=10, lag=1), values) == [11]
    assert bad(Spike(6.0, num_least=10, lag=0), values) == [10, 11]
    # After the window, a new level is normal.
    assert 199 not in bad(Spike(6.0, window=50), [1.0] * 50 + [10.0] * 150)


def test_not_finite():
    values = [1.0, math.inf, math.nan]
    assert bad(NotFinite(), values) == [1, 2]
    assert NotFinite().takes_infinities


def angle(rate):
    return math.asin(math.sqrt(rate))


def rate_at(angle):
    return math.sin(angle) ** 2


def test_noise_is_that_around_a_trend():
    steady = [rate_at(x) for x in (0.2, 0.3, 0.4, 0.5)]
    assert noise_of(steady) == pytest.approx(0.0)
    # Steps +0.1, -0.1, +0.1, -0.1 less their median 0: MAD 0.1, times 1.4826, by the root of 2.
    zigzag = [rate_at(x) for x in (0.5, 0.6, 0.5, 0.6, 0.5)]
    assert noise_of(zigzag) == pytest.approx(0.1 * 1.4826 / math.sqrt(2))


def test_noise_of_rates_is_that_of_binomial_samples_whatever_the_rate():
    generator = np.random.default_rng(0)
    for rate in (0.1, 0.5, 0.8):
        rates = generator.binomial(100, rate, size=2000) / 100
        assert noise_of(rates) == pytest.approx(1 / (2 * math.sqrt(100)), rel=0.1)


def make_decline(**options):
    """A rule that trusts its estimate of the noise from the third value on, and expects none before."""
    return Decline(0.25, **{"num_averaged": 2, "num_least": 3, "first_noise": 0.0, **options})


def test_decline_without_noise_is_a_part_of_the_best_mean():
    verdicts = judge_all(make_decline(), [0.4, 0.4, 0.4, 0.8, 0.8, 0.8, 0.8, 0.61, 0.57])
    # The means are 0.705 and 0.59; 25 % off 0.8 is 0.6.
    assert [v.is_bad for v in verdicts] == [False] * 8 + [True]
    assert verdicts[-1] == (pytest.approx(0.59), pytest.approx(0.6), True)


def test_crash_is_a_larger_part_in_a_single_value():
    verdicts = judge_all(make_decline(num_averaged=5), [0.8] * 8 + [0.49])
    # The mean of five is 0.738, above 0.6, and 40 % off 0.8 is 0.48.
    assert not verdicts[-1].is_bad
    verdicts = judge_all(make_decline(num_averaged=5), [0.8] * 8 + [0.47])
    assert verdicts[-1] == (0.47, pytest.approx(0.48), True)


def test_decline_within_noise_is_none():
    # The angles zigzag by 0.4: the std of a value is 0.4 * 1.4826 / sqrt(2) = 0.42.
    rates = [rate_at(x) for x in (0.5, 0.9)] * 6
    rule = make_decline(z=1.5)
    assert not [v for v in judge_all(rule, rates) if v is not None and v.is_bad]
    best = (rate_at(0.5) + rate_at(0.9)) / 2
    # A mean of two against a mean of two: 1.5 * 0.42 * sqrt(1 / 2 + 1 / 2) off the best.
    noise = 0.4 * 1.4826 / math.sqrt(2)
    verdict = rule.judge(rate_at(0.5))
    assert verdict.threshold == pytest.approx(rate_at(angle(best) - 1.5 * noise))
    assert verdict.value == pytest.approx(best)


def test_first_values_are_compared_as_if_they_were_shares_of_25():
    # One value against one: 5 * 0.1 * sqrt(2) off the angle of 0.9.
    limit = rate_at(angle(0.9) - 0.5 * math.sqrt(2))
    assert bad(Decline(0.25), [0.9, limit - 0.01]) == [1]
    assert bad(Decline(0.25), [0.9, limit + 0.01]) == []


def test_decline_sees_a_slow_one_before_half_is_lost():
    rates = [0.6, 0.62, 0.58, 0.61, 0.59, 0.6, 0.62, 0.6, 0.59, 0.6]
    sinking = [*rates, *(0.6 - 0.01 * i for i in range(60))]
    first, *_ = bad(Decline(0.25), sinking)
    assert 0.3 < sinking[first] < 0.6


def test_a_rate_that_was_always_zero_cannot_decline():
    assert bad(Decline(0.25), [0.0] * 30) == []


@pytest.mark.parametrize(
    "rule",
    [Below(1), AtLeast(1), BelowStart(0.5), AboveStart(), BelowBest(0.5), Spike(6), NotFinite()],
    ids=lambda rule: type(rule).__name__,
)
def test_words_continue_a_sentence(rule):
    assert rule.words[0].islower() or rule.words[0].isdigit()
    assert not rule.words.endswith(".")
