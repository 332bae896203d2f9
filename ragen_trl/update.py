"""One update: the batches it is made of, its loss, and what is logged about it. No trainer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ragen_trl.collation import Row, collate, split_micro_batches, weigh_rows
from ragen_trl.functional import clipped_policy_loss, kl_k3, masked_sum, row_weights
from ragen_trl.functional.losses import RowWeightKind

# TRL's name of a loss, and what counts the same in it.
ROW_WEIGHT_KINDS: dict[str, RowWeightKind] = {
    "dapo": "token_mean",
    "grpo": "trajectory_mean",
    "dr_grpo": "constant",
}


class LossParts(NamedTuple):
    """Sums over the sampled tokens of a micro-batch; sums of several add up.

    Attributes:
        policy_loss: Clipped surrogate, weighted as in the loss.
        entropy: Entropy of the next-token distribution, in nats.
        low_clipped: Tokens clipped below.
        high_clipped: Tokens clipped above.
        kl: k3 estimate of the divergence from the reference, 0 without one.
        logp_difference: Distance between the log-probabilities at sampling and before the update;
            from those now, where those at sampling were taken for those before the update.
        num_tokens: Sampled tokens.
    """

    policy_loss: Tensor
    entropy: Tensor
    low_clipped: Tensor
    high_clipped: Tensor
    kl: Tensor
    logp_difference: Tensor
    num_tokens: Tensor


def build_micro_batches(
    rows: Sequence[Row],
    *,
    loss_type: str,
    loss_scale: float = 1.0,
    max_tokens: int,
    num_micro_batches: int,
    process_index: int,
    num_processes: int,
    pad_token_id: int,
    pad_to_multiple_of: int | None,
    device: torch.device | None = None,
) -> list[dict[str, Tensor]]:
    """Weigh the rows of a whole update, then pad this process's share of them in micro-batches."""
    num_tokens = torch.tensor([row.trajectory.num_action_tokens for row in rows], dtype=torch.long)
    weights = row_weights(num_tokens, kind=ROW_WEIGHT_KINDS[loss_type], max_tokens=max_tokens)
    weights = weights * loss_scale
    micro_batches = split_micro_batches(
        weigh_rows(rows, weights),
        num_micro_batches=num_micro_batches,
        process_index=process_index,
        num_processes=num_processes,
    )
    batches = (
        collate(part, pad_token_id=pad_token_id, pad_to_multiple_of=pad_to_multiple_of)
        for part in micro_batches
    )
    return [{name: tensor.to(device) for name, tensor in batch.items()} for batch in batches]


def starpo_loss(
    logps: Tensor,
    entropies: Tensor,
    batch: Mapping[str, Tensor],
    *,
    epsilon_low: float,
    epsilon_high: float,
    entropy_coef: float,
    beta: float,
) -> tuple[Tensor, LossParts]:
    """Compute one micro-batch's part of the update's loss.

    loss = sum_i w_i sum_t (clipped surrogate - entropy_coef * H + beta * k3), over sampled tokens.
    The weights w_i are those of the whole update, so that the parts of all micro-batches and
    processes add up to it, however it is split.

    Args:
        logps: Log-probabilities now. Shape `(B, T)`.
        entropies: Entropies now. Shape `(B, T)`.
        batch: A batch of `collate`, with `old_per_token_logps` where the policy may have moved
            since the rollout, `ref_per_token_logps` where there is a reference, and
            `importance_weights` where another engine sampled.
        epsilon_low: Clip range of the ratio below 1.
        epsilon_high: Clip range above 1.
        entropy_coef: Coefficient of the entropy bonus.
        beta: Coefficient of the KL term.

    Returns:
        The loss, a scalar, and its parts.
    """
    mask = batch["action_mask"]
    old_logps = batch.get("old_per_token_logps", logps.detach())
    policy = clipped_policy_loss(
        logps,
        old_logps,
        batch["advantages"],
        mask,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
    )
    policy_loss = policy.per_token_loss
    if "importance_weights" in batch:
        policy_loss = policy_loss * torch.where(mask, batch["importance_weights"], 0.0)
    per_token_loss = policy_loss - entropy_coef * torch.where(mask, entropies, 0.0)
    kl = torch.zeros_like(logps)
    if beta != 0.0 or "ref_per_token_logps" in batch:
        kl = kl_k3(logps, batch["ref_per_token_logps"], mask)
        per_token_loss = per_token_loss + beta * kl
    weights = batch["loss_weights"].unsqueeze(1)
    sampling_logps = batch["sampling_per_token_logps"]
    recomputed = logps if old_logps is sampling_logps else old_logps
    parts = LossParts(
        policy_loss=(policy_loss * weights).sum(),
        entropy=masked_sum(entropies, mask),
        low_clipped=policy.is_low_clipped.sum(),
        high_clipped=policy.is_high_clipped.sum(),
        kl=kl.sum(),
        # vLLM reports NaN where it has no number.
        logp_difference=masked_sum(
            (recomputed - sampling_logps).abs(), mask & ~sampling_logps.isnan()
        ),
        num_tokens=mask.sum(),
    )
    return (per_token_loss * weights).sum(), LossParts(*(part.detach() for part in parts))


def update_metrics(parts: Sequence[float], *, has_reference: bool) -> dict[str, float]:
    """Turn the parts of a whole update, summed over micro-batches and processes, into metrics.

    An update without any token has none: an entropy of 0 would look like a collapse.
    """
    total = dict(zip(LossParts._fields, parts, strict=True))
    tokens = total["num_tokens"]
    if tokens == 0:
        return {}
    low, high = total["low_clipped"] / tokens, total["high_clipped"] / tokens
    metrics = {
        "policy_loss": total["policy_loss"],
        "entropy": total["entropy"] / tokens,
        "clip_ratio/low_mean": low,
        "clip_ratio/high_mean": high,
        "clip_ratio/region_mean": low + high,
        "sampling_logp_difference": total["logp_difference"] / tokens,
    }
    return metrics | ({"kl": total["kl"] / tokens} if has_reference else {})
