"""Losses, weights and ratios from their definitions, on nested lists."""

import math


def clipped_policy_loss(logps, old_logps, advantages, mask, epsilon_low, epsilon_high):
    """Advantages per token. Zero where the mask is false."""
    losses = []
    for row in range(len(mask)):
        losses.append([])
        for token in range(len(mask[row])):
            if not mask[row][token]:
                losses[row].append(0.0)
                continue
            ratio = math.exp(logps[row][token] - old_logps[row][token])
            clipped = min(max(ratio, 1 - epsilon_low), 1 + epsilon_high)
            advantage = advantages[row][token]
            losses[row].append(-min(ratio * advantage, clipped * advantage))
    return losses


def batch_loss(per_token_loss, mask, kind, max_tokens):
    """Reduce the tokens of a batch to one number."""
    rows = [
        [loss for loss, is_sampled in zip(losses, row_mask, strict=True) if is_sampled]
        for losses, row_mask in zip(per_token_loss, mask, strict=True)
    ]
    rows = [row for row in rows if row]
    if not rows:
        return 0.0
    if kind == "token_mean":
        tokens = [loss for row in rows for loss in row]
        return sum(tokens) / len(tokens)
    if kind == "trajectory_mean":
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    return sum(sum(row) / max_tokens for row in rows) / len(rows)


def importance_weights(old_logps, sampling_logps, mask, mode, clip_min, clip_max):
    level, treatment = mode.split("_")
    weights = []
    for old_row, sampling_row, mask_row in zip(old_logps, sampling_logps, mask, strict=True):
        ratios = [
            1.0 if math.isnan(sampling) else math.exp(old) / math.exp(sampling)
            for old, sampling in zip(old_row, sampling_row, strict=True)
        ]
        product = math.prod(r for r, is_sampled in zip(ratios, mask_row, strict=True) if is_sampled)
        row = []
        for ratio, is_sampled in zip(ratios, mask_row, strict=True):
            weight = product if level == "sequence" else ratio
            is_outside = (clip_min is not None and weight < clip_min) or (
                clip_max is not None and weight > clip_max
            )
            if is_outside and treatment == "mask":
                weight = 0.0
            elif is_outside:
                weight = clip_min if clip_min is not None and weight < clip_min else clip_max
            row.append(weight if is_sampled else 0.0)
        weights.append(row)
    return weights
