"""Advantages of sampled tokens from their definitions, on lists of turns.

A trajectory is a list of turns, a turn a list of sampled tokens, a token a pair (reward, value).
"""


def gae(trajectory, gamma, gae_lambda):
    """A_j = sum_l (gamma * lambda)^l * delta_{j+l}, written out as the sum over the rest."""
    tokens = [token for turn in trajectory for token in turn]
    deltas = []
    for j, (reward, value) in enumerate(tokens):
        next_value = tokens[j + 1][1] if j + 1 < len(tokens) else 0.0
        deltas.append(reward + gamma * next_value - value)
    return [
        sum((gamma * gae_lambda) ** (i - j) * deltas[i] for i in range(j, len(tokens)))
        for j in range(len(tokens))
    ]


def bi_level_gae(trajectory, gamma, gae_lambda, turn_gamma):
    """GAE over the last token of each turn, then in each turn with that return as its reward."""
    ends = [turn[-1] for turn in trajectory]
    turn_advantages = gae([ends], turn_gamma, gae_lambda)
    advantages = []
    for turn, turn_advantage in zip(trajectory, turn_advantages, strict=True):
        turn_return = turn_advantage + turn[-1][1]
        tokens = [*turn[:-1], (turn_return, turn[-1][1])]
        advantages += gae([tokens], gamma, gae_lambda)
    return advantages
