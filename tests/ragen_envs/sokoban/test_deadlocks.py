import itertools

import numpy as np
import pytest

from ragen_envs.sokoban.deadlocks import PushDistances, count_pushes, has_frozen_box
from ragen_envs.sokoban.dynamics import list_cells, step
from ragen_envs.sokoban.layout import generate_level


def find_frozen(read_level, text, pushed):
    """Ask about a box at `(row, column)` of a board written as text."""
    layout, state = read_level(text)
    live = PushDistances(layout).live_cells
    return has_frozen_box(layout, live, state.boxes, pushed[0] * layout.columns + pushed[1])


def test_count_pushes_leaves_out_dead_cells(read_level):
    layout, _ = read_level("##### #.--# #-$-# #--@# #####")
    # Cells are 5 * row + column. The last row and column cannot be left towards the corner target:
    # the player would have to stand in the wall.
    assert count_pushes(layout, 6) == {6: 0, 7: 1, 11: 1, 12: 2}
    assert PushDistances(layout).live_cells == 1 << 6 | 1 << 7 | 1 << 11 | 1 << 12


def test_estimate_gives_each_box_a_target_of_its_own(read_level):
    # A corridor 1 high: the boxes on columns 3 and 4, the targets on 5 and 8. Both boxes are nearest
    # to the target on 5 (2 + 1 pushes), but one has to go on: 2 + 4 = 1 + 5 = 6.
    layout, state = read_level("########### #@-$$.--.-# ###########")
    distances = PushDistances(layout)
    assert distances.estimate(state.boxes) == 6
    assert distances.nearest(11 + 3) == 2
    assert distances.nearest(11 + 4) == 1
    assert distances.estimate(layout.targets) == 0


def test_estimate_of_boxes_that_cannot_have_targets_of_their_own_is_none(read_level):
    # Along the upper wall a box stays in the upper row, which has one target only.
    layout, state = read_level("####### #-$.$-# #--@--# #-.---# #######")
    distances = PushDistances(layout)
    assert [distances.nearest(cell) for cell in list_cells(state.boxes)] == [1, 1]
    assert distances.estimate(state.boxes) is None


def test_estimate_of_a_box_on_a_dead_cell_is_none_with_few_and_with_many_targets(read_level):
    for text in (
        "##### #$-.# #-@-# #####",
        "####### #$....# #.....# #--@--# #######",
    ):
        layout, state = read_level(text)
        distances = PushDistances(layout)
        corner = layout.columns + 1
        assert distances.nearest(corner) is None
        assert distances.estimate(state.boxes) is None


def test_estimate_is_never_above_the_truth_and_zero_only_when_solved():
    rng = np.random.default_rng(0)
    for num_boxes in (1, 2, 3):
        for _ in range(40):
            layout, state, length = generate_level(rng, size=(6, 6), num_boxes=num_boxes)
            assert 0 < PushDistances(layout).estimate(state.boxes) <= length


def test_estimate_is_the_best_of_all_assignments():
    rng = np.random.default_rng(3)
    layout = generate_level(rng, size=(8, 8), num_boxes=4).layout
    distances = PushDistances(layout)
    tables = [count_pushes(layout, target) for target in list_cells(layout.targets)]
    live = list(list_cells(distances.live_cells))
    for _ in range(50):
        boxes = rng.choice(live, 4, replace=False).tolist()
        sums = [
            sum(table.get(box, 1000) for box, table in zip(boxes, order, strict=True))
            for order in itertools.permutations(tables)
        ]
        expected = min(sums) if min(sums) < 1000 else None
        assert distances.estimate(sum(1 << box for box in boxes)) == expected


@pytest.mark.parametrize(
    ("text", "pushed", "is_frozen"),
    [
        ("###### #----# #-$$-# #-$$-# #@...# #.---# ######", (2, 2), True),  # four in a square
        ("###### #----# #-$$-# #-$--# #@...# #----# ######", (2, 2), False),  # three of them
        ("###### #-$$-# #----# #@-..# ######", (1, 2), True),  # two along a wall
        # The upper row has a target, so that a box in it is not lost by that alone.
        ("####### #-$-$.# #-----# #@---.# #######", (1, 2), False),  # with a gap they can part
        ("####### #-$$-.# #-----# #@---.# #######", (1, 2), True),
        ("####### #-$$-.# ###---# #@---.# #######", (1, 2), True),
        ("####### #-$---# #-----# #@---.# #######", (1, 2), True),  # a row without a target
        ("###### #-**-# #----# #@---# ######", (1, 2), False),  # frozen on targets: no harm
        ("###### #-*$-# #----# #@.--# ######", (1, 2), True),  # the one beside the pushed one
        ("###### #-$.-# #-$--# #@-.-# ######", (2, 2), False),  # both move sideways
        # The upper box is fixed in a corner on its target. It holds the lower one from above; that
        # one can only go sideways, unless there is a wall.
        ("###### ##*--# #-$--# #@-.-# ######", (2, 2), False),
        ("###### ##*--# ##$--# #@-.-# ######", (2, 2), True),
    ],
)
def test_has_frozen_box_hand_made_positions(read_level, text, pushed, is_frozen):
    assert find_frozen(read_level, text, pushed) is is_frozen


def test_has_frozen_box_never_condemns_a_position_that_can_be_solved(search_length):
    rng = np.random.default_rng(1)
    num_frozen = 0
    for _ in range(150):
        layout, state, _ = generate_level(rng, size=(6, 6), num_boxes=3)
        live = PushDistances(layout).live_cells
        for action in rng.integers(4, size=15).tolist():
            following = step(layout, state, action).state
            if following.boxes != state.boxes:
                pushed = following.player + layout.offsets[action]
                if has_frozen_box(layout, live, following.boxes, pushed):
                    num_frozen += 1
                    assert search_length(layout, following) is None
                    break
            state = following
    assert num_frozen > 20
