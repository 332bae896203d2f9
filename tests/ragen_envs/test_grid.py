import numpy as np
import pytest

from ragen_envs.grid import (
    Board,
    board_charset,
    board_max_length,
    check_observation_format,
    check_size,
    render_board,
    render_coordinates,
    render_rows,
    resolve_symbols,
)

VOCABULARIES = {"plain": {"wall": "#", "floor": "_"}, "letters": {"wall": "W", "floor": "F"}}
KINDS = [["wall", "floor", "floor"], ["floor", "wall", "floor"]]
OBJECTS = [("wall", (0, 0)), ("wall", (1, 1))]


@pytest.mark.parametrize("size", [(3, 7), [3, 7], np.array([3, 7])])
def test_check_size_returns_a_pair_of_python_ints(size):
    checked = check_size(size, minimum=3)
    assert checked == (3, 7)
    assert [type(n) for n in checked] == [int, int]


@pytest.mark.parametrize(
    "size",
    [(2, 7), (7, 2), (7,), (7, 7, 7), (3.0, 7), "77", (-3, 7), 7, None, np.array(7), [[3, 7], 3]],
)
def test_check_size_with_anything_else_raises(size):
    with pytest.raises(ValueError, match=r"`size` must be \(rows, columns\).* at least 3"):
        check_size(size, minimum=3)


@pytest.mark.parametrize("size", [(101, 3), (3, 101), (10**9, 10**9), (1 << 20_000, 3)], ids=type)
def test_check_size_above_the_limit_raises(size):
    assert check_size((100, 100), minimum=3) == (100, 100)
    with pytest.raises(ValueError, match=r"^`size` must be .* at most 100, got "):
        check_size(size, minimum=3)


def test_check_observation_format_knows_three():
    for known in ("grid", "coordinates", "grid_coordinates"):
        assert check_observation_format(known) == known
    with pytest.raises(ValueError, match=r"`observation_format` must be one of.*got 'picture'"):
        check_observation_format("picture")


def test_resolve_symbols_takes_a_name_or_a_full_mapping():
    assert resolve_symbols("letters", VOCABULARIES) == {"wall": "W", "floor": "F"}
    assert resolve_symbols({"floor": "·", "wall": "█"}, VOCABULARIES) == {"wall": "█", "floor": "·"}


def test_resolve_symbols_gives_a_copy():
    resolve_symbols("plain", VOCABULARIES)["wall"] = "!"
    assert VOCABULARIES["plain"]["wall"] == "#"


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ("greek", r"one of \['letters', 'plain'\].*got 'greek'"),
        ({"wall": "#"}, "must map each of the cell kinds"),
        ({"wall": "#", "floor": "_", "door": "D"}, "must map each of the cell kinds"),
        ({"wall": "##", "floor": "_"}, "single visible characters, got '##' for 'wall'"),
        ({"wall": "#", "floor": "\n"}, "single visible characters"),
        ({"wall": "#", "floor": " "}, "single visible characters"),
        ({"wall": "#", "floor": 5}, "single visible characters"),
        ({"wall": "#", "floor": "\u0301"}, r"got '\\u0301' for 'floor'"),
        ({"wall": "#", "floor": "\ufe0f"}, "single visible characters"),
        ({"wall": "#", "floor": "\u2800"}, "single visible characters"),
        ({"wall": "#", "floor": "\u3164"}, "single visible characters"),
        ({"wall": "#", "floor": "\uffa0"}, "single visible characters"),
        ({"wall": "\u212b", "floor": "\u00c5"}, "its own character"),
        ({"wall": "#", "floor": "#"}, "its own character"),
    ],
)
def test_resolve_symbols_with_a_bad_value_raises(symbols, message):
    with pytest.raises(ValueError, match=message):
        resolve_symbols(symbols, VOCABULARIES)


@pytest.mark.parametrize("symbols", [None, 5, ["#", "_"], {"wall"}])
def test_resolve_symbols_of_another_type_raises(symbols):
    with pytest.raises(
        TypeError, match=r"^`symbols` must be the name of a vocabulary or a mapping"
    ):
        resolve_symbols(symbols, VOCABULARIES)


def test_resolve_symbols_with_keys_of_several_types_names_them():
    with pytest.raises(ValueError, match=r"got the keys \['wall', 3\]"):
        resolve_symbols({"wall": "#", 3: "_"}, VOCABULARIES)


def test_render_rows_writes_one_line_per_row():
    assert render_rows(KINDS, VOCABULARIES["plain"]) == "#__\n_#_"


def test_render_coordinates_writes_one_line_per_object():
    objects = [("box", (2, 13)), ("player", (0, 1))]
    assert render_coordinates(objects) == "box: row 2, column 13.\nplayer: row 0, column 1."


def test_render_board_writes_the_asked_parts():
    grid = "WFF\nFWF"
    coordinates = "wall: row 0, column 0.\nwall: row 1, column 1."
    assert render_board(grid, OBJECTS, "grid") == grid
    assert render_board(grid, OBJECTS, "coordinates") == coordinates
    assert render_board(grid, OBJECTS, "grid_coordinates") == grid + "\n" + coordinates


def test_board_shows_the_pieces_of_this_time_only():
    board = Board(KINDS, VOCABULARIES["letters"])
    assert board.write_rows([("wall", (0, 1)), ("floor", (1, 1)), ("wall", (1, 2))]) == "WWF\nFFW"
    assert board.write_rows([]) == "WFF\nFWF"
    assert board.list_kinds([("wall", (1, 2))])[1] == ["floor", "wall", "wall"]
    assert board.list_kinds([]) == KINDS


def test_board_takes_the_later_piece_of_two_on_a_cell():
    board = Board(KINDS, VOCABULARIES["letters"])
    assert board.write_rows([("wall", (0, 2)), ("floor", (0, 2))]) == "WFF\nFWF"


def test_board_charset_of_the_grid_is_the_symbols_and_the_line_break():
    assert board_charset(VOCABULARIES["plain"], ["wall"], "grid") == "\n#_"


@pytest.mark.parametrize("observation_format", ["grid", "coordinates", "grid_coordinates"])
def test_board_charset_and_length_cover_the_fullest_board(observation_format):
    size, names = (3, 12), ["wall", "player"]
    kinds = [["wall"] * size[1] for _ in range(size[0])]
    objects = [(name, (r, c)) for r in range(3) for c in range(12) for name in names]
    symbols = VOCABULARIES["plain"]
    text = render_board(render_rows(kinds, symbols), objects, observation_format)
    assert set(text) <= set(board_charset(symbols, names, observation_format))
    assert len(text) <= board_max_length(size, names, observation_format)


def test_board_charset_of_coordinates_leaves_the_symbols_out():
    assert "#" not in board_charset(VOCABULARIES["plain"], ["wall"], "coordinates")
    assert "#" in board_charset(VOCABULARIES["plain"], ["wall"], "grid_coordinates")
