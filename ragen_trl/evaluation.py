"""What an evaluation is read against: random play, the optimum, and the table of all of them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from ragen_envs import AgentTurns, BanditEnv, FrozenLakeEnv, SokobanEnv, optimal_success
from ragen_envs.baselines import play_random
from ragen_trl.environments import EnvPool
from ragen_trl.start_states import validation_seeds
from ragen_trl.statistics import wilson_interval


class Rate(NamedTuple):
    """A success rate and its 95 % Wilson interval.

    Attributes:
        rate: Share of solved episodes.
        low: Lower end.
        high: Upper end.
    """

    rate: float
    low: float
    high: float

    @classmethod
    def of(cls, outcomes: Sequence[bool]) -> "Rate":
        """Estimate the rate from single outcomes."""
        low, high = wilson_interval(sum(outcomes), len(outcomes))
        return cls(sum(outcomes) / len(outcomes), low, high)


def mean_optimal_success(env: AgentTurns, seeds: Iterable[int]) -> float | None:
    """Return the best reachable success rate over the start states of `seeds`, or `None`.

    The bound lets a policy look after every action; where several actions are played blind within
    a turn on slippery ice, the true optimum lies a little lower. `None` stands for an environment
    without a solver, and for levels whose plan takes too long to find. The environment is reset,
    not stepped.
    """
    if not isinstance(env.unwrapped, BanditEnv | FrozenLakeEnv | SokobanEnv):
        return None
    horizon = min(env.max_actions_per_episode, env.max_turns * env.max_actions_per_turn)
    best = []
    for seed in seeds:
        env.reset(seed=seed)
        try:
            best.append(optimal_success(env, horizon))
        except ValueError:  # the search reached its bound
            return None
    return float(np.mean(best))


class EvaluationPanel:
    """The environments and start states that every evaluation plays, whoever plays them.

    Args:
        pools: Environments by the name that the logs use.
        first_seed: Seeds of start states are taken from here on.
        num_seeds: Start states per environment.
        validation_share: See `ragen_trl.start_states.validation_seeds`.
    """

    def __init__(
        self,
        pools: Mapping[str, EnvPool],
        *,
        first_seed: int,
        num_seeds: int,
        validation_share: float,
    ) -> None:
        self.pools = dict(pools)
        self._choose_seeds = partial(
            validation_seeds,
            first_seed=first_seed,
            num_seeds=num_seeds,
            validation_share=validation_share,
        )
        self._seeds: dict[str, tuple[int, ...]] = {}
        self._optimal_success: dict[str, float | None] = {}
        self._random_success: dict[str, Rate | None] = {}

    @property
    def names(self) -> list[str]:
        """Names of the environments."""
        return list(self.pools)

    def seeds(self, name: str) -> tuple[int, ...]:
        """Return the seeds that an environment is played from; chosen once."""
        if name not in self._seeds:
            self._seeds[name] = self._choose_seeds(self.pools[name])
        return self._seeds[name]

    def optimal_success(self, name: str) -> float | None:
        """Return the best reachable success rate; computed once. See `mean_optimal_success`."""
        if name not in self._optimal_success:
            with self.pools[name].open():
                env = self.pools[name].take(1)[0]
                self._optimal_success[name] = mean_optimal_success(env, self.seeds(name))
        return self._optimal_success[name]

    def random_success(self, name: str) -> Rate | None:
        """Measure uniformly random legal actions, once; `None` where actions are free text."""
        if name not in self._random_success:
            self._random_success[name] = None
            with self.pools[name].open():
                env = self.pools[name].take(1)[0]
                if isinstance(env.env.action_space, spaces.Discrete):
                    results = play_random(env, seeds=self.seeds(name))
                    self._random_success[name] = Rate.of([result.success for result in results])
        return self._random_success[name]


def format_table(columns: Mapping[str, Mapping[str, Rate | float | None]]) -> str:
    """Write success rates as a table: one row per environment, one column per policy.

    Args:
        columns: By column title, then by environment; plain numbers stand without an interval.
    """
    names = list(next(iter(columns.values())))
    rows = [["success rate [95 % interval]", *columns]]
    rows += [[name, *(format_rate(column[name]) for column in columns.values())] for name in names]
    return align_rows(rows)


def format_rate(value: Rate | float | None) -> str:
    """Write a success rate, with its interval if it has one; "-" where it is not known."""
    if value is None:
        return "-"
    if isinstance(value, Rate):
        return f"{value.rate:6.1%} [{value.low:6.1%}, {value.high:6.1%}]"
    return f"{value:6.1%}"


def align_rows(rows: Sequence[Sequence[str]]) -> str:
    """Write rows of equal length as a table whose first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [" | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])
