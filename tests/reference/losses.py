"""Losses, weights and ratios from their definitions, on nested lists."""

import math
import statistics


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


def kl(logps, ref_logps, mask, name):
    estimators = {
        "kl_k1": lambda ratio: -math.log(ratio),
        "kl_k2": lambda ratio: math.log(ratio) ** 2 / 2,
        "kl_k3": lambda ratio: ratio - 1 - math.log(ratio),
    }
    return [
        [
            estimators[name](math.exp(ref) / math.exp(logp)) if is_sampled else 0.0
            for logp, ref, is_sampled in zip(*rows, strict=True)
        ]
        for rows in zip(logps, ref_logps, mask, strict=True)
    ]


def clipped_value_loss(values, old_values, returns, mask, clip_range):
    """Losses and clip flags; zero and false where the mask is false."""
    losses, flags = [], []
    for rows in zip(values, old_values, returns, mask, strict=True):
        losses.append([])
        flags.append([])
        for value, old_value, target, is_sampled in zip(*rows, strict=True):
            clipped = min(max(value, old_value - clip_range), old_value + clip_range)
            free_error, clipped_error = (value - target) ** 2, (clipped - target) ** 2
            losses[-1].append(0.5 * max(free_error, clipped_error) if is_sampled else 0.0)
            flags[-1].append(is_sampled and clipped_error > free_error)
    return losses, flags


def explained_variance(values, returns, mask):
    pairs = [
        (value, target)
        for rows in zip(values, returns, mask, strict=True)
        for value, target, counts in zip(*rows, strict=True)
        if counts
    ]
    targets = [target for _, target in pairs]
    if len(set(targets)) < 2:
        return 0.0
    errors = [target - value for value, target in pairs]
    return 1 - statistics.pvariance(errors) / statistics.pvariance(targets)
