"""What a rollout records: turns and trajectories, with token ids exactly as sampled."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Turn:
    """One exchange between environment and policy.

    Attributes:
        observation: The user message the policy answered.
        reply: The policy's reply as text, without its end-of-turn token.
        actions: Legal actions found in the reply, in order, by name.
        executed_actions: Those of them that were carried out.
        is_valid: Whether the reply was well-formed and held legal actions only.
        state: The environment's own observation before the reply, without the words around it.
    """

    observation: str
    reply: str
    actions: tuple[str, ...]
    executed_actions: tuple[str, ...]
    is_valid: bool
    state: str = ""


@dataclass(frozen=True)
class Trajectory:
    """One episode as one training row.

    `prompt_ids` is everything up to the first generation prompt, `completion_ids` all that follows:
    replies as sampled and, between them, the environment's messages. `prompt_ids` plus
    `completion_ids` up to turn k is exactly what the model read at turn k. The five per-token
    fields have equal length T.

    Attributes:
        env_id: Name of the environment.
        seed: Seed of the start state.
        group_id: Index of the group in its rollout. Given when sampled, never derived from text.
        prompt_ids: Token ids of the first prompt.
        completion_ids: Token ids after it, length T.
        action_mask: `True` where the policy sampled the token, length T.
        turn_index: Turn that sampled the token, counted from 0; -1 outside replies. Length T.
        logps: Log-probability at sampling time, under the whole vocabulary and the sampling
            temperature; 0.0 outside replies. Length T.
        turn_rewards: Sum of the environment's rewards per turn, length K.
        format_penalties: Penalty per turn (0.0 or negative), length K.
        terminated: Whether the task itself ended.
        truncated: Whether turns, actions, steps or tokens ran out before that.
        success: Whether the task was solved.
        turns: The exchanges as text, length K.
        num_effective_actions: Executed actions that changed the state, over the episode.
        final_state: The environment's own observation at the end of the episode.
    """

    env_id: str
    seed: int
    group_id: int
    prompt_ids: list[int]
    completion_ids: list[int]
    action_mask: list[bool]
    turn_index: list[int]
    logps: list[float]
    turn_rewards: list[float]
    format_penalties: list[float]
    terminated: bool
    truncated: bool
    success: bool
    turns: list[Turn] = field(repr=False)
    num_effective_actions: int = 0
    final_state: str = ""

    def __post_init__(self) -> None:
        token_lengths = {
            len(self.completion_ids),
            len(self.action_mask),
            len(self.turn_index),
            len(self.logps),
        }
        turn_lengths = {len(self.turn_rewards), len(self.format_penalties), len(self.turns)}
        if len(token_lengths) > 1 or len(turn_lengths) > 1:
            raise ValueError(
                "A trajectory's per-token fields must have one length and its per-turn fields "
                f"another, got {sorted(token_lengths)} and {sorted(turn_lengths)}."
            )

    @property
    def total_reward(self) -> float:
        """Return of the episode: all turn rewards plus all format penalties."""
        return float(sum(self.turn_rewards) + sum(self.format_penalties))

    @property
    def rewards_by_turn(self) -> list[float]:
        """Reward of every turn, its format penalty included."""
        pairs = zip(self.turn_rewards, self.format_penalties, strict=True)
        return [reward + penalty for reward, penalty in pairs]

    @property
    def num_action_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.action_mask)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the per-token fields as numpy arrays of shape (T,)."""
        return {
            "completion_ids": np.asarray(self.completion_ids, dtype=np.int64),
            "action_mask": np.asarray(self.action_mask, dtype=bool),
            "turn_index": np.asarray(self.turn_index, dtype=np.int64),
            "logps": np.asarray(self.logps, dtype=np.float32),
        }

    def to_record(self) -> dict[str, Any]:
        """Return what a log line holds: everything but the token ids, with their counts instead."""
        return {
            "env_id": self.env_id,
            "seed": self.seed,
            "group_id": self.group_id,
            "total_reward": self.total_reward,
            "success": self.success,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "prompt_tokens": len(self.prompt_ids),
            "completion_tokens": len(self.completion_ids),
            "action_tokens": self.num_action_tokens,
            "final_state": self.final_state,
            "turns": [
                {
                    **asdict(turn),
                    "reward": reward,
                    "format_penalty": penalty,
                    "action_tokens": self.turn_index.count(k),
                }
                for k, (turn, reward, penalty) in enumerate(
                    zip(self.turns, self.turn_rewards, self.format_penalties, strict=True)
                )
            ],
        }
