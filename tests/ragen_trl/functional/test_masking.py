import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import masked_mean, masked_sum

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[1.0, 2.0, NAN], [INF, 6.0, -INF]])
MASK = torch.tensor([[True, True, False], [False, True, False]])


def test_masked_sum_garbage_outside_is_ignored():
    assert masked_sum(X, MASK).item() == 9.0
    assert masked_sum(X, MASK, dim=1).tolist() == [3.0, 6.0]
    assert masked_sum(X, MASK, dim=0).tolist() == [1.0, 8.0, 0.0]


def test_masked_mean_garbage_outside_is_ignored():
    assert masked_mean(X, MASK).item() == 3.0
    assert masked_mean(X, MASK, dim=1).tolist() == [1.5, 6.0]
    assert masked_mean(X, MASK, dim=-2).tolist() == [1.0, 4.0, 0.0]


def test_masked_mean_garbage_inside_is_not_hidden():
    assert masked_mean(X, torch.ones_like(MASK)).isnan()


@pytest.mark.parametrize("reduce", [masked_mean, masked_sum])
def test_masked_reduction_of_empty_mask_is_zero_with_zero_gradient(reduce):
    x = X.clone().requires_grad_()
    result = reduce(x, torch.zeros_like(MASK))
    result.backward()
    assert result.item() == 0.0
    assert x.grad.tolist() == [[0.0] * 3] * 2


def test_masked_mean_gradient_is_one_over_count_inside_and_zero_outside():
    x = X.clone().requires_grad_()
    masked_mean(x, MASK).backward()
    third = torch.tensor(1 / 3).item()
    assert x.grad.tolist() == [[third, third, 0.0], [0.0, third, 0.0]]


def test_masked_mean_of_bfloat16_is_accumulated_in_float32():
    # 261 / 3 is 87; bfloat16 would round the sum to 260 first and then return 86.5.
    x = torch.tensor([256.0, 5.0, 0.0], dtype=torch.bfloat16)
    mean = masked_mean(x, torch.tensor([True, True, True]))
    assert mean.dtype == torch.bfloat16
    assert mean.item() == 87.0


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.booleans()), max_size=12))
def test_masked_mean_equals_mean_of_the_kept_list(pairs):
    x = torch.tensor([value for value, _ in pairs], dtype=torch.float64)
    mask = torch.tensor([is_kept for _, is_kept in pairs], dtype=torch.bool)
    kept = [value for value, is_kept in pairs if is_kept]
    expected = sum(kept) / len(kept) if kept else 0.0
    assert masked_mean(x, mask).item() == pytest.approx(expected, abs=1e-9)
    assert masked_sum(x, mask).item() == pytest.approx(sum(kept), abs=1e-9)


def test_masked_mean_wrong_dtypes_raise():
    with pytest.raises(TypeError, match=r"`mask` must be a bool tensor, got torch.int64"):
        masked_mean(X, MASK.long())
    with pytest.raises(TypeError, match=r"`x` must be a floating tensor, got torch.bool"):
        masked_mean(MASK, MASK)


def test_masked_sum_broadcastable_shape_raises():
    with pytest.raises(
        ValueError, match=r"`x` must have the shape of `mask`, \(1, 3\), got \(2, 3\)"
    ):
        masked_sum(X, MASK[:1])
