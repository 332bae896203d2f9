"""Advantages of turns from their definitions, on ragged lists: rewards[row][turn]."""

import statistics

from tests.reference.advantages import group_advantages, has_no_variance


def discounted_returns(rewards, gamma):
    return [
        [
            sum(gamma ** (later - turn) * row[later] for later in range(turn, len(row)))
            for turn in range(len(row))
        ]
        for row in rewards
    ]


def gigpo(rewards, observations, group_ids, gamma, step_weight, normalize_by_std, eps):
    kind = "grpo" if normalize_by_std else "dr_grpo"
    episode = group_advantages([sum(row) for row in rewards], group_ids, kind, eps)
    returns = discounted_returns(rewards, gamma)
    advantages = []
    for row in range(len(rewards)):
        advantages.append([])
        for turn in range(len(rewards[row])):
            same_place = [
                returns[i][j]
                for i in range(len(rewards))
                for j in range(len(rewards[i]))
                if group_ids[i] == group_ids[row] and observations[i][j] == observations[row][turn]
            ]
            step = returns[row][turn] - statistics.mean(same_place)
            if has_no_variance(same_place):
                step = 0.0
            advantages[row].append(episode[row] + step_weight * step)
    return advantages


def rebn(rewards, gamma, eps):
    returns = discounted_returns(rewards, gamma)
    every = [value for row in returns for value in row]
    if not every or has_no_variance(every):
        return [[0.0] * len(row) for row in rewards]
    mean, std = statistics.mean(every), statistics.stdev(every)
    return [[(value - mean) / (std + eps) for value in row] for row in returns]
