"""Group advantages from their definitions."""

import statistics


def members(returns, group_ids):
    """Map each group id, ascending, to the returns of its rows."""
    return {
        group: [r for r, other in zip(returns, group_ids, strict=True) if other == group]
        for group in sorted(set(group_ids))
    }


def has_no_variance(group, tolerance=1e-6):
    scale = max([1.0] + [abs(value) for value in group])
    return max(group) - min(group) <= tolerance * scale


def group_advantages(returns, group_ids, kind, eps):
    groups = members(returns, group_ids)
    advantages = []
    for row, (value, group_id) in enumerate(zip(returns, group_ids, strict=True)):
        group = returns if kind == "reinforce_pp" else groups[group_id]
        if has_no_variance(group):
            advantages.append(0.0)
        elif kind == "dr_grpo":
            advantages.append(value - statistics.mean(group))
        elif kind == "rloo":
            others = [r for i, r in enumerate(returns) if group_ids[i] == group_id and i != row]
            advantages.append(value - statistics.mean(others))
        else:
            advantages.append((value - statistics.mean(group)) / (statistics.stdev(group) + eps))
    return advantages
