import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import (
    Moments,
    clipped_value_loss,
    combine_moments,
    explained_variance,
    explained_variance_from_moments,
    masked_moments,
)
from tests.reference import losses as reference
from tests.reference.batches import GARBAGE, batches, padded

NAN, INF = math.nan, math.inf
quick = settings(derandomize=True, max_examples=30, deadline=None)

# Columns: value, old value, return, loss, clipped. The clip range is 0.5.
CLIP_TABLE = [
    # Inside of its range: (2 - 4)^2 / 2.
    (2.0, 1.75, 4.0, 2.0, False),
    # On its edge, which is inside.
    (2.0, 1.5, 4.0, 2.0, False),
    # Moved 2 towards the return, held at 0.5: (0.5 - 3)^2 / 2.
    (2.0, 0.0, 3.0, 3.125, True),
    (-2.0, 0.0, -3.0, 3.125, True),
    # Arrived at the return, but too fast: (0.5 - 3)^2 / 2.
    (3.0, 0.0, 3.0, 3.125, True),
    # Moved away from the return: nothing holds the error down, (2 + 1)^2 / 2.
    (2.0, 0.0, -1.0, 4.5, False),
    (-2.0, 0.0, 1.0, 4.5, False),
    # Jumped over the return and further than the edge is on the other side: (2 - 1)^2 > (0.5 - 1)^2.
    (2.0, 0.0, 1.0, 0.5, False),
    # As far beyond the return as the edge is before it: the tie keeps its gradient.
    (1.5, 0.0, 1.0, 0.125, False),
]


def one(*numbers):
    return [torch.tensor([[number]], dtype=torch.float64) for number in numbers]


def gradient(inputs, clip_range):
    values = inputs[0].clone().requires_grad_()
    loss = clipped_value_loss(values, *inputs[1:], clip_range=clip_range).per_token_loss
    loss.sum().backward()
    return values.grad


@pytest.mark.parametrize(("value", "old_value", "target", "loss", "is_clipped"), CLIP_TABLE)
def test_clipped_value_loss_hand_worked(value, old_value, target, loss, is_clipped):
    mask = torch.tensor([[True]])
    inputs = [*one(value, old_value, target), mask]
    result = clipped_value_loss(*inputs, clip_range=0.5)
    assert result.per_token_loss.item() == pytest.approx(loss, abs=1e-12)
    assert result.is_clipped.item() is is_clipped
    # d 0.5 (V - R)^2 / dV = V - R, and exactly 0 where the clip holds the value.
    assert gradient(inputs, 0.5).item() == (0.0 if is_clipped else value - target)


@pytest.mark.parametrize("clip_range", [None, INF])
@pytest.mark.parametrize(("value", "old_value", "target"), [row[:3] for row in CLIP_TABLE])
def test_clipped_value_loss_without_clip_is_half_the_squared_error(
    clip_range, value, old_value, target
):
    inputs = [*one(value, old_value, target), torch.tensor([[True]])]
    result = clipped_value_loss(*inputs, clip_range=clip_range)
    assert result.per_token_loss.item() == (value - target) ** 2 / 2
    assert not result.is_clipped.item()
    assert gradient(inputs, clip_range).item() == value - target


@quick
@given(batches(), st.floats(0, 1))
def test_clipped_value_loss_equals_definition(batch, clip_range):
    result = clipped_value_loss(*batch, clip_range=clip_range)
    loss, flags = reference.clipped_value_loss(*(x.tolist() for x in batch), clip_range)
    expected = torch.tensor(loss, dtype=torch.float64)
    torch.testing.assert_close(result.per_token_loss, expected, rtol=0, atol=1e-12)
    assert result.is_clipped.tolist() == flags


@quick
@given(batches())
def test_clipped_value_loss_is_never_below_the_free_one(batch):
    free = clipped_value_loss(*batch, clip_range=None).per_token_loss
    assert (clipped_value_loss(*batch, clip_range=0.2).per_token_loss >= free).all()


@pytest.mark.parametrize("dirty_inputs", [(0, 1, 2), (0,), (1,), (2,)])
@pytest.mark.parametrize("garbage", GARBAGE)
@quick
@given(batch=batches(), clip_range=st.sampled_from([0.2, None]))
def test_clipped_value_loss_garbage_at_unsampled_tokens_changes_nothing(
    garbage, dirty_inputs, batch, clip_range
):
    mask = batch[3]
    dirty = [torch.where(mask, x, garbage) if i in dirty_inputs else x for i, x in enumerate(batch)]
    clean_result = clipped_value_loss(*batch, clip_range=clip_range)
    for clean, other in zip(
        clean_result, clipped_value_loss(*dirty, clip_range=clip_range), strict=True
    ):
        assert torch.equal(clean, other)
        assert not other[~mask].any()
    assert torch.equal(gradient(batch, clip_range), gradient(dirty, clip_range))


def test_clipped_value_loss_garbage_at_sampled_tokens_is_not_hidden():
    mask = torch.tensor([[True, True]])
    result = clipped_value_loss(
        torch.tensor([[NAN, 0.0]]), torch.zeros(1, 2), torch.zeros(1, 2), mask, clip_range=0.5
    )
    assert result.per_token_loss.isnan().tolist() == [[True, False]]


