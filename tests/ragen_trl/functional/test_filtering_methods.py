import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import select_groups
from tests.reference import filtering as reference

METHODS = ("top_k", "top_k_abs", "top_p", "top_p_softmax", "min_p", "percentile_range")
# Tenths, so that sums and products meet the bounds exactly on paper and miss them in binary.
score_lists = st.lists(st.integers(0, 12).map(lambda n: n / 10), min_size=1, max_size=10)
shares = st.integers(1, 20).map(lambda n: n / 20)
values = {
    "top_k": shares,
    "top_k_abs": st.integers(1, 12),
    "top_p": shares,
    "top_p_softmax": shares,
    "min_p": st.one_of(st.just(0.0), shares),
    "percentile_range": st.lists(
        st.integers(0, 20).map(lambda n: n / 20), min_size=2, max_size=2, unique=True
    ).map(lambda bounds: tuple(sorted(bounds))),
}
quick = settings(derandomize=True, max_examples=40, deadline=None)
each_method = pytest.mark.parametrize("method", METHODS)


@st.composite
def selections(draw):
    """Draw scores, which of them have variance (or none), and whether those without may stay."""
    scores = draw(score_lists)
    flags = st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))
    return scores, draw(st.none() | flags), draw(st.booleans())


def select(scores, method, value, include_zero=True, has_variance=None, dtype=torch.float64):
    flags = None if has_variance is None else torch.tensor(has_variance)
    kept = select_groups(
        torch.tensor(scores, dtype=dtype),
        method=method,
        value=value,
        include_zero=include_zero,
        has_variance=flags,
    )
    assert kept.dtype == torch.long
    return kept.tolist()


@each_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@quick
@given(data=st.data(), selection=selections())
def test_select_groups_by_any_method_equals_definition(method, dtype, data, selection):
    scores, has_variance, include_zero = selection
    value = data.draw(values[method])
    kept = select(scores, method, value, include_zero, has_variance, dtype)
    assert kept == reference.select_groups(scores, method, value, include_zero, has_variance)


@each_method
@quick
@given(data=st.data(), scores=score_lists)
def test_select_groups_kept_share_of_equal_scores_is_the_first(method, data, scores):
    # Whatever the method, a group that is dropped from the end has no equal behind it that is kept.
    value = data.draw(values[method])
    kept = select(scores, method, value)
    ranking = reference.ranked(scores, range(len(scores)))
    positions = [ranking.index(i) for i in kept]
    assert sorted(positions) == list(
        range(min(positions, default=0), max(positions, default=-1) + 1)
    )
    if method != "percentile_range":
        assert 0 in positions


@pytest.mark.parametrize(("value", "expected"), [(1, [2]), (3.0, [0, 2, 3]), (9, [0, 1, 2, 3])])
def test_select_groups_top_k_abs_keeps_a_number_and_at_most_all(value, expected):
    assert select([0.3, 0.1, 0.9, 0.3], "top_k_abs", value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # Scores by rank 0.5, 0.3, 0.2 (groups 1, 3, 0) add up to 0.5, 0.8, 1.0; group 2 adds nothing.
        (0.01, [1]),
        (0.5, [1]),
        (0.51, [1, 3]),
        (0.8, [1, 3]),
        (0.81, [0, 1, 3]),
        (1.0, [0, 1, 3]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_select_groups_top_p_keeps_the_shortest_prefix_that_reaches_the_share(
    value, expected, dtype
):
    assert select([0.2, 0.5, 0.0, 0.3], "top_p", value, dtype=dtype) == expected


def test_select_groups_top_p_of_equal_scores_meets_the_share_exactly():
    # Three of ten are 0.3 on paper, while 0.1 + 0.1 + 0.1 and 0.3 * total differ in binary.
    for num_kept in range(1, 11):
        assert select([0.1] * 10, "top_p", num_kept / 10) == list(range(num_kept))


@pytest.mark.parametrize("value", [0.3, 1.0])
def test_select_groups_top_p_without_any_score_keeps_one_group(value):
    assert select([0.0, 0.0, 0.0], "top_p", value) == [0]
    assert select([0.0, 0.0, 0.0], "top_p", value, include_zero=False) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # exp gives shares 2/6, 3/6, 1/6 of the groups, so that the prefixes reach 3/6, 5/6, 1.
        (0.5, [1]),
        (0.6, [0, 1]),
        (0.83, [0, 1]),
        (0.84, [0, 1, 2]),
    ],
)
def test_select_groups_top_p_softmax_hand_worked(value, expected):
    scores = [math.log(2) - 5, math.log(3) - 5, -5.0]
    assert select(scores, "top_p_softmax", value) == expected


