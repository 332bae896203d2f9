import json
import os
import resource
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragen_trl.report.__main__ import main
from tests.processes import ROOT
from tests.runs import write_lines, write_rollout, write_run


def test_main_writes_the_report_into_the_first_folder_and_says_so(tmp_path, capsys):
    folder = write_run(tmp_path / "run", num_updates=2)
    main([str(folder)])
    path = folder / "report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"Report: {path} (" in capsys.readouterr().out
    assert not (folder / "curves.png").exists()


def test_main_draws_curves_and_names_what_is_missing(tmp_path, capsys):
    whole, poor = write_run(tmp_path / "whole", num_updates=5), tmp_path / "poor"
    write_rollout(poor, 0)
    output = tmp_path / "both.html"
    main([str(whole), str(poor), "--output", str(output), "--curves"])
    for folder in (whole, poor):
        assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert output.exists()
    assert "poor: There is neither log.jsonl nor a checkpoint" in out
    assert "whole: " not in out


def test_main_wrong_folder_exits_with_a_message(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "`RUN` must hold log.jsonl" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_package_runs_as_a_command(tmp_path, monkeypatch, capsys):
    folder = write_run(tmp_path / "run", num_updates=5)
    monkeypatch.setattr("sys.argv", ["report", str(folder)])
    monkeypatch.delitem(sys.modules, "ragen_trl.report.__main__")
    runpy.run_module("ragen_trl.report", run_name="__main__")
    assert capsys.readouterr().out.startswith("Report: ")


def fail(capsys, *arguments):
    """Return the last line of what a call says that ends with exit code 2."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("output", ["/dev/full", "/proc/x", "/nowhere/x.html", ".", "a" * 300])
def test_main_output_that_cannot_be_written_is_named(output, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "run", num_updates=1)
    before = sorted(tmp_path.rglob("*"))
    message = fail(capsys, folder, "--output", output)
    assert "`output` must be a file that can be written: [Errno" in message
    assert sorted(tmp_path.rglob("*")) == before


def test_main_full_disk_leaves_the_report_of_before(tmp_path, capsys):
    # A limit on the size of files stands for it.
    folder = write_run(tmp_path / "run", num_updates=1)
    main([str(folder)])
    before = (folder / "report.html").read_bytes()
    write_rollout(folder, 5)
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    try:
        message = fail(capsys, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert "`output` must be a file that can be written: [Errno" in message
    assert (folder / "report.html").read_bytes() == before
    assert sorted(path.name for path in folder.glob("report*")) == ["report.html"]


def test_main_folder_that_cannot_be_looked_at_is_named(capsys):
    message = fail(capsys, "a" * 300)
    assert "`RUN` must be the output folder of a training, got 'aaaa" in message
    assert "which cannot be read (File name too long)." in message


@pytest.mark.parametrize("arguments", [["run", "--output", ""], [""], ["run", "a\0b"]])
def test_main_text_that_is_no_path_is_named(arguments, capsys):
    name = "--output" if "--output" in arguments else "RUN"
    assert f"argument {name}: must be a path, got '" in fail(capsys, *arguments)


def test_main_takes_folders_whose_name_is_no_text(tmp_path):
    name = "läufe √ ".encode() + b"\xff"
    folder = write_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)), num_updates=1)
    # As a program of its own: here, what is printed is not encoded.
    command = [sys.executable, "-m", "ragen_trl.report", folder, "--curves"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
    )
    out = done.stdout.decode("utf-8")
    assert "läufe √ ?/report.html (" in out
    assert "läufe √ ?/curves.png" in out
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_main_curves_that_cannot_be_written_are_named_after_the_report(tmp_path, capsys):
    folder = write_run(tmp_path / "run", num_updates=5)
    (folder / "curves.png").mkdir()
    message = fail(capsys, folder, "--curves")
    assert "curves.png of `--curves` cannot be written: [Errno" in message
    assert (folder / "report.html").exists()


def test_main_draws_curves_of_any_log_and_of_many_environments(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ragen_trl.curves.MAX_ENVIRONMENTS", 2)
    folder = write_run(tmp_path / "run", num_updates=1)
    keys = [f"env{k}/success_rate" for k in range(140)]
    odd = {"reward": "x", "entropy": [1], "env0/success_rate": {}}
    write_lines(folder / "log.jsonl", [{"step": 1, **dict.fromkeys(keys, 0.5)}, {"step": 2, **odd}])
    references = {"env0": {"random_play": {"rate": "x"}, "optimum": [1]}}
    (folder / "references.json").write_text(json.dumps(references), encoding="utf-8")
    main([str(folder), "--curves"])
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Curves: " in capsys.readouterr().out


def test_main_takes_folders_where_files_are_expected(tmp_path, capsys):
    folder = tmp_path / "run"
    write_rollout(folder, 0)
    for name in ("log.jsonl", "collapse.jsonl", "references.json", "trainer_state.json"):
        (folder / name).mkdir()
    (folder / "trajectories" / "train-00001.jsonl").mkdir()
    main([str(folder)])
    out = capsys.readouterr().out
    for name in ("log.jsonl", "collapse.jsonl", "references.json"):
        assert f"run: {name} cannot be read" in out
    assert (folder / "report.html").exists()
