"""The arguments of the command line that lead to a player at an endpoint."""

import argparse
import re

import pytest

from ragen_trl.evaluate import EvaluationSettings, endpoint
from ragen_trl.evaluate.endpoint_arguments import add_endpoint_arguments, make_endpoint_player
from tests.chat_server import completion, serve
from tests.ragen_trl.evaluate.test_endpoint import make_jobs, play

SETTINGS = EvaluationSettings(temperature=0.25, max_new_tokens_per_turn=77)


def parse(*words):
    parser = argparse.ArgumentParser()
    add_endpoint_arguments(parser)
    return parser.parse_args(words)


def make(*words):
    return make_endpoint_player(parse(*words), settings=SETTINGS)


def test_without_a_model_there_is_no_player():
    assert make() is None


def test_the_model_at_the_server_is_asked_as_the_command_line_says():
    with serve(completion("Up")) as server:
        words = ["--api-model", "m", "--base-url", server.url, "--concurrency", "2"]
        player = make(*words, "--prices", "1", "2", "--max-retries", "0", "--timeout", "3")
        play(player, make_jobs(seeds=[0], samples=1, max_turns=1))
    assert player.name == f"m at 127.0.0.1:{server.server_port}"
    (request,) = server.requests
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("m", 0.25, 77)
    # 20 and 5 tokens.
    assert player.usage()["cost"] == pytest.approx(30e-6, rel=1e-12)


def test_arguments_of_an_endpoint_without_its_model_are_refused():
    with pytest.raises(ValueError, match=r"`--api-model` must be given.*'concurrency': 2"):
        make("--concurrency", "2")


def test_the_help_tells_the_real_defaults():
    parser = argparse.ArgumentParser()
    add_endpoint_arguments(parser)
    told = dict(re.findall(r"--(\S+) \S+\s+[^;]+; default:\s+(\d+)", parser.format_help()))
    assert told == {
        "concurrency": str(endpoint.CONCURRENCY),
        "max-retries": str(endpoint.MAX_RETRIES),
        "timeout": f"{endpoint.TIMEOUT:.0f}",
    }
