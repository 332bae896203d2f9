"""Sums, means and whitening over the positions that count, deaf to whatever stands elsewhere."""

from typing import NamedTuple

import torch
from torch import Tensor

# Largest std that counts as rounding, relative for means above 1.
_CONSTANT_TOLERANCE = 1e-6


class Moments(NamedTuple):
    """Count, mean and spread of numbers, enough to combine the parts of a distributed batch.

    Attributes:
        num_values: How many numbers, 0.0 for none. Scalar, or `(R,)` for R parts; float64.
        mean: Their mean, 0.0 for none. Shape of `num_values`, float64.
        squared_deviations: Sum of (x - mean)^2. Shape of `num_values`, float64.
    """

    num_values: Tensor
    mean: Tensor
    squared_deviations: Tensor


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum `x` where `mask` is `True`.

    NaN and inf at the other positions reach neither the sum nor the gradient.

    Args:
        x: Any shape, floating.
        mask: `True` at the positions that count. Shape of `x`, bool.
        dim: Dimension to sum over; all of them if `None`.

    Returns:
        Sum in the dtype of `x`; 0.0 where no position counts.

    Raises:
        TypeError: If `x` is not floating or `mask` not bool.
        ValueError: If the shapes differ.

    Example:
        >>> masked_sum(torch.tensor([1.0, 2.0, float("nan")]), torch.tensor([True, True, False]))
        tensor(3.)
    """
    check_masked("mask", mask, x=x)
    return _sum(keep(x, mask), dim).to(x.dtype)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Average `x` where `mask` is `True`.

    NaN and inf at the other positions reach neither the mean nor the gradient.

    Args:
        x: Any shape, floating.
        mask: `True` at the positions that count. Shape of `x`, bool.
        dim: Dimension to average over; all of them if `None`.

    Returns:
        Mean in the dtype of `x`. Where no position counts it is 0.0, with gradient 0, so that an
        empty row adds nothing to a loss instead of turning it into NaN.

    Raises:
        TypeError: If `x` is not floating or `mask` not bool.
        ValueError: If the shapes differ.

    Example:
        >>> masked_mean(torch.tensor([1.0, 2.0, float("nan")]), torch.tensor([True, True, False]))
        tensor(1.5000)
    """
    check_masked("mask", mask, x=x)
    total = _sum(keep(x, mask), dim)
    count = _sum(mask.to(total.dtype), dim)
    return (total / count.clamp(min=1)).to(x.dtype)


def masked_moments(x: Tensor, mask: Tensor) -> Moments:
    """Count `x` where `mask` is `True`, and take mean and squared deviations there.

    Args:
        x: Any shape, floating.
        mask: `True` at the positions that count. Shape of `x`, bool.

    Returns:
        `Moments` of scalars in float64, all 0.0 where no position counts. `torch.stack` makes one
        tensor of them that processes can exchange.

    Raises:
        TypeError: If `x` is not floating or `mask` not bool.
        ValueError: If the shapes differ.

    Example:
        >>> x, mask = torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([True, False, True])
        >>> [field.item() for field in masked_moments(x, mask)]
        [2.0, 2.0, 2.0]
    """
    check_masked("mask", mask, x=x)
    count = mask.sum().double()
    kept = keep(x.double(), mask)
    mean = kept.sum() / count.clamp(min=1)
    squared_deviations = keep(kept - mean, mask).square().sum()
    return Moments(count, mean, squared_deviations)


def combine_moments(moments: Moments) -> Moments:
    """Turn the moments of R parts into those of the whole.

    M2 = sum_r M2_r + sum_r n_r * (mean_r - mean)^2; Chan, Golub and LeVeque (1983), "Algorithms for
    computing the sample variance". Parts without numbers change nothing.

    Args:
        moments: Moments of the parts. Shape `(R,)` each, floating.

    Returns:
        `Moments` of scalars in float64.

    Raises:
        ValueError: If the shapes differ or are not `(R,)`.

    Example:
        >>> parts = Moments(*torch.tensor([[1.0, 2.0], [0.0, 3.0], [0.0, 2.0]]))
        >>> [field.item() for field in combine_moments(parts)]
        [3.0, 2.0, 8.0]
    """
    shapes = [tuple(field.shape) for field in moments]
    if moments.num_values.dim() != 1 or len(set(shapes)) != 1:
        raise ValueError(
            f"`moments` must have three fields of one and the same shape `(R,)`, got {shapes}."
        )
    counts, means, squares = (field.double() for field in moments)
    count = counts.sum()
    mean = (counts * means).sum() / count.clamp(min=1)
    return Moments(count, mean, squares.sum() + (counts * (means - mean).square()).sum())


