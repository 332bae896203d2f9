"""From episodes to numbers: one record per episode, one summary per environment."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ragen_trl.evaluate.records import EpisodeRecord
from ragen_trl.statistics import pass_at_k, wilson_interval
from ragen_trl.trajectory import Trajectory


def record_episode(
    trajectory: Trajectory, *, env: str, sample: int, error: str | None = None
) -> EpisodeRecord:
    """Keep of an episode what evaluations count.

    Args:
        trajectory: The episode.
        env: Name of the environment in the evaluation.
        sample: Number of the episode among those of its start state.
        error: Why it was not played to its end, if it was not.
    """
    return EpisodeRecord(
        env=env,
        seed=trajectory.seed,
        sample=sample,
        success=trajectory.success,
        reward=trajectory.total_reward,
        turns=len(trajectory.turns),
        valid_turns=sum(turn.is_valid for turn in trajectory.turns),
        actions=sum(len(turn.executed_actions) for turn in trajectory.turns),
        effective_actions=trajectory.num_effective_actions,
        response_tokens=trajectory.num_action_tokens,
        error=error,
    )


@dataclass(frozen=True)
class EnvSummary:
    """What came out in one environment; episodes with an error are counted, and nothing else.

    Attributes:
        num_episodes: Episodes that were played to their end.
        num_errors: Episodes that were not.
        success_rate: Share of solved episodes. This and all averages below are NaN without episodes.
        success_rate_low: Lower end of its 95 % Wilson interval, over episodes.
        success_rate_high: Upper end.
        pass_at_k: By k: probability that one of k episodes from a start state solves it, averaged
            over the start states with at least k episodes. Unbiased; see `statistics.pass_at_k`.
        reward: Return per episode, format penalties included.
        turns: Replies per episode.
        actions: Executed actions per episode.
        valid_reply_ratio: Share of replies that were well-formed and held legal actions only.
        effective_action_ratio: Share of executed actions that changed the state.
        response_length: Tokens per reply.
    """

    num_episodes: int
    num_errors: int
    success_rate: float
    success_rate_low: float
    success_rate_high: float
    pass_at_k: dict[int, float]
    reward: float
    turns: float
    actions: float
    valid_reply_ratio: float
    effective_action_ratio: float
    response_length: float

    def to_dict(self) -> dict[str, Any]:
        """Return what a JSON file holds: NaN becomes `None`, and keys become text."""
        values = {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(self).items()
        }
        return values | {"pass_at_k": {str(k): rate for k, rate in self.pass_at_k.items()}}


def summarize(records: Iterable[EpisodeRecord]) -> EnvSummary:
    """Average the episodes of one environment."""
    records = list(records)
    played = [record for record in records if record.error is None]
    num_episodes, num_solved = len(played), sum(record.success for record in played)
    num_turns = sum(record.turns for record in played)
    num_actions = sum(record.actions for record in played)

    def per_episode(total: float) -> float:
        return total / num_episodes if played else math.nan

    def share(part: int, whole: int) -> float:
        return part / max(whole, 1) if played else math.nan

    low, high = wilson_interval(num_solved, num_episodes)
    return EnvSummary(
        num_episodes=num_episodes,
        num_errors=len(records) - num_episodes,
        success_rate=per_episode(num_solved),
        success_rate_low=low,
        success_rate_high=high,
        pass_at_k=_pass_rates(played),
        reward=per_episode(sum(record.reward for record in played)),
        turns=per_episode(num_turns),
        actions=per_episode(num_actions),
        valid_reply_ratio=share(sum(record.valid_turns for record in played), num_turns),
        effective_action_ratio=share(
            sum(record.effective_actions for record in played), num_actions
        ),
        response_length=share(sum(record.response_tokens for record in played), num_turns),
    )


def _pass_rates(played: Sequence[EpisodeRecord]) -> dict[int, float]:
    """Estimate pass@k for k = 2, 4, 8, ... and the number of samples; empty for one sample."""
    by_seed: dict[int, list[bool]] = {}
    for record in played:
        by_seed.setdefault(record.seed, []).append(record.success)
    most = max(map(len, by_seed.values()), default=1)
    powers = [2**i for i in range(1, most.bit_length()) if 2**i < most]
    rates = {}
    for k in [*powers, most] if most > 1 else []:
        passes = [pass_at_k(len(won), sum(won), k) for won in by_seed.values() if len(won) >= k]
        rates[k] = float(np.mean(passes))
    return rates
