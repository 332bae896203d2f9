import json
import math

import pytest

from ragen_trl.records import write_trajectories
from tests.episodes import make_trajectory, make_turn


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_write_trajectories_one_line_per_episode_with_the_further_fields(tmp_path):
    path = tmp_path / "trajectories" / "train-00000.jsonl"
    episodes = [make_trajectory(seed=seed, reward=1.5) for seed in (7, 8)]
    write_trajectories(path, [(t, {"iteration": 3, "is_kept": t.seed == 8}) for t in episodes])
    as_json = [json.loads(json.dumps(t.to_record())) for t in episodes]
    assert read(path) == [
        {"iteration": 3, "is_kept": False, **as_json[0]},
        {"iteration": 3, "is_kept": True, **as_json[1]},
    ]
    first = read(path)[0]
    assert list(first)[:3] == ["iteration", "is_kept", "env_id"]
    assert (first["iteration"], first["seed"], first["total_reward"]) == (3, 7, 1.5)
    assert "completion_ids" not in first


def test_write_trajectories_text_stays_readable_and_on_one_line(tmp_path):
    path = tmp_path / "x.jsonl"
    # A line separator that `str.splitlines` would split at is no end of a JSON line.
    turn = make_turn(observation="#_√\n#P_", reply='<answer>"Up" \u2028</answer>')
    write_trajectories(path, [(make_trajectory(turns=[turn]), {})])
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert "#_√\\n#P_" in text
    (record,) = read(path)
    assert record["turns"][0]["observation"] == turn.observation
    assert record["turns"][0]["reply"] == turn.reply


def test_write_trajectories_again_replaces_the_file(tmp_path):
    path = tmp_path / "x.jsonl"
    write_trajectories(path, [(make_trajectory(seed=seed), {}) for seed in range(5)])
    write_trajectories(path, [(make_trajectory(seed=9), {})])
    assert [record["seed"] for record in read(path)] == [9]


def test_write_trajectories_numbers_that_are_not_finite_are_null(tmp_path):
    def refuse(text):
        raise AssertionError(f"{text} is no JSON.")

    path = tmp_path / "x.jsonl"
    further = {"group_score": math.inf, "advantages": [0.5, math.nan]}
    write_trajectories(path, [(make_trajectory(reward=-math.inf), further)])
    record = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert (record["group_score"], record["advantages"]) == (None, [0.5, None])
    assert record["total_reward"] is None


def test_write_trajectories_that_fails_leaves_the_file_of_before(tmp_path):
    path = tmp_path / "x.jsonl"
    write_trajectories(path, [(make_trajectory(seed=1), {})])
    episodes = [(make_trajectory(seed=2), {}), (make_trajectory(seed=3), {"odd": object()})]
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_trajectories(path, episodes)
    assert [record["seed"] for record in read(path)] == [1]
    assert list(tmp_path.iterdir()) == [path]
