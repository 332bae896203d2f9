"""One question at a time: what a reply is, what is asked again, and how a failure is named."""

import importlib
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from ragen_trl.evaluate.chat_endpoint import ChatEndpoint, ChatReply, Failure, _limit_name
from tests.chat_server import SETTINGS, Answer, completion, refusal, serve

QUESTION = [{"role": "user", "content": "Which way?"}]
SOON = {"retry_after_ms": "5"}


def make_endpoint(server, **arguments):
    defaults = {
        "base_url": server.url,
        "api_key": None,
        "max_retries": 0,
        "timeout": 5.0,
        "temperature": 0.5,
        "max_new_tokens": 30,
    }
    return ChatEndpoint("m", **{**defaults, **arguments})


def ask(answer, **arguments):
    """Ask one question; return what came of it and what was counted."""
    with serve(answer) as server:
        endpoint = make_endpoint(server, **arguments)
        return endpoint.ask(QUESTION), endpoint.counts


def test_a_request_holds_the_conversation_the_limit_and_the_temperature():
    with serve(completion("Up")) as server:
        assert make_endpoint(server).ask(QUESTION) == ChatReply("Up", "", 5)
    (request,) = server.requests
    assert request == {"model": "m", "messages": QUESTION, "max_tokens": 30, "temperature": 0.5}


def test_the_key_comes_from_the_argument_or_the_environment(monkeypatch):
    with serve(completion("Up")) as server:
        make_endpoint(server).ask(QUESTION)
        monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
        make_endpoint(server).ask(QUESTION)
        make_endpoint(server, api_key="given").ask(QUESTION)
    assert server.keys == ["Bearer EMPTY", "Bearer from-environment", "Bearer given"]


def test_openai_without_a_key_is_refused(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"`api_key` must be given for OpenAI's own server"):
        ChatEndpoint(
            "m",
            base_url=None,
            api_key=None,
            max_retries=0,
            timeout=1.0,
            temperature=0.5,
            max_new_tokens=1,
        )


def test_the_limit_has_the_name_that_the_server_knows():
    assert _limit_name(httpx2.URL("https://api.openai.com/v1")) == "max_completion_tokens"
    assert _limit_name(httpx2.URL("http://127.0.0.1:8000/v1")) == "max_tokens"


TEXT_PARTS = [{"type": "thinking", "thinking": "hm"}, *({"type": "text", "text": t} for t in "ab")]


@pytest.mark.parametrize(
    ("message", "reply", "counted"),
    [
        ({"content": None}, ("", ""), "empty_replies"),
        ({"content": ""}, ("", ""), "empty_replies"),
        ({"content": None, "refusal": "I can't."}, ("I can't.", ""), "refusals"),
        ({"content": TEXT_PARTS}, ("ab", ""), None),
        ({"content": "Up", "reasoning_content": "hm"}, ("Up", "hm"), None),
        ({"content": "Up", "reasoning": "hm"}, ("Up", "hm"), None),
        ({"content": "U", "finish_reason": "length"}, ("U", ""), "cut_replies"),
    ],
)
def test_replies_are_taken_as_they_come_and_counted(message, reply, counted):
    got, counts = ask(completion(**message))
    assert (got.text, got.thought) == reply
    kinds = ("empty_replies", "refusals", "cut_replies")
    assert [kind for kind in kinds if counts[kind]] == ([counted] if counted else [])
    assert counts["answers"] == counts["questions"] == 1


def test_a_withheld_reply_is_a_failure_and_not_an_empty_reply():
    got, counts = ask(completion(None, finish_reason="content_filter"))
    assert got == Failure("content_filter", "the server withheld the reply")
    assert (counts["failed/content_filter"], counts["empty_replies"]) == (1, 0)
    assert counts["completion_tokens"] == 5  # it is paid for


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 9, "completion_tokens": None}])
def test_tokens_are_estimated_where_the_server_does_not_count_them(usage):
    got, counts = ask(completion("123456789", usage=usage))
    # 9 characters are 2.25 tokens, the question's 10 are 2.5; both are rounded up.
    assert got.num_tokens == counts["completion_tokens"] == 3
    assert (counts["prompt_tokens"], counts["replies_without_usage"]) == (3, 1)


FAILURES = {
    "rate_limit": refusal(429),
    "server": refusal(503),
    "timeout": completion("Up", delay=30.0),
    "connection": completion("Up", is_cut=True),
    "malformed": Answer(body='{"choices": [{"mess'),
}


def test_a_timeout_of_the_server_is_one():
    assert ask(refusal(408))[0].kind == "timeout"


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_are_named_and_counted(kind):
    got, counts = ask(FAILURES[kind], timeout=0.2 if kind == "timeout" else 5.0)
    assert got.kind == kind
    assert counts[f"failed/{kind}"] == counts["questions"] == counts["requests"] == 1
    assert counts["answers"] == 0


