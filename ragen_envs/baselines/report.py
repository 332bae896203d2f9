"""The numbers that a success rate of an environment has to be read against."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from statistics import median_low
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.argument_checks import check_env_id, check_env_kwargs, check_seeds
from ragen_envs.baselines.episodes import play
from ragen_envs.baselines.policies import Policy, greedy_policy, random_policy, solver_policy
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.frozen_lake.dynamics import find_path
from ragen_envs.solvers import optimal_turn_success, solve
from ragen_envs.splits import canonical_form
from ragen_envs.statistics import wilson_interval


class Share(NamedTuple):
    """A measured success rate.

    Attributes:
        rate: Share of solved episodes.
        low: Lower end of the 95 % Wilson interval.
        high: Upper end of it.
    """

    rate: float
    low: float
    high: float


class Baseline(NamedTuple):
    """What play without a model reaches in one environment under one budget.

    Attributes:
        env_id: Id of the environment.
        num_episodes: Number of seeds; every policy plays one episode of each.
        random: Success of `random_policy`.
        greedy: Success of `greedy_policy`.
        solver: Success of `solver_policy`, which reaches the optimum on average.
        optimum: Mean of `optimal_turn_success` over the start states; no policy is better.
        solution_lengths: Least, median and largest number of actions of an optimal plan, whatever
            the budget; on slippery ice those of the shortest path.
        num_levels: Number of different start states.
        num_levels_up_to_symmetry: Those that differ by more than a turn or a mirror image.
    """

    env_id: str
    num_episodes: int
    random: Share
    greedy: Share
    solver: Share
    optimum: float
    solution_lengths: tuple[int, int, int]
    num_levels: int
    num_levels_up_to_symmetry: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, with the parts of shares and lengths by name, too."""
        shares = {"random": self.random, "greedy": self.greedy, "solver": self.solver}
        lengths = dict(zip(("min", "median", "max"), self.solution_lengths, strict=True))
        return {
            **self._asdict(),
            **{name: share._asdict() for name, share in shares.items()},
            "solution_lengths": lengths,
        }


def measure_baseline(
    env_id: str, *, seeds: Sequence[int], env_kwargs: Mapping[str, Any] | None = None, **limits: Any
) -> Baseline:
    """Play an environment of this package by every policy and look at its start states.

    Args:
        env_id: Id of the environment.
        seeds: Non-negative seeds of the episodes, at least one.
        env_kwargs: Further arguments of `gymnasium.make`.
        limits: Arguments of `AgentTurns`.

    Raises:
        TypeError: If the environment is not of this package or an argument has the wrong type.
        ValueError: If there are no seeds, one is negative, or the search of a plan reached its
            bound.

    Example:
        >>> import ragen_envs
        >>> baseline = measure_baseline("ragen/Bandit-v0", seeds=range(50))
        >>> baseline.solver.rate, baseline.optimum, baseline.solution_lengths
        (1.0, 1.0, (1, 1, 1))
    """
    seeds = check_seeds("seeds", seeds)
    if not seeds:
        raise ValueError("`seeds` must hold at least one seed, got none.")
    made = gym.make(check_env_id("env_id", env_id), **check_env_kwargs("env_kwargs", env_kwargs))
    with closing(made) as inner:
        env = AgentTurns(inner, **limits)
        optima, lengths = [], []
        levels, forms = set(), set()
        for seed in seeds:
            _, info = env.reset(seed=seed)
            levels.add(info["state"])
            forms.add(canonical_form(env))
            optima.append(optimal_turn_success(env))
            lengths.append(_solution_length(env))
        return Baseline(
            env_id=env_id,
            num_episodes=len(seeds),
            random=_measure_success(env, random_policy, seeds),
            greedy=_measure_success(env, greedy_policy, seeds),
            solver=_measure_success(env, solver_policy, seeds),
            optimum=float(np.mean(optima)),
            solution_lengths=(min(lengths), median_low(lengths), max(lengths)),
            num_levels=len(levels),
            num_levels_up_to_symmetry=len(forms),
        )


def format_baselines(baselines: Sequence[Baseline]) -> str:
    """Write a Markdown table, one environment a line."""
    titles = ["id", "random play", "greedy", "solver", "optimum", "optimal length", "levels"]
    rows = [titles, ["---"] * len(titles), *(_write_row(baseline) for baseline in baselines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _measure_success(env: AgentTurns, policy: Policy, seeds: Sequence[int]) -> Share:
    num_successes = sum(result.success for result in play(env, policy, seeds=seeds))
    return Share(num_successes / len(seeds), *wilson_interval(num_successes, len(seeds)))


def _solution_length(env: AgentTurns) -> int:
    bare = env.unwrapped
    # `solve` refuses slippery ice.
    plan = find_path(bare.layout, bare.state) if isinstance(bare, FrozenLakeEnv) else solve(env)
    assert plan is not None  # start states can be solved
    return len(plan)


def _write_row(baseline: Baseline) -> list[str]:
    def write(share: Share) -> str:
        return f"{share.rate:.1%} ({100 * share.low:.1f} to {100 * share.high:.1f})"

    least, median, largest = baseline.solution_lengths
    return [
        f"`{baseline.env_id}`",
        write(baseline.random),
        write(baseline.greedy),
        write(baseline.solver),
        f"{baseline.optimum:.1%}",
        f"{least} / {median} / {largest}",
        f"{baseline.num_levels_up_to_symmetry} ({baseline.num_levels}) of {baseline.num_episodes}",
    ]
