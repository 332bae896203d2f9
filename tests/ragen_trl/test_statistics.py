import itertools
import math

import pytest

from ragen_trl.statistics import pass_at_k, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17, table I, method 3: the score interval.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_published_examples(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("successes", "trials"), [(3, 7), (1, 2), (200, 256)])
@pytest.mark.parametrize(("confidence", "z"), [(0.95, 1.959963985), (0.99, 2.575829304)])
def test_wilson_interval_bounds_solve_the_score_equation(successes, trials, confidence, z):
    for p in wilson_interval(successes, trials, confidence):
        distance = abs(successes / trials - p)
        assert distance == pytest.approx(z * math.sqrt(p * (1 - p) / trials), rel=1e-8)


def test_wilson_interval_mirrored_counts_mirror_the_bounds():
    low, high = wilson_interval(3, 16)
    assert wilson_interval(13, 16) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize("trials", [1, 3, 7, 20, 256])
def test_wilson_interval_all_or_nothing_reaches_the_end_exactly(trials):
    # With no success the upper bound is z^2 / (n + z^2).
    square = 1.959963984540054**2
    assert wilson_interval(0, trials) == (0.0, pytest.approx(square / (trials + square)))
    assert wilson_interval(trials, trials) == (pytest.approx(trials / (trials + square)), 1.0)


def test_wilson_interval_without_trials_says_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_wilson_interval_wrong_arguments_raise():
    for successes, trials in ((-1, 4), (5, 4), (0, -1)):
        with pytest.raises(ValueError, match=r"`successes` must be in \[0, `trials`\]"):
            wilson_interval(successes, trials)
    for confidence in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match=r"`confidence` must be in \(0, 1\)"):
            wilson_interval(1, 4, confidence)


@pytest.mark.parametrize("num_samples", [1, 4, 6])
def test_pass_at_k_equals_share_of_draws_with_a_correct_sample(num_samples):
    for num_correct, k in itertools.product(range(num_samples + 1), range(1, num_samples + 1)):
        samples = [i < num_correct for i in range(num_samples)]
        draws = [any(draw) for draw in itertools.combinations(samples, k)]
        assert pass_at_k(num_samples, num_correct, k) == pytest.approx(sum(draws) / len(draws))


def test_pass_at_k_known_values():
    assert pass_at_k(16, 0, 8) == 0.0
    assert pass_at_k(16, 4, 1) == 0.25
    assert pass_at_k(16, 9, 8) == 1.0
    # Both draws miss with probability 3/5 times 2/4.
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)


def test_pass_at_k_many_samples_do_not_overflow():
    # One correct sample among n is drawn with probability k / n.
    assert pass_at_k(5000, 1, 2500) == 0.5


def test_pass_at_k_wrong_arguments_raise():
    for k in (0, 5):
        with pytest.raises(ValueError, match=r"`k` must be in \[1, `num_samples`\], got"):
            pass_at_k(4, 1, k)
    for num_correct in (-1, 5):
        with pytest.raises(ValueError, match=r"`num_correct` must be in \[0, `num_samples`\]"):
            pass_at_k(4, num_correct, 1)
