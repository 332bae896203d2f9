import numpy as np
import pytest

from ragen_envs.rendering import Tile, draw_board, draw_tile

GREY, RED = (100, 100, 100), (200, 0, 0)


def test_draw_tile_without_a_mark_is_background_with_a_darker_border():
    picture = draw_tile(Tile(GREY), pixels=10)
    assert picture.shape == (10, 10, 3)
    assert picture.dtype == np.uint8
    assert (picture[:-1, :-1] == 100).all()
    assert (picture[-1, :] == 80).all()
    assert (picture[:, -1] == 80).all()


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        ("disc", np.pi * 0.34**2),
        ("square", 0.68**2),
        ("ring", np.pi * (0.34**2 - 0.2**2)),
    ],
)
def test_draw_tile_mark_covers_the_area_of_its_shape(shape, share):
    picture = draw_tile(Tile(GREY, RED, shape), pixels=200)
    marked = (picture == RED).all(axis=2)
    assert marked.mean() == pytest.approx(share, rel=0.02)
    np.testing.assert_array_equal(marked, marked[::-1])
    np.testing.assert_array_equal(marked, marked.T)


def test_draw_tile_ring_is_open_in_the_middle():
    assert tuple(draw_tile(Tile(GREY, RED, "ring"))[12, 12]) == GREY
    assert tuple(draw_tile(Tile(GREY, RED, "disc"))[12, 12]) == RED


def test_draw_board_puts_every_tile_in_its_place():
    tiles = {"a": Tile(GREY), "b": Tile(RED), "c": Tile((0, 50, 0))}
    picture = draw_board([["a", "b", "b"], ["c", "a", "b"]], tiles)
    assert picture.shape == (48, 72, 3)
    for (row, column), kind in {(0, 0): "a", (0, 1): "b", (1, 0): "c", (1, 2): "b"}.items():
        cut = picture[24 * row : 24 * (row + 1), 24 * column : 24 * (column + 1)]
        np.testing.assert_array_equal(cut, draw_tile(tiles[kind]))
