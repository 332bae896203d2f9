"""Processes that can only generate together: as many calls, with as many rows, in every one."""

from collections.abc import Callable
from typing import Any

from ragen_trl.engines.base import GenerateFn, Reply
from ragen_trl.engines.luck import ReplyLuck
from ragen_trl.engines.reference import ReferenceEngine
from ragen_trl.engines.stopping import AnswerStop

# Takes a list with one entry of this process, returns those of all.
GatherFn = Callable[[list[Any]], list[Any]]


class JointEngine(ReferenceEngine):
    """The reference for generation calls that all processes must make at once, with equal shares.

    A vLLM server is such a one, and so are colocated engines that share a model by tensor
    parallelism: TRL gathers the prompts of all processes and deals out the replies by position.
    Episodes end at different turns, so a process with fewer rows than another adds rows that
    nobody plays, and one without any goes on calling until all have finished.

    Args:
        generate: The joint generation call.
        gather: Collects one entry of every process.
        filler_ids: Prompt of the rows that nobody plays.
        stop: Where replies end besides their end-of-turn token.
        name: How messages call the engine.
    """

    def __init__(
        self,
        generate: GenerateFn,
        *,
        gather: GatherFn,
        filler_ids: list[int],
        stop: AnswerStop | None,
        name: str,
    ) -> None:
        super().__init__(self._generate_own, stop=stop, name=name)
        self._generate, self._gather, self._filler_ids = generate, gather, filler_ids

    def finish(self) -> None:
        """Take part in the calls that other processes still need."""
        while self._call([], 0) is not None:
            pass

    def _generate_own(
        self, histories: list[list[int]], most: int, luck: ReplyLuck | None = None
    ) -> list[Reply]:
        # `luck` has no effect: vLLM draws with a generator of its own.
        replies = self._call(histories, most)
        assert replies is not None  # there are rows: our own
        return replies

    def _call(self, histories: list[list[int]], most: int) -> list[Reply] | None:
        """Generate for all processes and return the replies of this one, `None` if no row is left."""
        calls = self._gather([(len(histories), most)])
        num_rows, longest = map(max, zip(*calls, strict=True))
        if num_rows == 0:
            return None
        fillers = [list(self._filler_ids) for _ in range(num_rows - len(histories))]
        return self._generate([*histories, *fillers], longest)[: len(histories)]