def test_every_kind_of_failure_is_asked_again_by_any_number_of_threads():
    def answer(body, attempt):
        kind = body["messages"][-1]["content"]
        return FAILURES[kind] if attempt == 0 else completion(kind)

    with serve(answer) as server, ThreadPoolExecutor(len(FAILURES)) as threads:
        endpoint = make_endpoint(server, timeout=1.0, max_retries=1)
        questions = [[{"role": "user", "content": kind}] for kind in FAILURES]
        replies = list(threads.map(endpoint.ask, questions))
    assert replies == [ChatReply(kind, "", 5) for kind in FAILURES]
    assert endpoint.counts["requests"] == 2 * endpoint.counts["questions"] == 2 * len(FAILURES)
    assert not [name for name in endpoint.counts if name.startswith("failed/")]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>busy</html>",
        "[]",
        "null",
        '{"choices": []}',
        '{"choices": [{"message": null}]}',
        '{"choices": [{"message": {"content": 3}}]}',
        '{"error": {"message": "upstream"}}',
    ],
)
def test_an_answer_that_is_no_completion_is_malformed(body):
    got, _ = ask(Answer(body=body))
    assert got.kind == "malformed"
    assert repr(body) in got.message


def test_retries_end_and_are_all_counted():
    got, counts = ask(refusal(500, "out of order", **SOON), max_retries=3)
    assert got.kind == "server"
    assert "out of order" in got.message
    assert counts["requests"] == 4


def test_the_server_says_how_long_to_wait():
    def answer(body, attempt):
        return refusal(429, retry_after="1") if attempt == 0 else completion("Up")

    begin = time.perf_counter()
    ask(answer, max_retries=1)
    # The client's own first wait is at most half a second.
    assert time.perf_counter() - begin >= 1.0


def test_the_wait_doubles_where_the_server_says_nothing():
    times = []

    def answer(body, attempt):
        times.append(time.perf_counter())
        return refusal(500)

    ask(answer, max_retries=2)
    # 0.5 s and 1 s, each less a random quarter at most.
    assert times[1] - times[0] >= 0.375
    assert times[2] - times[1] >= 0.75


def test_a_wait_of_more_than_two_minutes_ends_the_question():
    got, counts = ask(refusal(429, retry_after="121"), max_retries=3)
    assert (got.kind, counts["requests"]) == ("rate_limit", 1)


def test_messages_are_one_line_of_readable_length():
    got, _ = ask(refusal(500, "bad\n" * 1000))
    assert "\n" not in got.message
    assert len(got.message) == 303


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (refusal(401, "bad key"), "bad key.*Set OPENAI_API_KEY"),
        (refusal(402, "pay"), "pay.*no credit left"),
        (refusal(404, "no model m"), "no model m.*Check `model` and `base_url`"),
        (refusal(429, "pay", code="insufficient_quota", **SOON), "pay.*no credit left"),
    ],
)
def test_what_no_other_question_cures_raises_even_after_an_answer(answer, text):
    answers = [completion("Up"), answer]
    with serve(lambda body, attempt: answers.pop(0)) as server:
        endpoint = make_endpoint(server)
        endpoint.ask(QUESTION)
        with pytest.raises(ConnectionError, match=f"model 'm' at {server.url}.*{text}"):
            endpoint.ask(QUESTION)


def test_a_request_that_is_rejected_before_any_answer_raises():
    with pytest.raises(ConnectionError, match=r"no such parameter.*Check the arguments"):
        ask(refusal(400, "no such parameter"))


def test_a_request_that_is_rejected_after_an_answer_fails_alone():
    answers = [completion("Up"), refusal(400, "too long"), completion("Down")]
    with serve(lambda body, attempt: answers.pop(0)) as server:
        endpoint = make_endpoint(server)
        replies = [endpoint.ask(QUESTION) for _ in range(3)]
    assert [type(reply) for reply in replies] == [ChatReply, Failure, ChatReply]
    assert replies[1].kind == "rejected"
    assert "too long" in replies[1].message


def test_a_server_that_was_never_there_raises():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serve(completion("Up")) as server:
        endpoint = make_endpoint(server, base_url=f"http://127.0.0.1:{port}/v1")
    with pytest.raises(ConnectionError, match=r"Cannot reach model 'm'.*Is the server running\?"):
        endpoint.ask(QUESTION)


def test_a_server_that_goes_away_after_an_answer_fails_the_question():
    with serve(completion("Up")) as server:
        endpoint = make_endpoint(server)
        endpoint.ask(QUESTION)
    assert endpoint.ask(QUESTION).kind == "connection"


def test_without_the_client_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "ragen_trl.evaluate.chat_endpoint")
    with pytest.raises(ImportError, match=r"pip install 'ragen-envs\[api\]'"):
        importlib.import_module("ragen_trl.evaluate.chat_endpoint")
