import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import measure_information
from tests.reference import mutual_information as reference

GARBAGE = st.floats(-300, 0)


def measure(rows, owners):
    result = measure_information(
        torch.tensor(rows, dtype=torch.float64), torch.tensor(owners, dtype=torch.int64)
    )
    return tuple(value.item() for value in result)


def logs(rows):
    return [[math.log(p) for p in row] for row in rows]


@st.composite
def pairs(draw):
    """Owners of 1 to 8 texts over 1 to 4 prompts, each of which has one, and a score for each."""
    num_prompts = draw(st.integers(1, 4))
    more = draw(st.lists(st.integers(0, num_prompts - 1), max_size=4))
    owners = draw(st.permutations([*range(num_prompts), *more]))
    row = st.lists(GARBAGE, min_size=num_prompts, max_size=num_prompts)
    return draw(st.lists(row, min_size=len(owners), max_size=len(owners))), owners


def test_two_prompts_hand_worked():
    # Marginals (0.5 + 0.1) / 2 = 0.3 and (0.2 + 0.3) / 2 = 0.25;
    # (log(0.5 / 0.3) + log(0.3 / 0.25)) / 2 = log(2) / 2.
    information, accuracy, entropy = measure(logs([[0.5, 0.1], [0.2, 0.3]]), [0, 1])
    assert information == pytest.approx(math.log(2) / 2)
    assert accuracy == 1.0
    assert entropy == pytest.approx(-math.log(0.5 * 0.3) / 2)


def test_retrieval_counts_the_texts_that_fit_their_own_prompt_best():
    rows = logs([[0.5, 0.1, 0.2], [0.4, 0.3, 0.1], [0.1, 0.2, 0.3], [0.1, 0.1, 0.9]])
    assert measure(rows, [0, 1, 2, 1])[1] == 2 / 4


def test_prompts_weigh_as_much_as_they_have_texts():
    # Marginal (0.6 + 0.6 + 0.3) / 3 = 0.5 of every text; the gains are twice log(0.6 / 0.5) and
    # once log(0.3 / 0.5).
    information, accuracy, _ = measure(logs([[0.6, 0.3]] * 3), [0, 1, 0])
    assert information == pytest.approx((2 * math.log(1.2) + math.log(0.6)) / 3)
    assert accuracy == pytest.approx(2 / 3)


def test_texts_that_ignore_their_prompts_have_no_information_and_are_found_by_chance():
    rows = [[-3.0 * i - 1] * 5 for i in range(5)]
    information, accuracy, entropy = measure(rows, [0, 1, 2, 3, 4])
    assert information == pytest.approx(0.0, abs=1e-12)
    assert accuracy == pytest.approx(1 / 5)
    assert entropy == pytest.approx(7.0)


def test_texts_possible_after_their_own_prompt_alone_have_all_the_information():
    rows = [[-5.0 if i == j else -900.0 for j in range(6)] for i in range(6)]
    information, accuracy, _ = measure(rows, [0, 1, 2, 3, 4, 5])
    assert information == pytest.approx(math.log(6))
    assert accuracy == 1.0


def test_scores_far_below_the_range_of_float_probabilities_are_handled():
    information, _, entropy = measure([[-5000.0, -5001.0], [-9001.0, -9000.0]], [0, 1])
    assert information == pytest.approx(-math.log((1 + math.exp(-1)) / 2))
    assert entropy == 7000.0


@settings(derandomize=True, max_examples=100, deadline=None)
@given(pairs())
def test_equals_the_definition_with_a_column_per_pair(drawn):
    rows, owners = drawn
    repeated = [[row[owner] for owner in owners] for row in rows]
    assert measure(rows, owners) == pytest.approx(
        reference.measure_information(repeated, owners), abs=1e-9
    )


@settings(derandomize=True, max_examples=100, deadline=None)
@given(pairs())
def test_information_is_at_most_the_log_of_the_number_of_prompts(drawn):
    rows, owners = drawn
    information, accuracy, _ = measure(rows, owners)
    shares = [owners.count(owner) / len(owners) for owner in set(owners)]
    entropy = -math.fsum(share * math.log(share) for share in shares)
    assert information <= entropy + 1e-9 <= math.log(len(shares)) + 2e-9
    assert 0.0 <= accuracy <= 1.0


@settings(derandomize=True, max_examples=50, deadline=None)
@given(pairs(), st.randoms(use_true_random=False))
def test_order_of_texts_and_prompts_is_irrelevant(drawn, rng):
    rows, owners = drawn
    texts, prompts = list(range(len(rows))), list(range(len(rows[0])))
    rng.shuffle(texts)
    rng.shuffle(prompts)
    shuffled = [[rows[i][j] for j in prompts] for i in texts]
    moved = [prompts.index(owners[i]) for i in texts]
    assert measure(shuffled, moved) == pytest.approx(measure(rows, owners), abs=1e-9)


def test_numbers_come_back_in_the_dtype_of_the_input():
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        information = measure_information(torch.zeros(2, 2, dtype=dtype), torch.tensor([0, 1]))
        assert {value.dtype for value in information} == {dtype}


def test_wrong_arguments_raise():
    good, owners = torch.zeros(2, 2), torch.tensor([0, 1])
    with pytest.raises(TypeError, match="`logps` must be a floating tensor"):
        measure_information(good.long(), owners)
    with pytest.raises(TypeError, match="`owners` must be an int64 tensor"):
        measure_information(good, owners.float())
    for logps, columns in ((good[0], owners), (good, owners[:1]), (good[:0], owners[:0])):
        with pytest.raises(ValueError, match=r"`logps` must have shape `\(N, M\)`"):
            measure_information(logps, columns)
    for columns in ([0, 0], [0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="`owners` must hold every column from 0 to 1"):
            measure_information(good, torch.tensor(columns))
