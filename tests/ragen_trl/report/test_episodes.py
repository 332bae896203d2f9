import json
import math

import pytest

from ragen_trl.records import write_trajectories
from ragen_trl.report.episodes import board_rows, read_episodes, split_reply, summarize_groups
from ragen_trl.report.run_folder import read_run
from tests.episodes import make_trajectory
from tests.runs import BOARDS, LAKE, write_evaluation, write_rollout, write_run


def read(folder, max_bytes=10_000_000):
    return read_episodes(read_run(folder), max_bytes)


def records_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_read_episodes_shows_all_of_a_small_run(tmp_path):
    book = read(write_run(tmp_path / "run", num_updates=3))
    assert [f["num_episodes"] for f in book.files] == [16, 16, 16, 6]
    assert [f["num_shown"] for f in book.files] == [16, 16, 16, 6]
    assert [(f["kind"], f["iteration"], f["step"]) for f in book.files] == [
        ("train", 0, 0),
        ("train", 1, 1),
        ("train", 2, 2),
        ("eval", 3, 3),
    ]
    assert book.train_names == [LAKE]
    assert len(book.episodes) == 54
    assert book.notes == []


def test_read_episodes_holds_everything_that_was_recorded_of_one(tmp_path):
    book = read(write_run(tmp_path / "run", num_updates=1))
    solved = next(e for e in book.episodes if e["is_solved"])
    assert solved["final_state"] == BOARDS[2]
    assert (solved["group"], solved["seed"], solved["reward"]) == (1, 10_001, 1.0)
    assert (solved["is_kept"], solved["advantages"], solved["end"]) == (
        True,
        [0.5, -0.25],
        "terminated",
    )
    first, second = solved["turns"]
    assert (first["state"], second["state"]) == BOARDS[:2]
    assert first["reply"] == [
        ["thought", "<think>I go right.</think>"],
        ["answer", "<answer>Right</answer>"],
    ]
    assert (second["actions"], second["executed"], second["reward"]) == (["Down"], ["Down"], 1.0)
    # The message can be put together again.
    before, after = (book.texts[position] for position in second["message"])
    assert before + second["state"] + after == f"Rules.\nState:\n{BOARDS[1]}\nTurns left: 4."
    assert len(book.texts) == len(set(book.texts)) == 3


def test_read_episodes_within_a_few_bytes_takes_files_at_equal_distances(tmp_path):
    folder = write_run(tmp_path / "run", num_updates=11)
    book = read(folder, max_bytes=4 * 40_000)
    shown = [i for i, file in enumerate(book.files) if file["num_shown"]]
    assert shown == [0, 4, 7, 11]
    assert any("8 of 12 rollouts and evaluations show no episodes" in note for note in book.notes)
    tight = read(folder, max_bytes=3000)
    assert sum(len(json.dumps(episode)) for episode in tight.episodes) <= 3000
    assert 0 < len(tight.episodes) == tight.files[-1]["num_shown"]


def test_read_episodes_is_the_same_every_time(tmp_path):
    folder = write_run(tmp_path / "run", num_updates=5)
    assert read(folder, 20_000) == read(folder, 20_000)


def test_read_episodes_cuts_texts_that_are_very_long(tmp_path):
    write_rollout(tmp_path, 0, thought="x" * 9000)
    (piece,) = read(tmp_path).episodes[0]["turns"][0]["reply"]
    length = len("<think></think><answer>Right</answer>") + 9000
    note = f"\n[{length - 6000} more characters are in the run's folder]"
    assert piece == ["text", f"<think>{'x' * 5993}{note}"]


@pytest.mark.parametrize(
    "damage",
    [
        {"turns": None},
        {"turns": [{"observation": "o"}]},
        {"turns": [{"reply": "r", "observation": None}]},
        {"env_id": 3},
        {"group_id": None},
        {"total_reward": "0.5"},
    ],
)
def test_read_episodes_leaves_out_lines_that_hold_no_episode(damage, tmp_path):
    write_rollout(tmp_path, 0)
    path = tmp_path / "trajectories" / "train-00000.jsonl"
    records = records_of(path)
    records[3] |= damage
    path.write_text("".join(json.dumps(r) + "\n" for r in records) + '{"turns": [{"obs')
    book = read(tmp_path)
    assert book.files[0]["num_episodes"] == len(book.episodes) == 15
    assert "train-00000.jsonl: left out 1 lines without an episode." in book.notes
    assert "train-00000.jsonl: left out what cannot be read (line 17)." in book.notes


