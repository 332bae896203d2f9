"""No step after the end of an episode, whoever ended it."""

from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from gymnasium.error import ResetNeeded


class SingleWrappers(tuple[WrapperSpec, ...]):
    """Wrappers that `gymnasium.make` puts around a single environment and `make_vec` does not count.

    Gymnasium 1.4 refuses the native vector environment of an id whose spec has additional wrappers,
    by their number, since it cannot put them around one. Ours does what these wrappers do.
    """

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


class EndEnforcing(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Raise `ResetNeeded` on a step after termination or truncation.

    `TextEnv` itself knows about termination only; the step limit is Gymnasium's `TimeLimit`, which
    lets steps pass (and pay) after it has truncated the episode.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._is_over = False

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # a property in `Wrapper`, too
        """Spec from which `gymnasium.make` and `make_vec` make the same environment again."""
        spec = super().spec
        if spec is not None:
            spec.additional_wrappers = SingleWrappers(spec.additional_wrappers)
        return spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and allow steps again."""
        result = self.env.reset(seed=seed, options=options)
        self._is_over = False
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment.

        Raises:
            ResetNeeded: If the episode is over.
        """
        if self._is_over:
            raise ResetNeeded("The episode is over. Call `reset()` before `step()`.")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._is_over = bool(terminated or truncated)
        return observation, reward, terminated, truncated, info
