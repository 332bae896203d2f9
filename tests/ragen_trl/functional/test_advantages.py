import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import group_advantages, has_no_variance
from tests.reference import advantages as reference

KINDS = ("grpo", "dr_grpo", "rloo", "reinforce_pp")
GROUP_KINDS = ("grpo", "dr_grpo", "rloo")
# Floating-point noise of sums of rewards, which no estimator may take for a signal.
CONSTANT_GROUPS = [
    [0.15] * 8,
    [-0.1] * 16,
    [10.9] * 16,
    [0.45] * 7,
    [sum(steps) for steps in ([-0.1] * 10, [-0.5, -0.1, -0.1, -0.3], [-0.3, -0.3, -0.4])],
]
rows = st.lists(
    st.tuples(st.integers(-20, 20).map(lambda n: n / 4), st.integers(0, 3)), min_size=1, max_size=14
)


def tensors(pairs):
    returns = torch.tensor([value for value, _ in pairs], dtype=torch.float64)
    # Ids that are neither contiguous nor ascending by group number.
    return returns, torch.tensor([(7, -3, 100, 2)[group] for _, group in pairs])


def test_group_advantages_dr_grpo_hand_worked():
    # Group 5 holds rows 0, 2, 4: mean 2. Group 1 holds rows 1, 3: mean 0.5.
    returns = torch.tensor([1.0, 0.0, 2.0, 1.0, 3.0])
    group_ids = torch.tensor([5, 1, 5, 1, 5])
    advantages = group_advantages(returns, group_ids, kind="dr_grpo")
    assert advantages.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_group_advantages_grpo_divides_by_sample_std_plus_eps():
    # Group 5: squares 1 + 0 + 1 over n - 1 = 2, std 1. Group 1: 2 * 0.25 over 1, std sqrt(0.5).
    returns = torch.tensor([1.0, 0.0, 2.0, 1.0, 3.0], dtype=torch.float64)
    group_ids = torch.tensor([5, 1, 5, 1, 5])
    advantages = group_advantages(returns, group_ids, kind="grpo", eps=0.25)
    other = 0.5 / (math.sqrt(0.5) + 0.25)
    assert advantages.tolist() == pytest.approx([-0.8, -other, 0.0, other, 0.8], abs=1e-12)


def test_group_advantages_rloo_leaves_the_row_itself_out():
    # Group 5: 1 - (2 + 3) / 2, 2 - (1 + 3) / 2, 3 - (1 + 2) / 2. Group 1: 0 - 1 and 1 - 0.
    returns = torch.tensor([1.0, 0.0, 2.0, 1.0, 3.0])
    group_ids = torch.tensor([5, 1, 5, 1, 5])
    advantages = group_advantages(returns, group_ids, kind="rloo")
    assert advantages.tolist() == [-1.5, -1.0, 0.0, 1.0, 1.5]


def test_group_advantages_reinforce_pp_standardizes_the_batch():
    # Mean 2; squares 1 + 4 + 0 + 1 + 4 = 10 over n - 1 = 4, std sqrt(2.5).
    returns = torch.tensor([1.0, 0.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    group_ids = torch.tensor([5, 1, 5, 1, 5])
    advantages = group_advantages(returns, group_ids, kind="reinforce_pp", eps=0.25)
    scale = math.sqrt(2.5) + 0.25
    assert advantages.tolist() == pytest.approx(
        [-1 / scale, -2 / scale, 0.0, 1 / scale, 2 / scale], abs=1e-12
    )


def test_group_advantages_reinforce_pp_ignores_the_groups():
    # Groups without variance in a batch with variance: the others learn nothing from them.
    returns, group_ids = torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1])
    expected = group_advantages(returns, torch.arange(4), kind="reinforce_pp")
    assert group_advantages(returns, group_ids, kind="reinforce_pp").tolist() == expected.tolist()
    assert expected.tolist() == pytest.approx([-0.8659, -0.8659, 0.8659, 0.8659], abs=1e-4)
    for kind in GROUP_KINDS:
        assert group_advantages(returns, group_ids, kind=kind).tolist() == [0.0] * 4


