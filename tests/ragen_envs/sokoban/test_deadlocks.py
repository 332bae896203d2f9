import itertools

import numpy as np
import pytest

from ragen_envs.sokoban.deadlocks import PushDistances, count_pushes, has_frozen_box
from ragen_envs.sokoban.dynamics import Layout, list_cells, step
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


def test_estimate_after_a_push_is_the_estimate_with_few_and_with_many_targets():
    rng = np.random.default_rng(4)
    for num_boxes in (2, 9):
        layout, state, _ = generate_level(rng, size=(9, 9), num_boxes=num_boxes)
        distances = PushDistances(layout)
        num_pushes = 0
        for action in rng.integers(4, size=400).tolist():
            pushed = step(layout, state, action).state
            origin, destination = pushed.player, pushed.player + layout.offsets[action]
            is_live = distances.live_cells >> destination & 1
            if pushed.boxes != state.boxes and is_live:
                before = distances.estimate(state.boxes)
                after = distances.estimate_after(before, pushed.boxes, origin, destination)
                assert after == distances.estimate(pushed.boxes)
                num_pushes += 1
            if pushed.boxes == state.boxes or is_live:
                state = pushed
        assert num_pushes > 10


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


def test_has_frozen_box_in_a_block_of_a_thousand_boxes_is_found_soon(read_level):
    rows = ["#" + "-" * 40 + "#", *30 * ["#--" + "$" * 36 + "--#"], "#@" + "." * 39 + "#"]
    layout, state = read_level(" ".join(["#" * 42, *rows, "#" * 42]))
    # In the middle all hold each other.
    assert has_frozen_box(layout, ~layout.walls, state.boxes, 42 * 16 + 20)
    assert not has_frozen_box(layout, ~layout.walls, 1 << 42 * 16 + 20, 42 * 16 + 20)


def draw_crowd(rng):
    """Draw walls, up to 8 boxes and targets of a small room; play need not lead there."""
    rows, columns = rng.integers(4, 8, size=2).tolist()
    cells = [r * columns + c for r in range(1, rows - 1) for c in range(1, columns - 1)]
    floor = [cell for cell in cells if rng.random() < 0.8]
    boxes = rng.permutation(floor)[: 1 + rng.integers(8)].tolist()
    targets = rng.permutation(floor)[: len(boxes)].tolist()
    walls = (1 << rows * columns) - 1 - sum(1 << cell for cell in floor)
    return Layout(rows, columns, walls, sum(1 << cell for cell in targets)), boxes


def list_holding(layout, live, boxes):
    """Return every box of a set whose members all hold each other, found by trying all sets."""

    def is_held(box, members, distance):
        sides = (box - distance, box + distance)
        is_between_dead = not any(live >> side & 1 for side in sides)
        return is_between_dead or any(s in members or layout.walls >> s & 1 for s in sides)

    held = set()
    for size in range(1, len(boxes) + 1):
        for members in itertools.combinations(boxes, size):
            axes = itertools.product(members, (1, layout.columns))
            if all(is_held(box, members, distance) for box, distance in axes):
                held.update(members)
    return held


def test_has_frozen_box_finds_the_sets_that_hold_themselves():
    rng = np.random.default_rng(6)
    counts = [0, 0]
    for _ in range(300):
        layout, boxes = draw_crowd(rng)
        live = PushDistances(layout).live_cells
        held = list_holding(layout, live, boxes)
        for pushed in boxes:
            suspects = {pushed, *(pushed + offset for offset in layout.offsets)}
            expected = any(not layout.targets >> box & 1 for box in held & suspects)
            mask = sum(1 << box for box in boxes)
            assert has_frozen_box(layout, live, mask, pushed) is expected
            counts[expected] += 1
    assert min(counts) > 200


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
