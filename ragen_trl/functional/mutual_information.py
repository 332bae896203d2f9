"""How much of what was written depends on what it answers."""

from typing import NamedTuple

import torch
from torch import Tensor


class Information(NamedTuple):
    """What a matrix of log-probabilities says about texts Z written for prompts X.

    Attributes:
        mutual_information: I(X; Z) in nats, from at most `log M` down to 0 for texts that would be
            as likely after any other prompt. Scalar.
        retrieval_accuracy: Share of texts that are most likely after their own prompt; `1 / M` is
            chance. Scalar.
        conditional_entropy: H(Z | X) in nats: how freely texts vary for one prompt. Scalar.
    """

    mutual_information: Tensor
    retrieval_accuracy: Tensor
    conditional_entropy: Tensor


def measure_information(logps: Tensor, owners: Tensor) -> Information:
    """Estimate from cross scores how much texts depend on their prompts (RAGEN-2, arXiv:2604.06268).

    With L[i, j] = log p(z_i | x_j), c(i) the prompt that z_i was written for, and w_j the share of
    texts written for prompt j (1 / M where all have equally many):

        I(X; Z) = mean_i( L[i, c(i)] - log sum_j w_j exp(L[i, j]) )
        H(Z | X) = -mean_i L[i, c(i)]

    A text that is equally likely after several prompts counts as one part of a hit. Equal prompts
    share one column; that is the same as a column for each, of which any is a hit.

    Args:
        logps: Of N texts after each of M different prompts. Shape `(N, M)`, floating.
        owners: Column of the prompt that each text was written for; every prompt has a text. Shape
            `(N,)`, int64.

    Returns:
        `Information`, in the dtype of `logps`.

    Raises:
        TypeError: If `logps` is not floating, or `owners` not int64.
        ValueError: If a shape is wrong, or if `owners` are not all of 0 to M - 1.

    Example:
        >>> logps = torch.tensor([[0.8, 0.2], [0.4, 0.6]]).log()
        >>> information = measure_information(logps, torch.tensor([0, 1]))
        >>> f"{information.mutual_information.item():.4f}"
        '0.3262'
        >>> information.retrieval_accuracy.item()
        1.0
    """
    _check(logps, owners)
    scores = logps.to(torch.promote_types(logps.dtype, torch.float32))
    rows = torch.arange(len(owners), device=owners.device)
    own = scores[rows, owners]
    shares = torch.bincount(owners, minlength=scores.shape[1]).to(scores) / len(owners)
    marginal = torch.logsumexp(scores + shares.log(), dim=1)
    is_best = scores == scores.max(dim=1, keepdim=True).values
    hits = is_best[rows, owners].to(scores) / is_best.sum(dim=1)
    results = ((own - marginal).mean(), hits.mean(), -own.mean())
    return Information(*(result.to(logps.dtype) for result in results))


def _check(logps: Tensor, owners: Tensor) -> None:
    if not logps.is_floating_point():
        raise TypeError(f"`logps` must be a floating tensor, got {logps.dtype}.")
    if owners.dtype != torch.int64:
        raise TypeError(f"`owners` must be an int64 tensor, got {owners.dtype}.")
    if logps.dim() != 2 or owners.shape != logps.shape[:1] or len(owners) == 0:
        raise ValueError(
            "`logps` must have shape `(N, M)` and `owners` `(N,)`, with at least one row, "
            f"got {tuple(logps.shape)} and {tuple(owners.shape)}."
        )
    owned = sorted(set(owners.tolist()))
    if owned != list(range(logps.shape[1])):
        raise ValueError(
            f"`owners` must hold every column from 0 to {logps.shape[1] - 1} and no other number, "
            f"got {owned}. Leave out prompts without a text."
        )
