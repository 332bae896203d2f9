"""What an expert would do next, told at every reset and step."""

from typing import Any

import gymnasium as gym

from ragen_envs.agent_checks import check_limit
from ragen_envs.argument_checks import check_env
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.solvers import find_agent_turns, solve, solve_turn


class OptimalActions(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Add `optimal_actions` to `info`: a tuple of action ids, or `None`.

    Around an environment of this package: the plan of `ragen_envs.solve`; on slippery ice, where no
    plan is fixed, the one action that is best if each can be chosen after the last. Around
    `AgentTurns`: the next turn of `solve_turn`, in view of what is left of turns and actions.

    `()` once the task is solved; `None` if success is out of reach, or if the search for it took too
    long. Observations, rewards and the environment's luck stay as they are. Planning takes far
    longer than a step, so the wrapper is for where the advice is used: imitation, teacher forcing,
    hints, the analysis of mistakes.

    Arguments:
        env: Environment of this package, with or without `AgentTurns` around it.
        horizon: On slippery ice without `AgentTurns`: how many actions are planned ahead.

    Raises:
        TypeError: If `env` is no environment or `horizon` no integer; at `reset`, if the environment
            is not of this package.
        ValueError: If `horizon` is below 1.

    Example:
        >>> import gymnasium, ragen_envs
        >>> env = OptimalActions(gymnasium.make("ragen/Sokoban-v0"))
        >>> _, info = env.reset(seed=0)
        >>> while info["optimal_actions"]:
        ...     _, _, _, _, info = env.step(info["optimal_actions"][0])
        >>> info["success"]
        True
    """

    def __init__(self, env: gym.Env[Any, Any], *, horizon: int = 100) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, horizon=horizon)
        check_env(env)
        gym.Wrapper.__init__(self, env)
        self.horizon = check_limit("horizon", horizon)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and plan from its start."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._add_advice(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and plan from where it is then."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, self._add_advice(info)

    def _add_advice(self, info: dict[str, Any]) -> dict[str, Any]:
        try:
            actions = self._plan()
        except ValueError:  # the search reached its bound
            actions = None
        return {**info, "optimal_actions": None if actions is None else tuple(actions)}

    def _plan(self) -> list[int] | None:
        bare = self.unwrapped
        if find_agent_turns(self.env) is not None:
            return solve_turn(self.env)
        if isinstance(bare, FrozenLakeEnv) and bare.is_slippery:
            return solve_turn(
                self.env,
                max_turns=self.horizon,
                max_actions_per_turn=1,
                max_actions_per_episode=self.horizon,
            )
        return solve(self.env)