def test_select_groups_top_p_softmax_at_one_keeps_every_group():
    # exp(-2000) is 0 in any float, but a share all the same.
    assert select([2000.0, 0.0, 1.0, -50.0], "top_p_softmax", 1.0) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, [0, 1, 2, 3]), (0.05, [0, 1, 3]), (0.1, [0, 1, 3]), (0.7, [1, 3]), (1.0, [1])],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_select_groups_min_p_keeps_what_comes_near_the_best(value, expected, dtype):
    # 0.1 * 3 is more than 0.3 in float64, and 0.7 * 3 is more than 2.1 in float32.
    assert select([0.3, 3.0, 0.0, 2.1], "min_p", value, dtype=dtype) == expected


def test_select_groups_min_p_of_equal_scores_keeps_all():
    assert select([0.0, 0.0], "min_p", 0.9) == [0, 1]
    assert select([0.4, 0.4, 0.4], "min_p", 1.0) == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # Ranking: groups 2, 0, 3, 1 at 0, 1/4, 2/4, 3/4.
        ((0.0, 0.25), [2]),
        ((0.25, 0.75), [0, 3]),
        ((0.2, 0.3), [0]),
        ((0.0, 1.0), [0, 1, 2, 3]),
        ((0.8, 1.0), []),
        ((0.3, 0.4), []),
        ([0.75, 1.0], [1]),
    ],
)
def test_select_groups_percentile_range_holds_its_lower_bound_only(value, expected):
    assert select([0.3, 0.1, 0.9, 0.2], "percentile_range", value) == expected


@pytest.mark.parametrize("num_groups", [4, 8, 100])
def test_select_groups_first_quarter_is_the_top_quarter(num_groups):
    scores = torch.rand(num_groups, generator=torch.Generator().manual_seed(0)).tolist()
    top = select(scores, "top_k", 0.25)
    assert select(scores, "percentile_range", (0.0, 0.25)) == top
    assert len(top) == num_groups // 4


@quick
@given(scores=score_lists, cuts=st.sets(st.integers(1, 99), max_size=4))
def test_select_groups_percentile_ranges_that_join_up_share_all_groups_out(scores, cuts):
    edges = [0.0, *(cut / 100 for cut in sorted(cuts)), 1.0]
    kept = [
        group
        for bounds in itertools.pairwise(edges)
        for group in select(scores, "percentile_range", bounds)
    ]
    assert sorted(kept) == list(range(len(scores)))


