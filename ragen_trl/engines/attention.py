"""Attention over a long cache that copies neither keys nor values for the heads that share them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "shared_heads_sdpa"

# Arguments of some architectures that change what is computed.
_FURTHER_TERMS = ("position_bias", "softcap")


def attend_with_shared_heads(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute what transformers' `sdpa` computes, without repeating keys and values.

    Several query heads share one head of keys and values. Where a mask is given and more than one
    token is read, transformers writes out a copy of the whole cache for each of them; here they
    look at the same memory, one shared head after the other.

    Args:
        module: The attention layer.
        query: Shape (R, heads, W, size).
        key: Shape (R, shared heads, S, size).
        value: Shape (R, shared heads, S, size).
        attention_mask: True where a token may look. Shape (R, 1, W, S), bool; any other goes to
            transformers, as does none.
        **kwargs: Further arguments of transformers' `sdpa`.

    Returns:
        Shape (R, W, heads, size), and no attention weights.
    """
    num_sharing = query.shape[1] // key.shape[1]
    has_further_terms = any(kwargs.get(name) is not None for name in _FURTHER_TERMS)
    copies_nothing = num_sharing == 1 or query.shape[2] == 1
    # Some architectures add numbers of their own to the mask.
    if (
        attention_mask is None
        or attention_mask.dtype != torch.bool
        or copies_nothing
        or has_further_terms
    ):
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **kwargs
        )
        return output
    # As numbers, so that they are not made anew for every shared head. Finite, so that padding,
    # which may look at nothing, looks everywhere alike and does not become NaN.
    closed = torch.finfo(query.dtype).min
    bias = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill_(~attention_mask, closed)
    outputs = [
        F.scaled_dot_product_attention(
            queries,
            keys.unsqueeze(1).expand(-1, num_sharing, -1, -1),
            values.unsqueeze(1).expand(-1, num_sharing, -1, -1),
            attn_mask=bias,
            scale=kwargs.get("scaling"),
        )
        for queries, keys, values in zip(
            torch.split(query, num_sharing, dim=1), key.unbind(1), value.unbind(1), strict=True
        )
    ]
    return torch.cat(outputs, dim=1).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend_with_shared_heads)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def sharing_heads(model: Any) -> Iterator[None]:
    """Let a model whose attention is `sdpa` attend with shared heads for a while."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
