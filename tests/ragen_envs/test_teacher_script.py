"""The script that writes demonstrations to a file."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ragen_envs import demonstrations

SCRIPT = Path(__file__).parents[2] / "examples" / "write_demonstrations.py"


def write(*arguments):
    command = [sys.executable, str(SCRIPT), "--episodes", "5", *map(str, arguments)]
    # As in most terminals: what is no text cannot be printed.
    env = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_script_writes_one_json_object_a_line(tmp_path):
    path = tmp_path / "lake.jsonl"
    done = write(
        "--env", "ragen/FrozenLake-v0", "--seed", 7, "--thoughts", "--output", path,
        "--env-kwargs", '{"is_slippery": false}',
        "--agent-turns-kwargs", '{"max_actions_per_turn": 1}',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = demonstrations(
        "ragen/FrozenLake-v0", 5, seed=7, thoughts=True, env_kwargs={"is_slippery": False},
        max_actions_per_turn=1,
    )  # fmt: skip
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == list(expected)
    assert "5 episodes, 5 of them solved" in done.stdout


def test_script_writes_parquet_that_datasets_reads(tmp_path):
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "sokoban.parquet"
    done = write("--output", path)
    assert done.returncode == 0, done.stderr
    table = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path))
    assert table.to_list() == list(demonstrations("ragen/Sokoban-v0", 5, seed=0))


def test_script_takes_a_file_whose_name_is_no_text(tmp_path):
    done = write("--env", "ragen/Bandit-v0", "--output", os.fsdecode(bytes(tmp_path) + b"/x\xff"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/x?: 5 episodes, 5 of them solved\n"


def test_script_that_cannot_write_leaves_the_file_of_before(tmp_path):
    def episodes():
        yield {"success": True}
        raise MemoryError

    path = tmp_path / "x.jsonl"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(MemoryError):
        runpy.run_path(str(SCRIPT))["write"](episodes(), path)
    assert [entry.read_text(encoding="utf-8") for entry in tmp_path.iterdir()] == ["old"]


def test_script_wrong_arguments_exit_with_a_message(tmp_path):
    done = write("--env", "ragen/Nothing-v0", "--output", tmp_path / "x.jsonl")
    assert done.returncode == 2
    assert "cannot write demonstrations of 'ragen/Nothing-v0'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "nomod:x"], "No module named 'nomod'"),
        (["--env", ""], "`id` must be an id such as"),
        (["--output", ""], "`--output` must be a file that can be written"),
        (["--output", "."], "`--output` must be a file that can be written"),
        (["--output", "/dev/full"], "`--output` must be a file that can be written"),
        (["--output", "/nowhere/x.jsonl"], "`--output` must be a file that can be written"),
        (["--env-kwargs", "[1]"], "must be a JSON object, got '[1]'"),
        (["--agent-turns-kwargs", "[" * 50_000], "must be a JSON object"),
    ],
)
def test_script_output_that_cannot_be_exits_with_a_message(arguments, message):
    done = write(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
