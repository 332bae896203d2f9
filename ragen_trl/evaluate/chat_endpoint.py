"""Questions to an OpenAI-compatible server: the model's reply, or why there is none."""

import math
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

try:
    import httpx2
    import openai
except ImportError as error:
    raise ImportError(
        "An endpoint is asked with the `openai` client, which is not installed. Run "
        "`pip install 'ragen-envs[api]'`."
    ) from error

# Statuses that no repetition and no other question cures: key, credit, address or model.
HOPELESS_STATUSES = {401, 402, 404}
# For servers that do not count tokens; usual for English text.
CHARACTERS_PER_TOKEN = 4
MAX_MESSAGE_LENGTH = 300

REMEDIES = {
    401: "Set OPENAI_API_KEY to a valid key, or pass `api_key`.",
    402: "The account has no credit left.",
    404: "Check `model` and `base_url`; most base URLs end in /v1.",
}


class ChatReply(NamedTuple):
    """What a model answered.

    Attributes:
        text: The reply; empty if the model wrote nothing, its refusal if it refused.
        thought: What the server split off the reply as reasoning; empty if nothing.
        num_tokens: Tokens of the reply, reasoning included.
    """

    text: str
    thought: str
    num_tokens: int


class Failure(NamedTuple):
    """Why a question got no reply.

    Attributes:
        kind: `timeout` (408 or silence), `connection`, `rate_limit` (429), `server` (5xx),
            `malformed` (an answer that is no chat completion), `rejected` (any other 4xx) or
            `content_filter` (withheld).
        message: The last error, in one line.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class ChatEndpoint:
    """A model behind an OpenAI-compatible server, for any number of threads.

    The `openai` client repeats a question after 408, 409, 429, 5xx, lost connections, timeouts, and
    answers that are no chat completions: it waits as long as `Retry-After` says (up to two minutes;
    a longer one ends the question) or else 0.5 s, doubled up to 8 s, less a random quarter at most.

    Args:
        model: Name of the model at the server.
        base_url: Address of the server; `None` stands for OPENAI_BASE_URL, or else OpenAI's own.
        api_key: `None` stands for OPENAI_API_KEY; without it, servers other than OpenAI's get the
            word EMPTY.
        max_retries: Repetitions of one question.
        timeout: Seconds without a sign of the server after which a question is repeated.
        temperature: Of sampling.
        max_new_tokens: Limit of one reply.
        chat_template_kwargs: Sent along under this name, which vLLM and its like understand.

    Attributes:
        counts: What was asked and answered so far; see `EndpointPlayer.usage`.

    Raises:
        ValueError: If OpenAI's own server is asked without a key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None,
        api_key: str | None,
        max_retries: int,
        timeout: float,
        temperature: float,
        max_new_tokens: int,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        hooks = {"request": [self._count_request], "response": [_check_answer]}
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL")
        if api_key is None:
            api_key = os.environ.get("OPENAI_API_KEY", "EMPTY" if base_url else None)
        try:
            self._client = openai.OpenAI(
                base_url=base_url,
                api_key=api_key,
                max_retries=max_retries,
                timeout=timeout,
                http_client=openai.DefaultHttpxClient(event_hooks=hooks),
            )
        except openai.OpenAIError as error:
            raise ValueError(
                "`api_key` must be given for OpenAI's own server, got none. Set OPENAI_API_KEY, or "
                "pass the `base_url` of another server."
            ) from error
        self._model = model
        self._options: dict[str, Any] = {
            _limit_name(self._client.base_url): max_new_tokens,
            "temperature": temperature,
        }
        if chat_template_kwargs is not None:
            self._options["extra_body"] = {"chat_template_kwargs": dict(chat_template_kwargs)}
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    @property
    def server(self) -> str:
        """Host and port of the server."""
        return str(self._client.base_url.netloc.decode())

    def ask(self, messages: Sequence[Mapping[str, str]]) -> ChatReply | Failure:
        """Return the reply to a conversation that ends with a user message.

        Raises:
            ConnectionError: If no other question can be answered either: wrong key, no credit, unknown
                model or address; and, before the first answer, no server or a refused request.
        """
        self._count(questions=1)
        try:
            completion = self._client.chat.completions.create(
                model=self._model, messages=list(messages), **self._options
            )
        except openai.APIError as error:
            failure = Failure(_kind_of(error), _one_line(error))
            if self._is_hopeless(error, failure):
                raise ConnectionError(self._explain(error)) from error
            self._count(**{f"failed/{failure.kind}": 1})
            return failure
        return self._read(completion, messages)

    def _read(self, completion: Any, messages: Sequence[Mapping[str, str]]) -> ChatReply | Failure:
        choice = completion.choices[0]
        message = choice.message
        text = _join_parts(message.content) or message.refusal or ""
        thought = _find_thought(message.model_extra)
        tokens = _find_token_counts(completion.usage)
        is_estimated = tokens is None
        if tokens is None:
            asked = sum(len(message["content"]) for message in messages)
            tokens = (_estimate_tokens(asked), _estimate_tokens(len(text) + len(thought)))
        is_withheld = choice.finish_reason == "content_filter"
        self._count(
            answers=1,
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            replies_without_usage=is_estimated,
            cut_replies=choice.finish_reason == "length",
            empty_replies=not text and not is_withheld,
            refusals=bool(message.refusal),
            **({"failed/content_filter": 1} if is_withheld else {}),
        )
        if is_withheld:
            return Failure("content_filter", "the server withheld the reply")
        return ChatReply(text, thought, tokens[1])

    def _is_hopeless(self, error: openai.APIError, failure: Failure) -> bool:
        if _status_of(error) in HOPELESS_STATUSES or error.code == "insufficient_quota":
            return True
        is_unreachable = isinstance(error.__cause__, httpx2.ConnectError)
        return not self.counts["answers"] and (is_unreachable or failure.kind == "rejected")

    def _explain(self, error: openai.APIError) -> str:
        where = f"model {self._model!r} at {self._client.base_url}"
        status = _status_of(error)
        if status is None:
            return f"Cannot reach {where}: {_one_line(error)} Is the server running?"
        remedy = REMEDIES.get(status, "Check the arguments of the endpoint.")
        if error.code == "insufficient_quota":
            remedy = REMEDIES[402]
        return f"The server refused {where}: {_one_line(error)} {remedy}"

    def _count_request(self, request: httpx2.Request) -> None:
        self._count(requests=1)

    def _count(self, **counts: int) -> None:
        with self._lock:
            self.counts.update(counts)


