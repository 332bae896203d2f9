"""From the batches of a rollout's updates to the advantage of every token in them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ragen_trl.functional import (
    GAEOutput,
    Moments,
    combine_moments,
    compute_bi_level_gae,
    compute_gae,
    kl_k1,
    masked_moments,
    whiten,
)
from ragen_trl.starpo_config import StarPOConfig

Batch = dict[str, Tensor]


def add_token_advantages(
    batches: Sequence[Batch],
    args: StarPOConfig,
    *,
    values: Callable[[Batch], Tensor] | None,
    gather: Callable[[Tensor], Tensor],
) -> None:
    """Complete the advantages of all batches of one rollout, in place.

    Without a critic they are there already. With one, the values of the tokens before any of the
    updates give GAE, whose advantages are whitened over all sampled tokens of the rollout's kept
    episodes, on all processes (RAGEN, arXiv:2504.20073, section 2). Soft filter weights come last.

    Args:
        batches: Batches of `collate`; with `args.kl_in_reward_coef`, also `old_per_token_logps` and
            `ref_per_token_logps`.
        args: The estimator's settings.
        values: Returns the values of a batch's tokens, shape (B, T); `None` without a critic.
        gather: Stacks a tensor of shape (1, 3) of every process.
    """
    if values is not None:
        for batch in batches:
            batch["old_values"] = values(batch)
            batch["advantages"], batch["returns"] = _estimate(batch, args)
        parts = [masked_moments(b["advantages"], b["action_mask"]) for b in batches]
        own = combine_moments(Moments(*torch.stack([torch.stack(part) for part in parts]).T))
        everyone = combine_moments(Moments(*gather(torch.stack(own).unsqueeze(0)).T))
        for batch in batches:
            batch["advantages"] = whiten(
                batch["advantages"], batch["action_mask"], moments=everyone
            )
    for batch in batches:
        batch["advantages"] = batch["advantages"] * batch["advantage_scales"].unsqueeze(1)


def _estimate(batch: Batch, args: StarPOConfig) -> GAEOutput:
    mask, rewards = batch["action_mask"], batch["rewards"]
    if args.kl_in_reward_coef != 0.0:
        kl = kl_k1(batch["old_per_token_logps"], batch["ref_per_token_logps"], mask)
        rewards = rewards - args.kl_in_reward_coef * kl
    if args.advantage_estimator == "gae":
        return compute_gae(
            rewards, batch["old_values"], mask, gamma=args.gamma, gae_lambda=args.gae_lambda
        )
    return compute_bi_level_gae(
        rewards,
        batch["old_values"],
        mask,
        batch["turn_index"],
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        turn_gamma=args.turn_gamma,
    )
