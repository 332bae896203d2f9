"""No step after the end of an episode, whoever ended it."""

from typing import Any

import gymnasium as gym
from gymnasium.error import ResetNeeded


class EndEnforcing(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Raise `ResetNeeded` on a step after termination or truncation.

    `TextEnv` itself knows about termination only; the step limit is Gymnasium's `TimeLimit`, which
    lets steps pass (and pay) after it has truncated the episode.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._is_over = False

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
