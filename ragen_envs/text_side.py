"""A text side for environments whose observations are numbers."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import data_equivalence

from ragen_envs.agent_checks import (
    check_action_names,
    check_charset,
    check_describe,
    check_limit,
    check_task_description,
)
from ragen_envs.agent_turns import MESSAGE_CHARSET
from ragen_envs.argument_checks import check_env, check_options, check_seed, is_index, show
from ragen_envs.parsing import DEFAULT_SEPARATOR
from ragen_envs.text_env import DYNAMICS_SEED, check_dynamics_seed
from ragen_envs.text_space import SharedText
from ragen_envs.toy_text import find_toy_text

MAX_TEXT_LENGTH = 10_000

_ESCAPE = re.compile(r"\x1b\[([0-9;:?]*)([@-~])")
_BRACKETS = {"highlight": "[]", "colour": "()"}


def strip_colours(text: str) -> str:
    r"""Turn the colours of terminal text into brackets, and take every escape sequence out.

    Example:
        >>> strip_colours("S\x1b[41mF\x1b[0mH")
        'S[F]H'
        >>> strip_colours("\x1b[34;1mR\x1b[0m is the passenger")
        '(R) is the passenger'
    """
    parts, open_marks, end = [], list[str](), 0
    for escape in _ESCAPE.finditer(text):
        parts.append(text[end : escape.start()])
        end = escape.end()
        if escape[2] != "m":
            continue
        kind = _read_kind(escape[1])
        if kind == "reset":
            parts += [_BRACKETS[mark][1] for mark in reversed(open_marks)]
            open_marks.clear()
        elif kind in _BRACKETS and kind not in open_marks:
            parts.append(_BRACKETS[kind][0])
            open_marks.append(kind)
    parts += [text[end:], *(_BRACKETS[mark][1] for mark in reversed(open_marks))]
    return "".join(parts)


def _read_kind(parameters: str) -> str:
    """Tell what a colour sequence does: "highlight", "colour", "reset" or nothing of these."""
    kinds = set()
    for number in parameters.replace(":", ";").split(";"):
        code = int(number) if number.isdigit() else 0
        if code in range(40, 49) or code in range(100, 108):
            kinds.add("highlight")
        elif code in range(30, 39) or code in range(90, 98):
            kinds.add("colour")
        elif code in (0, 39, 49):
            kinds.add("reset")
        if code in (38, 48):  # the numbers behind these two say which colour
            break
    return next((kind for kind in ("highlight", "colour", "reset") if kind in kinds), "")


class TextSide(gym.Wrapper[str, int, Any, Any], gym.utils.RecordConstructorArgs):
    """What `from_gym` returns: text observations, named actions, and the info keys of this package.

    Info: the environment's own, and

    | key | type | meaning |
    |---|---|---|
    | `success` | bool | the task was solved; see `from_gym` |
    | `action_is_effective` | bool | the observation changed or the episode terminated |

    Attributes:
        action_names: Names by action index.
        option_names: Keys of `options` that `reset` reads itself.
        task_description: Rules and symbols in plain words.
    """

    option_names: tuple[str, ...] = (DYNAMICS_SEED,)

    def __init__(
        self,
        env: gym.Env[Any, Any],
        action_names: Sequence[str] | None = None,
        *,
        task_description: str = "",
        describe: Callable[[Any], str] | None = None,
        charset: str | None = None,
        max_length: int = MAX_TEXT_LENGTH,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            action_names=action_names,
            task_description=task_description,
            describe=describe,
            charset=charset,
            max_length=max_length,
        )
        check_env(env)
        _check_not_nested(env)
        gym.Wrapper.__init__(self, env)
        self._label = str(type(env.unwrapped).__name__ if env.spec is None else env.spec.id)
        self._words = find_toy_text(env.unwrapped)
        self._describe = check_describe(describe)
        self._is_ansi = describe is None and env.render_mode == "ansi"
        self._before: Any = None
        self.action_names = self._choose_action_names(action_names)
        check_task_description(task_description, self._label)
        if not task_description and self._words is not None:
            task_description = self._words.explain(env.unwrapped, self._is_ansi)
        self.task_description = task_description
        self.observation_space = SharedText(
            min_length=0,
            max_length=check_limit("max_length", max_length),
            charset=check_charset(charset) or "".join(sorted(MESSAGE_CHARSET)),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Reset the environment; `options` other than `dynamics_seed` go on to it.

        `dynamics_seed` replaces the environment's generator once the start is made. What an
        environment draws from elsewhere stays as it is.

        Raises:
            TypeError: If `seed` or `dynamics_seed` is no integer, or `options` no dict.
            ValueError: If a seed is negative.
        """
        seed = check_seed(seed)
        own = check_options(options)
        dynamics_seed = own.pop(DYNAMICS_SEED, None)
        if dynamics_seed is not None:
            dynamics_seed = check_dynamics_seed(dynamics_seed)
        self._before, info = self.env.reset(seed=seed, options=own or None)
        if dynamics_seed is not None:
            self.env.unwrapped.np_random, _ = seeding.np_random(dynamics_seed)
        own_info = {"success": False, "action_is_effective": False}
        return self._write(self._before), {**own_info, **info}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Step the environment.

        Raises:
            InvalidAction: If `action` is not in the action space.
        """
        observation, reward, terminated, truncated, info = self.env.step(self._check_action(action))
        is_changed = not data_equivalence(self._before, observation, exact=True)
        self._before = observation
        own_info = {
            "success": bool(terminated) and self._is_success(float(reward)),
            "action_is_effective": bool(is_changed or terminated),
        }
        text = self._write(observation)
        return text, float(reward), bool(terminated), bool(truncated), {**own_info, **info}

    def _check_action(self, action: Any) -> int:
        space = self.env.action_space
        assert isinstance(space, spaces.Discrete)  # by `_choose_action_names`
        first, num_actions = int(space.start), int(space.n)
        if not is_index(action, first, num_actions):
            raise InvalidAction(
                f"`action` must be an integer in [{first}, {first + num_actions}), got "
                f"{show(action)}. The names in order are {self.action_names}."
            )
        return int(action)

    def _choose_action_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        space = self.env.action_space
        if not isinstance(space, spaces.Discrete):
            raise TypeError(
                f"`env` must have a Discrete action space, but that of {self._label} is {space}. "
                "Wrap it in an ActionWrapper."
            )
        if names is None and self._words is not None:
            return self._words.action_names
        if names is None:
            raise ValueError(
                f"`action_names` must be given for {self._label}, got None. Pass a tuple of "
                f"{space.n} names, one per action."
            )
        check_action_names(names, int(space.n), DEFAULT_SEPARATOR, self._label)
        return tuple(names)

    def _is_success(self, reward: float) -> bool:
        if self._words is None:
            return reward > 0
        return self._words.is_success(self.env.unwrapped, reward)

    def _write(self, observation: Any) -> str:
        text = self._choose_text(observation)
        if not isinstance(text, str):
            raise TypeError(
                f"`describe` must return a str, got {show(text)} for {self._label}. "
                "Put the observation into words."
            )
        if not self.observation_space.contains(text):
            space = self.observation_space
            assert isinstance(space, spaces.Text)  # set above
            unknown = "".join(sorted(set(text) - space.character_set))
            raise ValueError(
                f"The text of an observation of {self._label} must fit its space, got "
                f"{len(text)} characters, {show(unknown)} among them unknown. Pass a larger "
                "`max_length` or a `charset` that holds all characters."
            )
        return text

    def _choose_text(self, observation: Any) -> str:
        if self._describe is not None:
            return self._describe(observation)
        bare = self.env.unwrapped
        if self._is_ansi:
            picture: Any = self.env.render()
            if not isinstance(picture, str):
                raise TypeError(
                    f"`env.render()` must return a str with `render_mode='ansi'`, got "
                    f"{show(picture)} for {self._label}. Pass `describe`."
                )
            notes = "" if self._words is None else self._words.annotate(bare, observation)
            return "\n".join(filter(None, [strip_colours(picture).strip("\n"), notes]))
        if self._words is not None:
            return self._words.describe(bare, observation)
        return str(_to_plain(observation))


def _check_not_nested(env: gym.Env[Any, Any]) -> None:
    """Refuse a text side of a text side: the outer one would describe texts."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, TextSide):
            raise TypeError(
                f"`env` must not have a text side already, got {show(env)}. Use it as it is."
            )
        inner = inner.env


