import itertools

import pytest

from ragen_trl.evaluate import mcnemar_p_value
from ragen_trl.evaluate.comparison import compare_records


@pytest.mark.parametrize(
    ("first_only", "second_only", "expected"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),  # 2 * 1/2
        (5, 0, 2 / 32),
        (0, 10, 2 / 1024),
        (1, 4, 0.375),  # 2 * (1 + 5) / 32
        (2, 8, 0.109375),  # 2 * (1 + 10 + 45) / 1024
        (3, 3, 1.0),  # 2 * (1 + 6 + 15 + 20) / 64 > 1
    ],
)
def test_mcnemar_by_hand(first_only, second_only, expected):
    assert mcnemar_p_value(first_only, second_only) == expected
    assert mcnemar_p_value(second_only, first_only) == expected


@pytest.mark.parametrize("total", range(1, 13))
def test_mcnemar_is_the_share_of_coin_sequences_at_least_as_uneven(total):
    heads = [sum(coins) for coins in itertools.product((0, 1), repeat=total)]
    for observed in range(total + 1):
        uneven = abs(2 * observed - total)
        share = sum(abs(2 * count - total) >= uneven for count in heads) / 2**total
        assert mcnemar_p_value(observed, total - observed) == pytest.approx(share, rel=1e-12)


def test_mcnemar_of_many_pairs_neither_overflows_nor_rounds_to_nothing():
    # The normal approximation with continuity correction: z = 99 / sqrt(3900), p = 0.1129.
    assert mcnemar_p_value(1900, 2000) == pytest.approx(0.1129, abs=5e-4)
    assert mcnemar_p_value(0, 1000) == pytest.approx(2.0**-999)


def test_mcnemar_refuses_negative_counts():
    with pytest.raises(ValueError, match=r"must be at least 0, got -1 and 3"):
        mcnemar_p_value(-1, 3)


def test_compare_records_pairs_by_environment_and_seed(make_record):
    def play(*outcomes, env="lake"):
        return [make_record(env, seed, success=won) for seed, won in enumerate(outcomes)]

    first = play(True, True, True, False, False) + play(True, env="room")
    second = play(True, False, False, True, False) + play(False, env="hall")
    found = compare_records(first, second)
    assert (found.num_both, found.num_first_only, found.num_second_only) == (1, 2, 1)
    assert (found.num_neither, found.num_unpaired, found.num_pairs) == (1, 2, 5)
    assert found.p_value == 1.0  # 2 * (1 + 3) / 8
    swapped = compare_records(second, first)
    assert (swapped.num_first_only, swapped.num_second_only) == (1, 2)
    # The order of the records says nothing.
    assert compare_records(first[::-1], second) == found


def test_compare_records_leaves_out_errors_and_further_samples(make_record):
    first = [make_record(seed=1, success=True), make_record(seed=2, success=True)]
    first += [make_record(seed=1, sample=1, success=True)]
    second = [make_record(seed=1, success=False), make_record(seed=2, error="lost")]
    second += [make_record(seed=1, sample=1, success=True)]
    found = compare_records(first, second)
    assert (found.num_first_only, found.num_unpaired, found.num_pairs) == (1, 1, 1)
