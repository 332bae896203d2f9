import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import group_advantages, normalize_returns
from tests.reference import rewards as reference

KINDS = ("none", "mean", "mean_std", "asym_clip")
quick = settings(derandomize=True, max_examples=40, deadline=None)
each_kind = pytest.mark.parametrize("kind", KINDS)
rows = st.lists(
    st.tuples(st.integers(-20, 20).map(lambda n: n / 4), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


def tensors(pairs):
    returns = torch.tensor([value for value, _ in pairs], dtype=torch.float64)
    return returns, torch.tensor([(7, -3, 100)[unit] for _, unit in pairs])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", [1.0, 0.0, 2.0, 1.0, 3.0]),
        # Unit 5 (rows 0, 2, 4) has mean 2, unit 1 (rows 1, 3) has mean 0.5.
        ("mean", [-1.0, -0.5, 0.0, 0.5, 1.0]),
        # Their sample stds are 1 and sqrt(0.5), plus 0.25.
        (
            "mean_std",
            [-0.8, -0.5 / (math.sqrt(0.5) + 0.25), 0.0, 0.5 / (math.sqrt(0.5) + 0.25), 0.8],
        ),
    ],
)
def test_normalize_returns_hand_worked(kind, expected):
    returns = torch.tensor([1.0, 0.0, 2.0, 1.0, 3.0])
    normalized = normalize_returns(returns, torch.tensor([5, 1, 5, 1, 5]), kind=kind, eps=0.25)
    assert normalized.tolist() == pytest.approx(expected, rel=1e-6)
    assert normalized.dtype == torch.float32


@pytest.mark.parametrize(("sign", "expected"), [(1.0, 3.0), (-1.0, -1.0)])
def test_normalize_returns_asym_clip_bounds_are_minus_one_and_three(sign, expected):
    # One success among 15 failures lies 15 / 16 above the mean of 1 / 16, with a sample variance of
    # (15 * (1 / 16)^2 + (15 / 16)^2) / 15 = 1 / 16: at 3.75 stds. The failures lie at -0.25.
    returns = sign * torch.tensor([1.0] + [0.0] * 15, dtype=torch.float64)
    units = torch.zeros(16, dtype=torch.long)
    free = normalize_returns(returns, units, kind="mean_std", eps=0.0)
    clipped = normalize_returns(returns, units, kind="asym_clip", eps=0.0)
    assert free.tolist() == pytest.approx([sign * 3.75] + [sign * -0.25] * 15, abs=1e-12)
    assert clipped.tolist() == pytest.approx([expected] + [sign * -0.25] * 15, abs=1e-12)


@each_kind
@quick
@given(pairs=rows)
def test_normalize_returns_equal_definition(kind, pairs):
    returns, unit_ids = tensors(pairs)
    normalized = normalize_returns(returns, unit_ids, kind=kind)
    expected = reference.normalize_returns(returns.tolist(), unit_ids.tolist(), kind, 1e-6)
    assert normalized.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("unit", [[0.15] * 16, [-0.1] * 8, [10.9] * 16, [4.0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalize_returns_of_a_unit_without_variance_are_exactly_zero(kind, unit, dtype):
    # The second unit is a control: it has to keep its spread.
    returns = torch.tensor([*unit, 0.0, 1.0], dtype=dtype)
    unit_ids = torch.tensor([1] * len(unit) + [0, 0])
    normalized = normalize_returns(returns, unit_ids, kind=kind, eps=0.0)
    assert normalized[:-2].tolist() == [0.0] * len(unit)
    assert normalized[-1] >= 0.5


def test_normalize_returns_over_the_batch_and_over_groups_differ():
    returns = torch.tensor([0.0, 2.0, 10.0, 12.0])
    group_ids = torch.tensor([0, 0, 1, 1])
    by_group = normalize_returns(returns, group_ids, kind="mean")
    by_batch = normalize_returns(returns, torch.zeros_like(group_ids), kind="mean")
    assert by_group.tolist() == [-1.0, 1.0, -1.0, 1.0]
    assert by_batch.tolist() == [-6.0, -4.0, 4.0, 6.0]


@quick
@given(pairs=rows)
def test_normalize_returns_by_mean_changes_no_group_advantage(pairs):
    # What is taken off all members of a group alike is taken off by the estimator anyway.
    returns, group_ids = tensors(pairs)
    advantages = group_advantages(returns, group_ids, kind="dr_grpo")
    batch = torch.zeros_like(group_ids)
    normalized = normalize_returns(returns, batch, kind="mean")
    shifted = group_advantages(normalized, group_ids, kind="dr_grpo")
    torch.testing.assert_close(shifted, advantages, rtol=0, atol=1e-9)


@each_kind
@quick
@given(pairs=rows, order=st.randoms(use_true_random=False))
def test_normalize_returns_permuted_rows_are_permuted(kind, pairs, order):
    returns, unit_ids = tensors(pairs)
    permutation = list(range(len(pairs)))
    order.shuffle(permutation)
    normalized = normalize_returns(returns, unit_ids, kind=kind)
    permuted = normalize_returns(returns[permutation], unit_ids[permutation], kind=kind)
    assert torch.equal(permuted, normalized[permutation])


def test_normalize_returns_none_leaves_the_input_alone():
    returns = torch.tensor([1.0, 2.0])
    normalized = normalize_returns(returns, torch.tensor([0, 0]), kind="none")
    normalized[0] = 9.0
    assert returns.tolist() == [1.0, 2.0]


def test_normalize_returns_wrong_arguments_raise():
    returns, unit_ids = torch.zeros(3), torch.zeros(3, dtype=torch.long)
    with pytest.raises(ValueError, match=r"`kind` must be one of 'none', .*, got 'std'"):
        normalize_returns(returns, unit_ids, kind="std")
    with pytest.raises(ValueError, match="`eps` must be at least 0, got -1"):
        normalize_returns(returns, unit_ids, kind="mean_std", eps=-1.0)
    with pytest.raises(TypeError, match=r"`unit_ids` must be a long tensor, got torch.float32"):
        normalize_returns(returns, unit_ids.float(), kind="mean")
    with pytest.raises(ValueError, match=r"`returns` and `unit_ids` must have one and the same"):
        normalize_returns(returns, unit_ids[:2], kind="mean")
    for kind in KINDS:
        with pytest.raises(ValueError, match="`returns` must be finite, got nan"):
            normalize_returns(returns / 0, unit_ids, kind=kind)
