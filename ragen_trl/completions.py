"""Running a model over the completions of a batch: no padding worth the name, no prompt twice."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from ragen_trl.engines import find_obstacle
from ragen_trl.starpo_config import StarPOConfig

# Share of padding among the tokens of one forward pass; smaller passes cost more of their own.
MAX_PADDING = 0.1


class Part(NamedTuple):
    """Rows of a batch that go through the model together.

    Attributes:
        inputs: Arguments of the model: ids from the last prompt token on, or whole rows.
        next_ids: Token after each position where the policy sampled it, else -100. Shape (R, L).
    """

    inputs: dict[str, Any]
    next_ids: Tensor


# Maps a part to tensors of shape (R, L); entry j is about the token after position j.
ForwardFn = Callable[[Part], Sequence[Tensor]]


def score_tokens(
    model: Any, batch: Mapping[str, Tensor], *, shares_prompts: bool, in_parts: bool
) -> list[Tensor]:
    """Return log-probabilities of the sampled tokens, and entropies but for a reference.

    By TRL's fused head, which computes them from hidden states without all the logits.

    Args:
        model: A causal language model.
        batch: A batch of `collate`.
        shares_prompts: Whether each different prompt is read once; see `can_share_prompts`.
        in_parts: See `run_completions`.

    Returns:
        One or two tensors of shape `(B, T)`.
    """

    def forward(part: Part) -> list[Tensor]:
        outputs = model(**part.inputs, shift_labels=part.next_ids, fused_lm_head=True)
        return [x for x in (outputs.log_probs, outputs.entropy) if x is not None]

    def read_prompts(inputs: dict[str, Any]) -> None:
        model(**inputs, use_cache=True, logits_to_keep=1)

    return run_completions(
        batch, forward, read_prompts=read_prompts if shares_prompts else None, in_parts=in_parts
    )


def run_completions(
    batch: Mapping[str, Tensor],
    forward: ForwardFn,
    *,
    read_prompts: Callable[[dict[str, Any]], object] | None,
    in_parts: bool = True,
) -> list[Tensor]:
    """Apply a model to the completions of a batch.

    Rows are sorted into parts of similar length. Where prompts may be shared, each different one
    is read once, with its gradient, and its keys and values are handed to all rows that begin with
    it: the members of a group have one prompt, which is often longer than what they said.

    Args:
        batch: A batch of `collate`.
        forward: Applies the model to a part.
        read_prompts: Applies it to prompts alone, for the cache in its arguments; `None` reads
            every row from its beginning.
        in_parts: Whether the model may be called several times. Under DDP it may not: calls are
            joint operations of the processes, whose batches differ.

    Returns:
        What `forward` returns, for the T last positions of every row, shape (B, T); 0.0 at tokens
        that the policy did not sample.
    """
    lengths = batch["attention_mask"].sum(1)
    starts = torch.zeros_like(lengths)
    prefixes = None
    if read_prompts is not None:
        # The last prompt token belongs to the completion: the first sampled token is drawn from it.
        starts = batch["prompt_lengths"] - 1
        if bool((starts > 0).any()):
            prefixes = _Prefixes(batch["input_ids"], starts, read_prompts)
    outputs: list[Tensor] = []
    rest = (lengths - starts).tolist()
    for rows in split_by_length(rest) if in_parts else [list(range(len(rest)))]:
        index = torch.tensor(rows, device=lengths.device)
        part, targets = _make_part(batch, index, starts[index], lengths[index])
        if prefixes is not None:
            prefixes.put_before(part, index)
        is_sampled = part.next_ids != -100
        where = (index.unsqueeze(1).expand_as(targets)[is_sampled], targets[is_sampled])
        for i, values in enumerate(forward(part)):
            if i == len(outputs):
                outputs.append(values.new_zeros(batch["action_mask"].shape))
            # A sum that is 0 keeps parts without sampled tokens in the graph.
            outputs[i] = outputs[i].index_put(where, values[is_sampled]) + 0.0 * values.sum()
    return outputs


def split_by_length(lengths: Sequence[int], *, max_padding: float = MAX_PADDING) -> list[list[int]]:
    """Sort rows into parts of similar length, so that padding stays below a share of each part."""
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    parts: list[list[int]] = []
    num_tokens = 0
    for row in order:
        num_tokens += lengths[row]
        size = len(parts[-1]) + 1 if parts else 0
        if parts and num_tokens >= (1 - max_padding) * lengths[row] * size:
            parts[-1].append(row)
        else:
            parts.append([row])
            num_tokens = lengths[row]
    return parts


def _make_part(
    batch: Mapping[str, Tensor], index: Tensor, starts: Tensor, lengths: Tensor
) -> tuple[Part, Tensor]:
    """Return the rows from their starts on, and which of the T positions each token's next is."""
    ids, sampled = batch["input_ids"][index], batch["action_mask"][index]
    width, kept = ids.size(1), sampled.size(1)
    steps = torch.arange(int((lengths - starts).max()), device=ids.device)
    columns = starts.unsqueeze(1) + steps
    is_token = columns < lengths.unsqueeze(1)
    targets = (columns + 1 - (width - kept)).clamp(0, kept - 1)
    has_next = (columns + 1 < lengths.unsqueeze(1)) & (columns + 1 >= width - kept)
    next_ids = ids.gather(1, (columns + 1).clamp(max=width - 1))
    next_ids = torch.where(has_next & sampled.gather(1, targets), next_ids, -100)
    inputs = {
        "input_ids": ids.gather(1, columns.clamp(max=width - 1)),
        "attention_mask": is_token.long(),
        "position_ids": columns.clamp(max=width - 1),
    }
    return Part(inputs, next_ids), targets


class _Prefixes:
    """The different prompts of a batch without their last tokens, read once, and who begins so."""

    def __init__(
        self, input_ids: Tensor, lengths: Tensor, read_prompts: Callable[[dict[str, Any]], object]
    ) -> None:
        width = int(lengths.max())
        # Flush right, so that what follows stands next to them.
        columns = torch.arange(width, device=lengths.device) - (width - lengths.unsqueeze(1))
        ids = input_ids.gather(1, columns.clamp(min=0)) * (columns >= 0)
        keys = torch.cat([lengths.unsqueeze(1), ids], dim=1)
        unique, self._which = torch.unique(keys, dim=0, return_inverse=True)
        mask = torch.arange(width, device=lengths.device) >= width - unique[:, :1]
        self._mask, self._cache = mask.long(), DynamicCache()
        read_prompts(
            {
                "input_ids": unique[:, 1:],
                "attention_mask": self._mask,
                "position_ids": (self._mask.cumsum(1) - 1).clamp(min=0),
                "cache": self._cache,
            }
        )

    def put_before(self, part: Part, rows: Tensor) -> None:
        """Let the model see the rows' prompts before the part."""
        which = self._which[rows]
        cache = DynamicCache()
        for i, layer in enumerate(self._cache.layers):
            cache.update(layer.keys.index_select(0, which), layer.values.index_select(0, which), i)
        mask = torch.cat([self._mask[which], part.inputs["attention_mask"]], dim=1)
        part.inputs.update({"cache": cache, "attention_mask": mask})


def can_share_prompts(args: StarPOConfig, model: Any) -> bool:
    """Tell whether prompts can be read apart: layers that forget their inputs keep no cache."""
    return not args.gradient_checkpointing and find_obstacle(model) is None