def test_select_groups_percentile_range_meets_its_bounds_exactly():
    # 0.07 * 100 is 7.000000000000001: position 7 lies outside of a range that ends at 7 %.
    scores = [float(100 - i) for i in range(100)]
    assert select(scores, "percentile_range", (0.0, 0.07)) == list(range(7))
    assert select(scores, "percentile_range", (0.07, 0.29)) == list(range(7, 29))


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        # Groups 1 and 4 are left, with scores 2 and 6, in the ranking 4, 1.
        ("top_k", 0.2, [4]),
        ("top_k", 1.0, [1, 4]),
        ("top_k_abs", 3, [1, 4]),
        # 6 of 8 are 0.75; of all 20 they would be 0.3.
        ("top_p", 0.75, [4]),
        ("top_p", 0.76, [1, 4]),
        ("top_p_softmax", 0.9, [4]),
        ("min_p", 0.3, [1, 4]),
        ("min_p", 0.34, [4]),
        ("percentile_range", (0.0, 0.5), [4]),
        ("percentile_range", (0.5, 1.0), [1]),
    ],
)
def test_select_groups_without_variance_are_dropped_before_anything_is_measured(
    method, value, expected
):
    # A score such as the mean is high in a group without variance, and may be 0 in one with some.
    scores, has_variance = [9.0, 2.0, 3.0, 0.0, 6.0], [False, True, False, False, True]
    assert select(scores, method, value, False, has_variance) == expected


def test_select_groups_with_variance_and_a_score_of_zero_stays():
    assert select([0.0, 1.0, 0.0], "min_p", 0.0, False, [True, True, False]) == [0, 1]
    assert select([0.0, 1.0, 0.0], "min_p", 0.0, False) == [1]


@each_method
def test_select_groups_without_any_variance_is_empty(method):
    value = {"top_k_abs": 2, "percentile_range": (0.0, 1.0)}.get(method, 0.5)
    assert select([1.0, 2.0], method, value, False, [False, False]) == []
    # With `include_zero` the flags are not read.
    assert select([1.0, 2.0], method, value, True, [False, False]) == select(
        [1.0, 2.0], method, value
    )


@pytest.mark.parametrize("method", ["top_p", "min_p"])
def test_select_groups_negative_scores_raise(method):
    message = f"`scores` must be at least 0 for '{method}', got -0.5 for group 1"
    with pytest.raises(ValueError, match=message):
        select([1.0, -0.5], method, 0.5)


@pytest.mark.parametrize("method", ["top_k", "top_k_abs", "top_p_softmax", "percentile_range"])
def test_select_groups_negative_scores_are_ranked_by_the_other_methods(method):
    value = {"top_k_abs": 1, "percentile_range": (0.0, 0.5)}.get(method, 0.5)
    assert select([-3.0, -0.5], method, value) == [1]


@pytest.mark.parametrize(
    ("method", "value", "rule"),
    [
        ("top_k_abs", 0, "a whole number of at least 1"),
        ("top_k_abs", 1.5, "a whole number of at least 1"),
        ("top_k_abs", math.inf, "a whole number of at least 1"),
        ("top_k_abs", math.nan, "a whole number of at least 1"),
        ("min_p", -0.1, r"in \[0, 1\]"),
        ("min_p", 1.1, r"in \[0, 1\]"),
        ("min_p", (0.0, 0.5), "one number"),
        ("top_k", [0.5], "one number"),
        ("percentile_range", 0.25, "two numbers with 0 <= low < high <= 1"),
        ("percentile_range", (0.5, 0.5), "two numbers with 0 <= low < high <= 1"),
        ("percentile_range", (-0.1, 0.5), "two numbers with 0 <= low < high <= 1"),
        ("percentile_range", (0.5, 1.1), "two numbers with 0 <= low < high <= 1"),
        ("percentile_range", (0.1, 0.2, 0.3), "two numbers with 0 <= low < high <= 1"),
    ],
)
def test_select_groups_value_out_of_the_range_of_its_method_raises(method, value, rule):
    with pytest.raises(ValueError, match=f"`value` must be {rule} for '{method}', got "):
        select([1.0, 2.0], method, value)


def test_select_groups_wrong_variance_flags_raise():
    with pytest.raises(TypeError, match="`has_variance` must be a bool tensor"):
        select([1.0, 2.0], "top_k", 0.5, False, [1.0, 0.0])
    with pytest.raises(ValueError, match=r"`has_variance` must have the shape of `scores`, \(2,\)"):
        select([1.0, 2.0], "top_k", 0.5, False, [True])
