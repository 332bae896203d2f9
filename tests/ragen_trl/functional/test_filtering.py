import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import group_scores, select_groups
from tests.reference import filtering as reference

KINDS = (
    "reward_std",
    "reward_mean",
    "reward_sum",
    "entropy",
    "entropy_variance",
    "response_length",
)
score_lists = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=12)
ratios = st.integers(1, 100).map(lambda n: n / 100)


def test_group_scores_are_sample_stds_by_ascending_id():
    # Id -2 (rows 1, 3): squares 1 + 1 over 1. Id 9 (rows 0, 2, 4): squares 9 + 0 + 9 over 2.
    returns = torch.tensor([0.0, 4.0, 3.0, 2.0, 6.0])
    scores = group_scores(returns, torch.tensor([9, -2, 9, -2, 9]))
    assert scores.tolist() == pytest.approx([math.sqrt(2), 3.0], rel=1e-6)
    assert scores.dtype == torch.float32


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Id -2 (rows 1, 3) holds 4 and 2, id 9 (rows 0, 2, 4) holds 0, 3 and 6.
        ("reward_mean", [3.0, 3.0]),
        ("reward_sum", [6.0, 9.0]),
        ("entropy", [3.0, 3.0]),
        ("entropy_variance", [2.0, 9.0]),
        ("response_length", [3.0, 3.0]),
    ],
)
def test_group_scores_of_each_kind_hand_worked(kind, expected):
    quantity = torch.tensor([0.0, 4.0, 3.0, 2.0, 6.0])
    scores = group_scores(quantity, torch.tensor([9, -2, 9, -2, 9]), kind=kind)
    assert scores.tolist() == pytest.approx(expected, rel=1e-6)
    assert scores.dtype == torch.float32


@pytest.mark.parametrize("kind", ["reward_std", "entropy_variance"])
@pytest.mark.parametrize(
    ("value", "size"), [(0.15, 8), (0.15, 16), (-0.1, 16), (10.9, 16), (0.1, 6), (3.0, 1)]
)
def test_group_scores_of_equal_returns_are_exactly_zero(value, size, kind):
    # float32's own std of these groups is about 1e-8, and a filter that asks `> 0` keeps them.
    returns = torch.tensor([value] * size + [0.0, 1.0])
    scores = group_scores(returns, torch.tensor([0] * size + [1, 1]), kind=kind)
    assert scores[0].item() == 0.0
    assert scores[1].item() == pytest.approx(0.5 if kind == "entropy_variance" else math.sqrt(0.5))


@pytest.mark.parametrize("kind", KINDS)
@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(-10, 10), st.integers(-2, 2)), min_size=1, max_size=14))
def test_group_scores_equal_definition(kind, pairs):
    returns, group_ids = map(list, zip(*pairs, strict=True))
    scores = group_scores(torch.tensor(returns).double(), torch.tensor(group_ids), kind=kind)
    returns = torch.tensor(returns).double().tolist()
    expected = reference.group_scores(returns, group_ids, kind)
    assert scores.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@settings(derandomize=True, max_examples=30, deadline=None)
@given(
    returns=st.lists(st.sampled_from([-0.3, 0.1, 0.7, 10.9]), min_size=4, max_size=4),
    order=st.permutations(range(8)),
)
def test_group_scores_of_the_same_returns_are_equal_in_any_row_order(kind, returns, order):
    # Two groups with the same returns must tie exactly, or row order would pick the group.
    values = torch.tensor(returns * 2, dtype=torch.float64)[list(order)]
    group_ids = torch.tensor([0] * 4 + [1] * 4)[list(order)]
    scores = group_scores(values, group_ids, kind=kind)
    assert scores[0].item() == scores[1].item()


def test_group_scores_unknown_kind_raises():
    with pytest.raises(ValueError, match=r"`kind` must be one of 'reward_std', .*, got 'std'"):
        group_scores(torch.zeros(2), torch.zeros(2).long(), kind="std")


def test_group_scores_unscored_trajectory_raises():
    with pytest.raises(ValueError, match="`returns` must be finite, got nan"):
        group_scores(torch.tensor([0.0, math.nan]), torch.zeros(2).long())


def test_select_groups_paper_setting_keeps_two_of_eight():
    scores = torch.tensor([0.1, 0.0, 0.4, 0.3, 0.2, 0.0, 0.5, 0.0])
    assert select_groups(scores, method="top_k", value=0.25).tolist() == [2, 6]


