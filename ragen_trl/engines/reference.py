"""The plain way: read the whole conversation anew in every turn. Oracle, baseline, and vLLM's way."""

from collections.abc import Sequence

from ragen_trl.engines.base import GenerateFn, Reply
from ragen_trl.engines.luck import ReplyLuck
from ragen_trl.engines.stopping import AnswerStop


class ReferenceEngine:
    """Hands the whole history of every live episode to a generation call.

    With vLLM behind that call, its prefix cache saves the reading.

    Args:
        generate: The generation call.
        stop: Where replies end besides their end-of-turn token.
        name: How messages call the engine.
    """

    def __init__(
        self, generate: GenerateFn, *, stop: AnswerStop | None = None, name: str = "reference"
    ) -> None:
        self.name = name
        self._write, self._stop = generate, stop

    def start(
        self, prompts: Sequence[Sequence[int]], luck_seeds: Sequence[int] | None = None
    ) -> "ReferenceSession":
        """Begin a wave of episodes, one per prompt."""
        return ReferenceSession(self._write, self._stop, prompts, luck_seeds)

    def finish(self) -> None:
        """Do nothing: every process generates on its own."""


class ReferenceSession:
    """The histories of one wave, as token ids."""

    def __init__(
        self,
        generate: GenerateFn,
        stop: AnswerStop | None,
        prompts: Sequence[Sequence[int]],
        luck_seeds: Sequence[int] | None,
    ) -> None:
        self._generate, self._stop = generate, stop
        self._luck_seeds, self._turn = luck_seeds, 0
        self._histories = [list(ids) for ids in prompts]
        self.cache_bytes = 0

    def reply(
        self, rows: Sequence[int], new_ids: Sequence[Sequence[int]], budgets: Sequence[int]
    ) -> list[Reply]:
        """Write the next reply of the named episodes."""
        for row, ids in zip(rows, new_ids, strict=True):
            self._histories[row] += ids
        histories = [list(self._histories[row]) for row in rows]
        if self._luck_seeds is None:
            written = self._generate(histories, max(budgets))
        else:
            luck = ReplyLuck([self._luck_seeds[row] for row in rows], self._turn)
            written = self._generate(histories, max(budgets), luck)
        self._turn += 1
        replies = [self._cut(reply, most) for reply, most in zip(written, budgets, strict=True)]
        for row, reply in zip(rows, replies, strict=True):
            self._histories[row] += reply.ids
        return replies

    def _cut(self, reply: Reply, most: int) -> Reply:
        if self._stop is not None:
            most = min(most, self._stop.find(reply.ids))
        return Reply(reply.ids[:most], reply.logps[:most])
