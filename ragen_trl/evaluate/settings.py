"""What an evaluation plays and under which limits; the defaults are those of `StarPOConfig`."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from ragen_trl.start_states import check_validation_share


@dataclass(frozen=True)
class EvaluationSettings:
    """Everything that decides the outcome of an evaluation besides model and environments.

    Attributes:
        episodes: Start states per environment; every model meets the same ones.
        samples: Episodes per start state, each with luck of its own.
        seed: Seed from which start states are taken, in ascending order.
        validation_share: Share of the levels that training never plays; start states are taken from
            it alone. 0 takes seeds as they come.
        temperature: Sampling temperature; 0 takes the most probable token.
        max_turns: Replies per episode.
        max_actions_per_turn: Executed actions per reply.
        max_actions_per_episode: Executed actions per episode.
        action_separator: What stands between two actions of a reply.
        think: Whether the reply format has a thinking block.
        format_penalty: Added to the return once per turn whose reply is malformed.
        max_new_tokens_per_turn: A longer reply is cut.
        max_trajectory_tokens: Prompt and completion together; the episode ends there.
        stop_at_answer: End a reply where its answer closes.
        chat_template_kwargs: Further arguments of the chat template, such as `enable_thinking`.

    Raises:
        TypeError: If `chat_template_kwargs` is not what a JSON object may be.
        ValueError: If a number is out of its range.
    """

    episodes: int = field(default=256, metadata={"help": "start states per environment"})
    samples: int = field(default=1, metadata={"help": "episodes per start state"})
    seed: int = field(default=123, metadata={"help": "seed from which start states are taken"})
    validation_share: float = field(
        default=0.1,
        metadata={"help": "share of the levels that training never plays; 0 takes every seed"},
    )
    temperature: float = field(default=0.5, metadata={"help": "0 takes the most probable token"})
    max_turns: int = field(default=5, metadata={"help": "replies per episode"})
    max_actions_per_turn: int = field(default=5, metadata={"help": "executed actions per reply"})
    max_actions_per_episode: int = field(
        default=10, metadata={"help": "executed actions per episode"}
    )
    action_separator: str = field(
        default="||", metadata={"help": "what stands between two actions of a reply"}
    )
    think: bool = field(
        default=True, metadata={"help": "whether the reply format has a thinking block"}
    )
    format_penalty: float = field(
        default=-0.1, metadata={"help": "added to the return per malformed reply"}
    )
    max_new_tokens_per_turn: int = field(default=400, metadata={"help": "a longer reply is cut"})
    max_trajectory_tokens: int = field(
        default=3600, metadata={"help": "tokens of an episode, prompt included"}
    )
    stop_at_answer: bool = field(
        default=False, metadata={"help": "end a reply where its answer closes"}
    )
    chat_template_kwargs: dict[str, Any] | None = field(
        default=None,
        metadata={"help": "further arguments of the chat template, as one JSON object"},
    )

    def __post_init__(self) -> None:
        for name in ("episodes", "samples", "max_new_tokens_per_turn", "max_trajectory_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if self.seed < 0:
            raise ValueError(f"`seed` must be at least 0, got {self.seed}.")
        check_validation_share(self.validation_share)
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"`temperature` must be finite and at least 0, got {self.temperature}. 0 is greedy."
            )
        _check_template_kwargs(self.chat_template_kwargs)

    @property
    def agent_turns(self) -> dict[str, Any]:
        """The arguments of `ragen_envs.AgentTurns` that these settings stand for."""
        return {
            "max_turns": self.max_turns,
            "max_actions_per_turn": self.max_actions_per_turn,
            "max_actions_per_episode": self.max_actions_per_episode,
            "separator": self.action_separator,
            "think": self.think,
            "format_penalty": self.format_penalty,
        }


def _check_template_kwargs(kwargs: Any) -> None:
    # Written into the results, and compared with those of an evaluation that goes on.
    try:
        is_plain = kwargs is None or (isinstance(kwargs, dict) and kwargs == _as_json(kwargs))
    except (TypeError, ValueError):
        is_plain = False
    if not is_plain:
        raise TypeError(
            "`chat_template_kwargs` must be a dict of names and values that JSON can hold, got "
            f"{kwargs!r}. Pass, for instance, {{'enable_thinking': False}}."
        )


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))
