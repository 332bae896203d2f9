"""Learning-rate schedules that begin late."""

from functools import partial
from typing import Any

from torch.optim.lr_scheduler import LambdaLR


def begin_later(scheduler: Any, num_steps: int) -> None:
    """Hold a new schedule at its beginning for so many updates.

    Args:
        scheduler: Of the kinds that transformers makes; those that follow a metric are left alone.
        num_steps: Updates before the schedule's first.
    """
    if num_steps and isinstance(scheduler, LambdaLR):
        scheduler.lr_lambdas = [
            partial(_shifted, factor, num_steps) for factor in scheduler.lr_lambdas
        ]


def _shifted(factor: Any, num_steps: int, step: int) -> float:
    return float(factor(max(0, step - num_steps)))
