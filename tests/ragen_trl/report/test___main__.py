import runpy
import sys

import pytest

from ragen_trl.report.__main__ import main
from tests.runs import write_rollout, write_run


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
