import math

import pytest

from ragen_envs.statistics import wilson_interval


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


def test_wilson_interval_of_nearly_all_confidence_is_not_rounded_to_all():
    low, high = wilson_interval(500, 1000, 1 - 2**-53)
    assert 0.3 < low < 0.4 < 0.6 < high < 0.7


def test_wilson_interval_without_trials_says_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_wilson_interval_wrong_arguments_raise():
    for successes, trials in ((-1, 4), (5, 4), (0, -1)):
        with pytest.raises(ValueError, match=r"`successes` must be in \[0, `trials`\]"):
            wilson_interval(successes, trials)
    for successes, trials, name in (
        (1.5, 2, "successes"),
        ("1", 2, "successes"),
        (1, None, "trials"),
    ):
        with pytest.raises(TypeError, match=rf"^`{name}` must be an integer, got "):
            wilson_interval(successes, trials)
    with pytest.raises(ValueError, match=r"^`trials` must be at most 1,000,000,000,000, got "):
        wilson_interval(1, 10**400)
    with pytest.raises(TypeError, match=r"^`confidence` must be a number, got '0\.95'"):
        wilson_interval(1, 2, "0.95")
    for confidence in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match=r"`confidence` must be in \(0, 1\)"):
            wilson_interval(1, 4, confidence)
