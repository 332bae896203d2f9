import json
import os
import subprocess
import sys

import pytest

from ragen_envs.baselines.__main__ import main
from ragen_envs.baselines.report import format_baselines, measure_baseline


def test_main_prints_the_table_of_the_asked_ids(capsys):
    main(["--episodes", "20", "--ids", "ragen/Sokoban-v0", "ragen/Bandit-v0"])
    ids = ["ragen/Sokoban-v0", "ragen/Bandit-v0"]
    expected = [measure_baseline(env_id, seeds=range(20)) for env_id in ids]
    assert capsys.readouterr().out == format_baselines(expected) + "\n"


def test_main_prints_one_object_a_line_for_every_id_as_json(capsys):
    main(["--episodes", "5", "--json"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = {record["env_id"] for record in records}
    assert names >= {"ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/LargeSokoban-v0"}
    for record in records:
        assert record["num_episodes"] == 5
        assert record["random"]["low"] <= record["random"]["rate"] <= record["random"]["high"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ids", "ragen/Nothing-v0"], "Nothing"),
        (["--ids", "nomod:x"], "No module named 'nomod'"),
        (["--ids", ""], "`env_id` must be an id such as"),
        (["--ids", "a:b:c"], "`env_id` must be an id such as"),
        (["--episodes", "0"], "must be from 1 to 1,000,000, got 0"),
        (["--episodes", "1" + "0" * 400], "must be from 1 to 1,000,000, got 1000"),
    ],
)
def test_main_wrong_arguments_exit_with_a_message(capsys, arguments, message):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_package_runs_as_a_command():
    command = [sys.executable, "-m", "ragen_envs.baselines", "--episodes", "3", "--ids"]
    done = subprocess.run(
        [*command, "ragen/Bandit-v0"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert "`ragen/Bandit-v0`" in done.stdout
    assert done.stderr == ""
