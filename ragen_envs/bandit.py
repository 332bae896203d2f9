"""Two named arms, one pull: the smallest task with a risky better choice."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from ragen_envs.argument_checks import check_number, show
from ragen_envs.rendering import Picture, draw_board
from ragen_envs.text_env import TextEnv, Transition
from ragen_envs.text_space import SharedText
from ragen_envs.tiles import arm_tiles
from ragen_envs.visible_text import visible_form


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: it pays `reward` with `probability` and 0 otherwise."""

    name: str
    reward: float
    probability: float

    @property
    def expected_reward(self) -> float:
        """Mean of what one pull pays."""
        return self.reward * self.probability

    def draw_reward(self, rng: np.random.Generator) -> float:
        """Draw what one pull pays; an arm that always pays draws nothing from `rng`."""
        if self.probability == 1.0 or rng.random() < self.probability:
            return self.reward
        return 0.0


class BanditEnv(TextEnv):
    """Choose one of two arms by its name and pull it once (RAGEN, arXiv:2504.20073, section 3).

    ## Observation
    The two arms in this episode's order, `Arms: Dragon, Phoenix.`, and after the pull also which
    one it was, `Arms: Dragon, Phoenix. Pulled: Dragon.`. The order is drawn at every reset.

    ## Actions
    | index | name |
    |---|---|
    | 0 | the arm that the observation names first |
    | 1 | the arm that the observation names second |

    ## Reward
    With the default arguments:

    | reward | when |
    |---|---|
    | 0.15 | the low arm was pulled |
    | 1.0 | the high arm was pulled and paid (probability 0.25) |
    | 0.0 | the high arm was pulled and did not pay |

    ## Episode end
    Terminated after the one pull. Success means that the high arm was pulled, whatever it paid.

    ## Info
    | key | type | meaning |
    |---|---|---|
    | `success` | `bool` | the high arm was pulled |
    | `action_is_effective` | `bool` | an arm was pulled: `True` after the step |
    | `arm` | `str` or `None` | name of the arm that was pulled; `None` after reset |

    ## Arguments
    `low_arm_name`, `high_arm_name`: one line of text each, different also if case, spaces and
    the composition of characters are ignored.
    `low_arm_reward`: what the low arm always pays.
    `high_arm_reward`, `high_arm_probability`: what the high arm pays and how often; else it pays 0.
    `render_mode`: `"ansi"`, `"rgb_array"` or `None`.

    ## Versions
    v0: first version.

    Attributes:
        arms: The two arms in this episode's order.
        high_arm: The arm whose pull counts as success.
        pulled: The arm that was pulled in this episode, or `None`.
    """

    def __init__(
        self,
        *,
        low_arm_name: str = "Phoenix",
        high_arm_name: str = "Dragon",
        low_arm_reward: float = 0.15,
        high_arm_reward: float = 1.0,
        high_arm_probability: float = 0.25,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode=render_mode)
        _check_name("low_arm_name", low_arm_name)
        _check_name("high_arm_name", high_arm_name)
        if _look(low_arm_name) == _look(high_arm_name):
            raise ValueError(
                "`low_arm_name` and `high_arm_name` must differ by more than case, spaces and the "
                f"composition of characters, got {show(low_arm_name, write=ascii)} and "
                f"{show(high_arm_name, write=ascii)}. Rename one."
            )
        low_arm = Arm(low_arm_name, check_number("low_arm_reward", low_arm_reward), 1.0)
        self.high_arm = Arm(
            high_arm_name,
            check_number("high_arm_reward", high_arm_reward),
            check_number("high_arm_probability", high_arm_probability, minimum=0, maximum=1),
        )
        # Alphabetical, so that nothing known before the first reset tells the better arm.
        first, second = sorted((low_arm, self.high_arm), key=lambda arm: arm.name.casefold())
        self._set_order(first, second)
        self.task_description = _describe(first.name, second.name)
        self.action_space = spaces.Discrete(2)
        self.observation_space = _text_space((first, second))

    def _set_order(self, first: Arm, second: Arm) -> None:
        self.arms = (first, second)
        self.action_names = (first.name, second.name)
        self.pulled: Arm | None = None

    def _start(self) -> None:
        first, second = sorted(self.arms, key=lambda arm: arm.name.casefold())
        if self.np_random.random() < 0.5:
            first, second = second, first
        self._set_order(first, second)

    def _advance(self, action: int) -> Transition:
        self.pulled = self.arms[action]
        reward = self.pulled.draw_reward(self.np_random)
        return Transition(reward=reward, terminated=True, is_effective=True)

    def _observe(self) -> str:
        return _write(self.arms, self.pulled)

    def _is_success(self) -> bool:
        return self.pulled is self.high_arm

    def _details(self) -> dict[str, Any]:
        return {"arm": None if self.pulled is None else self.pulled.name}

    def _draw(self) -> Picture:
        kinds = [
            f"{place}_pulled" if arm is self.pulled else place
            for place, arm in zip(("first", "second"), self.arms, strict=True)
        ]
        return draw_board([kinds], arm_tiles())


def _write(arms: tuple[Arm, Arm], pulled: Arm | None) -> str:
    text = f"Arms: {arms[0].name}, {arms[1].name}."
    return text if pulled is None else f"{text} Pulled: {pulled.name}."


def _text_space(arms: tuple[Arm, Arm]) -> SharedText:
    # The order of the arms changes neither the characters nor the lengths.
    texts = [_write(arms, pulled) for pulled in (None, *arms)]
    return SharedText(
        min_length=min(map(len, texts)),
        max_length=max(map(len, texts)),
        charset="".join(sorted(set().union(*texts))),
    )


def _describe(first_name: str, second_name: str) -> str:
    return (
        f"There are two arms, {first_name} and {second_name}, and you may pull one of them, once. "
        "What they pay is not told and can depend on luck; their names are the only hint. "
        "Pull the arm that you expect to pay more on average."
    )


def _check_name(argument: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"`{argument}` must be a string, got {show(name)}.")
    if not visible_form(name) or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"`{argument}` must be one line of visible text without spaces around it, got "
            f"{show(name, write=ascii)}."
        )


def _look(name: str) -> str:
    return visible_form(name).replace(" ", "")