@pytest.mark.parametrize("batch", CONSTANT_GROUPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_group_advantages_reinforce_pp_without_variance_are_exactly_zero(batch, dtype):
    returns = torch.tensor(batch, dtype=dtype)
    group_ids = torch.arange(len(batch)) // 2
    advantages = group_advantages(returns, group_ids, kind="reinforce_pp", eps=0.0)
    assert advantages.tolist() == [0.0] * len(batch)


@pytest.mark.parametrize("kind", GROUP_KINDS)
@pytest.mark.parametrize("group", CONSTANT_GROUPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_group_advantages_without_variance_are_exactly_zero(group, kind, dtype):
    # The second group is a control: it has to keep its advantages.
    returns = torch.tensor([*group, 0.0, 1.0], dtype=dtype)
    group_ids = torch.tensor([1] * len(group) + [0, 0])
    advantages = group_advantages(returns, group_ids, kind=kind, eps=0.0)
    assert advantages[:-2].tolist() == [0.0] * len(group)
    assert advantages[-1] >= 0.5
    assert has_no_variance(returns, group_ids).tolist() == [False, True]


def test_has_no_variance_std_would_have_decided_otherwise():
    low_arm = torch.tensor([0.15] * 8)
    assert low_arm.std() > 0
    assert has_no_variance(low_arm, torch.zeros(8, dtype=torch.long)).tolist() == [True]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ([0.0, 0.75e-6], True),
        ([0.0, 1.5e-6], False),
        ([100.0, 100.0 + 0.75e-4], True),
        ([100.0, 100.0 + 1.5e-4], False),
        ([-100.0, -100.0 + 0.75e-4], True),
        ([4.0], True),
    ],
)
def test_has_no_variance_tolerance_is_relative_above_one(group, expected):
    returns = torch.tensor(group, dtype=torch.float64)
    group_ids = torch.zeros(len(group), dtype=torch.long)
    assert has_no_variance(returns, group_ids).tolist() == [expected]


def test_has_no_variance_follows_the_order_of_unique_ids():
    returns = torch.tensor([1.0, 2.0, 3.0, 3.0, 9.0])
    group_ids = torch.tensor([8, -1, 4, 4, -1])
    assert torch.unique(group_ids).tolist() == [-1, 4, 8]
    assert has_no_variance(returns, group_ids).tolist() == [False, True, True]
    assert has_no_variance(returns, group_ids, tolerance=1.0).tolist() == [True, True, True]


@pytest.mark.parametrize("kind", GROUP_KINDS)
def test_group_advantages_single_member_is_zero(kind):
    advantages = group_advantages(torch.tensor([5.0, 1.0, 3.0]), torch.tensor([0, 1, 1]), kind=kind)
    assert advantages[0] == 0.0
    assert advantages[1] < 0 < advantages[2]


@pytest.mark.parametrize("kind", KINDS)
@settings(derandomize=True, max_examples=40, deadline=None)
@given(pairs=rows)
def test_group_advantages_equal_definition(kind, pairs):
    returns, group_ids = tensors(pairs)
    expected = reference.group_advantages(returns.tolist(), group_ids.tolist(), kind, 1e-4)
    advantages = group_advantages(returns, group_ids, kind=kind)
    assert advantages.tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@settings(derandomize=True, max_examples=30, deadline=None)
@given(pairs=rows, order=st.randoms(use_true_random=False))
def test_group_advantages_permuted_rows_are_permuted_exactly(kind, pairs, order):
    returns, group_ids = tensors(pairs)
    permutation = list(range(len(pairs)))
    order.shuffle(permutation)
    advantages = group_advantages(returns, group_ids, kind=kind)
    permuted = group_advantages(returns[permutation], group_ids[permutation], kind=kind)
    assert permuted.tolist() == advantages[permutation].tolist()


