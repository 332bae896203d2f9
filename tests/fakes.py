"""Stand-ins with injectable behaviour, for tests that must not depend on a real environment."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium import spaces

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.parsing import format_reply

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Step(NamedTuple):
    """What the scripted environment returns for one action."""

    reward: Any = 0.0
    observation: Any = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] | None = None
    error: Exception | None = None


class ScriptedTextEnv(gym.Env[Any, Any]):
    """Play back a list of `Step`, one per action; behind its end nothing happens any more.

    Attributes:
        received: Actions in the order in which they came, over all episodes.
        episode_seeds: The `seed` of every reset.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        script: Sequence[Step] = (),
        *,
        action_names: Any = ("Up", "Down"),
        action_space: spaces.Space[Any] | None = None,
        observation_space: spaces.Space[Any] | None = None,
        first_observation: Any = "start",
        first_info: dict[str, Any] | None = None,
        on_reset: Callable[["ScriptedTextEnv"], None] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.script = list(script)
        self.action_names = action_names
        self.action_space = action_space or spaces.Discrete(len(action_names))
        self.observation_space = observation_space or spaces.Text(
            30, charset=LETTERS + "0123456789 \n"
        )
        self.first_observation = first_observation
        self.first_info = first_info or {}
        self.on_reset = on_reset
        self.render_mode = render_mode
        self.received: list[Any] = []
        self.episode_seeds: list[int | None] = []
        self._clock = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode_seeds.append(seed)
        self._clock = 0
        self._observation = self.first_observation
        if self.on_reset is not None:
            self.on_reset(self)
        return self.first_observation, dict(self.first_info)

    def step(self, action):
        self.received.append(action)
        step = self.script[self._clock] if self._clock < len(self.script) else Step()
        self._clock += 1
        if step.error is not None:
            raise step.error
        if step.observation is not None:
            self._observation = step.observation
        info = dict(step.info or {})
        return self._observation, step.reward, step.terminated, step.truncated, info


class CountedEnvs:
    """Make environments of a class, with these options, and count those that are open."""

    def __init__(self, env_class: Any = ScriptedTextEnv, **options: Any) -> None:
        self.env_class, self.options = env_class, options
        self.num_open = self.num_made = 0

    def __call__(self, **options: Any) -> gym.Env[Any, Any]:
        self.num_open, self.num_made = self.num_open + 1, self.num_made + 1
        counter = self

        class Counted(self.env_class):  # type: ignore[misc, name-defined]  # known at run time
            is_open = True

            def reset(self, **kwargs):
                assert self.is_open
                return super().reset(**kwargs)

            def close(self):
                assert self.is_open
                self.is_open = False
                counter.num_open -= 1

        return Counted(**self.options, **options)

    @contextmanager
    def registered(self) -> Iterator[str]:
        """Give them an id for a while."""
        env_id = "test/Counted-v0"
        gym.register(env_id, self)
        try:
            yield env_id
        finally:
            del gym.registry[env_id]


class UnnamedTextEnv(gym.Env[str, int]):
    """A `Discrete` action space without `action_names`."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Text(5)


class DescribedTextEnv(ScriptedTextEnv):
    """A scripted environment that says what it is about."""

    task_description = "Walk to the door (naïve: 100 %)."


def reply(*actions: str) -> str:
    """Write a reply in the default format."""
    return format_reply(actions, thought="hm")


def start(*steps: Step, agent_turns: Any = None, **kwargs: Any) -> tuple[AgentTurns, Any]:
    """Return an `AgentTurns` after its reset, and the scripted environment inside it."""
    inner = ScriptedTextEnv(steps, **kwargs)
    env = AgentTurns(inner, **(agent_turns or {}))
    env.reset(seed=0)
    return env, inner