def whiten(x: Tensor, mask: Tensor, *, eps: float = 1e-8, moments: Moments | None = None) -> Tensor:
    """Shift and scale `x` to mean 0 and variance 1 over the positions that count.

    (x - mean) / sqrt(variance + eps), with the sample variance (n - 1). Numbers that are equal up
    to rounding, a single one included, become exactly 0.0: their std is at most
    1e-6 * max(1, |mean|), and dividing by it would blow rounding errors up.

    Args:
        x: Any shape, floating.
        mask: `True` at the positions that count. Shape of `x`, bool.
        eps: Added to the variance, in squared units of `x`; at least 0.
        moments: Moments of the whole batch where `x` is one process's part of it; those of `x`
            itself if `None`. Scalars.

    Returns:
        Shape and dtype of `x`, exactly 0.0 where `mask` is `False`, whatever stands there.

    Raises:
        TypeError: If `x` is not floating or `mask` not bool.
        ValueError: If the shapes differ, `eps` is negative or `moments` are not scalars.

    Example:
        >>> x = torch.tensor([1.0, 2.0, 4.0, float("nan")])
        >>> whiten(x, torch.tensor([True, True, True, False]))
        tensor([-0.8729, -0.2182,  1.0911,  0.0000])
    """
    check_masked("mask", mask, x=x)
    if not eps >= 0:
        raise ValueError(f"`eps` must be at least 0, got {eps}.")
    count, mean, squared_deviations = masked_moments(x, mask) if moments is None else moments
    if count.dim() != 0:
        raise ValueError(
            f"`moments` must be scalars, got shape {tuple(count.shape)}. "
            "Call `combine_moments` first."
        )
    variance = squared_deviations / (count - 1).clamp(min=1)
    is_constant = variance.sqrt() <= _CONSTANT_TOLERANCE * mean.abs().clamp(min=1)
    # The 1 only keeps 0 / 0 away when `eps` is 0.
    scale = torch.where(is_constant, 1.0, (variance + eps).sqrt())
    whitened = (keep(x.double(), mask) - mean) / scale
    return torch.where(mask & ~is_constant, whitened, 0.0).to(x.dtype)


def keep(x: Tensor, mask: Tensor) -> Tensor:
    """Return `x` where `mask` is `True` and 0.0 elsewhere, in at least float32."""
    # A product with the mask would not do: 0 * nan is nan, forwards and backwards.
    return torch.where(mask, x.to(torch.promote_types(x.dtype, torch.float32)), 0.0)


def check_masked(mask_name: str, mask: Tensor, **tensors: Tensor) -> None:
    """Check that the mask is bool and that every named tensor is floating and has its shape.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape differs.
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            f"`{mask_name}` must be a bool tensor, got {mask.dtype}. Convert it with `.bool()`."
        )
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise TypeError(
                f"`{name}` must be a floating tensor, got {tensor.dtype}. Convert it with `.float()`."
            )
        if tensor.shape != mask.shape:
            raise ValueError(
                f"`{name}` must have the shape of `{mask_name}`, {tuple(mask.shape)}, "
                f"got {tuple(tensor.shape)}."
            )


def check_masked_matrix(mask_name: str, mask: Tensor, shape: str, **tensors: Tensor) -> None:
    """Check as `check_masked` does, and that the mask has two dimensions, called `shape`.

    Raises:
        TypeError: If a dtype is wrong.
        ValueError: If a shape is wrong.
    """
    if mask.dim() != 2:
        raise ValueError(f"`{mask_name}` must have shape `{shape}`, got {tuple(mask.shape)}.")
    check_masked(mask_name, mask, **tensors)


def check_fraction(**scalars: float) -> None:
    """Check that every named number, a discount for example, lies in [0, 1].

    Raises:
        ValueError: If one does not.
    """
    for name, scalar in scalars.items():
        if not 0 <= scalar <= 1:
            raise ValueError(f"`{name}` must be in [0, 1], got {scalar}.")


def _sum(x: Tensor, dim: int | None) -> Tensor:
    return x.sum() if dim is None else x.sum(dim=dim)