def _limit_name(base_url: httpx2.URL) -> str:
    """OpenAI's reasoning models refuse `max_tokens`; other servers may not know its successor."""
    return "max_completion_tokens" if base_url.host == "api.openai.com" else "max_tokens"


def _check_answer(response: httpx2.Response) -> None:
    """Refuse an answer that is no chat completion, so that the client asks again.

    Raises:
        httpx2.DecodingError: As for any answer that cannot be read.
    """
    if not response.is_success:
        return
    response.read()
    try:
        message = response.json()["choices"][0]["message"]
        is_completion = isinstance(message.get("content"), str | list | None)
    except (ValueError, LookupError, TypeError, AttributeError):
        is_completion = False
    if not is_completion:
        raise httpx2.DecodingError(f"no chat completion: {response.text!r}")


def _status_of(error: openai.APIError) -> int | None:
    return error.status_code if isinstance(error, openai.APIStatusError) else None


def _kind_of(error: openai.APIError) -> str:
    if isinstance(error, openai.APITimeoutError) or _status_of(error) == 408:
        return "timeout"
    if isinstance(error, openai.APIConnectionError):
        is_malformed = isinstance(error.__cause__, httpx2.DecodingError)
        return "malformed" if is_malformed else "connection"
    if isinstance(error, openai.RateLimitError):
        return "rate_limit"
    return "server" if isinstance(error, openai.InternalServerError) else "rejected"


def _one_line(error: openai.APIError) -> str:
    """Return the error and what caused it, without line breaks and cut to a readable length."""
    text = " ".join(f"{error} {error.__cause__ or ''}".split())
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}..."


def _join_parts(content: str | list[Any] | None) -> str:
    """Return the text of a reply that may come in parts; other parts than text are left out."""
    if not isinstance(content, list):
        return content or ""
    parts = [part for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    return "".join(str(part.get("text", "")) for part in parts)


def _find_thought(fields: Mapping[str, Any] | None) -> str:
    """Return the reasoning that a server has split off; the field has two names in use."""
    thoughts = [(fields or {}).get(name) for name in ("reasoning_content", "reasoning")]
    return next((thought for thought in thoughts if isinstance(thought, str)), "")


def _find_token_counts(usage: Any) -> tuple[int, int] | None:
    """Return the tokens of prompt and reply, `None` unless the server has counted both."""
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    has_both = isinstance(prompt, int) and isinstance(completion, int)
    return (prompt, completion) if has_both else None


def _estimate_tokens(num_characters: int) -> int:
    return math.ceil(num_characters / CHARACTERS_PER_TOKEN)
