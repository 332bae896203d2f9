import numpy as np
import pytest

from ragen_envs.vector.boards import LINE_BREAK, NOTHING, BoardWriter, lay_out_boards, tabulate

SYMBOLS = ("_", "√", "🧍")


def test_lay_out_boards_puts_breaks_between_rows_and_nothing_behind():
    boards = np.array([[[0, 1, 2], [2, 1, 0]]], np.uint8)
    laid_out = lay_out_boards(boards, 10)
    assert laid_out.tolist() == [[0, 1, 2, LINE_BREAK, 2, 1, 0, NOTHING, NOTHING, NOTHING]]
    assert lay_out_boards(boards, 8).tolist() == laid_out[:, :8].tolist()


@pytest.mark.parametrize(
    ("observation_format", "texts"),
    [
        ("grid", ["_√\n🧍_", "🧍"]),
        ("coordinates", ["first", "second"]),
        ("grid_coordinates", ["_√\n🧍_\nfirst", "🧍\nsecond"]),
    ],
)
def test_write_gives_boards_of_several_sizes_in_every_format(observation_format, texts):
    writer = BoardWriter(SYMBOLS, (2, 2), observation_format)
    small = np.array([[[2]]], np.uint8)
    large = np.array([[[0, 1], [2, 0]]], np.uint8)
    codes = np.concatenate([lay_out_boards(board, writer.length) for board in (large, small)])
    lines = np.array(["first", "second"], object) if writer.has_coordinates else None
    written = writer.write(codes, lines)
    assert written.tolist() == texts
    assert {type(text) for text in written} == {str}


def test_write_of_no_boards_gives_no_texts():
    writer = BoardWriter(SYMBOLS, (2, 2), "grid")
    assert writer.write(np.zeros((0, writer.length), np.uint8), None).tolist() == []


def test_tabulate_has_an_object_for_each_cell():
    table = tabulate((2, 3), lambda cell: cell)
    assert table.tolist() == [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
