import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import loss_scale, soft_group_weights


def test_soft_group_weights_hand_worked():
    weights = soft_group_weights(torch.tensor([0.5, 0.0, 2.0, 1.0]))
    assert weights.tolist() == [0.25, 0.0, 1.0, 0.5]
    assert weights.dtype == torch.float32


def test_soft_group_weights_without_any_score_are_zero():
    assert soft_group_weights(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=9))
def test_soft_group_weights_equal_definition(scores):
    weights = soft_group_weights(torch.tensor(scores, dtype=torch.float64)).tolist()
    highest = max(scores)
    assert weights == [score / highest if highest else 0.0 for score in scores]
    assert max(weights) == (1.0 if highest else 0.0)


def test_soft_group_weights_wrong_arguments_raise():
    for garbage in (-0.5, math.nan, math.inf):
        message = f"`scores` must be finite and at least 0, got {garbage} for group 1"
        with pytest.raises(ValueError, match=message):
            soft_group_weights(torch.tensor([0.0, garbage]))
    for scores in (torch.zeros(0), torch.zeros(2, 2)):
        with pytest.raises(ValueError, match=r"`scores` must have shape `\(P,\)`"):
            soft_group_weights(scores)
    with pytest.raises(TypeError, match="`scores` must be a floating tensor"):
        soft_group_weights(torch.tensor([1, 2]))


@pytest.mark.parametrize(("kind", "expected"), [("none", 1.0), ("ratio", 0.25), ("sqrt", 0.5)])
def test_loss_scale_of_a_quarter(kind, expected):
    assert loss_scale(32, 128, kind=kind) == expected


@pytest.mark.parametrize("kind", ["none", "ratio", "sqrt"])
def test_loss_scale_of_all_rows_is_one(kind):
    assert loss_scale(7, 7, kind=kind) == 1.0


@pytest.mark.parametrize(("kind", "expected"), [("none", 1.0), ("ratio", 0.0), ("sqrt", 0.0)])
def test_loss_scale_of_no_rows_is_finite(kind, expected):
    assert loss_scale(0, 7, kind=kind) == expected


def test_loss_scale_wrong_arguments_raise():
    for counts in ((8, 7), (-1, 7), (0, 0)):
        with pytest.raises(ValueError, match="`num_kept` must be from 0 to `num_total`"):
            loss_scale(*counts, kind="ratio")
    with pytest.raises(ValueError, match="`kind` must be one of 'none', 'ratio', 'sqrt', got 'x'"):
        loss_scale(1, 2, kind="x")