@settings(derandomize=True, max_examples=30, deadline=None)
@given(pairs=rows, constant=st.integers(-50, 50))
def test_group_advantages_reinforce_pp_sums_to_zero_and_knows_no_offset(pairs, constant):
    returns, group_ids = tensors(pairs)
    advantages = group_advantages(returns, group_ids, kind="reinforce_pp")
    assert advantages.sum().item() == pytest.approx(0, abs=1e-9)
    shifted = group_advantages(returns + constant, group_ids, kind="reinforce_pp")
    torch.testing.assert_close(shifted, advantages, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", GROUP_KINDS)
@settings(derandomize=True, max_examples=30, deadline=None)
@given(pairs=rows)
def test_group_advantages_sum_to_zero_in_every_group(kind, pairs):
    returns, group_ids = tensors(pairs)
    advantages = group_advantages(returns, group_ids, kind=kind)
    for group in group_ids.unique():
        assert advantages[group_ids == group].sum().item() == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("kind", GROUP_KINDS)
@settings(derandomize=True, max_examples=30, deadline=None)
@given(pairs=rows, constants=st.lists(st.integers(-50, 50), min_size=4, max_size=4))
def test_group_advantages_constant_added_to_a_group_changes_nothing(kind, pairs, constants):
    returns, group_ids = tensors(pairs)
    shift = torch.tensor([constants[group] for _, group in pairs])
    torch.testing.assert_close(
        group_advantages(returns + shift, group_ids, kind=kind),
        group_advantages(returns, group_ids, kind=kind),
        rtol=0,
        atol=1e-10,
    )


def test_group_advantages_scaled_returns_scale_only_dr_grpo():
    returns, group_ids = torch.tensor([0.0, 1.0, 5.0]).double(), torch.zeros(3).long()
    dr_grpo = group_advantages(returns, group_ids, kind="dr_grpo")
    grpo = group_advantages(returns, group_ids, kind="grpo", eps=0.0)
    scaled_dr_grpo = group_advantages(10 * returns, group_ids, kind="dr_grpo")
    scaled_grpo = group_advantages(10 * returns, group_ids, kind="grpo", eps=0.0)
    torch.testing.assert_close(scaled_dr_grpo, 10 * dr_grpo)
    torch.testing.assert_close(scaled_grpo, grpo)


def test_group_advantages_of_float32_are_computed_in_float64():
    # A float32 mean of numbers around 4,000 is off by up to 2e-4.
    returns = torch.tensor([4096.1, 4096.7, 4097.3, 4098.0, 4099.9])
    advantages = group_advantages(returns, torch.zeros(5).long(), kind="dr_grpo")
    expected = reference.group_advantages(returns.tolist(), [0] * 5, "dr_grpo", 0.0)
    assert advantages.dtype == torch.float32
    assert advantages.tolist() == pytest.approx(expected, abs=1e-6)


def test_group_advantages_do_not_change_their_inputs():
    returns, group_ids = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1, 0, 1])
    group_advantages(returns, group_ids, kind="grpo")
    assert (returns.tolist(), group_ids.tolist()) == ([3.0, 1.0, 2.0], [1, 0, 1])


def test_group_advantages_of_no_rows_are_empty():
    empty = torch.tensor([])
    assert group_advantages(empty, empty.long(), kind="grpo").shape == (0,)
    assert has_no_variance(empty, empty.long()).shape == (0,)


@pytest.mark.parametrize("order", list(itertools.permutations([1.0, 2.0, 4.0])))
def test_group_advantages_of_any_order_belong_to_their_rows(order):
    advantages = group_advantages(torch.tensor(order), torch.zeros(3).long(), kind="dr_grpo")
    torch.testing.assert_close(advantages, torch.tensor(order) - 7 / 3)


def test_group_advantages_wrong_arguments_raise():
    returns, group_ids = torch.zeros(2), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="'rloo', 'reinforce_pp', got 'remax'"):
        group_advantages(returns, group_ids, kind="remax")
    with pytest.raises(ValueError, match="`eps` must be at least 0, got -1"):
        group_advantages(returns, group_ids, kind="grpo", eps=-1.0)
    with pytest.raises(ValueError, match="`tolerance` must be at least 0, got nan"):
        has_no_variance(returns, group_ids, tolerance=math.nan)
    with pytest.raises(TypeError, match=r"`group_ids` must be a long tensor, got torch.float32"):
        group_advantages(returns, group_ids.float(), kind="grpo")
    with pytest.raises(TypeError, match=r"`returns` must be a floating tensor, got torch.int64"):
        group_advantages(returns.long(), group_ids, kind="grpo")


@pytest.mark.parametrize(("returns_shape", "ids_shape"), [((4,), (3,)), ((2, 2), (2, 2))])
def test_group_advantages_wrong_shapes_raise(returns_shape, ids_shape):
    with pytest.raises(ValueError, match=r"must have one and the same shape `\(B,\)`"):
        group_advantages(
            torch.zeros(returns_shape), torch.zeros(ids_shape, dtype=torch.long), kind="grpo"
        )


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_group_advantages_unscored_trajectory_raises(garbage):
    with pytest.raises(ValueError, match=f"`returns` must be finite, got {garbage}"):
        group_advantages(torch.tensor([1.0, garbage]), torch.tensor([0, 0]), kind="grpo")
