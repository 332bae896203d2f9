"""Sums and means over the positions that count, deaf to whatever stands at the others."""

import torch
from torch import Tensor


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


def _sum(x: Tensor, dim: int | None) -> Tensor:
    return x.sum() if dim is None else x.sum(dim=dim)
