"""Estimators of the KL divergence from a reference policy, per sampled token (Schulman 2020)."""

import torch
from torch import Tensor

from ragen_trl.functional.masking import check_masked_matrix, keep


def kl_k1(logps: Tensor, ref_logps: Tensor, action_mask: Tensor) -> Tensor:
    """Estimate the KL divergence to a reference policy by the log-ratio of each sampled token.

    k1 = logp - ref_logp: unbiased, of either sign. It belongs into the reward: as a loss its
    gradient does not depend on the reference and vanishes on average. Only `logps` receives a gradient.

    Args:
        logps: Log-probability of each token, natural log. Shape `(B, T)`, floating.
        ref_logps: The same under the reference policy. Shape `(B, T)`.
        action_mask: `True` where the policy sampled the token. Shape `(B, T)`, bool.

    Returns:
        Shape `(B, T)`, dtype of `logps`, exactly 0.0 where `action_mask` is `False`, whatever
        stands there.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape differs.

    Example:
        >>> ref_logps = torch.log(torch.tensor([[2.0]]))
        >>> kl_k1(torch.zeros(1, 1), ref_logps, torch.ones(1, 1, dtype=torch.bool))
        tensor([[-0.6931]])
    """
    return _log_ratio(logps, ref_logps, action_mask).to(logps.dtype)


def kl_k2(logps: Tensor, ref_logps: Tensor, action_mask: Tensor) -> Tensor:
    """Estimate the KL divergence to a reference policy by half the squared log-ratio.

    k2 = 0.5 * (logp - ref_logp)^2: never negative, biased, little variance. As a loss its mean
    gradient is that of the KL divergence. Arguments, result and errors as in `kl_k1`.

    Example:
        >>> ref_logps = torch.log(torch.tensor([[2.0]]))
        >>> kl_k2(torch.zeros(1, 1), ref_logps, torch.ones(1, 1, dtype=torch.bool))
        tensor([[0.2402]])
    """
    return (0.5 * _log_ratio(logps, ref_logps, action_mask).square()).to(logps.dtype)


def kl_k3(logps: Tensor, ref_logps: Tensor, action_mask: Tensor) -> Tensor:
    """Estimate the KL divergence to a reference policy without bias and never below 0.

    k3 = exp(d) - d - 1 with d = ref_logp - logp. Arguments, result and errors as in `kl_k1`.

    Example:
        >>> ref_logps = torch.log(torch.tensor([[2.0]]))
        >>> kl_k3(torch.zeros(1, 1), ref_logps, torch.ones(1, 1, dtype=torch.bool))
        tensor([[0.3069]])
    """
    difference = -_log_ratio(logps, ref_logps, action_mask)
    # `expm1` keeps the digits that `exp(d) - 1` loses when the policies are close.
    return (torch.expm1(difference) - difference).to(logps.dtype)


def _log_ratio(logps: Tensor, ref_logps: Tensor, action_mask: Tensor) -> Tensor:
    check_masked_matrix("action_mask", action_mask, "(B, T)", logps=logps, ref_logps=ref_logps)
    return keep(logps, action_mask) - keep(ref_logps, action_mask).detach()
