"""Play without a model: what success costs nothing to reach, and what the best play reaches.

`python -m ragen_envs.baselines` prints a table of all ids.
"""

from ragen_envs.baselines.episodes import EpisodeResult, play, play_random
from ragen_envs.baselines.policies import (
    Policy,
    greedy_policy,
    random_policy,
    random_reply,
    solver_policy,
)
from ragen_envs.baselines.report import Baseline, measure_baseline

__all__ = [
    "Baseline",
    "EpisodeResult",
    "Policy",
    "greedy_policy",
    "measure_baseline",
    "play",
    "play_random",
    "random_policy",
    "random_reply",
    "solver_policy",
]