def _to_plain(observation: Any) -> Any:
    """Turn numpy values into Python's, so that they read as numbers and not as constructor calls."""
    if isinstance(observation, np.ndarray | np.generic):
        return observation.tolist()
    if isinstance(observation, tuple):
        return tuple(_to_plain(part) for part in observation)
    if isinstance(observation, dict):
        return {key: _to_plain(part) for key, part in observation.items()}
    return observation


def from_gym(
    env: gym.Env[Any, Any],
    action_names: Sequence[str] | None = None,
    *,
    task_description: str = "",
    describe: Callable[[Any], str] | None = None,
    charset: str | None = None,
    max_length: int = MAX_TEXT_LENGTH,
) -> TextSide:
    """Give an environment with a Discrete action space a text side.

    Afterwards `AgentTurns` and `ragen_trl.StarPOTrainer` take it. FrozenLake, CliffWalking, Taxi and
    Blackjack of Gymnasium come with names, rules and descriptions; any other environment needs
    `action_names` and should have a `task_description`.

    The text of an observation is, in this order: what `describe` returns; with
    `render_mode="ansi"` the picture, in which a highlighted part becomes `[part]` and a coloured
    one `(part)`; the built-in description; the observation as Python writes it.

    Success, which is `info["success"]`: what the environment itself says there; else Taxi: the
    passenger was delivered; CliffWalking: the goal was reached; FrozenLake: the goal was reached,
    whatever `reward_schedule` pays; Blackjack and all others: the episode terminated with a
    positive reward.

    Seeds go on to the environment. `reset(options={"dynamics_seed": n})` gives it a new generator
    once the start is made, so that one start can be played with independent luck; in Blackjack the
    dealer's hidden card belongs to the start.

    Args:
        env: The environment; wrappers such as a step limit stay in force.
        action_names: Names by action index; `None` for the built-in ones.
        task_description: Rules in plain words; empty for the built-in one.
        describe: Puts an observation into text.
        charset: Characters that a text may hold; `None` for printable ASCII and the line break.
        max_length: Most characters that a text may have.

    Raises:
        TypeError: If the action space is not Discrete, `env` has a text side already or an argument
            has the wrong type.
        ValueError: If action names are missing, ambiguous or not one per action. Later, from
            `reset` and `step`, if a text is not in the declared space.

    Example:
        >>> env = from_gym(gym.make("FrozenLake-v1", is_slippery=False))
        >>> print(env.reset(seed=0)[0])
        PFFF
        FHFH
        FFFH
        HFFG
        >>> env.action_names
        ('Left', 'Down', 'Right', 'Up')
    """
    return TextSide(
        env,
        action_names,
        task_description=task_description,
        describe=describe,
        charset=charset,
        max_length=max_length,
    )
