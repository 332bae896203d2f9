import json
import os

import pytest

from ragen_trl.report.__main__ import main
from ragen_trl.report.page import write_report
from ragen_trl.report.run_folder import MAX_LOG_NAMES, keep_latest, read_json_lines, read_run
from tests.runs import COLLAPSE, LAKE, REFERENCES, make_log, write_lines, write_rollout, write_run


def update(step, reward=0.0):
    return {"step": step, "loss": 0.0, "reward": reward}


def evaluation(step, rate=0.0):
    return {"step": step, "eval_success_rate": rate}


def write_state(folder, step):
    folder.mkdir(parents=True, exist_ok=True)
    history = [update(k) for k in range(1, step + 1)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))


def test_read_run_finds_everything_and_has_nothing_to_note(tmp_path):
    run = read_run(write_run(tmp_path / "lake"))
    assert run.name == "lake"
    assert run.log == make_log(10)
    assert run.references == REFERENCES
    assert run.collapse == [COLLAPSE]
    names = [path.name for path in run.episode_files]
    assert names[:2] == ["train-00000.jsonl", "train-00001.jsonl"]
    assert names[-1] == "eval-00010-ragen_FrozenLake-v0.jsonl"
    assert run.notes == []


def test_read_run_that_lost_its_last_lines_keeps_the_others(tmp_path):
    folder = write_run(tmp_path / "lake")
    path = folder / "log.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: -len(whole.splitlines(keepends=True)[-1]) // 2])
    run = read_run(folder)
    assert run.log == make_log(10)[:-1]
    assert run.notes == ["log.jsonl: left out what cannot be read (line 12)."]


def test_read_json_lines_tells_damage_from_content(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": NaN}\n[1]\n\n\xff\xfe\n{"b": "\\ud800"}\n7')
    notes = []
    assert list(read_json_lines(path, notes)) == [{"a": None}, {"b": "\ud800"}]
    assert notes == ["x.jsonl: left out what cannot be read (line 2, 4, 6)."]


def test_read_run_without_a_log_takes_the_furthest_trainer_state(tmp_path):
    write_rollout(tmp_path, 0)
    for step in (2, 10, 9):
        write_state(tmp_path / f"checkpoint-{step}", step)
    (tmp_path / "checkpoint-11").mkdir()
    (tmp_path / "checkpoint-11/trainer_state.json").write_text('{"log_hist')
    run = read_run(tmp_path)
    assert [entry["step"] for entry in run.log] == list(range(1, 11))
    assert (
        "There is no log.jsonl; the log is that of checkpoint-10/trainer_state.json." in run.notes
    )
    write_state(tmp_path, 12)
    assert len(read_run(tmp_path).log) == 12


@pytest.mark.parametrize("damage", [[0.2], {LAKE: 0.2}, {LAKE: {"random_play": 0.2}}, {LAKE: {}}])
def test_read_run_takes_no_references_of_another_form(tmp_path, damage):
    folder = write_run(tmp_path / "lake", num_updates=2)
    (folder / "references.json").write_text(json.dumps(damage))
    main([str(folder), "--curves"])
    assert (folder / "curves.png").exists()
    assert read_run(folder).references.get(LAKE, {}).get("random_play") is None


def test_read_run_says_what_is_missing(tmp_path):
    write_rollout(tmp_path, 0)
    (tmp_path / "references.json").write_text("{")
    run = read_run(tmp_path)
    assert (run.log, run.references, run.collapse) == ([], {}, [])
    found = " ".join(run.notes)
    for piece in ("neither log.jsonl", "no evaluation", "references.json cannot", "random play"):
        assert piece in found


def test_read_run_without_episodes(tmp_path):
    write_lines(tmp_path / "log.jsonl", make_log(5))
    run = read_run(tmp_path)
    assert run.episode_files == []
    assert any("no episodes" in note for note in run.notes)


def test_read_run_refuses_what_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="must hold log"):
        read_run(tmp_path)


