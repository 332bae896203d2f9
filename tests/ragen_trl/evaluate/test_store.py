import json
import math
from dataclasses import asdict

import pytest

from ragen_trl.evaluate import EpisodeRecord
from ragen_trl.evaluate.store import EpisodeKey, EpisodeStore, write_json

SETTINGS = {"episodes": 4, "temperature": 0.5, "model": {"name": "a"}}


def test_episodes_are_there_for_the_next_store_as_soon_as_they_are_over(tmp_path, make_record):
    store = EpisodeStore(tmp_path / "deep" / "run", SETTINGS)
    records = [make_record(seed=seed, reward=0.1 + seed) for seed in (3, 1)]
    for count, record in enumerate(records, start=1):
        store.append(record)
        again = EpisodeStore(tmp_path / "deep" / "run", SETTINGS)
        assert list(again.read().values()) == records[:count]
    assert list(again.read()) == [EpisodeKey("lake", 3, 0), EpisodeKey("lake", 1, 0)]


def test_a_line_that_was_cut_is_played_again(tmp_path, make_record):
    store = EpisodeStore(tmp_path, SETTINGS)
    first, second, third = (make_record(seed=seed) for seed in range(3))
    store.append(first)
    store.append(second)
    path = tmp_path / "episodes.jsonl"
    whole = path.read_bytes()
    # Wherever it was cut, even just before the end of the line.
    for length in range(len(whole) // 2 + 1, len(whole)):
        path.write_bytes(whole[:length])
        again = EpisodeStore(tmp_path, SETTINGS)
        assert list(again.read().values()) == [first]
        again.drop_cut_line()
        again.append(third)
        assert list(again.read().values()) == [first, third]


def test_rewards_that_are_not_finite_are_null_and_come_back_as_nan(tmp_path, make_record):
    store = EpisodeStore(tmp_path, SETTINGS | {"limit": math.inf})
    store.append(make_record(reward=math.inf))
    line = (tmp_path / "episodes.jsonl").read_text(encoding="utf-8")
    assert json.loads(line, parse_constant=refuse)["reward"] is None
    # The settings of before and now are the same, though one was read and the other was not.
    again = EpisodeStore(tmp_path, SETTINGS | {"limit": math.inf})
    (record,) = again.read().values()
    assert math.isnan(record.reward)
    again.finish([record])
    assert (tmp_path / "episodes.jsonl").read_text(encoding="utf-8") == line


def refuse(text):
    raise AssertionError(f"{text} is no JSON.")


def damaged(**damage):
    """A line that is whole but for some fields."""
    record = EpisodeRecord("lake", 3, 0, False, 0.0, 2, 1, 3, 2, 10)
    return json.dumps(asdict(record) | damage).encode() + b"\n"


@pytest.mark.parametrize(
    "damage",
    [
        *(b"\0\0\0\n", b'{"seed": 1}\n', b"[1]\n", b"\n"),
        *(damaged(seed=[3]), damaged(reward="x"), damaged(success=None), damaged(turns={})),
    ],
)
def test_a_line_that_cannot_be_read_is_played_again(tmp_path, make_record, damage):
    store = EpisodeStore(tmp_path, SETTINGS)
    first, second = make_record(seed=1), make_record(seed=2)
    store.append(first)
    with (tmp_path / "episodes.jsonl").open("ab") as file:
        file.write(damage)
    store.append(second)
    assert list(store.read().values()) == [first, second]


@pytest.mark.parametrize("damage", ["", "{", "[]"])
def test_damaged_settings_are_named(tmp_path, make_record, damage):
    EpisodeStore(tmp_path, SETTINGS).append(make_record())
    (tmp_path / "settings.json").write_text(damage, encoding="utf-8")
    with pytest.raises(ValueError, match=r"settings\.json cannot be read.* another folder"):
        EpisodeStore(tmp_path, SETTINGS)


def test_episodes_with_an_error_are_played_again(tmp_path, make_record):
    store = EpisodeStore(tmp_path, SETTINGS)
    store.append(make_record(seed=1, error="lost"))
    store.append(make_record(seed=2))
    assert list(store.read()) == [EpisodeKey("lake", 2, 0)]
    store.append(make_record(seed=1, success=True))
    assert store.read()[EpisodeKey("lake", 1, 0)].success


def test_processes_write_apart_and_are_put_together(tmp_path, make_record):
    stores = [EpisodeStore(tmp_path, SETTINGS, rank=rank) for rank in range(3)]
    records = [make_record(seed=seed) for seed in range(3)]
    for store, record in zip(stores, records[::-1], strict=True):
        store.append(record)
    # Fewer processes go on with what all left behind.
    assert set(EpisodeStore(tmp_path, SETTINGS).read().values()) == set(records)
    stores[0].finish(records)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["episodes.jsonl", "settings.json"]
    lines = (tmp_path / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1, 2]


def test_other_settings_are_refused_and_lose_nothing(tmp_path, make_record):
    EpisodeStore(tmp_path, SETTINGS).append(make_record())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"`temperature` was 0\.5 and is 1\.0 now\. Use the"):
        EpisodeStore(tmp_path, {**SETTINGS, "temperature": 1.0})
    with pytest.raises(ValueError, match=r"`episodes` was 4 and is 5 now \(and 1 more\)"):
        EpisodeStore(tmp_path, {**SETTINGS, "episodes": 5, "model": {"name": "b"}})
    with pytest.raises(ValueError, match="`samples` was None and is 1 now"):
        EpisodeStore(tmp_path, {**SETTINGS, "samples": 1})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_settings_are_the_same_after_a_way_through_json(tmp_path):
    for _ in range(2):
        EpisodeStore(tmp_path, {"size": (6, 6), "limits": {1: 2}})


@pytest.mark.parametrize("name", ["results.json", "episodes.jsonl"])
def test_a_folder_of_something_else_is_refused(tmp_path, name):
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"`output` must be a new folder .* holds '{name}'"):
        EpisodeStore(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_json_files_are_whole_or_not_there(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError, match="JSON"):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["x.json"]
