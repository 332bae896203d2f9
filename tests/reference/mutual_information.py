"""Mutual information as RAGEN-2 defines it, with a column for every pair of prompt and text."""

import math


def log_sum_exp(values):
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def measure_information(logps, prompts):
    """Return mutual information, retrieval accuracy and conditional entropy.

    `logps[i][j]` is that of text i after prompt j, and `prompts[i]` what text i was written for.
    """
    num_pairs = len(prompts)
    gains, hits = [], []
    for i, row in enumerate(logps):
        assert len(row) == num_pairs
        gains.append(row[i] - (log_sum_exp(row) - math.log(num_pairs)))
        best = {prompts[j] for j in range(num_pairs) if row[j] == max(row)}
        hits.append((prompts[i] in best) / len(best))
    own = [row[i] for i, row in enumerate(logps)]
    return tuple(math.fsum(x) / num_pairs for x in (gains, hits, [-value for value in own]))


def cross_score(log_softmax, prompts, texts):
    """Score each text after each prompt by itself; `log_softmax` maps ids to a row per token."""

    def score(prompt, text):
        rows = log_softmax([*prompt, *text])[len(prompt) - 1 :]
        return math.fsum(rows[k][token] for k, token in enumerate(text))

    return [[score(prompt, text) for prompt in prompts] for text in texts]
