"""The script that lets somebody play in the terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "play.py"
# A module whose environments say that they are closed; the second names no actions.
LOUD = """
import sys, gymnasium, ragen_envs

class Loud(ragen_envs.BanditEnv):
    def close(self):
        print("closed", file=sys.stderr)

class Nameless(Loud):
    action_names = property(lambda self: None, lambda self, names: None)

gymnasium.register("test/Loud-v0", Loud)
gymnasium.register("test/Nameless-v0", Nameless)
"""


def play(folder, *arguments, typed=""):
    (folder / "loud.py").write_text(LOUD)
    modules = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": modules},
    )


@pytest.mark.parametrize(
    ("arguments", "typed", "shown"),
    [
        ([], "what?\nDragon\n", "does not stand for exactly one action"),
        (["--turns"], "<think></think><answer>Dragon</answer>\n", "executed: Dragon"),
        ([], "", "Left the game."),
    ],
)
def test_script_plays_an_episode_and_closes_the_environment(arguments, typed, shown, tmp_path):
    done = play(tmp_path, "--env", "loud:test/Loud-v0", "--seed", "0", *arguments, typed=typed)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert done.stderr == "closed\n"


@pytest.mark.parametrize("arguments", [["test/Nameless-v0"], ["test/Loud-v0", "--seed", "-1"]])
def test_script_closes_the_environment_where_it_cannot_be_played(arguments, tmp_path):
    name, *others = arguments
    done = play(tmp_path, "--env", f"loud:{name}", *others)
    assert done.returncode == 2
    assert f"cannot play 'loud:{name}'" in done.stderr
    assert done.stderr.count("closed\n") == 1
