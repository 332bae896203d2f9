"""Advantages of whole trajectories, measured against other trajectories."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

GroupAdvantageKind = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp"]


def group_advantages(
    returns: Tensor, group_ids: Tensor, *, kind: GroupAdvantageKind, eps: float = 1e-4
) -> Tensor:
    """Compare every trajectory's return R_i with those of its group, or of the batch.

    "grpo": A_i = (R_i - mean R) / (std R + eps), with the sample std (n - 1); DeepSeekMath
    (arXiv:2402.03300) section 4.1.2. "dr_grpo": A_i = R_i - mean R (arXiv:2503.20783).
    "rloo": A_i = R_i - mean R of the *other* members of the group (arXiv:2402.14740).
    "reinforce_pp": as "grpo", but with mean and std of the whole batch (arXiv:2501.03262).
    A group (for "reinforce_pp" a batch) without variance, one of a single member included, teaches
    nothing: it gets exactly 0.

    Args:
        returns: Sum of all rewards of a trajectory. Shape `(B,)`, floating, finite.
        group_ids: Which rows share an initial state. Any values in any order, groups may differ in
            size. Not read by "reinforce_pp". Shape `(B,)`, long.
        kind: Estimator.
        eps: Added to the std of "grpo" and "reinforce_pp", in units of the return; at least 0.

    Returns:
        Advantages of shape `(B,)` in the dtype of `returns`, computed in float64. They sum to 0 in
        every group, those of "reinforce_pp" over the batch.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape or `kind` is wrong, `eps` negative or a return not finite.

    Example:
        >>> group_advantages(torch.tensor([1.0, 0.0, 7.0]), torch.tensor([3, 3, 5]), kind="dr_grpo")
        tensor([ 0.5000, -0.5000,  0.0000])
    """
    if kind not in get_args(GroupAdvantageKind):
        raise ValueError(
            f"`kind` must be one of {', '.join(map(repr, get_args(GroupAdvantageKind)))}, got {kind!r}."
        )
    if not eps >= 0:
        raise ValueError(f"`eps` must be at least 0, got {eps}.")
    _check_returns(returns, group_ids)
    is_batch_wide = kind == "reinforce_pp"
    groups = group_statistics(returns, torch.zeros_like(group_ids) if is_batch_wide else group_ids)
    deviation = returns.double() - groups.mean[groups.group_index]
    if kind == "rloo":
        # The mean of the others lies n / (n - 1) times as far away as the mean of all n.
        factor = groups.size.double() / (groups.size - 1).clamp(min=1)
        deviation = deviation * factor[groups.group_index]
    elif kind != "dr_grpo":
        # The 1 only keeps 0 / 0 away when `eps` is 0; these groups are set to 0 below.
        scale = torch.where(groups.has_no_variance, 1.0, groups.std + eps)
        deviation = deviation / scale[groups.group_index]
    advantages = torch.where(groups.has_no_variance[groups.group_index], 0.0, deviation)
    return advantages.to(returns.dtype)


def has_no_variance(returns: Tensor, group_ids: Tensor, *, tolerance: float = 1e-6) -> Tensor:
    """Tell which groups consist of equal returns, up to rounding.

    The rule is max - min <= tolerance * max(1, max |R|) within the group. The std cannot decide
    this: eight float32 returns of 0.15 have a std of 1.6e-8, and dividing by it would blow rounding
    errors up to advantages of ordinary size.

    Args:
        returns: Return of every trajectory. Shape `(B,)`, floating, finite.
        group_ids: Which rows share an initial state. Shape `(B,)`, long.
        tolerance: Largest spread that counts as rounding, relative for returns above 1.

    Returns:
        Shape `(P,)`, bool, in the order of `torch.unique(group_ids)`; `True` for one member.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong, `tolerance` negative or a return not finite.

    Example:
        >>> has_no_variance(torch.tensor([0.15] * 8 + [1.0, 0.0]), torch.tensor([0] * 8 + [1] * 2))
        tensor([ True, False])
    """
    return group_statistics(returns, group_ids, tolerance=tolerance).has_no_variance


class GroupStatistics(NamedTuple):
    """What the returns of each group look like; groups stand in ascending order of their ids.

    Attributes:
        group_index: Position of a row's group in the other fields. Shape `(B,)`, long.
        size: Number of members. Shape `(P,)`, long.
        mean: Shape `(P,)`, float64.
        std: Sample std (n - 1), exactly 0.0 in groups without variance. Shape `(P,)`, float64.
        has_no_variance: See the function of this name. Shape `(P,)`, bool.
    """

    group_index: Tensor
    size: Tensor
    mean: Tensor
    std: Tensor
    has_no_variance: Tensor


def group_statistics(
    returns: Tensor, group_ids: Tensor, *, tolerance: float = 1e-6
) -> GroupStatistics:
    """Summarise the returns of every group; arguments and errors as in `has_no_variance`."""
    _check_returns(returns, group_ids)
    if not tolerance >= 0:
        raise ValueError(f"`tolerance` must be at least 0, got {tolerance}.")
    _, group_index, sizes = torch.unique(group_ids, return_inverse=True, return_counts=True)
    # Adding in the order of the values makes equal groups exactly equal, however their rows lie.
    values, order = returns.double().sort()
    index = group_index[order]
    zeros = values.new_zeros(sizes.shape)
    mean = zeros.index_add(0, index, values) / sizes
    squares = zeros.index_add(0, index, (values - mean[index]).square())
    spread = _group_max(values, index, zeros) + _group_max(-values, index, zeros)
    magnitude = _group_max(values.abs(), index, zeros)
    is_constant = spread <= tolerance * magnitude.clamp(min=1.0)
    std = torch.where(is_constant, 0.0, (squares / (sizes - 1).clamp(min=1)).sqrt())
    return GroupStatistics(group_index, sizes, mean, std, is_constant)


def _group_max(values: Tensor, index: Tensor, zeros: Tensor) -> Tensor:
    return zeros.scatter_reduce(0, index, values, "amax", include_self=False)


def _check_returns(returns: Tensor, group_ids: Tensor) -> None:
    if not returns.is_floating_point():
        raise TypeError(f"`returns` must be a floating tensor, got {returns.dtype}.")
    if group_ids.dtype != torch.long:
        raise TypeError(f"`group_ids` must be a long tensor, got {group_ids.dtype}.")
    if returns.dim() != 1 or group_ids.shape != returns.shape:
        raise ValueError(
            "`returns` and `group_ids` must have one and the same shape `(B,)`, "
            f"got {tuple(returns.shape)} and {tuple(group_ids.shape)}."
        )
    if not torch.isfinite(returns).all():
        raise ValueError(
            f"`returns` must be finite, got {returns[~torch.isfinite(returns)][0].item()}. "
            "Play the episode again or leave its whole group out."
        )
