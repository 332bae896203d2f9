"""Generation with transformers that reads no token twice: one cache per wave, kept across turns."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ragen_trl.engines.attention import sharing_heads
from ragen_trl.engines.base import Reply
from ragen_trl.engines.luck import ReplyLuck
from ragen_trl.engines.row_cache import RowCache
from ragen_trl.engines.sampling import SamplingRules
from ragen_trl.engines.stopping import AnswerStop


class CachedEngine:
    """Keeps keys and values across turns and reads the common prompt of a group once.

    Episodes that are over leave the batch before the next turn; logits are computed for the one
    position that a token is drawn from.

    Args:
        open_model: Context in which the model can generate; yields it.
        rules: How tokens are drawn.
        eos_token_ids: Ids that end a reply; the reply keeps the first of them.
        stop: Where replies end besides.
    """

    name = "transformers"

    def __init__(
        self,
        open_model: Callable[[], AbstractContextManager[Any]],
        rules: SamplingRules,
        *,
        eos_token_ids: Sequence[int],
        stop: AnswerStop | None = None,
    ) -> None:
        self._open_model, self._rules = open_model, rules
        self._ends = _Ends(list(eos_token_ids), stop)

    def start(
        self, prompts: Sequence[Sequence[int]], luck_seeds: Sequence[int] | None = None
    ) -> "CachedSession":
        """Begin a wave of episodes, one per prompt; equal prompts are read once."""
        return CachedSession(self._open_model, self._rules, self._ends, prompts, luck_seeds)

    def finish(self) -> None:
        """Do nothing: every process generates on its own."""


class _Ends(NamedTuple):
    """Where a reply ends."""

    eos_token_ids: list[int]
    stop: AnswerStop | None

    def reached(self, drawn: Sequence[Tensor], is_live: Tensor) -> Tensor:
        """Tell for every row whether its reply, given column by column, ends with its last token."""
        ids = drawn[-1]
        is_end = torch.isin(ids, torch.tensor(self.eos_token_ids, device=ids.device))
        if self.stop is not None:
            candidates = (is_live & ~is_end & self.stop.may_close(ids)).nonzero()[:, 0].tolist()
            for row in candidates:
                reply = torch.stack([column[row] for column in drawn]).tolist()
                is_end[row] = self.stop.is_closed(reply)
        return is_end


class CachedSession:
    """The cache of one wave, and which episode stands in which row of it."""

    def __init__(
        self,
        open_model: Callable[[], AbstractContextManager[Any]],
        rules: SamplingRules,
        ends: _Ends,
        prompts: Sequence[Sequence[int]],
        luck_seeds: Sequence[int] | None,
    ) -> None:
        self._open_model, self._rules, self._ends = open_model, rules, ends
        self._luck_seeds, self._turn = luck_seeds, 0
        self._prompts = [tuple(ids) for ids in prompts]
        self._cache: RowCache | None = None
        self._rows: list[int] = []
        # Per episode: tokens that the model has not read yet, and all of them where rules need it.
        self._unread: list[list[int]] = [[] for _ in prompts]
        self._histories = [list(ids) for ids in prompts]

    @property
    def cache_bytes(self) -> int:
        """Most memory that keys and values took so far, in bytes."""
        return 0 if self._cache is None else self._cache.peak_bytes

    def reply(
        self, rows: Sequence[int], new_ids: Sequence[Sequence[int]], budgets: Sequence[int]
    ) -> list[Reply]:
        """Write the next reply of the named episodes; the others leave the cache."""
        for row, ids in zip(rows, new_ids, strict=True):
            self._unread[row] += ids
            self._histories[row] += ids
        with self._open_model() as model, sharing_heads(model), torch.no_grad():
            cache, logits = self._read(model, rows)
            replies = self._write(cache, logits, budgets)
        self._turn += 1
        for row, reply in zip(rows, replies, strict=True):
            self._histories[row] += reply.ids
            # The last token was drawn, but nothing was drawn after it.
            self._unread[row] = reply.ids[-1:]
        return replies

    def _read(self, model: Any, rows: Sequence[int]) -> tuple[RowCache, Tensor]:
        """Bring the cache up to date and return it with the logits of every row's next token."""
        if self._cache is not None:
            if list(rows) != self._rows or self._cache.is_sparse:
                self._cache.take([self._rows.index(row) for row in rows])
                self._rows = list(rows)
            return self._cache, self._cache.read([self._unread[row] for row in rows])
        prompts = [self._prompts[row] + tuple(self._unread[row]) for row in rows]
        unique = list(dict.fromkeys(prompts))
        self._cache, self._rows = RowCache(model, len(unique)), list(rows)
        logits = self._cache.read(unique)
        index = [unique.index(prompt) for prompt in prompts]
        self._cache.take(index)
        return self._cache, logits[torch.tensor(index, device=logits.device)]

    def _write(self, cache: RowCache, logits: Tensor, budgets: Sequence[int]) -> list[Reply]:
        device = logits.device
        most = torch.tensor(list(budgets), device=device)
        lengths = torch.zeros_like(most)
        is_live = torch.ones_like(most, dtype=torch.bool)
        history = self._history(device) if self._rules.needs_history else None
        luck = None
        if self._luck_seeds is not None:
            luck = ReplyLuck([self._luck_seeds[row] for row in self._rows], self._turn)
        drawn_ids, drawn_logps = [], []
        while True:
            ids, logps = self._rules.draw(logits, history, None if luck is None else luck.draw())
            drawn_ids.append(ids)
            drawn_logps.append(logps)
            lengths = lengths + is_live
            is_live = is_live & ~self._ends.reached(drawn_ids, is_live) & (lengths < most)
            if not is_live.any():
                break
            if history is not None:
                # A row that is done repeats an old token, which changes no penalty.
                ids_or_old = torch.where(is_live, ids, history[:, 0])
                history = torch.cat([history, ids_or_old.unsqueeze(1)], dim=1)
            logits = cache.read_padded(ids.unsqueeze(1), is_live.long().unsqueeze(1))
        all_ids, all_logps = (
            torch.stack(drawn_ids, 1).tolist(),
            torch.stack(drawn_logps, 1).tolist(),
        )
        return [
            Reply(ids[:length], logps[:length])
            for ids, logps, length in zip(all_ids, all_logps, lengths.tolist(), strict=True)
        ]

    def _history(self, device: torch.device) -> Tensor:
        rows = [self._histories[row] for row in self._rows]
        width = max(map(len, rows))
        # Padded with a token of the row itself, which counts once however often it stands there.
        padded = [[row[0]] * (width - len(row)) + row for row in rows]
        return torch.tensor(padded, device=device)


