"""What an evaluation plays, what it keeps of every episode, and what a player must be able to do."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from ragen_trl.environments import EnvPool


class EpisodeJob(NamedTuple):
    """One episode that is to be played.

    Attributes:
        env: Name of the environment in the evaluation.
        pool: Its instances.
        seed: Seed of the start state.
        sample: Number of the episode among those of this start state, from 0 on; decides the luck
            after the start.
    """

    env: str
    pool: EnvPool
    seed: int
    sample: int


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """How one episode went.

    Attributes:
        env: Name of the environment in the evaluation.
        seed: Seed of the start state.
        sample: Number of the episode among those of this start state.
        success: Whether the task was solved.
        reward: Sum of all turn rewards and format penalties.
        turns: Replies.
        valid_turns: Replies that were well-formed and held legal actions only.
        actions: Executed actions.
        effective_actions: Those of them that changed the state.
        response_tokens: Tokens of all replies together.
        error: Why the episode could not be played to its end, `None` if it could. With an error the
            other results mean nothing, and the episode counts neither as solved nor as failed.
    """

    env: str
    seed: int
    sample: int
    success: bool
    reward: float
    turns: int
    valid_turns: int
    actions: int
    effective_actions: int
    response_tokens: int
    error: str | None = None


def read_record(content: Any) -> EpisodeRecord:
    """Make a record of what a file says of it; a reward of null, which was not finite, is NaN.

    Raises:
        TypeError: If it says something else, or a field is missing, unknown or of another type.
    """
    if not isinstance(content, dict):
        raise TypeError(f"An episode must be a JSON object, got {type(content).__name__}.")
    record = EpisodeRecord(**content)
    for name, value in content.items():
        types = _TYPES.get(name, (int,))
        if type(value) not in types:
            known = " or ".join(kind.__name__ for kind in types)
            raise TypeError(f"`{name}` of an episode must be {known}, got {type(value).__name__}.")
    return record if record.reward is not None else replace(record, reward=math.nan)


# Whole numbers are a reward, too: JSON does not tell them apart. All others are whole numbers.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "env": (str,),
    "success": (bool,),
    "reward": (float, int, type(None)),
    "error": (str, type(None)),
}


class Player(Protocol):
    """Whoever writes the replies: a model in this process, or an endpoint elsewhere."""

    name: str

    def play(self, jobs: Sequence[EpisodeJob], on_episode: Callable[[EpisodeRecord], None]) -> None:
        """Play every job once, in any order, and report each as soon as it has ended.

        An episode that cannot be played to its end is reported with its `error`.
        """

    def usage(self) -> Mapping[str, float]:
        """Return what playing took so far (tokens, cost, retries); empty for a local model."""
