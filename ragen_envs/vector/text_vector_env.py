"""The shell that the native vector environments share: seeds, resets, limits and infos."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ragen_envs.argument_checks import (
    check_given_seed,
    check_options,
    check_seed,
    check_whole_number,
    show,
)
from ragen_envs.registration import MAX_EPISODE_STEPS
from ragen_envs.text_env import DYNAMICS_SEED, TextEnv
from ragen_envs.vector.boards import Texts
from ragen_envs.vector.streams import Indices, RandomStreams

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# More take seconds to make, most of it Gymnasium's for their spaces and generators.
MAX_ENVS = 50_000
RESET_MASK = "reset_mask"
# Of the environments that something is wrong with, so many are named in a message.
_MAX_NAMED = 10
# They would move the one single environment that lends its methods, and none of ours.
_MOVING_METHODS = ("reset", "step", "close")


class Transitions(NamedTuple):
    """What one action each did; see `ragen_envs.text_env.Transition`. Shapes `(M,)`."""

    rewards: Floats
    terminated: Flags
    is_effective: Flags


class TextVectorEnv(VectorEnv[tuple[str, ...], Any, npt.NDArray[Any]]):
    """Many environments of one kind that are played together, in numpy.

    Everything is as if `gymnasium.vector.SyncVectorEnv` held environments made by
    `gymnasium.make`: observations (a tuple of texts), rewards, ends, infos with their masks, seeds,
    `options`, and the three autoreset modes with `final_obs`, `final_info` and `reset_mask`. Only
    the errors differ: they name the environments.

    A subclass sets `single_class`, makes its arrays in `__init__`, and writes `_start`, `_advance`,
    `_write`, `_is_success`, `_details` and `_load`, each for the environments whose indices it is
    given.

    Args:
        num_envs: Number of environments, at most 1,000,000.
        max_episode_steps: Actions after which an episode is truncated; `None` for the limit of the
            ids, -1 for no limit.
        autoreset_mode: An `AutoresetMode` or its value.
        **arguments: Those of the single environment.

    Attributes:
        single_class: What there are many of.
    """

    single_class: type[TextEnv]

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **arguments: Any,
    ) -> None:
        # For the use of this one alone: it reads options, and lends its methods to each in turn.
        self._single = single = self.single_class(**arguments)
        num_envs = self.num_envs = check_whole_number(
            "num_envs", num_envs, minimum=1, maximum=MAX_ENVS
        )
        self._max_episode_steps = _check_limit(max_episode_steps)
        self.autoreset_mode = _check_mode(autoreset_mode)
        self.metadata = {**single.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = single.render_mode
        self.single_action_space = single.action_space
        self.action_space = batch_space(single.action_space, num_envs)
        self.single_observation_space = single.observation_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self._streams = RandomStreams(num_envs)
        self._all = np.arange(num_envs)
        self._num_steps = np.zeros(num_envs, np.int64)
        self._is_over = np.zeros(num_envs, np.bool_)
        self._has_state = False
        self._texts: Texts = np.full(num_envs, "", object)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | npt.NDArray[np.integer] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Draw start states.

        Args:
            seed: One seed each; or one number, to which the index of the environment is added; or
                `None`, which goes on from the generators as they are.
            options: Options of the single environment, for each of them. `"reset_mask"`, an array
                of bools of shape `(num_envs,)`, says which environments are reset.

        Raises:
            ValueError: If `seed` or `reset_mask` has another length, nothing is to be reset, or for
                the reasons for which the single environment raises it.
            TypeError: If a seed is no integer, `options` no dict or `reset_mask` no array of bools.
            ResetNeeded: If the first reset leaves some environments out.
        """
        seeds = self._list_seeds(seed)
        own_options = check_options(options)
        mask = own_options.pop(RESET_MASK, None)
        indices = self._all if mask is None else np.flatnonzero(self._check_mask(mask))
        checked = self._single._read_options(own_options)
        for index in indices.tolist():
            own_seed = seeds[index]
            if own_seed is not None:
                self._streams.seed(index, own_seed)
        self._restart(indices, checked)
        self._has_state = True
        self._texts[indices] = self._write(indices)
        infos = self._batch_infos(indices, np.zeros(self.num_envs, np.bool_))
        return tuple(self._texts.tolist()), infos

    def step(
        self, actions: npt.ArrayLike
    ) -> tuple[tuple[str, ...], Floats, Flags, Flags, dict[str, Any]]:
        """Carry out one action per environment.

        Args:
            actions: Integers, shape `(num_envs,)`. In the mode `NEXT_STEP` an environment whose
                episode ended in the last step is reset and its action ignored.

        Raises:
            ResetNeeded: Before the first `reset`, and in the mode `DISABLED` while an episode that
                is over waits for its reset. Nothing has changed then.
            InvalidAction: If an action is not an index of `action_names`. Nothing has changed then.
        """
        is_resetting = self._find_resetting()
        moving = np.flatnonzero(~is_resetting)
        chosen = self._check_actions(actions, moving)
        moved = self._advance(moving, chosen)
        self._num_steps[moving] += 1
        rewards = _spread(moved.rewards, moving, self.num_envs)
        terminated = _spread(moved.terminated, moving, self.num_envs)
        is_effective = _spread(moved.is_effective, moving, self.num_envs)
        truncated = ~is_resetting & (self._num_steps >= self._max_episode_steps)
        self._restart(np.flatnonzero(is_resetting))
        self._is_over = terminated | truncated
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._is_over.any():
            ended = np.flatnonzero(self._is_over)
            infos = self._list_final(ended, is_effective)
            is_effective[ended] = False
            self._restart(ended)
        self._texts = self._write(self._all)
        infos |= self._batch_infos(self._all, is_effective)
        return tuple(self._texts.tolist()), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """Return a tuple of texts (`ansi`) or pictures (`rgb_array`); see `TextEnv.render`.

        Raises:
            ResetNeeded: Before the first `reset`.
        """
        self._check_has_state("render()")
        if self.render_mode == "ansi":
            return tuple(self._texts.tolist())
        if self.render_mode == "rgb_array":
            return tuple(self._look_at(index)._draw() for index in range(self.num_envs))
        gym.logger.warn(
            "You called `render` without a `render_mode`. Pass `render_mode='ansi'` or 'rgb_array' to "
            "`make_vec`."
        )
        return None

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return what the single environments have as this attribute, such as `action_names`.

        Raises:
            ResetNeeded: Before the first `reset`.
            AttributeError: If they have none of this name.
        """
        return self.call(name)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return what this method of each single environment returns, or the attribute as it is.

        Args:
            name: Of a method that looks at an environment, such as `"render"`.
            *args: Its arguments.
            **kwargs: Its arguments by name.

        Raises:
            ResetNeeded: Before the first `reset`.
            ValueError: If the method would move the environments, which are not single ones here.
            AttributeError: If they have none of this name.
        """
        if not isinstance(name, str):
            raise TypeError(f"`name` must be a str, got {show(name)}.")
        if name in _MOVING_METHODS:
            raise ValueError(
                f"`name` must be a method that looks at an environment, got {name!r}. Use "
                f"`{name}` of the vector environment."
            )
        self._check_has_state("call()` or `get_attr()")
        found = []
        for index in range(self.num_envs):
            single = self._look_at(index)
            if not hasattr(single, name):
                raise AttributeError(
                    f"`name` must be an attribute of {type(single).__name__}, got {show(name)}."
                )
            value = getattr(single, name)
            found.append(value(*args, **kwargs) if callable(value) else value)
        return tuple(found)

    def set_attr(self, name: str, values: Any) -> None:
        """Refuse: what the environments have in common is in arrays that were made from it.

        Raises:
            ValueError: Always, with the way to go.
        """
        raise ValueError(
            f"`name` must not be set in environments that are already made, got {show(name)} with "
            f"`values` {show(values)}. Pass it to `make_vec`, or make single environments with "
            "`vectorization_mode='sync'`."
        )

    @property  # type: ignore[misc]  # without the setter
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # as in SyncVectorEnv
        """The generator of each environment."""
        return tuple(self._streams.generator(index) for index in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as in SyncVectorEnv
        """The seed of each generator."""
        return tuple(self._streams.seeds)

    def _restart(self, indices: Indices, options: Mapping[str, Any] | None = None) -> None:
        if not len(indices):
            return
        checked = self._single._read_options({}) if options is None else options
        self._start(indices, checked)
        if DYNAMICS_SEED in checked:
            for index in indices.tolist():
                self._streams.seed(index, checked[DYNAMICS_SEED])
                self._streams.seeds[index] = -1  # as Gymnasium has it for a generator that was set
        self._num_steps[indices] = 0
        self._is_over[indices] = False

    def _find_resetting(self) -> Flags:
        """Return which environments the next step resets in place of moving them."""
        self._check_has_state("step()")
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            return self._is_over
        if self.autoreset_mode is AutoresetMode.DISABLED and self._is_over.any():
            raise ResetNeeded(
                f"The episodes of the environments {_name(self._is_over)} are over. Call "
                "`reset(options={'reset_mask': terminated | truncated})` before `step()`."
            )
        return np.zeros(self.num_envs, np.bool_)

    def _list_final(self, ended: Indices, is_effective: Flags) -> dict[str, Any]:
        """Return the entries of the infos that keep the last frames of these episodes."""
        return {
            "final_obs": _spread(self._write(ended), ended, self.num_envs),
            "_final_obs": self._is_over.copy(),
            "final_info": self._batch_infos(ended, is_effective),
            "_final_info": self._is_over.copy(),
        }

    def _batch_infos(self, indices: Indices, is_effective: Flags) -> dict[str, Any]:
        """Return the infos of these environments with Gymnasium's masks."""
        infos = {
            "success": self._is_success(indices),
            "action_is_effective": is_effective[indices],
            **self._details(indices),
        }
        mask = np.zeros(self.num_envs, np.bool_)
        mask[indices] = True
        batched: dict[str, Any] = {}
        for key, values in infos.items():
            batched[key] = _spread(values, indices, self.num_envs)
            batched[f"_{key}"] = mask.copy()
        return batched

    def _look_at(self, index: int) -> TextEnv:
        """Put the single environment into the state of one of ours."""
        self._single.np_random = self._streams.generator(index)
        self._single._np_random_seed = self._streams.seeds[index]
        self._single.has_state = True
        self._load(index)
        return self._single

    def _list_seeds(self, seed: Any) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, np.ndarray) and seed.shape == ():
            seed = seed[()]
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str | bytes):
            first = check_given_seed(seed)
            return [first + index for index in range(self.num_envs)]
        seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"`seed` must be None, a number, or one seed for each of {self.num_envs} "
                f"environments, got {len(seeds)} seeds."
            )
        return [check_seed(each) for each in seeds]

    def _check_mask(self, mask: Any) -> Flags:
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"`options['reset_mask']` must be an array of bools, got {show(mask)}.")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"`options['reset_mask']` must have the shape ({self.num_envs},) and hold a True, "
                f"got {show(mask)}."
            )
        if not self._has_state and not mask.all():
            raise ResetNeeded("Reset all environments before you reset some of them.")
        return mask

    def _check_actions(self, actions: npt.ArrayLike, moving: Indices) -> Indices:
        """Return the actions of the environments that move.

        Raises:
            InvalidAction: If one of them is not an index, or the shape is another one.
        """
        try:
            given = np.asarray(actions)
        except ValueError as error:  # lists of unequal lengths
            raise InvalidAction(
                f"`actions` must hold one index for each of {self.num_envs} environments, got "
                f"{show(actions)}."
            ) from error
        if given.shape != (self.num_envs,):
            raise InvalidAction(
                f"`actions` must hold one index for each of {self.num_envs} environments, got the "
                f"shape {given.shape}."
            )
        num_actions = len(self._single.action_names)
        chosen = given[moving]
        if given.dtype.kind not in "iu":
            raise InvalidAction(f"`actions` must be integers, got {show(given)}.")
        is_wrong = (chosen < 0) | (chosen >= num_actions)
        if is_wrong.any():
            which = _spread(is_wrong, moving, self.num_envs)
            raise InvalidAction(
                f"`actions` must be in [0, {num_actions}), got {_shorten(chosen[is_wrong])} for the "
                f"environments {_name(which)}."
            )
        return chosen.astype(np.intp)

    def _check_has_state(self, call: str) -> None:
        if not self._has_state:
            raise ResetNeeded(f"No episode has begun. Call `reset()` before `{call}`.")

    def _start(self, indices: Indices, options: Mapping[str, Any]) -> None:
        """Make start states; `options` are those that the single environment has checked."""
        raise NotImplementedError

    def _advance(self, indices: Indices, actions: Indices) -> Transitions:
        """Change the states by one action each."""
        raise NotImplementedError

    def _write(self, indices: Indices) -> Texts:
        """Put the states into text."""
        raise NotImplementedError

    def _is_success(self, indices: Indices) -> Flags:
        """Tell which tasks are solved."""
        raise NotImplementedError

    def _details(self, indices: Indices) -> dict[str, npt.NDArray[Any]]:
        """Return the environment's own info keys."""
        raise NotImplementedError

    def _load(self, index: int) -> None:
        """Put the single environment into the state of one of ours, but for the generator."""
        raise NotImplementedError


