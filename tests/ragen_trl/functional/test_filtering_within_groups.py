import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import select_within_groups
from tests.reference import filtering as reference
from tests.reference.advantages import members

quick = settings(derandomize=True, max_examples=60, deadline=None)


def select(returns, group_ids=None, *, num_kept):
    group_ids = [0] * len(returns) if group_ids is None else group_ids
    mask = select_within_groups(
        torch.tensor(returns, dtype=torch.float64),
        torch.tensor(group_ids, dtype=torch.long),
        num_kept=num_kept,
    )
    assert mask.dtype == torch.bool
    return [row for row, is_kept in enumerate(mask.tolist()) if is_kept]


@pytest.mark.parametrize(
    ("returns", "num_kept", "expected"),
    [
        # Two of the extremes.
        ([0.2, 1.0, 0.0, 0.3], 2, [1, 2]),
        # 0, 0.1, 1: variance 0.202; 0, 0.9, 1: 0.202 as well, and the one with more highs wins.
        ([0.1, 1.0, 0.0, 0.9], 3, [1, 2, 3]),
        # 0, 0.2, 1: squares about 0.4 are 0.16 + 0.04 + 0.36 = 0.56; 0, 0.7, 1: about 0.567 0.527.
        ([0.2, 1.0, 0.0, 0.7], 3, [0, 1, 2]),
        # A single one has no variance, so the highest return stays.
        ([0.2, 0.1, 0.9, 0.3], 1, [2]),
        # One success: any failure goes with it, and without a low one the front of the ranking does.
        ([0.0, 0.0, 1.0, 0.0, 0.0], 2, [0, 2]),
        # All equal: the first ones.
        ([0.15] * 5, 2, [0, 1]),
        # Equal highs: the earlier. Equal lows: the later.
        ([1.0, 0.0, 1.0, 0.0, 0.5], 2, [0, 3]),
    ],
)
def test_select_within_groups_hand_worked(returns, num_kept, expected):
    assert select(returns, num_kept=num_kept) == expected


def test_select_within_groups_small_groups_are_kept_whole():
    # Group 7 (rows 0, 2, 5) has one too many, group 1 exactly enough, group -4 a single member.
    returns, group_ids = [0.0, 3.0, 0.4, 3.0, 9.0, 1.0], [7, 1, 7, 1, -4, 7]
    assert select(returns, group_ids, num_kept=2) == [0, 1, 3, 4, 5]
    assert select(returns, group_ids, num_kept=9) == [0, 1, 2, 3, 4, 5]


@quick
@given(
    pairs=st.lists(
        st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    num_kept=st.integers(1, 6),
)
def test_select_within_groups_has_the_largest_variance_of_all_choices(pairs, num_kept):
    returns, group_ids = map(list, zip(*pairs, strict=True))
    kept = select(returns, group_ids, num_kept=num_kept)
    for group_id, group in members(returns, group_ids).items():
        chosen = [returns[row] for row in kept if group_ids[row] == group_id]
        assert len(chosen) == min(num_kept, len(group))
        best = reference.best_variance_within(group, len(chosen))
        assert statistics.pvariance(chosen) == pytest.approx(best, abs=1e-12)


@quick
@given(
    pairs=st.lists(
        st.tuples(st.floats(-5, 5), st.integers(0, 1)), min_size=1, max_size=12, unique=True
    ),
    num_kept=st.integers(1, 4),
    order=st.randoms(use_true_random=False),
)
def test_select_within_groups_keeps_the_same_returns_in_any_row_order(pairs, num_kept, order):
    shuffled = list(pairs)
    order.shuffle(shuffled)
    kept = [
        sorted(
            (rows[row][1], rows[row][0])
            for row in select(*zip(*rows, strict=True), num_kept=num_kept)
        )
        for rows in (pairs, shuffled)
    ]
    assert kept[0] == kept[1]


def test_select_within_groups_ties_are_stable_in_long_groups():
    # Longer than the blocks within which an unstable sort happens to keep the order.
    returns = [0.0, 1.0] * 100
    assert select(returns, num_kept=4) == [1, 3, 196, 198]
    assert select([0.5] * 200, num_kept=4) == [0, 1, 2, 3]


def test_select_within_groups_large_offsets_keep_their_digits():
    # Squares of 1e8 would swallow differences of 1.
    assert select([1e8, 1e8 + 1, 1e8 + 5, 1e8 + 2], num_kept=2) == [0, 2]


def test_select_within_groups_without_rows_is_empty():
    assert select([], num_kept=2) == []


def test_select_within_groups_wrong_arguments_raise():
    returns, group_ids = torch.zeros(2), torch.zeros(2).long()
    with pytest.raises(ValueError, match="`num_kept` must be at least 1, got 0"):
        select_within_groups(returns, group_ids, num_kept=0)
    with pytest.raises(ValueError, match="`returns` must be finite, got nan"):
        select_within_groups(returns / 0, group_ids, num_kept=1)
    with pytest.raises(TypeError, match="`group_ids` must be a long tensor"):
        select_within_groups(returns, group_ids.float(), num_kept=1)