@pytest.mark.parametrize(
    ("value", "num_groups", "num_kept"),
    [
        (0.25, 8, 2),
        (0.25, 7, 1),
        (0.25, 3, 1),
        (0.01, 5, 1),
        (0.29, 100, 29),
        (0.58, 50, 29),
        (0.57, 100, 57),
        (0.999, 100, 99),
        (1 / 3, 6, 2),
        (1.0, 9, 9),
    ],
)
def test_select_groups_top_k_keeps_floor_of_ratio_and_at_least_one(value, num_groups, num_kept):
    scores = torch.arange(num_groups, dtype=torch.float32)
    kept = select_groups(scores, value=value)
    assert kept.dtype == torch.long
    assert kept.tolist() == list(range(num_groups - num_kept, num_groups))


def test_select_groups_forced_stds_keep_exactly_the_uncertain_group():
    # Four groups of two: a std of s needs returns that lie s * sqrt(2) apart.
    stds = [0.0, 0.5, 0.1, 0.0]
    returns = torch.tensor([part for std in stds for part in (0.15, 0.15 + std * math.sqrt(2))])
    scores = group_scores(returns, torch.arange(4).repeat_interleave(2))
    assert scores.tolist() == pytest.approx(stds, abs=1e-6)
    for include_zero in (True, False):
        kept = select_groups(scores, method="top_k", value=0.25, include_zero=include_zero)
        assert kept.tolist() == [1]


def test_select_groups_ties_go_to_the_lower_index():
    # Longer than the blocks within which an unstable sort happens to keep the order.
    scores = torch.ones(200)
    scores[150] = 2.0
    assert select_groups(scores, value=0.02).tolist() == [0, 1, 2, 150]
    assert select_groups(torch.zeros(200), value=0.02).tolist() == [0, 1, 2, 3]


def test_select_groups_without_zeros_counts_k_from_all_groups():
    scores = torch.tensor([0.0, 3.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0])
    assert select_groups(scores, value=0.25, include_zero=False).tolist() == [1, 4]
    assert select_groups(scores, value=0.75, include_zero=False).tolist() == [1, 3, 4]
    assert select_groups(scores, value=0.75, include_zero=True).tolist() == [0, 1, 2, 3, 4, 5]


def test_select_groups_all_zero_is_empty_only_without_zeros():
    kept = select_groups(torch.zeros(4), value=0.5, include_zero=False)
    assert (kept.shape, kept.dtype) == ((0,), torch.long)
    assert select_groups(torch.zeros(4), value=0.5).tolist() == [0, 1]


@settings(derandomize=True, max_examples=60, deadline=None)
@given(scores=score_lists, value=ratios, include_zero=st.booleans())
def test_select_groups_equals_definition(scores, value, include_zero):
    kept = select_groups(
        torch.tensor(scores), method="top_k", value=value, include_zero=include_zero
    )
    assert kept.tolist() == reference.select_groups(scores, "top_k", value, include_zero)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(scores=score_lists, value=ratios)
def test_select_groups_kept_scores_are_at_least_the_dropped_ones(scores, value):
    kept = select_groups(torch.tensor(scores), value=value).tolist()
    dropped = [score for i, score in enumerate(scores) if i not in kept]
    assert min(scores[i] for i in kept) >= max(dropped, default=-math.inf)


def test_select_groups_filter_follows_groups_when_rows_are_shuffled():
    # Group 4 is the uncertain one, wherever its rows lie.
    returns = torch.tensor([1.0, 0.0, 0.2, 5.0, 0.2, 1.1])
    group_ids = torch.tensor([2, 4, 9, 4, 9, 2])
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 0, 2, 1, 4]):
        kept = select_groups(group_scores(returns[order], group_ids[order]), value=1 / 3)
        assert torch.unique(group_ids)[kept].tolist() == [4]


@pytest.mark.parametrize("method", ["top_k", "top_p", "top_p_softmax"])
@pytest.mark.parametrize("value", [0.0, -0.5, 1.5, math.nan])
def test_select_groups_ratio_out_of_range_raises(method, value):
    with pytest.raises(ValueError, match=rf"`value` must be in \(0, 1\] for '{method}', got"):
        select_groups(torch.ones(3), method=method, value=value)


def test_select_groups_unknown_method_raises():
    with pytest.raises(ValueError, match=r"`method` must be one of 'top_k', .*, got 'soft'"):
        select_groups(torch.ones(3), method="soft", value=0.5)


@pytest.mark.parametrize("scores", [torch.tensor([]), torch.ones(2, 2)])
def test_select_groups_without_groups_raises(scores):
    with pytest.raises(ValueError, match=r"`scores` must have shape `\(P,\)` with at least one"):
        select_groups(scores, value=0.5)


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_select_groups_non_finite_score_raises(garbage):
    with pytest.raises(ValueError, match=f"`scores` must be finite, got {garbage} for group 1"):
        select_groups(torch.tensor([0.0, garbage]), value=0.5)
