"""A player whose replies come from an OpenAI-compatible server."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from ragen_envs import AgentTurns
from ragen_envs.parsing import THINK_CLOSE, THINK_OPEN
from ragen_trl.environments import EnvPool, reset_options
from ragen_trl.evaluate.chat_endpoint import ChatEndpoint, ChatReply, Failure
from ragen_trl.evaluate.records import EpisodeJob, EpisodeRecord
from ragen_trl.evaluate.settings import EvaluationSettings
from ragen_trl.trainer_checks import log_warning

CONCURRENCY = 8
MAX_RETRIES = 6
TIMEOUT = 120.0
_OPEN_THINK = (
    "A reply closes a think block that it has not opened, and so counts as malformed: the server's "
    "chat template opens `<think>` itself. Let the server split the reasoning off "
    "(`--reasoning-parser` of vLLM), pass `chat_template_kwargs` that switch it off, or `think=False`."
)


class EndpointPlayer:
    """Plays episodes with a model behind an OpenAI-compatible server; needs the extra `api`.

    Every episode is a conversation of user messages from the environment and the model's replies,
    as a rollout's; the server adds its chat template. Start states and luck are a rollout's, too:
    seed and sample decide them. What is lost on the way is asked for again (see `ChatEndpoint`);
    an episode that still gets no reply is reported with the error `<kind>: <message>`, where kind is
    that of a `Failure`.

    A reply is taken as it came: an empty one, a refusal, or one that was cut by the token limit is
    the model's own doing and counts like any malformed reply. Where the environment expects a think
    block and the server has split the reasoning off, it is put back in front of the reply. Where a
    reply closes such a block and does not open it, a warning says once what to change at the server.

    Args:
        model: Name of the model at the server. The player's name adds the server's.
        settings: Temperature and the limit of a reply. `max_trajectory_tokens` and `stop_at_answer`
            have no effect: the server has a context of its own and ends replies as it likes.
        base_url: Address of the server; `None` stands for OPENAI_BASE_URL, or else OpenAI's own.
        api_key: `None` stands for OPENAI_API_KEY. Servers other than OpenAI's may do without.
        concurrency: Episodes, and so questions, at the same time.
        max_retries: Repetitions of one question.
        timeout: Seconds without a sign of the server after which a question is repeated.
        price_per_million_prompt_tokens: In any currency; both prices or none.
        price_per_million_completion_tokens: In the same currency.

    Raises:
        ValueError: If an argument is out of range, or only one price is given.
    """

    def __init__(
        self,
        model: str,
        *,
        settings: EvaluationSettings,
        base_url: str | None = None,
        api_key: str | None = None,
        concurrency: int = CONCURRENCY,
        max_retries: int = MAX_RETRIES,
        timeout: float = TIMEOUT,
        price_per_million_prompt_tokens: float | None = None,
        price_per_million_completion_tokens: float | None = None,
    ) -> None:
        _check_at_least("concurrency", concurrency, 1)
        _check_at_least("max_retries", max_retries, 0)
        if not model:
            raise ValueError("`model` must be the model's name at the server, got an empty one.")
        if not timeout > 0:
            raise ValueError(f"`timeout` must be positive, got {timeout}. It is in seconds.")
        self._prices = _check_prices(
            price_per_million_prompt_tokens, price_per_million_completion_tokens
        )
        self._concurrency = concurrency
        self._endpoint = ChatEndpoint(
            model,
            base_url=base_url,
            api_key=api_key,
            max_retries=max_retries,
            timeout=timeout,
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens_per_turn,
            chat_template_kwargs=settings.chat_template_kwargs,
        )
        self.name = f"{model} at {self._endpoint.server}"
        # Taken once, by whichever thread comes first.
        self._warning = threading.Lock()

    def play(self, jobs: Sequence[EpisodeJob], on_episode: Callable[[EpisodeRecord], None]) -> None:
        """Play every job once and report each as soon as it has ended, in the order of the ends.

        `on_episode` is called in the calling thread. When it raises, or with an interrupt from the
        keyboard, `play` ends at once; the episodes that are under way are given up.

        Raises:
            ConnectionError: If the server cannot answer anything: wrong key, no credit, unknown model
                or address; or, before its first answer, no server or a refused request.
            RuntimeError: If an environment fails; as in a rollout, the message names it.
        """
        waiting: SimpleQueue[EpisodeJob] = SimpleQueue()
        ended: SimpleQueue[EpisodeRecord | Exception] = SimpleQueue()
        is_over = threading.Event()
        envs = self._share_out(jobs)

        def work() -> None:
            while not is_over.is_set():
                try:
                    job = waiting.get_nowait()
                except Empty:
                    return
                env = envs[job.pool].get()
                outcome = self._play_episode(job, env, is_over)
                if outcome is not None:
                    ended.put(outcome)
                # Last, so that nothing that ends because of an error is handed in before it.
                if isinstance(outcome, Exception):
                    is_over.set()
                envs[job.pool].put(env)

        for job in jobs:
            waiting.put(job)
        for _ in range(min(self._concurrency, len(jobs))):
            # A question under way would hold up the end of the process for minutes.
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in jobs:
                outcome = ended.get()
                if isinstance(outcome, Exception):
                    raise outcome
                on_episode(outcome)
        finally:
            is_over.set()

    def usage(self) -> Mapping[str, float]:
        """Return what playing took so far.

        Returns:
            `requests` (sent, repetitions included) and `retries` (repetitions alone);
            `prompt_tokens`, `completion_tokens`, and with prices `cost`, of all answered questions,
            those of broken episodes included; `replies_without_usage` (their tokens are estimated,
            one per four characters), `cut_replies`, `empty_replies`, `refusals`; `failed/<kind>` for
            the questions that were given up.
        """
        counts = dict(self._endpoint.counts)
        questions = counts.pop("questions", 0)
        counts.pop("answers", None)
        requests = counts.pop("requests", 0)
        usage: dict[str, float] = {"requests": requests, "retries": max(requests - questions, 0)}
        usage |= counts
        if self._prices is not None:
            kinds = ("prompt_tokens", "completion_tokens")
            costs = [usage.get(k, 0) * p for k, p in zip(kinds, self._prices, strict=True)]
            usage["cost"] = sum(costs) / 1e6
        return usage

    def _share_out(self, jobs: Sequence[EpisodeJob]) -> dict[EnvPool, SimpleQueue[AgentTurns]]:
        """Return as many environments of each pool as may be played at once."""
        shared: dict[EnvPool, SimpleQueue[AgentTurns]] = {}
        for pool, count in Counter(job.pool for job in jobs).items():
            shared[pool] = SimpleQueue()
            for env in pool.take(min(count, self._concurrency)):
                shared[pool].put(env)
        return shared

    def _play_episode(
        self, job: EpisodeJob, env: AgentTurns, is_over: threading.Event
    ) -> EpisodeRecord | Exception | None:
        """Return the record of a whole episode, what broke it, or `None` if it was given up."""
        episode = _Episode(job, env)
        try:
            episode.begin()
            while episode.is_live:
                reply = self._endpoint.ask(episode.messages)
                if is_over.is_set():
                    # The environment may be in other hands by now.
                    return None
                if isinstance(reply, Failure):
                    episode.fail(str(reply))
                elif episode.take_turn(reply) and self._warning.acquire(blocking=False):
                    log_warning(_OPEN_THINK)
        except Exception as error:
            return error
        return episode.to_record()


@dataclass
class _Episode:
    """One episode while it is played."""

    job: EpisodeJob
    env: AgentTurns
    messages: list[dict[str, str]] = field(default_factory=list)
    is_live: bool = True
    error: str | None = None
    success: bool = False
    reward: float = 0.0
    valid_turns: int = 0
    actions: int = 0
    effective_actions: int = 0
    response_tokens: int = 0

    def begin(self) -> None:
        with self._naming_errors("reset"):
            options = reset_options(self.env, self.job.seed, self.job.sample)
            observation, _ = self.env.reset(seed=self.job.seed, options=options)
            self.messages.append({"role": "user", "content": observation})

    def take_turn(self, reply: ChatReply) -> bool:
        """Play a turn, and tell whether the reply closes a think block that it has not opened."""
        text = reply.text
        if self.env.think and reply.thought and THINK_OPEN not in text:
            text = f"{THINK_OPEN}{reply.thought}{THINK_CLOSE}{text}"
        self.messages.append({"role": "assistant", "content": text})
        self.response_tokens += reply.num_tokens
        with self._naming_errors(f"turn {self.turns}"):
            observation, reward, terminated, truncated, info = self.env.step(text)
            self.messages.append({"role": "user", "content": observation})
            self.reward += float(reward)
            self.valid_turns += info["reply"].is_valid
            self.actions = info["num_actions"]
            self.effective_actions += info["num_effective_actions"]
            # As in a rollout: who does not report success has it where the end is rewarded.
            self.success = bool(info.get("success", terminated and info["turn_reward"] > 0))
            self.is_live = not (terminated or truncated)
        return self.env.think and THINK_CLOSE in text and THINK_OPEN not in text

    def fail(self, error: str) -> None:
        self.error, self.is_live = error, False

    @property
    def turns(self) -> int:
        return sum(message["role"] == "assistant" for message in self.messages)

    def to_record(self) -> EpisodeRecord:
        return EpisodeRecord(
            env=self.job.env,
            seed=self.job.seed,
            sample=self.job.sample,
            success=self.success,
            reward=self.reward,
            turns=self.turns,
            valid_turns=self.valid_turns,
            actions=self.actions,
            effective_actions=self.effective_actions,
            response_tokens=self.response_tokens,
            error=self.error,
        )

    @contextmanager
    def _naming_errors(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise RuntimeError(
                f"Environment {self.job.env!r} failed with seed {self.job.seed} in {where}: "
                f"{type(error).__name__}: {error}"
            ) from error


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")


def _check_prices(prompt: float | None, completion: float | None) -> tuple[float, float] | None:
    if prompt is None and completion is None:
        return None
    if prompt is None or completion is None or not min(prompt, completion) >= 0:
        raise ValueError(
            "`price_per_million_prompt_tokens` and `price_per_million_completion_tokens` must both "
            f"be given and not negative, got {prompt} and {completion}. Leave both out for no cost."
        )
    return prompt, completion
