import json
import math
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_envs.output_files import replace_file, to_json, to_readable

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def refuse(text):
    raise AssertionError(f"{text} is no JSON.")


def as_written(value):
    """What a reader gets back, by definition."""
    if isinstance(value, dict):
        return {key: as_written(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_written(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(VALUES)
def test_to_json_is_json_that_a_file_can_hold_and_differs_in_numbers_that_are_not_finite(value):
    text = to_json(value)
    read = json.loads(text.encode("utf-8"), parse_constant=refuse)
    # Two halves that stand side by side come back as the character that they are.
    assert json.dumps(read) == json.dumps(json.loads(json.dumps(as_written(value))))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_to_json_writes_null_wherever_a_number_is_not_finite(value):
    content = {"a": value, "b": [value, (1.5, value)], "c": {"d": value}, "e": "NaN"}
    assert json.loads(to_json(content), parse_constant=refuse) == {
        **{"a": None, "b": [None, [1.5, None]], "c": {"d": None}, "e": "NaN"},
    }


def test_to_json_keeps_text_readable():
    assert to_json({"state": "_√\n"}) == '{"state": "_√\\n"}'
    assert to_json([1], indent=2) == "[\n  1\n]"


def test_replace_file_leaves_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    with replace_file(path) as file:
        file.write("new √")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new √"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def fail_after_half(file, error):
    file.write("half")
    raise error


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_replace_file_after_an_error_leaves_what_was_there(old, error, tmp_path):
    path = tmp_path / "x.txt"
    if old is not None:
        path.write_text(old, encoding="utf-8")
    with pytest.raises(error), replace_file(path) as file:
        fail_after_half(file, error)
    assert [entry.read_text(encoding="utf-8") for entry in tmp_path.iterdir()] == [old] * bool(old)


def test_replace_file_writes_through_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "x.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    with replace_file(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"


def test_replace_file_writes_into_a_pipe_and_leaves_it_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with replace_file(path) as file:
        file.write("new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("path", ["/dev/full", "/proc/x", ".", "", "/nowhere/x", "a" * 300])
def test_replace_file_that_cannot_be_written_is_an_oserror(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=r"\[Errno"), replace_file(path) as file:
        file.write("x")
    assert list(tmp_path.iterdir()) == []


def test_to_readable_marks_what_is_no_text():
    assert to_readable("läufe/√\udcff") == "läufe/√?"
