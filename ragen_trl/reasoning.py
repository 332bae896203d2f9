"""Where in a sampled reply the thought begins and ends, by token."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from ragen_envs.parsing import ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from ragen_trl.trajectory import Trajectory

# Enough for the tag and the whitespace that a template may write behind it.
_TAIL_TOKENS = 16


class Reasoning(NamedTuple):
    """What a policy thought before it answered, and all that it had read by then.

    Attributes:
        prompt_ids: Everything up to and including the think tag.
        reasoning_ids: The tokens sampled after it, at least one.
    """

    prompt_ids: tuple[int, ...]
    reasoning_ids: tuple[int, ...]


class Span(NamedTuple):
    """Tokens `begin` to `end - 1`."""

    begin: int
    end: int


def find_text(ids: Sequence[int], text: str, tokenizer: PreTrainedTokenizerBase) -> Span | None:
    """Find the tokens that spell a text for the first time, `None` where none do.

    The first and the last of them may spell more than that: what stands next to it.

    Args:
        ids: Tokens as sampled.
        text: ASCII characters.
        tokenizer: Reads the tokens.
    """

    def holds(begin: int, end: int) -> bool:
        piece = tokenizer.decode(list(ids[begin:end]), clean_up_tokenization_spaces=False)
        return text in str(piece)

    if not holds(0, len(ids)):
        return None
    end = bisect_left(range(len(ids)), True, key=lambda n: holds(0, n))
    begin = max(end - len(text), 0)
    while holds(begin + 1, end):
        begin += 1
    return Span(begin, end)


def split_first_reply(
    trajectory: Trajectory, tokenizer: PreTrainedTokenizerBase, *, think: bool
) -> Reasoning | None:
    """Cut the first turn where its thought begins and where it ends.

    A token that spells the end of the opening tag and something behind it belongs to the prompt; one
    that spells the start of the closing tag and something before it belongs to neither. A thought
    that is never closed goes to the end of the reply.

    Args:
        trajectory: An episode.
        tokenizer: Reads its tokens.
        think: Whether replies hold a think block, which the prompt may have opened already; if not,
            the whole reply counts as the thought.

    Returns:
        The two parts; `None` where the reply holds no thought: no think block before the answer, or
        an empty one.
    """
    prompt, reply = trajectory.prompt_ids, _first_reply(trajectory)
    begin, end = _find_thought(prompt, reply, tokenizer) if think else Span(0, len(reply))
    if begin >= end:
        return None
    return Reasoning((*prompt, *reply[:begin]), tuple(reply[begin:end]))


def _find_thought(
    prompt: Sequence[int], reply: Sequence[int], tokenizer: PreTrainedTokenizerBase
) -> Span:
    """Return the tokens between the tags; none where there is no think block before the answer."""
    begin = start = 0
    if not _is_opened(prompt, tokenizer):
        opening = find_text(reply, THINK_OPEN, tokenizer)
        if opening is None or find_text(reply[: opening.end], ANSWER_OPEN, tokenizer):
            return Span(0, 0)
        # One token may spell the end of one tag and the start of the other.
        begin, start = opening.end, opening.end - 1
    closing = find_text(reply[start:], THINK_CLOSE, tokenizer)
    return Span(begin, len(reply) if closing is None else start + closing.begin)


def _first_reply(trajectory: Trajectory) -> list[int]:
    return trajectory.completion_ids[: trajectory.turn_index.count(0)]


def _is_opened(prompt_ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> bool:
    """Tell whether a prompt ends within a think block that the chat template opened."""
    tail = tokenizer.decode(list(prompt_ids[-_TAIL_TOKENS:]), clean_up_tokenization_spaces=False)
    return str(tail).rstrip().endswith(THINK_OPEN)
