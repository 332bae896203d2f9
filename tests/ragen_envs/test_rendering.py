import numpy as np
import pytest

from ragen_envs.rendering import TILE_PIXELS, Canvas, draw_board

BLACK, GREY, WHITE = (0, 0, 0), (100, 100, 100), (255, 255, 255)


def covered(canvas):
    """Share of a black canvas that white shapes cover; edge pixels count by their brightness."""
    return canvas.picture()[..., 0].mean() / 255


def black(pixels=100):
    return Canvas(BLACK, pixels=pixels)


def test_canvas_without_shapes_is_one_colour_in_the_asked_size():
    picture = Canvas(GREY, columns=3, rows=2, pixels=10).picture()
    assert picture.shape == (20, 30, 3)
    assert picture.dtype == np.uint8
    assert (picture == 100).all()
    assert Canvas(GREY).picture().shape == (TILE_PIXELS, TILE_PIXELS, 3)


SHAPES = [
    ("disc", lambda c: c.disc((0.5, 0.5), 0.3, WHITE), np.pi * 0.3**2),
    ("ellipse", lambda c: c.ellipse((0.5, 0.5), (0.4, 0.2), WHITE), np.pi * 0.4 * 0.2),
    ("ring", lambda c: c.ring((0.5, 0.5), 0.3, 0.1, WHITE), np.pi * (0.35**2 - 0.25**2)),
    ("box", lambda c: c.box((0.1, 0.3), (0.9, 0.6), WHITE), 0.8 * 0.3),
    (
        # Each corner loses a square and keeps a quarter of a disc.
        "round box",
        lambda c: c.box((0.1, 0.3), (0.9, 0.6), WHITE, corner=0.1),
        0.8 * 0.3 - (4 - np.pi) * 0.1**2,
    ),
    (
        "line",
        lambda c: c.line((0.2, 0.2), (0.5, 0.6), 0.1, WHITE),
        0.5 * 0.1 + np.pi * 0.05**2,
    ),
    (
        "triangle",
        lambda c: c.polygon([(0.2, 0.2), (0.8, 0.2), (0.2, 0.7)], WHITE),
        0.6 * 0.5 / 2,
    ),
]


@pytest.mark.parametrize(("paint", "area"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_canvas_shapes_cover_their_area(paint, area):
    assert covered(paint(black())) == pytest.approx(area, rel=0.02)


def test_canvas_shape_stands_where_it_was_put_on_a_canvas_that_is_not_square():
    picture = Canvas(BLACK, columns=2, rows=3).box((1, 2), (2, 3), WHITE).picture()
    assert (picture[64:, 32:] == 255).all()
    picture[64:, 32:] = 0
    assert not picture.any()


def test_canvas_edge_through_a_pixel_centre_takes_half_of_the_colour():
    # With 10 pixels the centre of column 5 is at x = 0.55.
    row = black(10).box((0.0, 0.0), (0.55, 1.0), WHITE).picture()[5, :, 0]
    assert row.tolist() == [255] * 5 + [128] + [0] * 4


def test_canvas_opacity_blends_and_later_shapes_lie_on_top():
    canvas = Canvas((40, 80, 120)).box((-1, -1), (2, 2), (240, 80, 20), opacity=0.25)
    # A quarter of the way from the old colour to the new one.
    assert (canvas.picture() == (90, 80, 95)).all()
    canvas.box((-1, -1), (2, 2), WHITE).box((-1, -1), (2, 2), GREY)
    assert (canvas.picture() == 100).all()


def test_canvas_goes_on_from_a_picture_without_changing_it():
    below = black().disc((0.5, 0.5), 0.4, GREY).picture()
    kept = below.copy()
    canvas = Canvas.on(below, pixels=100)
    np.testing.assert_array_equal(canvas.picture(), below)
    on_top = canvas.box((0, 0), (0.2, 0.2), WHITE).picture()
    np.testing.assert_array_equal(below, kept)
    assert (on_top[:19, :19] == 255).all()
    np.testing.assert_array_equal(on_top[21:], below[21:])


def test_draw_board_puts_every_tile_in_its_place():
    tiles = {
        "a": Canvas(GREY).picture(),
        "b": Canvas(WHITE).picture(),
        "c": Canvas((0, 50, 0)).disc((0.2, 0.2), 0.1, WHITE).picture(),
    }
    picture = draw_board([["a", "b", "b"], ["c", "a", "b"]], tiles)
    assert picture.shape == (64, 96, 3)
    for (row, column), kind in {(0, 0): "a", (0, 1): "b", (1, 0): "c", (1, 2): "b"}.items():
        cut = picture[32 * row : 32 * (row + 1), 32 * column : 32 * (column + 1)]
        np.testing.assert_array_equal(cut, tiles[kind])
    picture[:] = 0  # the board is a copy
    assert (tiles["a"] == 100).all()
