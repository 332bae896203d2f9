"""The shell that every environment of this package shares: seeds, spaces, info and API order."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding

from ragen_envs.argument_checks import (
    check_given_seed,
    check_options,
    check_seed,
    is_index,
    show,
)
from ragen_envs.rendering import Picture

DYNAMICS_SEED = "dynamics_seed"


class Transition(NamedTuple):
    """What one action did.

    Attributes:
        reward: Reward of this action.
        terminated: Whether the task itself ended (solved, lost, arm pulled).
        is_effective: Whether the state changed.
    """

    reward: float
    terminated: bool
    is_effective: bool


class TextEnv(gym.Env[str, int]):
    """An environment with a text observation and a few named actions.

    A subclass sets `observation_space`, `action_space`, `action_names` and `task_description`, and
    writes `_start`, `_advance`, `_observe`, `_is_success`, `_details` and `_draw`. Everything else
    (seeding, the info contract, API order, rendering) is here once.

    `reset(seed=...)` fixes the start and all later luck. `reset(options={"dynamics_seed": n})`
    reseeds only what is drawn after the start, so that several episodes can begin in one state and
    still differ in luck. Options hold for one reset. A subclass with options of its own names them
    in `option_names`, checks them in `_read_options` and uses them in `_start_from`.

    Attributes:
        action_names: Names by action index.
        option_names: Keys that `options` of `reset` may hold.
        task_description: Rules and symbols in plain words.
        has_state: Whether `reset` has made a state to act in or to look at.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012
    action_space: spaces.Discrete[Any]
    action_names: tuple[str, ...]
    option_names: tuple[str, ...] = (DYNAMICS_SEED,)
    task_description: str
    # Whose generator is still to be made.
    _dynamics_seed: int | None = None

    def __init__(self, *, render_mode: str | None = None) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and not (isinstance(render_mode, str) and render_mode in modes):
            raise ValueError(
                f"`render_mode` must be one of {modes} or None, got {show(render_mode)}."
            )
        self.render_mode = render_mode
        self.has_state = False
        self._is_running = False

    @property
    def np_random(self) -> np.random.Generator:
        """The generator of all luck.

        That of a `dynamics_seed` is made when it is first asked for: many episodes draw nothing,
        and making it takes longer than a step.
        """
        if self._dynamics_seed is not None:
            self.np_random = seeding.np_random(self._dynamics_seed)[0]
        # Steps that draw come by here; `super()` would take twice the time.
        return super().np_random if self._np_random is None else self._np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self._dynamics_seed = None
        self._np_random, self._np_random_seed = value, -1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw a start state; see the class docstring for `seed` and `options`.

        Raises:
            TypeError: If `seed`, `options` or a value in it has the wrong type.
            ValueError: If `seed` is negative, or `options` holds a key that this environment does not
                know or a value that it cannot use, or no start state with the asked properties can
                be made.
        """
        seed = check_seed(seed)
        checked = self._read_options(check_options(options))
        super().reset(seed=seed)
        if seed is not None:
            self._dynamics_seed = None
        self._start_from(checked)
        if DYNAMICS_SEED in checked:
            self._dynamics_seed, self._np_random_seed = checked[DYNAMICS_SEED], -1
        self.has_state = self._is_running = True
        return self._observe(), self._info(is_effective=False)

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one action.

        Raises:
            ResetNeeded: Before the first `reset` and after the end of an episode.
            InvalidAction: If `action` is not an index of `action_names`.
        """
        if not self._is_running:
            raise ResetNeeded(
                "The episode is over (or never began). Call `reset()` before `step()`."
            )
        # `Discrete.contains` takes as long as a whole step; the usual case does without it.
        is_known = type(action) is int and 0 <= action < len(self.action_names)
        if not is_known and not is_index(action, 0, len(self.action_names)):
            raise InvalidAction(
                f"`action` must be an integer in [0, {len(self.action_names)}), got {show(action)}. "
                f"The names by index are {self.action_names}."
            )
        transition = self._advance(int(action))
        self._is_running = not transition.terminated
        info = self._info(is_effective=transition.is_effective)
        return self._observe(), transition.reward, transition.terminated, False, info

    def render(self) -> Any:
        """Return the observation (`ansi`) or a picture of shape (height, width, 3), uint8.

        Raises:
            ResetNeeded: Before the first `reset`.
        """
        if not self.has_state:
            raise ResetNeeded("There is nothing to draw yet. Call `reset()` before `render()`.")
        if self.render_mode == "ansi":
            return self._observe()
        if self.render_mode == "rgb_array":
            return self._draw()
        gym.logger.warn(
            "You called `render` without a `render_mode`. Pass `render_mode='ansi'` or 'rgb_array' to `make`."
        )
        return None

    def _read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options before anything changes, and return them as `_start_from` wants them.

        Raises:
            TypeError: If a value has the wrong type.
            ValueError: If a key is unknown or a value cannot be used.
        """
        unknown = [key for key in options if key not in self.option_names]
        if unknown:
            known = ", ".join(map(repr, self.option_names))
            raise ValueError(
                f"`options` may hold only {known}, got {unknown}. Remove the unknown keys."
            )
        checked = dict(options)
        dynamics_seed = checked.pop(DYNAMICS_SEED, None)
        if dynamics_seed is not None:
            checked[DYNAMICS_SEED] = check_dynamics_seed(dynamics_seed)
        return checked

    def _info(self, *, is_effective: bool) -> dict[str, Any]:
        return {
            "success": self._is_success(),
            "action_is_effective": is_effective,
            **self._details(),
        }

    def _start_from(self, options: Mapping[str, Any]) -> None:
        """Make the start state; `options` are those that `_read_options` returned."""
        self._start()

    def _start(self) -> None:
        """Draw the start state from `self.np_random`."""
        raise NotImplementedError

    def _advance(self, action: int) -> Transition:
        """Change the state by one action."""
        raise NotImplementedError

    def _observe(self) -> str:
        """Put the state into text, a member of `observation_space`."""
        raise NotImplementedError

    def _is_success(self) -> bool:
        """Tell whether the task is solved in the present state."""
        raise NotImplementedError

    def _details(self) -> dict[str, Any]:
        """Return this environment's own info keys."""
        raise NotImplementedError

    def _draw(self) -> Picture:
        """Draw the state as an RGB picture."""
        raise NotImplementedError


def check_dynamics_seed(seed: Any) -> int:
    """Return the option as an `int`.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is negative or very large.
    """
    return check_given_seed(seed, f"options[{DYNAMICS_SEED!r}]")
