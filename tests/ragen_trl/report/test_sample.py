import pytest

from ragen_trl.report.sample import order_for_display, split_by, spread_evenly


def test_order_for_display_alternates_outcome_and_filter_and_goes_round_the_groups():
    records = [
        {"group_id": group, "member": member, "success": member == 0, "is_kept": group > 0}
        for group in range(3)
        for member in range(3)
    ]
    ordered = order_for_display(records)
    shown = [(r["is_kept"], r["success"], r["group_id"]) for r in ordered]
    assert shown[:4] == [(True, True, 1), (True, False, 1), (False, True, 0), (False, False, 0)]
    # No dropped episode but those of group 0 is left, so the kept ones go on with group 2.
    assert shown[4:7] == [(True, True, 2), (True, False, 2), (False, False, 0)]
    assert sorted(r["group_id"] * 3 + r["member"] for r in ordered) == list(range(9))


def test_order_for_display_of_evaluations_alternates_outcomes():
    records = [{"group_id": i, "success": i >= 3} for i in range(6)]
    assert [r["group_id"] for r in order_for_display(records)] == [3, 0, 4, 1, 5, 2]
    assert order_for_display([]) == []


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(5, 5, [0, 1, 2, 3, 4]), (5, 3, [0, 2, 4]), (9, 2, [0, 8]), (9, 1, [8]), (9, 0, [])],
)
def test_spread_evenly_keeps_both_ends(count, most, expected):
    assert spread_evenly(range(count), most) == expected


def test_split_by_keeps_the_order():
    assert split_by([3, 1, 2, 5], lambda x: x % 2) == {1: [3, 1, 5], 0: [2]}