def _spread(values: Any, indices: Indices, num_envs: int) -> npt.NDArray[Any]:
    """Put values at their environments; elsewhere is zero, or None among objects.

    Values of all environments are returned as they are.
    """
    if values.shape == (num_envs,):
        return np.asarray(values)
    is_objects = values.dtype.kind == "O"
    spread = np.full(num_envs, None) if is_objects else np.zeros(num_envs, values.dtype)
    spread[indices] = values
    return spread


def _name(is_meant: Flags) -> str:
    return _shorten(np.flatnonzero(is_meant))


def _shorten(numbers: npt.NDArray[Any]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_NAMED].tolist()))
    return f"{shown}, ..." if len(numbers) > _MAX_NAMED else shown


def _check_limit(max_episode_steps: int | None) -> float:
    if max_episode_steps is None:
        return MAX_EPISODE_STEPS
    if isinstance(max_episode_steps, int) and max_episode_steps == -1:
        return np.inf
    return check_whole_number("max_episode_steps", max_episode_steps, minimum=1)


def _check_mode(autoreset_mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(autoreset_mode)
    except ValueError as error:
        raise ValueError(
            f"`autoreset_mode` must be one of {[mode.value for mode in AutoresetMode]}, got "
            f"{show(autoreset_mode)}."
        ) from error
