"""Group scores and selection from their definitions, in exact arithmetic where ties decide."""

import itertools
import math
import statistics
from decimal import Decimal
from fractions import Fraction

from tests.reference.advantages import has_no_variance, members


def group_scores(quantity, group_ids, kind="reward_std"):
    def score(group):
        if kind == "reward_std":
            return 0.0 if has_no_variance(group) else statistics.stdev(group)
        if kind == "entropy_variance":
            return 0.0 if has_no_variance(group) else statistics.variance(group)
        return math.fsum(group) if kind == "reward_sum" else statistics.mean(group)

    return [score(group) for group in members(quantity, group_ids).values()]


def ranked(scores, candidates):
    """Take the best remaining group again and again; `max` returns the first of equals."""
    remaining, ranking = list(candidates), []
    while remaining:
        best = max(remaining, key=lambda i: scores[i])
        remaining.remove(best)
        ranking.append(best)
    return ranking


def exact(number):
    """Read a number as the decimal fraction that it prints as."""
    return Fraction(Decimal(str(number)))


def select_groups(scores, method, value, include_zero, has_variance=None):
    if has_variance is None:
        has_variance = [score != 0 for score in scores]
    candidates = [i for i in range(len(scores)) if include_zero or has_variance[i]]
    ranking = ranked(scores, candidates)
    if not ranking:
        return []
    if method == "top_k":
        kept = ranking[: max(1, int(exact(value) * len(scores)))]
    elif method == "top_k_abs":
        kept = ranking[:value]
    elif method == "min_p":
        kept = [i for i in ranking if exact(scores[i]) >= exact(value) * exact(scores[ranking[0]])]
    elif method == "percentile_range":
        low, high = map(exact, value)
        kept = [i for r, i in enumerate(ranking) if low <= Fraction(r, len(ranking)) < high]
    else:
        kept = shortest_prefix(scores, ranking, method, exact(value))
    return sorted(kept)


def shortest_prefix(scores, ranking, method, value):
    weights = {i: exact(scores[i]) for i in ranking}
    if method == "top_p_softmax":
        # Scores that are equal have weights that are equal, so that ties are exact here, too.
        weights = {i: Fraction(math.exp(scores[i] - scores[ranking[0]])) for i in ranking}
    for length in range(1, len(ranking) + 1):
        prefix = ranking[:length]
        if sum(weights[i] for i in prefix) >= value * sum(weights.values()):
            return prefix
    raise AssertionError("The whole ranking reaches its own total.")


def best_variance_within(group, num_kept):
    """Largest population variance of any `num_kept` members, over all choices."""
    return max(statistics.pvariance(kept) for kept in itertools.combinations(group, num_kept))
