"""Who plays next and from which state: training and validation apart, easy levels first if asked."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ragen_envs.curriculum import Curriculum
from ragen_envs.splits import Splits
from ragen_trl.environments import EnvPool
from ragen_trl.trajectory import Trajectory

LENGTH_OPTIONS = {"min_solution_length", "max_solution_length"}


class GroupStart(NamedTuple):
    """Where the episodes of one group begin.

    Attributes:
        pool: The environment.
        seed: Seed of the start state.
        options: Options of `reset` that the start state also depends on.
    """

    pool: EnvPool
    seed: int
    options: Mapping[str, Any] = {}


def check_validation_share(share: float) -> None:
    """Refuse a share of the levels that leaves none to training.

    Raises:
        ValueError: If it is not in [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(
            f"`validation_share` must be in [0, 1), got {share}. Use 0 to play seeds as they come."
        )


def validation_seeds(
    pool: EnvPool, *, first_seed: int, num_seeds: int, validation_share: float
) -> tuple[int, ...]:
    """Return the seeds of an evaluation: the first on the validation side from `first_seed` on.

    Args:
        pool: The environment; one of its instances is reset.
        first_seed: Where to begin.
        num_seeds: How many.
        validation_share: Share of the levels on that side, in (0, 1); with 0 all seeds count.

    Raises:
        ValueError: If there are so few levels that none is on the validation side.
    """
    if not validation_share:
        return tuple(range(first_seed, first_seed + num_seeds))
    with _names_the_environment(pool), pool.open():
        splits = _split(pool, validation_share)
        return splits.validation_seeds(num_seeds, first_seed=first_seed)


def deal_groups(weights: Sequence[float]) -> Iterator[int]:
    """Say which environment plays group 0, 1, 2, ...; endless and without chance.

    After n groups, every environment has played its share of n to within one group. Equal weights
    give plain round-robin. This is the quota method of Balinski and Young (1975): of those that
    have not reached their share yet, the one whose next group is due first.
    """
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    dealt = np.zeros(len(shares))
    for num_dealt in itertools.count(1):
        # Rounded so that equal shares stay equal whatever the floating-point sums.
        is_behind = np.round(shares * num_dealt - dealt, 9) > 0
        due = np.round((dealt + 1) / shares, 9)
        index = int(np.where(is_behind, due, np.inf).argmin())
        dealt[index] += 1
        yield index


class GroupDealer:
    """Hands out groups: which environment each plays and from which state; never the same twice.

    Args:
        pools: The environments of the mixture. One instance of each is reset to look at levels.
        first_seed: Seeds are taken from here on, in ascending order.
        validation_share: Share of the levels that is left to evaluation, in [0, 1).

    Attributes:
        num_dealt: Groups handed out so far.

    Raises:
        ValueError: If a curriculum belongs to an environment whose `reset` does not know its
            options, or holds a range that the environment has no levels of.
    """

    def __init__(
        self, pools: Sequence[EnvPool], *, first_seed: int, validation_share: float
    ) -> None:
        self._pools = list(pools)
        self._validation_share = validation_share
        for pool in self._pools:
            _check_curriculum(pool, first_seed)
        self.num_dealt = 0
        self._next_seed = first_seed
        self._order = self._deal_pools()

    def deal(self, count: int) -> list[GroupStart]:
        """Return the next `count` groups."""
        return [self._deal_one() for _ in range(count)]

    def update_curricula(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Let each curriculum see the success of the episodes that it asked for.

        Returns:
            `curriculum/<environment>/stage` of the episodes to come, counted from 0.
        """
        stages = {}
        for pool in self._pools:
            if (curriculum := pool.spec.curriculum) is None:
                continue
            outcomes = [t.success for t in trajectories if t.env_id == pool.name]
            if outcomes:
                curriculum.update(sum(outcomes) / len(outcomes), num_episodes=len(outcomes))
            stages[f"curriculum/{pool.name}/stage"] = float(curriculum.stage)
        return stages

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs, in types that JSON knows."""
        return {
            "num_dealt": self.num_dealt,
            "next_seed": self._next_seed,
            "curricula": [c and c.state_dict() for c in self._curricula],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the groups that were dealt before `state_dict` was called.

        Raises:
            ValueError: If the state comes from another mixture or other curricula.
        """
        if len(state["curricula"]) != len(self._pools):
            raise ValueError(
                f"`env` must hold as many environments as in the checkpoint, which has "
                f"{len(state['curricula'])}, got {len(self._pools)}."
            )
        pairs = list(zip(self._pools, state["curricula"], strict=True))
        for pool, saved in pairs:
            if (pool.spec.curriculum is None) != (saved is None):
                raise ValueError(
                    f"`curriculum` of {pool.name!r} must be given where the checkpoint has one and "
                    f"only there; the checkpoint has {'none' if saved is None else 'one'}."
                )
        for pool, saved in pairs:
            if pool.spec.curriculum is not None:
                pool.spec.curriculum.load_state_dict(saved)
        self.num_dealt = state["num_dealt"]
        self._next_seed = state["next_seed"]
        self._order = itertools.islice(self._deal_pools(), self.num_dealt, None)

    @property
    def _curricula(self) -> list[Curriculum | None]:
        return [pool.spec.curriculum for pool in self._pools]

    def _deal_pools(self) -> Iterator[int]:
        return deal_groups([pool.spec.weight for pool in self._pools])

    def _deal_one(self) -> GroupStart:
        index = next(self._order)
        pool = self._pools[index]
        options = pool.spec.curriculum.options if pool.spec.curriculum else {}
        seed = self._next_seed
        if self._validation_share:
            # Of an instance that is open now.
            splits = _split(pool, self._validation_share)
            with _names_the_environment(pool):
                seed = next(splits.train_seeds(seed, options=options or None))
        self.num_dealt += 1
        self._next_seed = seed + 1
        return GroupStart(pool, seed, options)


def _split(pool: EnvPool, validation_share: float) -> Splits:
    return Splits(pool.take(1)[0], validation_share=validation_share)


@contextmanager
def _names_the_environment(pool: EnvPool) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"{error} (environment {pool.name!r}; `validation_share=0` plays seeds as they come)"
        ) from error


def _check_curriculum(pool: EnvPool, seed: int) -> None:
    """Try every range now rather than in the middle of the training that comes to it."""
    if pool.spec.curriculum is None:
        return
    env = pool.take(1)[0]
    knows = (
        set(env.get_wrapper_attr("option_names")) if env.has_wrapper_attr("option_names") else set()
    )
    if not knows >= LENGTH_OPTIONS:
        raise ValueError(
            f"`curriculum` needs an environment whose `reset` knows the options "
            f"{sorted(LENGTH_OPTIONS)}, such as 'ragen/Sokoban-v0'; {pool.name!r} does not."
        )
    for shortest, longest in pool.spec.curriculum.ranges:
        options = {"min_solution_length": shortest, "max_solution_length": longest}
        try:
            env.reset(seed=seed, options=options)
        except ValueError as error:
            raise ValueError(
                f"`curriculum` holds the range ({shortest}, {longest}), which {pool.name!r} cannot "
                f"play: {error}"
            ) from error
