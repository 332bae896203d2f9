"""Evaluation of models on fixed start states, beside random play and the optimum.

The package is a command as well, `python -m ragen_trl.evaluate --help`, and can be called in place of
its function: `ragen_trl.evaluate("tiny", "ragen/Bandit-v0")`.
"""

import sys
from types import ModuleType

from ragen_trl.evaluate.comparison import PairedComparison, mcnemar_p_value
from ragen_trl.evaluate.evaluating import evaluate
from ragen_trl.evaluate.local_player import LocalPlayer
from ragen_trl.evaluate.records import EpisodeJob, EpisodeRecord, Player
from ragen_trl.evaluate.result import EvaluationResult, compare_results, read_result
from ragen_trl.evaluate.scoring import EnvSummary
from ragen_trl.evaluate.settings import EvaluationSettings

__all__ = [
    "EnvSummary",
    "EpisodeJob",
    "EpisodeRecord",
    "EvaluationResult",
    "EvaluationSettings",
    "LocalPlayer",
    "PairedComparison",
    "Player",
    "compare_results",
    "evaluate",
    "mcnemar_p_value",
    "read_result",
]


class _CallablePackage(ModuleType):
    """Lets `ragen_trl.evaluate` be both this package and what it is named for."""

    __call__ = staticmethod(evaluate)


sys.modules[__name__].__class__ = _CallablePackage