def test_keep_latest_drops_updates_that_were_made_again():
    first = [update(1), update(2), evaluation(2), update(3), update(4)]
    # Back to update 2, then on.
    again = [update(3, reward=1.0), evaluation(3)]
    assert keep_latest([*first, *again]) == [update(1), update(2), evaluation(2), *again]


def test_keep_latest_of_a_second_run_in_the_same_folder():
    first = [evaluation(0, rate=0.1), update(1), update(2), evaluation(2, rate=0.2)]
    second = [evaluation(0, rate=0.3), update(1, reward=1.0)]
    assert keep_latest([*first, *second]) == second


def test_keep_latest_of_an_evaluation_alone_replaces_its_like_and_nothing_else():
    log = [evaluation(0), update(1), {"step": 1, "train_runtime": 2.0}, evaluation(1, rate=0.1)]
    expected = [*log[:3], evaluation(1, rate=0.9)]
    assert keep_latest([*log, evaluation(1, rate=0.9)]) == expected
    late = evaluation(0, rate=0.5)
    assert keep_latest([*log, late]) == [late, *log[1:]]


@pytest.mark.parametrize(
    "line",
    [
        '{"a": ' + 50_000 * "[" + 50_000 * "]" + "}",
        '{"a": 1e999}',
        '{"a": -1e999}',
        '{"a": ' + 400 * "9" + "}",
    ],
    ids=["nested", "inf", "-inf", "digits"],
)
def test_read_json_lines_leaves_out_what_no_page_can_hold(line, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n{{"a": 1e308}}\n')
    notes = []
    assert list(read_json_lines(path, notes)) == [{"a": 1}, {"a": 1e308}]
    assert notes == ["x.jsonl: left out what cannot be read (line 2)."]


@pytest.mark.parametrize("name", ["log.jsonl", "collapse.jsonl"])
def test_read_run_notes_a_folder_in_the_place_of_a_file(name, tmp_path):
    folder = write_run(tmp_path / "lake", num_updates=2)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert f"{name} cannot be read: Is a directory." in read_run(folder).notes


@pytest.mark.parametrize("name", ["references.json", "trainer_state.json"])
def test_read_run_survives_deeply_nested_files(name, tmp_path):
    write_rollout(tmp_path, 0)
    (tmp_path / name).write_text(50_000 * "[")
    assert read_run(tmp_path).notes


@pytest.mark.parametrize("step", [True, None, "3", 2.5, [3], 2**53, -(10**400)])
def test_read_run_leaves_out_entries_whose_step_is_none(step, tmp_path):
    history = [update(1), update(2), update(step)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (tmp_path / "collapse.jsonl").write_text(json.dumps(COLLAPSE | {"step": step}))
    run = read_run(tmp_path)
    assert (run.log, run.collapse) == (history[:2], [])


class Watched(dict):
    """An entry that counts how often a value is asked for."""

    asked = 0

    def __getitem__(self, name):
        Watched.asked += 1
        return super().__getitem__(name)


def test_keep_latest_looks_at_every_evaluation_once():
    log = [Watched(evaluation(step)) for step in range(500)]
    Watched.asked = 0
    assert keep_latest(log) == log
    assert Watched.asked == len(log)


def test_read_run_names_a_folder_whose_name_is_no_text(tmp_path):
    folder = write_run(tmp_path / os.fsdecode(b"l\xffke"), num_updates=2)
    assert read_run(folder).name == "l?ke"
    write_report([folder], tmp_path / "report.html")
    assert "<title>l?ke" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_read_run_bounds_the_names_of_a_log(tmp_path):
    log = [{"step": k, "loss": 0.5, f"name {k}": 1.0} for k in range(1, MAX_LOG_NAMES + 500)]
    write_lines(tmp_path / "log.jsonl", log)
    run = read_run(tmp_path)
    assert len(run.entries_by_name) == MAX_LOG_NAMES
    assert {"step", "loss", "name 1"} <= set(run.entries_by_name)
    assert len(run.log) == len(log)
    assert (
        f"The log has {MAX_LOG_NAMES + 501} names; the {MAX_LOG_NAMES} that most of its entries "
        "hold are shown." in run.notes
    )
