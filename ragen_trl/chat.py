"""Token ids of a conversation, built by appending and never by encoding a reply again."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from ragen_envs.parsing import THINK_CLOSE, THINK_OPEN

# Stand-ins whose place in the rendered template shows what the template writes around a message.
_FIRST, _REPLY, _NEXT = "QfirstmessageQ", "QreplymessageQ", "QnextmessageQ"


class _Frame(NamedTuple):
    """What the template writes before and after a message, and the special tokens therein."""

    before: str
    after: str
    special_ids: list[int]


class ChatCodec:
    """Write user messages in a model's chat template, and read replies.

    The template is rendered once, with stand-ins for the messages; what it writes before and after
    each of them is kept. A reply's ids are never rendered, so a template that rewrites history (by
    dropping reasoning, say) has no effect: the model sees every earlier reply as it was sampled.

    A message becomes ids in one piece with the template text around it, so that it gets the ids
    that the whole rendering would have. Where the message would add special tokens to those of the
    template, it is encoded again with special tokens switched off, from the nearest special token
    before it to the nearest behind it: text from an environment never turns into a special token.

    Args:
        tokenizer: A fast tokenizer with a chat template.
        eos_token_ids: Ids that end a reply.
        chat_template_kwargs: Further arguments of the template.

    Attributes:
        end_ids: Those, and the special token that the template writes right behind a reply: a base
            model with a borrowed template does not name it among its own.
        opens_think: Whether the generation prompt opens a think block, so that replies do not.

    Raises:
        ValueError: If there is no chat template, or it does not render each message exactly once.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        eos_token_ids: Sequence[int],
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if tokenizer.chat_template is None:
            raise ValueError(
                "`processing_class` must have a chat template, got a tokenizer without one. Use an "
                "instruct model, or set `tokenizer.chat_template`."
            )
        self._tokenizer = tokenizer
        self._special_ids = {
            token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        added = [str(token) for token in tokenizer.get_added_vocab()]
        self._added_token = re.compile("|".join(re.escape(t) for t in sorted(added, key=len)[::-1]))

        def render(*messages: tuple[str, str]) -> str:
            return str(
                tokenizer.apply_chat_template(
                    [{"role": role, "content": content} for role, content in messages],
                    tokenize=False,
                    add_generation_prompt=True,
                    **(chat_template_kwargs or {}),
                )
            )

        first = render(("user", _FIRST))
        self._trims_messages = render(("user", f"\n {_FIRST} \n")) == first
        self._first = self._frame(*_split_once(first, _FIRST))
        marks = self._added_token.finditer(self._first.after)
        self._prompt_end = max((mark.end() for mark in marks), default=0)
        begun = self._first.after.rpartition(THINK_OPEN)
        self.opens_think = bool(begun[1]) and THINK_CLOSE not in begun[2]
        conversation = render(("user", _FIRST), ("assistant", _REPLY), ("user", _NEXT))
        before_reply, after_reply = _split_once(conversation, _REPLY)
        _split_once(before_reply, _FIRST)  # refuses a template that forgets old messages
        self._next = self._frame(*_split_once(after_reply, _NEXT))
        self.end_ids = self._add_template_end(list(eos_token_ids))
        self._eos_token_ids = frozenset(self.end_ids)
        self._turn_end_ids = self._find_turn_end()

    def encode_start(self, message: str) -> list[int]:
        """Return the ids of the first prompt, generation prompt included."""
        return self._encode(self._first, message)

    def encode_next(self, message: str, *, reply_ids: Sequence[int]) -> list[int]:
        """Return the ids between one reply and the next, generation prompt included.

        They begin with the template's end-of-turn token, unless the reply itself ended with it (it
        does not when it was cut by the token limit).
        """
        ids = self._encode(self._next, message)
        has_ended = list(reply_ids[-1:]) == self._turn_end_ids[-1:]
        return ids[len(self._turn_end_ids) :] if has_ended else ids

    def encode_reply(self, text: str) -> list[int]:
        """Return the ids of a reply that is written rather than sampled, end of turn included.

        They are those that it has where it stands, behind the generation prompt: on its own, a text
        gets a word mark from tokenizers such as SentencePiece's.
        """
        # Where the prompt's end would merge with the reply, which no model could sample, a stop.
        for anchor in (self._first.after[self._prompt_end :], "."):
            anchor_ids = self._ids(anchor, split_special_tokens=True)
            ids = self._ids(anchor + text, split_special_tokens=True)
            if anchor_ids and ids[: len(anchor_ids)] == anchor_ids:
                return ids[len(anchor_ids) :] + self._turn_end_ids
        return self._ids(text, split_special_tokens=True) + self._turn_end_ids

    def decode_reply(self, reply_ids: Sequence[int]) -> str:
        """Return a reply's text without its end-of-turn token."""
        has_end = bool(reply_ids) and reply_ids[-1] in self._eos_token_ids
        kept = list(reply_ids[:-1] if has_end else reply_ids)
        return str(self._tokenizer.decode(kept, clean_up_tokenization_spaces=False))

    def _add_template_end(self, ids: list[int]) -> list[int]:
        after_reply = self._next.before.lstrip()
        found = self._added_token.match(after_reply) if self._special_ids else None
        if found is None:
            return ids
        token_id = int(self._tokenizer.convert_tokens_to_ids(found.group()))
        return ids if token_id in ids or token_id not in self._special_ids else [*ids, token_id]

    def _find_turn_end(self) -> list[int]:
        """Return the ids up to the end-of-turn token that the template writes behind a reply."""
        for token_id in self._eos_token_ids:
            text = str(self._tokenizer.convert_ids_to_tokens(token_id))
            space, found, _ = self._next.before.partition(text)
            if found and not space.strip():
                return self._ids(space + text)
        return []

    def _frame(self, before: str, after: str) -> _Frame:
        return _Frame(before, after, self._find_special(self._ids(before + after)))

    def _encode(self, frame: _Frame, message: str) -> list[int]:
        before, after, special_ids = frame
        message = message.strip() if self._trims_messages else message
        ids = self._ids(before + message + after)
        if self._find_special(ids) == special_ids:
            return ids
        last_special = max((m.end() for m in self._added_token.finditer(before)), default=0)
        next_special = self._added_token.search(after)
        after_end = next_special.start() if next_special else len(after)
        plain = before[last_special:] + message + after[:after_end]
        return [
            *self._ids(before[:last_special]),
            *self._ids(plain, split_special_tokens=True),
            *self._ids(after[after_end:]),
        ]

    def _find_special(self, ids: Sequence[int]) -> list[int]:
        return [token_id for token_id in ids if token_id in self._special_ids]

    def _ids(self, text: str, *, split_special_tokens: bool = False) -> list[int]:
        if not text:
            return []
        encoded = self._tokenizer(
            text, add_special_tokens=False, split_special_tokens=split_special_tokens
        )
        return list(encoded["input_ids"])


def _split_once(text: str, marker: str) -> tuple[str, str]:
    parts = text.split(marker)
    if len(parts) != 2:
        raise ValueError(
            "The chat template must write every message exactly once, but it wrote one of them "
            f"{len(parts) - 1} times. Use another template."
        )
    return parts[0], parts[1]