def test_read_episodes_of_older_runs_without_later_fields(tmp_path):
    write_rollout(tmp_path, 0)
    path = tmp_path / "trajectories" / "train-00000.jsonl"
    later = ("final_state", "group_score", "is_kept", "advantages")
    records = [{k: v for k, v in r.items() if k not in later} for r in records_of(path)]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    book = read(tmp_path)
    assert len(book.episodes) == 16
    assert {(e["final_state"], e["is_kept"]) for e in book.episodes} == {("", None)}
    assert {g["score"] for g in book.groups} == {None}


def test_read_episodes_skips_empty_files(tmp_path):
    write_rollout(tmp_path, 1)
    (tmp_path / "trajectories" / "train-00000.jsonl").write_text("")
    assert [f["iteration"] for f in read(tmp_path).files] == [1]


def test_summarize_groups_numbers():
    returns = {7: (0.0, 1.0), 2: (2.0, 2.0)}
    records = [
        {
            "group_id": group,
            "env_id": LAKE,
            "seed": 10 * group,
            "total_reward": value,
            "success": value > 0,
            "is_kept": group == 7,
            "group_score": 0.25,
        }
        for group, values in returns.items()
        for value in values
    ]
    second, seventh = summarize_groups(records, 4)
    assert (second["group"], second["num_kept"], second["num_solved"], second["std"]) == (
        2,
        0,
        2,
        0.0,
    )
    assert seventh == {
        "file": 4,
        "group": 7,
        "env": LAKE,
        "seed": 70,
        "size": 2,
        "num_kept": 2,
        "num_solved": 1,
        "mean": 0.5,
        "std": 0.707107,  # of 0 and 1, divided by n - 1
        "score": 0.25,
    }
    assert summarize_groups(records[:1], 0)[0]["std"] == 0.0


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        ("<think>a</think> <answer>b</answer>", ["thought", "text", "answer"]),
        ("<answer>a</answer><answer>b</answer>", ["answer", "answer"]),
        ("<think>never closed <answer>", ["text"]),
        ("", []),
    ],
)
def test_split_reply_pieces_are_the_reply(reply, kinds):
    pieces = split_reply(reply)
    assert [kind for kind, _ in pieces] == kinds
    assert "".join(text for _, text in pieces) == reply


def test_cells_are_those_of_the_vocabulary_that_was_played(tmp_path):
    folder = write_run(tmp_path / "run", num_updates=1)
    cells = read(folder).cells
    assert cells[LAKE]["√"] == "player_on_goal"
    assert cells[LAKE]["O"] == "hole"
    write_evaluation(folder, 9, env_id="somebody/Else-v0")
    assert set(read(folder).cells) == {LAKE}


def test_board_rows_stop_where_lines_change_their_length():
    assert board_rows("##\n_O\nwall: row 0.") == ["##", "_O"]
    assert board_rows("Arms: A, B.") == ["Arms: A, B."]


def test_returns_too_large_for_a_mean_are_left_out_with_a_note(tmp_path):
    write_rollout(tmp_path, 0, num_groups=2, num_generations=2)
    path = tmp_path / "trajectories" / "train-00000.jsonl"
    records = records_of(path)
    records[0]["total_reward"] = records[1]["total_reward"] = 1e308
    records[2]["total_reward"], records[3]["total_reward"] = 1.7e308, -1.7e308
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    book = read(tmp_path)
    assert [(g["mean"], g["std"]) for g in book.groups] == [(None, 0.0), (0.0, None)]
    assert [e["reward"] for e in book.episodes].count(1e308) == 2
    note = "The returns of 2 groups are too large, or not finite, for a mean or std, which is left out."
    assert note in book.notes


def test_returns_that_are_not_finite_are_shown_as_unknown(tmp_path):
    # As a trainer writes a return beyond all floats: as null.
    rows = [(make_trajectory(reward=value), {"step": 0}) for value in (0.5, math.inf, 1.0)]
    write_trajectories(tmp_path / "trajectories" / "train-00000.jsonl", rows)
    book = read(tmp_path)
    assert [e["reward"] for e in book.episodes] == [0.5, None, 1.0]
    assert [(g["size"], g["mean"], g["std"]) for g in book.groups] == [(3, None, None)]