def test_clipped_value_loss_sends_no_gradient_to_constants():
    values, old_values, returns = (x.requires_grad_() for x in one(0.25, 0.0, 1.0))
    loss = clipped_value_loss(values, old_values, returns, torch.tensor([[True]]), clip_range=0.5)
    loss.per_token_loss.sum().backward()
    assert values.grad.item() == -0.75
    assert old_values.grad is None
    assert returns.grad is None


@quick
@given(batch=batches(), order=st.randoms(use_true_random=False))
def test_clipped_value_loss_permuted_rows_and_padding_change_nothing_else(batch, order):
    permutation = list(range(len(batch[0])))
    order.shuffle(permutation)
    result = clipped_value_loss(*batch, clip_range=0.3)
    shuffled = clipped_value_loss(*(x[permutation] for x in batch), clip_range=0.3)
    wide = clipped_value_loss(
        *(padded(x, False if x.dtype == torch.bool else NAN) for x in batch), clip_range=0.3
    )
    for base, other, broad in zip(result, shuffled, wide, strict=True):
        assert torch.equal(other, base[permutation])
        assert torch.equal(broad, padded(base, 0))


def test_clipped_value_loss_bfloat16_is_computed_in_float32():
    # 1.0078125 - 2.015625 = -1.0078125, half of its square 0.507843; bfloat16 steps there are 2^-8.
    values, returns = torch.tensor([[[1.0078125]], [[2.015625]]], dtype=torch.bfloat16)
    result = clipped_value_loss(
        values, torch.zeros(1, 1), returns.float(), torch.tensor([[True]]), clip_range=None
    )
    assert result.per_token_loss.dtype == torch.bfloat16
    assert result.per_token_loss.item() == 0.5078125


def test_clipped_value_loss_wrong_arguments_raise():
    x, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    for clip_range in (-0.5, NAN):
        with pytest.raises(ValueError, match="`clip_range` must be at least 0 or None, got"):
            clipped_value_loss(x, x, x, mask, clip_range=clip_range)
    with pytest.raises(ValueError, match="`returns` must have the shape of `action_mask`"):
        clipped_value_loss(x, x, x[:, 0], mask, clip_range=0.5)
    with pytest.raises(TypeError, match="`old_values` must be a floating tensor"):
        clipped_value_loss(x, x.long(), x, mask, clip_range=0.5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Returns 0, 2, 4: mean 2, squares 4 + 0 + 4 = 8.
        ([0.0, 2.0, 4.0], 1.0),
        # A constant error costs nothing: only its spread counts.
        ([10.0, 12.0, 14.0], 1.0),
        ([5.0, 5.0, 5.0], 0.0),
        # Errors 0, 1, -1: squares 2, so 1 - 2 / 8.
        ([0.0, 1.0, 5.0], 0.75),
        # Errors -4, 0, 4: squares 32, so 1 - 32 / 8.
        ([4.0, 2.0, 0.0], -3.0),
    ],
)
def test_explained_variance_hand_worked(values, expected):
    returns = torch.tensor([[0.0, 2.0, 4.0, NAN]])
    values = torch.tensor([[*values, INF]])
    mask = torch.tensor([[True, True, True, False]])
    assert explained_variance(values, returns, mask).item() == pytest.approx(expected, abs=1e-12)


@quick
@given(batch=batches())
def test_explained_variance_equals_definition(batch):
    values, returns, _, mask = batch
    expected = reference.explained_variance(values.tolist(), returns.tolist(), mask.tolist())
    assert explained_variance(values, returns, mask).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("returns", [[0.15] * 16, [10.9] * 16, [3.0], [1e6, 1e6 + 0.0625]])
def test_explained_variance_of_equal_returns_is_zero(returns):
    returns = torch.tensor(returns)
    values = torch.linspace(-1, 1, len(returns))
    mask = torch.ones(len(returns), dtype=torch.bool)
    assert explained_variance(values, returns, mask).item() == 0.0


def test_explained_variance_without_positions_is_zero():
    x = torch.full((2, 3), NAN)
    assert explained_variance(x, x, torch.zeros(2, 3, dtype=torch.bool)).item() == 0.0


def test_explained_variance_carries_no_gradient():
    values = torch.tensor([0.0, 1.0], requires_grad=True)
    result = explained_variance(values, torch.tensor([0.0, 2.0]), torch.tensor([True, True]))
    assert not result.requires_grad


@quick
@given(batch=batches())
def test_explained_variance_of_parts_is_that_of_the_whole(batch):
    values, returns, _, mask = batch
    # One part per row, empty rows among them.
    parts = [
        [masked_moments(x[row], mask[row]) for row in range(len(mask))]
        for x in (returns, returns - values)
    ]
    combined = [
        combine_moments(Moments(*map(torch.stack, zip(*moments, strict=True)))) for moments in parts
    ]
    whole = explained_variance(values, returns, mask).item()
    assert explained_variance_from_moments(*combined).item() == pytest.approx(whole, abs=1e-9)


def test_explained_variance_wrong_arguments_raise():
    x, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(TypeError, match="`mask` must be a bool tensor"):
        explained_variance(x, x, mask.float())
    with pytest.raises(ValueError, match="`returns` must have the shape of `mask`"):
        explained_variance(x, x[:1], mask)
