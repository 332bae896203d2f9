import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import (
    Moments,
    combine_moments,
    masked_mean,
    masked_moments,
    masked_sum,
    whiten,
)

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[1.0, 2.0, NAN], [INF, 6.0, -INF]])
MASK = torch.tensor([[True, True, False], [False, True, False]])
kept_and_others = st.lists(st.tuples(st.integers(-40, 40).map(lambda n: n / 8), st.booleans()))


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


def lay_out(pairs, garbage=NAN, dtype=torch.float64):
    """Return numbers with garbage at the positions that do not count, the mask, the kept list."""
    x = torch.tensor([value if is_kept else garbage for value, is_kept in pairs], dtype=dtype)
    mask = torch.tensor([is_kept for _, is_kept in pairs], dtype=torch.bool)
    return x, mask, [value for value, is_kept in pairs if is_kept]


def numbers(moments):
    return [field.item() for field in moments]


def test_masked_moments_hand_worked():
    # 1, 2 and 6: mean 3, squares 4 + 1 + 9.
    moments = masked_moments(X, MASK)
    assert numbers(moments) == [3.0, 3.0, 14.0]
    assert {field.dtype for field in moments} == {torch.float64}
    assert numbers(masked_moments(X, torch.zeros_like(MASK))) == [0.0, 0.0, 0.0]


def test_masked_moments_of_large_float32_numbers_keep_their_digits():
    # Squares of 4,096 and more in float32 would leave nothing of a variance of 1.
    x = torch.tensor([4095.0, 4096.0, 4097.0])
    assert numbers(masked_moments(x, x > 0)) == [3.0, 4096.0, 2.0]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(pairs=kept_and_others, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_combine_moments_of_parts_are_those_of_the_whole(pairs, cuts):
    x, mask, kept = lay_out(pairs)
    edges = [0, *sorted(cuts), len(pairs)]
    parts = [slice(start, end) for start, end in itertools.pairwise(edges)]
    moments = [torch.stack(masked_moments(x[part], mask[part])) for part in parts]
    whole = combine_moments(Moments(*torch.stack(moments, dim=1)))
    assert numbers(whole) == pytest.approx(numbers(masked_moments(x, mask)), abs=1e-9)
    mean = statistics.mean(kept) if kept else 0.0
    squares = sum((value - mean) ** 2 for value in kept)
    assert numbers(whole) == pytest.approx([len(kept), mean, squares], abs=1e-9)


def test_combine_moments_adds_what_lies_between_the_parts():
    # 1 and 3 (mean 2, squares 2), nothing, and 8: together mean 4, squares 9 + 1 + 16.
    parts = Moments(*torch.tensor([[2.0, 0.0, 1.0], [2.0, 0.0, 8.0], [2.0, 0.0, 0.0]]))
    assert numbers(combine_moments(parts)) == [3.0, 4.0, 26.0]


def test_combine_moments_wrong_shapes_raise():
    with pytest.raises(ValueError, match=r"one and the same shape `\(R,\)`, got \[\(\), \(\)"):
        combine_moments(masked_moments(X, MASK))
    with pytest.raises(ValueError, match=r"one and the same shape `\(R,\)`"):
        combine_moments(Moments(torch.zeros(2), torch.zeros(2), torch.zeros(3)))


def test_whiten_hand_worked():
    # 1, 2 and 6: mean 3, sample variance 14 / 2 = 7; with eps 2 they are divided by 3.
    whitened = whiten(X.double(), MASK, eps=2.0)
    assert whitened.tolist() == [
        [pytest.approx(-2 / 3), pytest.approx(-1 / 3), 0.0],
        [0.0, pytest.approx(1.0), 0.0],
    ]
    unscaled = whiten(X.double(), MASK)
    assert unscaled[MASK].tolist() == pytest.approx([n / math.sqrt(7) for n in (-2, -1, 3)])


@settings(derandomize=True, max_examples=40, deadline=None)
@given(pairs=kept_and_others, garbage=st.sampled_from([1e3, INF, -INF, NAN]))
def test_whiten_equals_definition_whatever_stands_outside(pairs, garbage):
    x, mask, kept = lay_out(pairs, garbage)
    whitened = whiten(x, mask)
    if len(set(kept)) <= 1:
        expected = [0.0] * len(kept)
    else:
        scale = math.sqrt(statistics.variance(kept) + 1e-8)
        expected = [(value - statistics.mean(kept)) / scale for value in kept]
    assert whitened[mask].tolist() == pytest.approx(expected, abs=1e-9)
    assert whitened[~mask].eq(0).all()


@pytest.mark.parametrize("value", [0.15, -0.1, 10.9, 0.0, 12345.678])
@pytest.mark.parametrize("count", [0, 1, 8, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_whiten_of_equal_numbers_is_exactly_zero(value, count, dtype, eps):
    x = torch.full((count + 2,), value, dtype=dtype)
    # Noise as of another order of summation.
    x[: count // 2] = torch.nextafter(x[: count // 2], torch.tensor(INF, dtype=dtype))
    x[-2:] = NAN
    mask = torch.arange(count + 2) < count
    assert whiten(x, mask, eps=eps).tolist() == [0.0] * (count + 2)


def test_whiten_of_small_but_real_differences_keeps_them():
    # The negative control of the test above.
    x = torch.tensor([0.15, 0.151, 0.149], dtype=torch.float64)
    assert whiten(x, x > 0, eps=0.0).tolist() == pytest.approx([0.0, 1.0, -1.0], abs=1e-9)


def test_whiten_parts_with_common_moments_equal_the_whole():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=generator, dtype=torch.float64) * 3 + 7
    mask = torch.rand(6, 5, generator=generator) < 0.5
    # The second process has no position at all.
    mask[2:4] = False
    parts = [torch.stack(masked_moments(x[i : i + 2], mask[i : i + 2])) for i in (0, 2, 4)]
    moments = combine_moments(Moments(*torch.stack(parts, dim=1)))
    rows = [whiten(x[i : i + 2], mask[i : i + 2], moments=moments) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(rows), whiten(x, mask), rtol=0, atol=1e-12)
    # Statistics of its own would make another thing of each part.
    assert not torch.allclose(rows[0], whiten(x[:2], mask[:2]), atol=1e-2)


def test_whiten_of_bfloat16_is_computed_in_float64():
    x = torch.tensor([256.0, 258.0, 260.0], dtype=torch.bfloat16)
    whitened = whiten(x, x > 0)
    assert whitened.dtype == torch.bfloat16
    assert whitened.tolist() == [-1.0, 0.0, 1.0]


def test_whiten_garbage_inside_is_not_hidden():
    assert whiten(X, torch.ones_like(MASK)).isnan().all()


def test_whiten_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`eps` must be at least 0, got -1"):
        whiten(X, MASK, eps=-1.0)
    with pytest.raises(ValueError, match=r"`moments` must be scalars, got shape \(2,\)"):
        whiten(X, MASK, moments=Moments(*torch.zeros(3, 2)))
    with pytest.raises(TypeError, match="`mask` must be a bool tensor"):
        whiten(X, MASK.long())
    with pytest.raises(TypeError, match="`x` must be a floating tensor"):
        masked_moments(MASK, MASK)
