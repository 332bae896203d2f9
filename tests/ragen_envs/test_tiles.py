import itertools

import numpy as np
import pytest

from ragen_envs.frozen_lake.env import VOCABULARIES as LAKE_VOCABULARIES
from ragen_envs.sokoban.env import CELL_KINDS
from ragen_envs.tiles import arm_tiles, lake_tiles, sokoban_tiles

ARM_KINDS = ("first", "first_pulled", "second", "second_pulled")


@pytest.mark.parametrize(
    ("tiles", "kinds", "shape"),
    [
        (sokoban_tiles(), CELL_KINDS, (32, 32, 3)),
        (lake_tiles(), LAKE_VOCABULARIES["standard"], (32, 32, 3)),
        (arm_tiles(), ARM_KINDS, (96, 64, 3)),
    ],
    ids=["sokoban", "lake", "arm"],
)
def test_tiles_cover_all_kinds_and_no_two_are_easily_mistaken(tiles, kinds, shape):
    assert set(tiles) == set(kinds)
    assert {(tile.shape, tile.dtype) for tile in tiles.values()} == {(shape, np.dtype(np.uint8))}
    for one, other in itertools.combinations(tiles.values(), 2):
        differs = np.abs(one.astype(int) - other).max(axis=2) > 30
        assert differs.mean() > 0.03


def test_tiles_are_drawn_once():
    assert sokoban_tiles() is sokoban_tiles()


def test_machines_differ_by_their_colour_alone_and_the_lamp_only_by_the_pull():
    tiles = arm_tiles()
    for is_pulled in ("", "_pulled"):
        first, second = tiles[f"first{is_pulled}"], tiles[f"second{is_pulled}"]
        differs = (first != second).any(axis=2)
        # The lever, and the reels in their window, show nothing that belongs to one of the arms.
        assert not differs[:, 56:].any()
        assert not differs[30:46, 16:40].any()
        assert differs[52:58, 10:12].all()
