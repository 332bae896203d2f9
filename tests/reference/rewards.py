"""Normalised returns from their definitions."""

import statistics

from tests.reference.advantages import has_no_variance, members


def normalize_returns(returns, unit_ids, kind, eps):
    if kind == "none":
        return list(returns)
    units = members(returns, unit_ids)
    normalized = []
    for value, unit_id in zip(returns, unit_ids, strict=True):
        unit = units[unit_id]
        if has_no_variance(unit):
            normalized.append(0.0)
            continue
        score = value - statistics.mean(unit)
        if kind != "mean":
            score /= statistics.stdev(unit) + eps
        normalized.append(min(max(score, -1.0), 3.0) if kind == "asym_clip" else score)
    return normalized
