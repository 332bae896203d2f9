"""Any field of any file of a run holds any JSON value, and there is a page all the same."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.report import write_report
from tests.runs import write_run

# Texts of values; some are beyond JSON, or beyond what a reader's stack or floats can hold.
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ODD = ["1e999", "-1e999", "NaN", "1e308", "-1e308", "9" * 309, "9" * 400, "9" * 5000, '"\\ud800"']
ODD += [f"{'[' * depth}{']' * depth}" for depth in (200, 900, 960, 50_000)]
VALUES = PLAIN.map(json.dumps) | st.sampled_from(ODD)
PLACE = "here it is damaged"


def read_files(folder):
    """The lines of all files, as (name, line number, content)."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        (str(path.relative_to(folder)), number, json.loads(line))
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"))
        if line
    ]


def fields_of(content, path=()):
    """The paths of all values in a JSON document, itself included."""
    yield path
    if isinstance(content, list):
        keys = range(len(content))
    else:
        keys = content if isinstance(content, dict) else ()
    for key in keys:
        yield from fields_of(content[key], (*path, key))


def put(content, path, value):
    if not path:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[path[0]] = put(copy[path[0]], path[1:], value)
    return copy


def make_files():
    with tempfile.TemporaryDirectory() as folder:
        lake = write_run(Path(folder), num_updates=5, num_groups=2, num_generations=2)
        for path in sorted((lake / "trajectories").glob("train-*.jsonl"))[1:]:
            path.unlink()
        files = read_files(lake)
        history = [content for name, _, content in files if name == "log.jsonl"]
        return [*files, ("trainer_state.json", 0, {"log_history": history})]


FILES = make_files()
# One of each kind: the same field of another line or turn is read in the same way.
FIELDS = list(
    {
        (name, *(key for key in path if isinstance(key, str))): (i, path)
        for i, (name, _, content) in enumerate(FILES)
        for path in fields_of(content)
    }.values()
)


def write_damaged(folder, position, path, text, *, with_log=True):
    """Write all files with one value replaced by the JSON text of another."""
    for i, (name, _, content) in enumerate(FILES):
        if name == "log.jsonl" and not with_log:
            continue
        line = json.dumps(put(content, path, PLACE) if i == position else content)
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        with target.open("a", encoding="utf-8") as file:
            file.write(line.replace(json.dumps(PLACE), text) + "\n")


def refuse(text):
    raise AssertionError(f"{text} is no JSON.")


def read_page(folder):
    """Return the data of the run's page and the notes, having read them as JSON and nothing else."""
    output = folder / "report.html"
    (run,) = write_report([folder], output)
    page = output.read_text(encoding="utf-8")
    data = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    return json.loads(data, parse_constant=refuse), run.notes


@settings(max_examples=300, deadline=None, derandomize=True)
@given(field=st.sampled_from(FIELDS), text=VALUES, with_log=st.booleans())
def test_report_of_a_run_with_one_damaged_value_is_a_page(field, text, with_log):
    with tempfile.TemporaryDirectory() as folder:
        write_damaged(Path(folder), *field, text, with_log=with_log)
        data, _ = read_page(Path(folder))
    (run,) = data["runs"]
    # The other nine, and what the other entries of the log say.
    assert len(run["episodes"]) >= 9
    assert data["panels"] or not with_log
