import pytest

from ragen_envs.frozen_lake.desc import parse_desc
from ragen_envs.frozen_lake.dynamics import State, is_over, is_solved

# Gymnasium's 4x4 map.
FOUR = ["SFFF", "FHFH", "FFFH", "HFFG"]


def test_parse_desc_reads_every_letter():
    layout = parse_desc(FOUR)
    assert layout.size == (4, 4)
    assert layout.start == (0, 0)
    assert layout.goal == (3, 3)
    assert layout.other_goals == frozenset()
    assert layout.holes == {(1, 1), (1, 3), (2, 3), (3, 0)}


@pytest.mark.parametrize(
    "desc",
    ["SFFF\nFHFH\nFFFH\nHFFG", "SFFF\r\nFHFH\r\nFFFH\r\nHFFG\r\n", tuple(FOUR)],
)
def test_parse_desc_takes_one_string_or_a_sequence(desc):
    assert parse_desc(desc) == parse_desc(FOUR)


def test_parse_desc_ignores_space_around_the_rows_of_an_indented_string():
    desc = """
        HFG
        SFF
    """
    layout = parse_desc(desc)
    assert (layout.size, layout.start, layout.goal) == ((2, 3), (1, 0), (0, 2))


def test_parse_desc_takes_a_single_row_and_several_goals():
    layout = parse_desc("GFSFGHG")
    assert layout.size == (1, 7)
    assert {layout.goal, *layout.other_goals} == {(0, 0), (0, 4), (0, 6)}
    ends = [column for column in range(7) if is_over(layout, State((0, column)))]
    assert ends == [0, 4, 5, 6]
    assert [c for c in range(7) if is_solved(layout, State((0, c)))] == [0, 4, 6]


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (["SFF", "FG"], "equal length, got 2 letters in row 1 and 3 in row 0: 'FG'"),
        (["SF", "FFG"], "equal length, got 3 letters in row 1 and 2 in row 0: 'FFG'"),
        ("SF\n\nFG", "equal length, got 0 letters in row 1"),
        (["SFF", "FxG"], "letters S .* got 'x' in row 1: 'FxG'"),
        (["sFF", "FFG"], "got 's' in row 0"),
        ([" SF", "FFG"], "got ' ' in row 0"),
        (["FFF", "FFG"], r"exactly one start \(S\), got one in no row"),
        (["SFF", "SFG"], r"exactly one start \(S\), got one in row 0, row 1"),
        (["SFF", "FFF"], r"a goal \(G\), got one in no row"),
        (["FHG", "SHF"], "way to a goal, but holes cut off the start in row 1"),
        ([], "at least one row"),
        (["S" + 100 * "F" + "G"], "at most 100 rows and columns, got 1 rows and 102 columns"),
        (["SG"] + 100 * ["FF"], "at most 100 rows and columns, got 101 rows and 2 columns"),
        ("F" * 10**6 + "\n" + "SG", "at most 100 rows and columns"),
        ("  \n ", "at least one row"),
    ],
)
def test_parse_desc_wrong_map_raises_naming_the_row(desc, message):
    with pytest.raises(ValueError, match=f"^`desc` must .*{message}"):
        parse_desc(desc)


@pytest.mark.parametrize("desc", [5, [1, 2], [["S", "G"]], [b"SG"], None])
def test_parse_desc_wrong_type_raises(desc):
    with pytest.raises(TypeError, match=r"^`desc` must be a string or a list of strings"):
        parse_desc(desc)
