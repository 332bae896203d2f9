"""Sampling replies with transformers, with the log-probability of every sampled token."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)

from ragen_trl.engines import Reply, ReplyLuck, SamplingRules


class SampledLogps(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Record the log-probability of every sampled token while `generate` runs; change nothing.

    Which token was drawn at a step is known only at the next one, so the distribution of one step
    is kept (shape (rows, vocabulary), float32) and never those of all steps.
    """

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._distribution: Tensor | None = None
        self._columns: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Note the token drawn from the last distribution, and keep the new one."""
        self._take(input_ids[:, -1])
        self._distribution = torch.log_softmax(scores.float() / self._temperature, dim=-1)
        return scores

    def finish(self, last_ids: Tensor) -> Tensor:
        """Note the last drawn tokens and return all log-probabilities, shape (rows, steps)."""
        self._take(last_ids)
        return torch.stack(self._columns, dim=1)

    def _take(self, ids: Tensor) -> None:
        if self._distribution is not None:
            self._columns.append(self._distribution.gather(1, ids.unsqueeze(1)).squeeze(1))


class FixedLuck(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Draw every token with the luck of its row, and leave `generate` no other choice.

    Args:
        rules: What shapes the distribution, beyond what `generate` did before.
        luck: Random numbers of the rows.
    """

    def __init__(self, rules: SamplingRules, luck: ReplyLuck) -> None:
        self._rules, self._luck = rules, luck
        self._columns: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores that allow the drawn tokens alone."""
        ids, logps = self._rules.draw(scores, input_ids, self._luck.draw())
        self._columns.append(logps)
        only = torch.full_like(scores, -torch.inf)
        return only.scatter(1, ids.unsqueeze(1), 0.0)

    def finish(self, _last_ids: Tensor) -> Tensor:
        """Return all log-probabilities, shape (rows, steps)."""
        return torch.stack(self._columns, dim=1)


def sample_replies(
    model: PreTrainedModel,
    prompt_ids: Sequence[Sequence[int]],
    generation_config: GenerationConfig,
    *,
    eos_token_ids: Sequence[int],
    luck: ReplyLuck | None = None,
) -> list[Reply]:
    """Let the model answer every prompt once, in one batch.

    What the model's own generation settings say plays no part.

    Args:
        model: A causal language model.
        prompt_ids: One list of token ids per row; any lengths.
        generation_config: Its `max_new_tokens`, `temperature` and `pad_token_id` must be set.
        eos_token_ids: Ids that end a reply; the reply keeps the first of them.
        luck: Decides what is drawn; by default torch's generator does.

    Returns:
        One reply per row.
    """
    width = max(len(ids) for ids in prompt_ids)
    pad = generation_config.pad_token_id
    input_ids = torch.tensor([[pad] * (width - len(ids)) + list(ids) for ids in prompt_ids])
    attention_mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompt_ids])
    recorder = _make_recorder(generation_config, luck)
    with _own_settings_aside(model), torch.no_grad():
        output: Tensor = model.generate(
            input_ids=input_ids.to(model.device),
            attention_mask=attention_mask.to(model.device),
            generation_config=generation_config,
            logits_processor=LogitsProcessorList([recorder]),
        )
    sampled = output[:, width:]
    logps = recorder.finish(sampled[:, -1]).cpu()
    is_end = torch.isin(sampled, torch.tensor(list(eos_token_ids), device=sampled.device))
    lengths = torch.where(is_end.any(1), is_end.int().argmax(1) + 1, sampled.shape[1]).tolist()
    return [
        Reply(ids[:length], row_logps[:length])
        for ids, row_logps, length in zip(sampled.tolist(), logps.tolist(), lengths, strict=True)
    ]


@contextmanager
def _own_settings_aside(model: Any) -> Iterator[None]:
    """Let `generate` take nothing from the settings that the model was published with.

    It would fill whatever the call leaves at `None`, such as `min_p` or `suppress_tokens`.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    # Settings that were given to a PEFT model itself are put into its base by `generate`.
    owners = [base, model] if "generation_config" in vars(model) else [base]
    kept = [(owner, owner.generation_config) for owner in owners]
    try:
        for owner in owners:
            owner.generation_config = GenerationConfig()
        yield
    finally:
        for owner, settings in kept:
            owner.generation_config = settings


def _make_recorder(config: GenerationConfig, luck: ReplyLuck | None) -> SampledLogps | FixedLuck:
    if luck is None or not config.do_sample:
        return SampledLogps(config.temperature if config.do_sample else 1.0)
    rules = SamplingRules(
        temperature=config.temperature,
        top_p=config.top_p or 1.0,
        top_k=config.top_k or 0,
        min_p=config.min_p,
    )
    return FixedLuck(rules, luck)
