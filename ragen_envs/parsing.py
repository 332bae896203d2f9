"""From a model's reply to the actions it asks for; tags and separator are defined here only."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ragen_envs.argument_checks import check_flag, show

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
ANSWER_OPEN = "<answer>"
ANSWER_CLOSE = "</answer>"
TAGS = (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)
DEFAULT_SEPARATOR = "||"


@dataclass(frozen=True)
class ParsedReply:
    """What a reply says.

    Attributes:
        thought: Text of the think block without outer whitespace; empty where there is none.
        actions: Known actions in the order of the reply, in their canonical spelling.
        is_valid: Whether the reply is well formed, holds an action and holds no unknown one.
    """

    thought: str
    actions: tuple[str, ...]
    is_valid: bool


def parse_reply(
    text: str,
    action_names: Sequence[str] | None,
    *,
    separator: str = DEFAULT_SEPARATOR,
    think: bool = True,
) -> ParsedReply:
    """Read the first well-formed answer of a reply; time is linear in its length.

    With `think` the first opening tag must be the think tag, its block ends at the first closing
    tag, and the answer is the first complete one after that: an answer written inside the block is
    thought. What follows the answer is ignored, so that turns which the model imagines change
    nothing. The format is that of RAGEN (arXiv:2504.20073) section 2.

    Args:
        text: The whole reply; no content of it raises.
        action_names: Legal names, matched without regard to case and to the width of whitespace
            (the first wins where two read alike). `None` takes every piece as an action.
        separator: What stands between two actions.
        think: Whether a closed think block must come first.

    Returns:
        The reply's parts. Unknown pieces are left out and make it invalid; the actions are not cut
        to any limit.

    Raises:
        TypeError: If `text` or `separator` is not a `str`, `action_names` not a sequence of such or
            `think` no bool.
        ValueError: If `separator` is empty or holds a tag.

    Example:
        >>> parse_reply("<think>go</think><answer>up || Jump</answer>", ("Up", "Down"))
        ParsedReply(thought='go', actions=('Up',), is_valid=False)
    """
    if not isinstance(text, str):
        raise TypeError(f"`text` must be a str, got {show(text)}. Decode the reply first.")
    check_separator(separator)
    check_flag("think", think)
    if action_names is not None:
        _check_names(action_names)
    thought, answer = _split_blocks(text, think=think)
    if answer is None:
        return ParsedReply(thought=thought, actions=(), is_valid=False)
    pieces = [piece for piece in map(str.strip, answer.split(separator)) if piece]
    actions = tuple(pieces) if action_names is None else _match_names(pieces, action_names)
    return ParsedReply(thought, actions, is_valid=0 < len(actions) == len(pieces))


def is_answered(text: str) -> bool:
    """Tell whether no continuation of a reply's text could change what `parse_reply` reads.

    That is so, with `think` and without, from the end of the first answer that is not inside a
    think block. (Without `think`, one inside it would do; to read on costs only time.)

    Example:
        >>> is_answered("<think>or <answer>Up</answer>"), is_answered("<answer>Up</answer>")
        (False, True)
    """
    think_open, answer_open = text.find(THINK_OPEN), text.find(ANSWER_OPEN)
    is_thought_first = think_open >= 0 and not -1 < answer_open < think_open
    return _split_blocks(text, think=is_thought_first)[1] is not None


def format_reply(
    actions: Sequence[str],
    *,
    separator: str = DEFAULT_SEPARATOR,
    think: bool = True,
    thought: str = "",
) -> str:
    """Write the reply that `parse_reply` reads back as these actions.

    Example:
        >>> format_reply(("Up", "Left"), thought="box first")
        '<think>box first</think><answer>Up || Left</answer>'
    """
    answer = f"{ANSWER_OPEN}{f' {separator} '.join(actions)}{ANSWER_CLOSE}"
    return f"{THINK_OPEN}{thought}{THINK_CLOSE}{answer}" if think else answer


def check_separator(separator: str) -> None:
    """Check that `separator` can stand between two actions of an answer.

    Raises:
        TypeError: If it is not a `str`.
        ValueError: If it is empty or holds a tag.
    """
    if not isinstance(separator, str):
        raise TypeError(
            f"`separator` must be a str, got {show(separator)}. "
            f"The usual one is {DEFAULT_SEPARATOR!r}."
        )
    if not separator or any(tag in separator for tag in TAGS):
        raise ValueError(
            f"`separator` must be a non-empty text without any of the tags {TAGS}, "
            f"got {show(separator)}. The usual one is {DEFAULT_SEPARATOR!r}."
        )


def normalize_name(name: str) -> str:
    """Return the form in which names are compared: case folded, whitespace collapsed."""
    return " ".join(name.casefold().split())


def _split_blocks(text: str, *, think: bool) -> tuple[str, str | None]:
    """Return the thought and the answer's content, `None` where there is no well-formed answer."""
    thought = ""
    begin = 0
    if think:
        think_open = text.find(THINK_OPEN)
        think_close = text.find(THINK_CLOSE, think_open + len(THINK_OPEN))
        answer_open = text.find(ANSWER_OPEN)
        if think_open < 0 or think_close < 0 or -1 < answer_open < think_open:
            return "", None
        thought = text[think_open + len(THINK_OPEN) : think_close].strip()
        begin = think_close + len(THINK_CLOSE)
    answer_open = text.find(ANSWER_OPEN, begin)
    answer_close = text.find(ANSWER_CLOSE, answer_open + len(ANSWER_OPEN))
    if answer_open < 0 or answer_close < 0:
        return thought, None
    return thought, text[answer_open + len(ANSWER_OPEN) : answer_close]


def _match_names(pieces: Sequence[str], action_names: Sequence[str]) -> tuple[str, ...]:
    canonical = _canonical_names(tuple(action_names))
    normalized = map(normalize_name, pieces)
    return tuple(canonical[piece] for piece in normalized if piece in canonical)


@lru_cache
def _canonical_names(action_names: tuple[str, ...]) -> dict[str, str]:
    return {normalize_name(name): name for name in reversed(action_names)}


def _check_names(action_names: Sequence[str]) -> None:
    # A `str` is a sequence of `str` too, but nobody means its letters.
    is_sequence = isinstance(action_names, Sequence) and not isinstance(action_names, str)
    if not (is_sequence and all(isinstance(name, str) for name in action_names)):
        raise TypeError(
            f"`action_names` must be a sequence of str or None, got {show(action_names)}. "
            "Pass a tuple of names."
        )
