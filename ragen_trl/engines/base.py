"""What a rollout asks of an engine."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Reply(NamedTuple):
    """One sampled reply.

    Attributes:
        ids: Sampled token ids; the last one is an end-of-turn token unless the reply was cut.
        logps: Natural log-probability of each under the whole vocabulary at the sampling
            temperature (1 without sampling), with the repetition penalty if there is one and before
            any truncation such as top-p.
    """

    ids: list[int]
    logps: list[float]


# Maps the token ids read so far, one list per live episode, and the most tokens a reply may have,
# to one reply per episode. Where the luck of the episodes is their own, the third argument is the
# `ReplyLuck` to draw from.
GenerateFn = Callable[..., list[Reply]]


class Session(Protocol):
    """The episodes of one wave, numbered in the order of their prompts."""

    def reply(
        self, rows: Sequence[int], new_ids: Sequence[Sequence[int]], budgets: Sequence[int]
    ) -> list[Reply]:
        """Write the next reply of some episodes; those that are not named are over for good.

        Args:
            rows: Numbers of the episodes, ascending.
            new_ids: What each has read since its last reply, whose own tokens are not repeated.
            budgets: Most tokens that each reply may have, at least 1.

        Returns:
            One reply per row.
        """

    @property
    def cache_bytes(self) -> int:
        """Most memory that keys and values took so far, in bytes."""


class Engine(Protocol):
    """Something that can play the model's part of a conversation."""

    name: str

    def start(
        self, prompts: Sequence[Sequence[int]], luck_seeds: Sequence[int] | None = None
    ) -> Session:
        """Begin a wave of episodes, one per prompt; equal prompts may be read once.

        Args:
            prompts: Token ids of each.
            luck_seeds: One per episode, if what it draws shall depend on this seed alone and not on
                its batch mates; by default torch's generator serves all.
        """

    def finish(self) -> None:
        """Say that this process has played its last wave; others may still be playing."""
