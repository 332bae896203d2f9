"""The environments as classes with tool methods, for TRL's `GRPOTrainer(environment_factory=...)`.

A trainer makes one instance per rollout, calls `reset` with the columns of a dataset row, offers
the public methods to the model as tools, and asks `get_reward` at the end. Nothing here needs TRL;
any loop over tool calls can use these classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from ragen_envs import prompts
from ragen_envs.agent_checks import check_limit, check_penalty
from ragen_envs.argument_checks import check_env_kwargs, check_seed, show
from ragen_envs.parsing import normalize_name
from ragen_envs.text_env import DYNAMICS_SEED

__all__ = ["BanditTools", "FrozenLakeTools", "SokobanTools", "environment_success"]


class _Tools:
    """What the three have in common; every public method of a subclass is a tool.

    Attributes:
        env: The environment that is played.
        reward: Sum of the environment's rewards in this episode.
        done: Whether the episode is over; also before the first `reset`.
        success: Whether the task is solved.
        num_actions: Actions carried out in this episode.
    """

    _env_id: str
    _request: str

    def __init__(
        self,
        *,
        max_actions: int = 10,
        idle_penalty: float = -1.0,
        luck_seed: int | None = None,
        **env_kwargs: Any,
    ) -> None:
        self._max_actions = check_limit("max_actions", max_actions)
        self._idle_penalty = check_penalty(idle_penalty, "idle_penalty")
        self._luck = np.random.default_rng(check_seed(luck_seed, "luck_seed"))
        self.env: gym.Env[str, int] = gym.make(
            self._env_id,
            max_episode_steps=self._max_actions,
            disable_env_checker=True,
            **check_env_kwargs("env_kwargs", env_kwargs),
        )
        self._begin(done=True)

    def reset(
        self,
        *,
        seed: int | None = None,
        dynamics_seed: int | None = None,
        prompt: Any = None,
        **row: Any,
    ) -> str:
        """Begin an episode and return the task, the start state and how to act.

        Args:
            seed: Of the start state. All rollouts of a prompt must get the same one, and they do if
                it is a column of the dataset.
            dynamics_seed: Of what is drawn after the start; `None` for luck of its own.
            prompt: The conversation so far, as TRL passes it. The returned text is appended to its
                last message, after a blank line if that message is not empty.
            row: Further columns; without effect.
        """
        has_text = _has_text(prompt)
        if seed is None and prompt is not None:
            gym.logger.warn(
                "The rollouts of a prompt start in different states because the dataset has no "
                "column `seed`. Add one with a number per row."
            )
        if dynamics_seed is None:
            dynamics_seed = int(self._luck.integers(2**32))
        state, info = self.env.reset(seed=seed, options={DYNAMICS_SEED: dynamics_seed})
        self._begin(done=False)
        self.success = info["success"]
        task = self.env.get_wrapper_attr("task_description")
        request = self._request.format(max_actions=self._max_actions)
        text = f"{task}\n{request}\nState:\n{state}"
        return f"\n\n{text}" if has_text else text

    def get_reward(self) -> float:
        """Return the reward of the episode: the sum of its rewards, or the idle penalty."""
        return self.reward if self.num_actions else self._idle_penalty

    def _begin(self, *, done: bool) -> None:
        self.reward = 0.0
        self.done = done
        self.success = False
        self.num_actions = 0

    def _act(self, argument: str, name: str) -> str:
        """Carry out the action of this name and return what came of it."""
        if self.done:
            raise ResetNeeded(
                "The episode is over and nothing more can be done. Reply without calling a tool."
            )
        names = self.env.get_wrapper_attr("action_names")
        wanted = normalize_name(str(name))
        indices = [i for i, known in enumerate(names) if normalize_name(known) == wanted]
        if not indices:
            raise ValueError(f"`{argument}` must be one of {', '.join(names)}, got {show(name)}.")
        state, reward, terminated, truncated, info = self.env.step(indices[0])
        self.num_actions += 1
        self.reward += float(reward)
        self.success = info["success"]
        self.done = bool(terminated or truncated)
        message = prompts.write_last_message(float(reward), state)
        return f"{message}\nThe episode is over." if self.done else message


class SokobanTools(_Tools):
    """Sokoban with one tool, `move`.

    Arguments:
        max_actions: Moves per episode.
        idle_penalty: Reward of an episode without a single legal action; at most 0. Otherwise doing
            nothing would pay more than trying, since every move costs 0.1.
        luck_seed: Of the luck that an instance has where `reset` gets no `dynamics_seed`; `None`
            draws it from the operating system.
        env_kwargs: Arguments of `ragen/Sokoban-v0`.

    Example:
        >>> from ragen_envs import solve
        >>> game = SokobanTools(max_solution_length=3)
        >>> _ = game.reset(seed=1)
        >>> for action in solve(game.env):
        ...     _ = game.move(("Up", "Down", "Left", "Right")[action])
        >>> game.success, game.done
        (True, True)
    """

    _env_id = "ragen/Sokoban-v0"
    _request = "Call the tool `move` once per step. You have {max_actions} moves."

    def move(self, direction: str) -> str:
        """Move the player by one cell, pushing a box that is in the way.

        Args:
            direction: Where to go. (choices: ["Up", "Down", "Left", "Right"])

        Returns:
            The reward of this move and the room after it.
        """
        return self._act("direction", direction)


class FrozenLakeTools(_Tools):
    """FrozenLake with one tool, `move`.

    Arguments:
        max_actions: Moves per episode.
        idle_penalty: Reward of an episode without a single legal action; at most 0.
        luck_seed: Of the luck that an instance has where `reset` gets no `dynamics_seed`; `None`
            draws it from the operating system.
        env_kwargs: Arguments of `ragen/FrozenLake-v0`.

    Example:
        >>> lake = FrozenLakeTools(is_slippery=False)
        >>> _ = lake.reset(seed=0)
        >>> print(lake.move("left").split()[1])
        0.00
    """

    _env_id = "ragen/FrozenLake-v0"
    _request = "Call the tool `move` once per step. You have {max_actions} moves."

    def move(self, direction: str) -> str:
        """Walk by one cell over the ice.

        Args:
            direction: Where to go. (choices: ["Left", "Down", "Right", "Up"])

        Returns:
            The reward of this move and the lake after it.
        """
        return self._act("direction", direction)


class BanditTools(_Tools):
    """Bandit with one tool, `pull`, that can be called once.

    Arguments:
        max_actions: Without effect, since one pull ends the episode.
        idle_penalty: Reward of an episode without a pull; at most 0.
        luck_seed: Of the luck that an instance has where `reset` gets no `dynamics_seed`; `None`
            draws it from the operating system.
        env_kwargs: Arguments of `ragen/Bandit-v0`.

    Example:
        >>> bandit = BanditTools()
        >>> _ = bandit.reset(seed=0)
        >>> _ = bandit.pull("Phoenix")
        >>> bandit.get_reward(), bandit.done
        (0.15, True)
    """

    _env_id = "ragen/Bandit-v0"
    _request = "Call the tool `pull` once."

    def pull(self, arm: str) -> str:
        """Pull one of the arms.

        Args:
            arm: Name of the arm, as the task gives it.

        Returns:
            The reward and which arm was pulled.
        """
        return self._act("arm", arm)


def environment_success(environments: list[Any], **kwargs: Any) -> list[float]:
    """Return 1.0 per solved episode, else 0.0; a reward function for TRL.

    With weight 0 it logs the success rate and trains nothing, while `get_reward` pays:
    `GRPOTrainer(reward_funcs=environment_success, ...)` and `GRPOConfig(reward_weights=[0.0], ...)`.

    Args:
        environments: The environments of the rollouts, as TRL passes them.
        kwargs: What TRL passes besides; without effect.

    Raises:
        TypeError: If one of them does not say whether it is solved.
    """
    is_list = isinstance(environments, Sequence)
    if not is_list or not all(hasattr(each, "success") for each in environments):
        raise TypeError(
            f"`environments` must be a list of environments with `success`, got "
            f"{show(environments)}. Pass instances of the classes of this module."
        )
    return [float(environment.success) for environment in environments]


def _has_text(prompt: Any) -> bool:
    """Tell whether the last message of a conversation has content that a text is appended to."""
    if prompt is None:
        return False
    is_list = isinstance(prompt, list | tuple)
    last = prompt[-1] if is_list and prompt else {"content": ""}
    content = last.get("content", 0) if isinstance(last, Mapping) else 0
    if not is_list or not isinstance(content, str | list | tuple | None):
        raise TypeError(
            f"`prompt` must be a list of messages with `role` and `content`, got {show(prompt)}. "
            "Leave it out where there is no conversation."
        )
    return bool(content)
