"""How a token is drawn from the model's logits."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ragen_trl.engines.luck import pick_tokens


@dataclass(frozen=True)
class SamplingRules:
    """What shapes the distribution that tokens are drawn from; transformers' order and meaning.

    Attributes:
        temperature: 0 takes the most probable token.
        top_p: Keep the most probable tokens that add up to this much.
        top_k: Keep that many tokens; 0 keeps all.
        min_p: Keep tokens with this share of the best one's probability; `None` keeps all.
        repetition_penalty: Divides the odds of tokens that occur in the row; 1 does nothing.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float | None = None
    repetition_penalty: float = 1.0

    @property
    def needs_history(self) -> bool:
        """Whether the tokens of the row matter."""
        return self.repetition_penalty != 1.0

    def draw(
        self, logits: Tensor, history: Tensor | None, numbers: Sequence[float] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw one token per row.

        Args:
            logits: Shape (R, V).
            history: Ids of every row so far, where `needs_history`. Shape (R, S).
            numbers: R uniform numbers in [0, 1) that decide; by default torch's generator does.

        Returns:
            Ids and their log-probabilities under the whole vocabulary, each of shape (R,).
        """
        scores = logits.float()
        if self.needs_history:
            scores = RepetitionPenaltyLogitsProcessor(self.repetition_penalty)(history, scores)
        scores = scores / (self.temperature or 1.0)
        if self.temperature == 0:
            ids = scores.argmax(dim=-1)
        else:
            kept = self._truncation()(history, scores)
            probabilities = kept.softmax(dim=-1)
            if numbers is None:
                ids = torch.multinomial(probabilities, 1).squeeze(1)
            else:
                ids = pick_tokens(probabilities, numbers)
        logps = scores.log_softmax(dim=-1).gather(1, ids.unsqueeze(1)).squeeze(1)
        return ids, logps

    def _truncation(self) -> LogitsProcessorList:
        warpers = LogitsProcessorList()
        if self.top_k > 0:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1.0:
            warpers.append(TopPLogitsWarper(self.top_p))
        if self.min_p:
            warpers.append(MinPLogitsWarper(self.min_p))
        return warpers
