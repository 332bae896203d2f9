import itertools

import pytest

from ragen_trl.statistics import pass_at_k


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
