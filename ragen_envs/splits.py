"""Training and validation seeds whose levels differ by more than a turn or a mirror image.

Which side a level is on depends on the level alone, by a hash of its canonical form. So the rule is
the same for all ids, arguments and processes, keeps no lists and serves endless training.
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from ragen_envs.argument_checks import (
    check_env,
    check_env_id,
    check_env_kwargs,
    check_given_seed,
    check_number,
    check_options,
    check_whole_number,
    show,
)
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.sokoban.dynamics import list_cells
from ragen_envs.solvers import unwrap_own

__all__ = ["Split", "Splits", "canonical_form", "is_held_out", "split_seeds"]

# If each level is on a side with probability p, this many over p misses in a row never happen
# (e^-30); it takes an environment with a handful of levels.
MAX_MISSES = 30
# A smaller side is not looked for: seeds in the ten thousands would be tried for each of its own.
MIN_SHARE = 0.001
# Listed at once; `train_seeds` gives any number, one at a time.
MAX_SEEDS = 1_000_000


class Split(NamedTuple):
    """Seeds in ascending order, none on both sides.

    Attributes:
        train: Seeds to train on.
        validation: Seeds to evaluate on.
    """

    train: tuple[int, ...]
    validation: tuple[int, ...]


def canonical_form(env: gym.Env[Any, Any]) -> str:
    """Write the present state so that states which are the same up to symmetry are written alike.

    Boards: the first in order of the eight pictures that quarter turns and mirroring give. Symbols
    and observation format do not count, nor does how far a Sokoban room is from the outer edge.
    Bandit: the arms in their order, of which there are two.

    Args:
        env: An environment of this package after `reset`; wrappers are looked through.

    Raises:
        TypeError: If the environment is of another type.
        ResetNeeded: Before the first `reset`.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = gymnasium.make("ragen/FrozenLake-v0", desc=["SFF", "FHG"])
        >>> _ = env.reset()
        >>> canonical_form(env).split()
        ['FFS', 'GHF']
    """
    bare = unwrap_own(env, purpose="write down")
    if isinstance(bare, BanditEnv):
        return "\n".join(bare.action_names)
    rows = _draw_lake(bare) if isinstance(bare, FrozenLakeEnv) else _draw_room(bare)
    return min("\n".join(picture) for picture in _list_symmetries(rows))


def is_held_out(env: gym.Env[Any, Any], validation_share: float = 0.1) -> bool:
    """Tell whether the present level is on the validation side; to be asked right after `reset`.

    This is the rule of `Splits` for environments with levels. It lets training check levels that
    were not drawn by seed alone, those of a curriculum for instance.

    Raises:
        TypeError: As `canonical_form`.
        ResetNeeded: As `canonical_form`.
        ValueError: If `validation_share` is not in (0, 1).
    """
    _check_share(validation_share)
    return _hash_to_unit(canonical_form(env)) < validation_share


class Splits:
    """Tells training seeds from validation seeds.

    Environments with levels (Sokoban, FrozenLake): a level and its rotations and mirror images are
    all on one side, whatever the seed. With the same share, training on one size and validation on
    another is disjoint, too.

    Environments without (Bandit has two states; a FrozenLake with `desc` has one map; environments
    from elsewhere are not known): no split of levels exists. The seeds themselves are dealt out,
    so that the sides differ in luck alone; `is_by_level` is `False` then.

    Args:
        env: An id, or an environment, which is then reset at will and not closed.
        validation_share: Share of the levels that is kept for validation, in (0, 1).
        kwargs: Further arguments of `gymnasium.make`.

    Attributes:
        is_by_level: Whether the sides have no level in common.

    Raises:
        TypeError: If `kwargs` come with an environment, or an argument has the wrong type.
        ValueError: If `validation_share` is not in (0, 1), or `env` no id.

    Example:
        >>> import itertools, ragen_envs
        >>> with Splits("ragen/Sokoban-v0", size=(7, 7), num_boxes=2) as splits:
        ...     held_out = splits.validation_seeds(5)
        ...     set(held_out) & set(itertools.islice(splits.train_seeds(), 100))
        set()
    """

    def __init__(
        self, env: str | gym.Env[Any, Any], *, validation_share: float = 0.1, **kwargs: Any
    ) -> None:
        self.validation_share = _check_share(validation_share)
        self._is_own = isinstance(env, str)
        if isinstance(env, str):
            kwargs = check_env_kwargs("kwargs", kwargs)
            env = gym.make(check_env_id("env", env), disable_env_checker=True, **kwargs)
        elif kwargs:
            raise TypeError(f"`kwargs` must be empty where `env` is no id, got {show(kwargs)}.")
        check_env(env)
        # With its wrappers, which may change the seed or the options of a reset.
        self._env = env
        bare = env.unwrapped
        self.is_by_level = isinstance(bare, SokobanEnv) or (
            isinstance(bare, FrozenLakeEnv) and bare.fixed_layout is None
        )

    def close(self) -> None:
        """Close the environment, if it was made here; leaving a `with` block does the same."""
        if self._is_own:
            self._env.close()

    def __enter__(self) -> "Splits":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def is_validation(self, seed: int, *, options: dict[str, Any] | None = None) -> bool:
        """Tell which side a seed is on; `options` are those it will be reset with."""
        seed = check_given_seed(seed)
        if not self.is_by_level:
            check_options(options)
            return _hash_to_unit(f"seed {seed}") < self.validation_share
        self._env.reset(seed=seed, options=options)
        return is_held_out(self._env, self.validation_share)

    def train_seeds(
        self, first_seed: int = 0, *, options: dict[str, Any] | None = None
    ) -> Iterator[int]:
        """Yield the training seeds from `first_seed` on, in ascending order and without end.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If `first_seed` is negative, or there are so few levels that none is on this
                side, or their share is below `MIN_SHARE`.
        """
        first_seed = check_given_seed(first_seed, "first_seed")
        return self._list_side(first_seed, check_options(options), wants_validation=False)

    def validation_seeds(
        self, num_seeds: int, *, first_seed: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[int, ...]:
        """Return the first `num_seeds` validation seeds from `first_seed` on, in ascending order.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If a number is out of range, or there are so few levels that none is on this
                side, or their share is below `MIN_SHARE`.
        """
        num_seeds = check_whole_number("num_seeds", num_seeds, maximum=MAX_SEEDS)
        first_seed = check_given_seed(first_seed, "first_seed")
        seeds = self._list_side(first_seed, check_options(options), wants_validation=True)
        return tuple(itertools.islice(seeds, num_seeds))

    def _list_side(
        self, first_seed: int, options: dict[str, Any] | None, *, wants_validation: bool
    ) -> Iterator[int]:
        """Check the share of a side at once and return its seeds one at a time."""
        share = self.validation_share if wants_validation else 1 - self.validation_share
        if share < MIN_SHARE:
            raise ValueError(
                f"`validation_share` must be in [{MIN_SHARE}, {1 - MIN_SHARE}] to find seeds of "
                f"both sides, got {self.validation_share}. Use a share such as 0.1."
            )
        return self._search(first_seed, options, share, wants_validation=wants_validation)

    def _search(
        self,
        first_seed: int,
        options: dict[str, Any] | None,
        share: float,
        *,
        wants_validation: bool,
    ) -> Iterator[int]:
        num_misses = 0
        for seed in itertools.count(first_seed):
            if self.is_validation(seed, options=options) == wants_validation:
                num_misses = 0
                yield seed
                continue
            num_misses += 1
            if num_misses * share > MAX_MISSES:
                raise ValueError(
                    f"`validation_share` must leave levels on both sides, got "
                    f"{self.validation_share}, and {num_misses} seeds in a row gave no "
                    f"{'validation' if wants_validation else 'training'} level. Change it, or use "
                    "an environment with more levels."
                )


def split_seeds(
    env: str | gym.Env[Any, Any],
    *,
    num_train: int,
    num_validation: int,
    first_seed: int = 0,
    validation_share: float = 0.1,
    **kwargs: Any,
) -> Split:
    """Choose training and validation seeds that have no level in common; see `Splits`.

    Args:
        env: An id, or an environment, which is then reset at will.
        num_train: Number of training seeds, at most 1,000,000.
        num_validation: Number of validation seeds, at most 1,000,000.
        first_seed: Where both sides begin to look.
        validation_share: Share of the levels that is kept for validation, in (0, 1).
        kwargs: Further arguments of `gymnasium.make`.

    Raises:
        TypeError: As `Splits`.
        ValueError: As `Splits`, or if there are so few levels that a side has none.

    Example:
        >>> import ragen_envs
        >>> split = split_seeds("ragen/FrozenLake-v0", num_train=100, num_validation=10)
        >>> len(split.train), len(split.validation), set(split.train) & set(split.validation)
        (100, 10, set())
    """
    num_train = check_whole_number("num_train", num_train, maximum=MAX_SEEDS)
    num_validation = check_whole_number("num_validation", num_validation, maximum=MAX_SEEDS)
    with Splits(env, validation_share=validation_share, **kwargs) as splits:
        # That of validation is short and fails first.
        validation = splits.validation_seeds(num_validation, first_seed=first_seed)
        train = itertools.islice(splits.train_seeds(first_seed), num_train)
        return Split(tuple(train), validation)


def _draw_lake(env: FrozenLakeEnv) -> list[str]:
    layout = env.layout
    rows, columns = layout.size
    letters = dict.fromkeys(layout.holes, "H")
    letters |= dict.fromkeys([layout.goal, *layout.other_goals], "G")
    letters[env.state.player] = "S"
    return ["".join([letters.get((r, c), "F") for c in range(columns)]) for r in range(rows)]


def _draw_room(env: SokobanEnv) -> list[str]:
    """Draw the room in the symbols of level files, cut to the smallest rectangle with its floor."""
    layout, state = env.layout, env.state
    symbols = [" "] * (layout.rows * layout.columns)
    for cell in list_cells(layout.walls):
        symbols[cell] = "#"
    for cell in list_cells(layout.targets):
        symbols[cell] = "."
    for cell in list_cells(state.boxes):
        symbols[cell] = "*" if symbols[cell] == "." else "$"
    symbols[state.player] = "+" if symbols[state.player] == "." else "@"
    cells = "".join(symbols)
    rows = [cells[i : i + layout.columns] for i in range(0, len(cells), layout.columns)]
    return _trim_walls(_turn(_trim_walls(rows)))


def _trim_walls(rows: Sequence[str]) -> list[str]:
    """Drop the rows above and below the floor."""
    inside = [i for i, row in enumerate(rows) if row.strip("#")]
    return list(rows[inside[0] : inside[-1] + 1])


def _turn(rows: Sequence[str]) -> list[str]:
    """Turn a picture by a quarter, clockwise."""
    return ["".join(column) for column in zip(*rows[::-1], strict=True)]


def _list_symmetries(rows: list[str]) -> Iterator[list[str]]:
    for _ in range(4):
        yield rows
        yield rows[::-1]
        rows = _turn(rows)


def _hash_to_unit(text: str) -> float:
    """Spread texts evenly over [0, 1), alike in every process."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _check_share(validation_share: float) -> float:
    validation_share = check_number("validation_share", validation_share)
    if not 0 < validation_share < 1:
        raise ValueError(f"`validation_share` must be in (0, 1), got {validation_share}.")
    return validation_share
