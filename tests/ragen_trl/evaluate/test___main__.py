import json
import subprocess
import sys

import pytest

from ragen_trl import evaluate
from ragen_trl.evaluate.__main__ import main
from tests.processes import ROOT
from tests.training import BANDIT

QUICK = [
    *("--no-think", "--max-new-tokens-per-turn", "20", "--max-trajectory-tokens", "1200"),
    *("--episodes", "4", "--temperature", "1.0"),
]


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_command_writes_files_and_a_table(saved_start, tmp_path, capsys):
    lake = "ragen/FrozenLake-v0"
    kwargs = json.dumps({lake: {"is_slippery": False}})
    environments = ["--env", BANDIT, lake, "--env-kwargs", kwargs]
    output = tmp_path / "out"
    main([saved_start, *environments, *QUICK, "--samples", "2", "--output", str(output)])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert [row[0].strip() for row in rows] == ["environment", BANDIT, lake]
    assert sorted(path.name for path in output.iterdir()) == [
        *("episodes.jsonl", "results.json", "settings.json"),
    ]
    results = read(output / "results.json")
    assert len(results["episodes"]) == 16
    assert results["settings"]["environments"][lake]["kwargs"] == {"is_slippery": False}
    assert results["settings"]["samples"] == 2
    assert results["settings"]["think"] is False
    assert set(results["versions"]) >= {"python", "torch"}


def test_models_are_compared_with_a_model_or_a_result(saved_start, tmp_path, capsys):
    output = tmp_path / "out"
    common = ["--env", BANDIT, *QUICK, "--output"]
    main([saved_start, *common, str(output), "--compare", "tiny"])
    text = capsys.readouterr().out
    assert f"{saved_start} (first) against tiny (second)" in text
    found = read(output / "comparison.json")
    assert (found["first"], found["second"]) == (saved_start, "tiny")
    (pairs,) = found["environments"].values()
    assert pairs["num_pairs"] == 4
    # The other way round, from the file that lies there now.
    main(["tiny", *common, str(tmp_path / "other"), "--compare", str(output)])
    (swapped,) = read(tmp_path / "other" / "comparison.json")["environments"].values()
    assert swapped["num_first_only"] == pairs["num_second_only"]
    assert swapped["num_second_only"] == pairs["num_first_only"]
    assert swapped["p_value"] == pairs["p_value"]
    assert read(output / "compare" / "results.json")["settings"]["model"]["name"] == "tiny"


def test_several_models_have_a_folder_each(saved_start, tmp_path, capsys):
    main([saved_start, "tiny", "--env", BANDIT, *QUICK, "--output", str(tmp_path / "out")])
    assert capsys.readouterr().out.count("environment ") == 2
    names = sorted(path.parent.name for path in (tmp_path / "out").glob("*/results.json"))
    assert len(names) == 2
    assert names[-1] == "tiny"


def test_the_suite_plays_every_environment(capsys):
    main(["tiny", "--suite", "generalisation", *QUICK, "--episodes", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("Sokoban", "FrozenLake", "Bandit")) for line in lines) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny"], "`--env` or `--suite` must be given, and not both"),
        (["tiny", "--env", BANDIT, "--suite", "generalisation"], "and not both"),
        (["tiny", "--env", "ragen/Chess-v0"], "Chess"),
        (["tiny", "--env", BANDIT, "--episodes", "-5"], "`episodes` must be at least 1, got -5"),
        (["tiny", "--env", BANDIT, "--max-turns", "0"], "`max_turns` must be at least 1, got 0"),
        (["tiny", "--env", BANDIT, "--batch-size", "0"], "`batch_size` must be at least 1"),
        (["tiny", "--env", BANDIT, "--env-kwargs", "{"], "`--env-kwargs` must be JSON"),
        (["tiny", "--env", BANDIT, "--env-kwargs", "[" * 100_000], "`--env-kwargs` must be JSON"),
        (["tiny", "--env", BANDIT, "--env-kwargs", '{"x": {}}'], "`--env-kwargs` must map ids"),
        (
            ["tiny", "--env", BANDIT, "--chat-template-kwargs", "{"],
            "`--chat-template-kwargs` must be JSON such as '{\"enable_thinking\": false}'",
        ),
        (
            ["tiny", "--env", BANDIT, "--chat-template-kwargs", "5"],
            "`chat_template_kwargs` must be a dict of names and values",
        ),
        (["tiny", "--env", BANDIT, "--output", "/proc/x"], "`--output` must be a folder that can"),
        (["tiny", "--env", BANDIT, "--output", "a\0b"], "`--output` must be the path of a folder"),
        (["tiny", "--env", BANDIT, "--output", "a" * 300], "`--output` must be a folder that can"),
        (["tiny", "--env", BANDIT, "--output", ""], "`--output` must be the path of a folder"),
        (["tiny", "--env", BANDIT, "--dtype", "float99"], "invalid choice: 'float99'"),
        (["tiny", "--env", BANDIT, "--output", __file__], "`--output` must be a folder"),
        (
            ["tiny", "--env", BANDIT, "--compare", "a" * 300],
            "`compare` must be a result or a model",
        ),
        (["no/such-model", "--env", BANDIT], "'no/such-model' could not be loaded"),
        (["tiny", "tiny", "--env", BANDIT], "`MODEL` must name different models"),
    ],
)
def test_bad_input_ends_with_its_reason(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"settings": 1, "episodes": 2, "random_success": 3}', "[5]", "\udcff"],
)
def test_a_damaged_result_to_compare_with_ends_with_its_reason(content, tmp_path, capsys):
    path = tmp_path / "results.json"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(SystemExit) as stop:
        main(["tiny", "--env", BANDIT, "--compare", str(path)])
    assert stop.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "`compare` must be a result or a model" in error or "could not be loaded" in error


def test_a_model_whose_name_is_no_text_is_printed(tmp_path, capsys):
    common = ["tiny", "--env", BANDIT, *QUICK]
    main([*common, "--output", str(tmp_path)])
    result = read(tmp_path / "results.json")
    result["settings"]["model"]["name"] = "x\udcff"
    (tmp_path / "results.json").write_text(json.dumps(result), encoding="utf-8")
    main([*common, "--compare", str(tmp_path)])
    assert "x? (second)" in capsys.readouterr().out


def test_template_arguments_are_written_down(saved_start, tmp_path):
    kwargs = ["--chat-template-kwargs", '{"enable_thinking": false}']
    main([saved_start, "--env", BANDIT, *QUICK, *kwargs, "--output", str(tmp_path / "out")])
    settings = read(tmp_path / "out" / "settings.json")
    assert settings["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_folder_of_other_settings_ends_with_its_reason(saved_start, tmp_path, capsys):
    common = ["--env", BANDIT, *QUICK, "--output", str(tmp_path / "out")]
    main([saved_start, *common])
    before = (tmp_path / "out" / "results.json").read_bytes()
    with pytest.raises(SystemExit):
        main([saved_start, *common, "--seed", "9"])
    assert "`seed` was 123 and is 9 now" in capsys.readouterr().err
    assert (tmp_path / "out" / "results.json").read_bytes() == before


def test_the_package_is_the_command_and_the_name_is_the_function():
    assert callable(evaluate)
    shown = subprocess.run(
        [sys.executable, "-m", "ragen_trl.evaluate", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--suite" in shown.stdout
    assert shown.stderr == ""