def find_obstacle(model: Any) -> str | None:
    """Return why a model cannot read on from a `RowCache`, `None` if it can.

    The model's generation settings are none: no engine follows them.
    """
    if has_prompt_adapter(model):
        return "its adapter puts something before the prompt"
    config = model.config.get_text_config()
    options = config.to_dict()
    kinds = set(options.get("layer_types") or ["full_attention"])
    if kinds != {"full_attention"}:
        return f"its layers are of the kinds {sorted(kinds)}"
    # Where layers have no kinds, all of them have the window; it would count the gaps.
    window = options.get("sliding_window")
    if window is not None and not options.get("layer_types"):
        return f"its layers attend to a sliding window of {window} tokens"
    attention = config._attn_implementation
    if attention not in ("sdpa", "eager"):
        return f"its attention is {attention!r}, which knows no gaps between tokens"
    # Others may count positions by slots, or remember something else than keys and values.
    if not model._supports_attention_backend or model._is_stateful:
        return f"{config.model_type!r} does not attend through transformers' attention interface"
    return None


def has_prompt_adapter(model: Any) -> bool:
    """Tell whether an adapter of `peft` adds tokens, or keys and values, in front of every row."""
    adapters = getattr(model, "peft_config", {}).values()
    return any(adapter.is_prompt_learning for adapter in adapters)
