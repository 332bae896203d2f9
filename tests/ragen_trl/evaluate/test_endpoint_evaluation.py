"""Whole evaluations of a model at an endpoint, in Python and from the command line."""

import json
import zlib

import pytest

from ragen_envs.parsing import format_reply
from ragen_trl.evaluate import EvaluationSettings, evaluate
from ragen_trl.evaluate.__main__ import main
from ragen_trl.evaluate.endpoint import EndpointPlayer
from tests.chat_server import Answer, completion, refusal, serve
from tests.training import BANDIT

SETTINGS = EvaluationSettings(episodes=12, max_turns=3)
LAKE = "ragen/FrozenLake-v0"
MOVES = ("Left", "Down", "Right", "Up")


def digest(body):
    return zlib.crc32(json.dumps(body["messages"]).encode())


def wander(body, attempt):
    return completion(format_reply([MOVES[digest(body) % 4]]))


TROUBLE = [
    refusal(429, retry_after_ms="5"),
    refusal(500, retry_after_ms="5"),
    completion("Up", delay=30.0),
    completion("Up", is_cut=True),
    Answer(body="{"),
]


def sicken(body, attempt):
    """Answer two thirds of the questions; of the others every second is never answered."""
    number = digest(body)
    is_troubled = number % 3 == 0 and (attempt == 0 or number % 2)
    return TROUBLE[number // 6 % len(TROUBLE)] if is_troubled else wander(body, attempt)


def make_player(server, **arguments):
    defaults = {"base_url": server.url, "max_retries": 1, "timeout": 1.0, "concurrency": 20}
    return EndpointPlayer("m", settings=SETTINGS, **{**defaults, **arguments})


def test_a_sick_server_costs_errors_and_changes_no_episode(tmp_path):
    with serve(wander) as server:
        healthy = evaluate(make_player(server, timeout=30.0), LAKE, settings=SETTINGS)
        assert healthy.summaries[LAKE].num_errors == 0
        server.answer = sicken
        sick = evaluate(make_player(server), LAKE, settings=SETTINGS, output=tmp_path)
        server.answer = wander
        again = make_player(server, timeout=30.0)
        healed = evaluate(again, LAKE, settings=SETTINGS, output=tmp_path)
    summary = sick.summaries[LAKE]
    assert summary.num_episodes + summary.num_errors == 12
    assert 0 < summary.num_errors < 12
    played = {record.seed: record for record in sick.episodes if record.error is None}
    assert list(played.values()) == [e for e in healthy.episodes if e.seed in played]
    solved = sum(record.success for record in played.values())
    assert summary.success_rate == pytest.approx(solved / len(played), abs=1e-12)
    failed = [count for name, count in sick.usage.items() if name.startswith("failed/")]
    assert sum(failed) == summary.num_errors
    assert len(failed) > 1
    # Only what had failed is played again.
    assert healed.timings["num_episodes_played"] == summary.num_errors
    assert healed.episodes == healthy.episodes


def test_the_command_evaluates_an_endpoint_beside_random_play(tmp_path, capsys):
    with serve(wander) as server:
        words = ["--api-model", "m", "--base-url", server.url, "--env", BANDIT, LAKE]
        words += ["--episodes", "2", "--prices", "1", "2", "--output", str(tmp_path / "out")]
        main(words)
    text = capsys.readouterr().out
    assert f"m at 127.0.0.1:{server.server_port}: 2 start states" in text
    assert "random play" in text
    assert f"usage: requests {len(server.requests)}, retries 0" in text
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["usage"]["cost"] == pytest.approx(len(server.requests) * 30e-6, rel=1e-9)
    assert results["settings"]["model"]["name"] == f"m at 127.0.0.1:{server.server_port}"
    assert len(results["episodes"]) == 4


def test_the_command_says_in_one_line_why_a_server_refuses(capsys):
    with serve(refusal(401, "bad key")) as server, pytest.raises(SystemExit) as stopped:
        main(["--api-model", "m", "--base-url", server.url, "--env", BANDIT])
    assert stopped.value.code == 1
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    assert "bad key" in message
    assert "Set OPENAI_API_KEY" in message


def test_the_command_wants_a_model_or_an_endpoint(capsys):
    with pytest.raises(SystemExit):
        main(["--env", BANDIT])
    assert "`MODEL` or `--api-model` must be given." in capsys.readouterr().err
