"""The script that draws episodes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "render_gif.py"


# A module whose environment says that it is closed.
LOUD = """
import sys, gymnasium, ragen_envs

class Loud(ragen_envs.FrozenLakeEnv):
    def close(self):
        print("closed", file=sys.stderr)

gymnasium.register("test/Loud-v0", Loud)
"""


def draw(folder, *arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    modules = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        # As in most terminals, what is no text cannot be printed.
        env=os.environ | {"PYTHONPATH": modules, "PYTHONIOENCODING": "utf-8:strict"},
    )


def test_script_draws_an_episode_and_a_start(tmp_path):
    for name, signature in (("lake.gif", b"GIF89a"), ("lake.png", b"\x89PNG")):
        done = draw(tmp_path, "--env", "ragen/FrozenLake-v0", "--play", "random", "--output", name)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).read_bytes().startswith(signature)
        assert done.stdout.startswith(f"{name}: ")


def test_script_takes_a_file_whose_name_is_no_text(tmp_path):
    done = draw(tmp_path, "--env", "ragen/Bandit-v0", "--output", os.fsdecode(b"x\xff.png"))
    assert (done.returncode, done.stdout.split(": ")[0]) == (0, "x?.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "ragen/Nothing-v0"], "cannot draw 'ragen/Nothing-v0'"),
        (["--env", "nomod:x"], "No module named 'nomod'"),
        (["--seed", "-1"], "`seed` must be at least 0, got -1"),
        (["--output", "x.xyz"], "unknown file extension: .xyz"),
        (["--output", "nowhere/x.gif"], "`--output` must be a file that can be written"),
        (["--output", "nowhere/x.png"], "`--output` must be a file that can be written"),
        (["--output", ""], "cannot draw"),
    ],
)
def test_script_wrong_arguments_exit_with_a_message(arguments, message, tmp_path):
    done = draw(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["x.gif", "x.png", "nowhere/x.gif", "x.xyz"])
def test_script_closes_the_environment(output, tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    done = draw(tmp_path, "--env", "loud:test/Loud-v0", "--output", output)
    assert done.stderr.count("closed") == 1
