"""Ending a reply where its answer closes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ragen_envs.parsing import ANSWER_CLOSE, is_answered

# A tag is spelled with at most as many tokens as it has characters.
TAIL_LENGTH = len(ANSWER_CLOSE)


class AnswerStop:
    """Finds the token that closes the answer; what a model says after it is never executed.

    An answer inside an open think block is thought, as `ragen_envs.parse_reply` reads it.

    Args:
        tokenizer: Reads the tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
        self._closing_ids = torch.tensor([i for i, text in enumerate(texts) if ">" in text])

    def may_close(self, ids: Tensor) -> Tensor:
        """Tell which tokens could close a tag; shape and device of `ids`, bool."""
        return torch.isin(ids, self._closing_ids.to(ids.device))

    def is_closed(self, ids: Sequence[int]) -> bool:
        """Tell whether a reply closes its answer with its last token."""
        # Most replies hold few tags, so that the whole is seldom read.
        return ANSWER_CLOSE in self._read(ids[-TAIL_LENGTH:]) and is_answered(self._read(ids))

    def find(self, ids: Sequence[int]) -> int:
        """Return the number of tokens up to the end of the answer; all where it never closes."""
        may_close = self.may_close(torch.tensor(list(ids), dtype=torch.long)).tolist()
        for count, is_candidate in enumerate(may_close, start=1):
            if is_candidate and self.is_closed(ids[:count]):
                return count
        return len(ids)

    def _read(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
