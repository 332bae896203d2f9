"""A chat server on the loopback address that answers, or misbehaves, as a test says."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
SETTINGS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
DEFAULT_USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


class Answer(NamedTuple):
    """What the server sends for one request.

    Attributes:
        status: HTTP status.
        body: Sent as it is.
        headers: Further headers.
        delay: Seconds before anything is sent.
        is_cut: Whether the connection ends in the middle of the body.
    """

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    is_cut: bool = False


def completion(
    content: Any, *, finish_reason="stop", usage=DEFAULT_USAGE, delay=0.0, is_cut=False, **message
) -> Answer:
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    if usage is not None:
        body["usage"] = usage
    return Answer(body=json.dumps(body), delay=delay, is_cut=is_cut)


def refusal(status: int, message="no", *, code=None, **headers: str) -> Answer:
    """Send an error in OpenAI's form; `retry_after="1"` becomes the header `retry-after: 1`."""
    body = json.dumps({"error": {"message": message, "code": code, "type": "error", "param": None}})
    return Answer(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


class ChatServer(ThreadingHTTPServer):
    """Answers every request with `answer(body, attempt)`; attempts of a question count from 0.

    Attributes:
        requests: Bodies of all requests, in the order in which they came.
        keys: The authorization header of each.
        max_in_flight: Most requests that were open at the same time.
    """

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, answer: Callable[[dict[str, Any], int], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.max_in_flight = 0
        self.is_closing = threading.Event()
        self._in_flight = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request, client_address) -> None:
        """A client that has hung up is part of the tests."""

    @contextmanager
    def flight(self, body: dict[str, Any], key: str) -> Iterator[None]:
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.flight(body, self.headers["authorization"]):
            attempt = int(self.headers["x-stainless-retry-count"])
            answer = self.server.answer(body, attempt)
            self.server.is_closing.wait(answer.delay)
        data = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, text in answer.headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if answer.is_cut else data)

    def log_message(self, *arguments) -> None:
        """Nothing on the terminal."""


@contextmanager
def serve(answer: Callable[[dict[str, Any], int], Answer] | Answer) -> Iterator[ChatServer]:
    """Run a server for the time of a block; a plain answer is given to every request."""
    always = (lambda body, attempt: answer) if isinstance(answer, Answer) else answer
    server = ChatServer(always)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            _isolate(patch)
            yield server
    finally:
        server.is_closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _isolate(patch: pytest.MonkeyPatch) -> None:
    """Leave clients no settings of the machine's and no way around the loopback address."""
    for name in SETTINGS:
        patch.delenv(name, raising=False)
    patch.setenv("NO_PROXY", "127.0.0.1")
    # Every client reads them anew, which takes longer than most tests.
    patch.setattr(ssl, "create_default_context", lambda **kwargs: NO_CERTIFICATES)
