"""The signs of collapse: what is watched, by which rule, and what to try. No trainer."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ragen_trl.monitor.rules import (
    AboveStart,
    AtLeast,
    Below,
    BelowBest,
    BelowStart,
    Decline,
    NotFinite,
    Rule,
    Spike,
    noise_of,
)

# What makes a sign harmless: nothing; that the task is solved; that success is near its best after
# it rose, or the task is solved.
Excuse = Literal["none", "solved", "learned"]

# Success rate at which a task counts as solved.
SOLVED = 0.9
# Share of the best success rate from which on a policy counts as near its best.
NEAR_BEST = 0.9
# Least rise of the success rate that counts, and in standard deviations of its noise.
LEAST_RISE, RISE_Z = 0.05, 2.0
_NUM_RECENT, _NUM_AVERAGED = 3, 5
# Of a rate, while there are too few to estimate it: that of a share of 25.
_FIRST_NOISE = 0.1
_SOFTER = "a lower `learning_rate`, a stricter filter (lower `rollout_filter_ratio`)"


@dataclass
class Signal:
    """One sign of collapse.

    Attributes:
        name: What it is called in `collapse.jsonl`.
        metric: What it watches, by its log name.
        meaning: The metric in words.
        rule: When a measurement is bad; holds what it has seen.
        patience: Bad measurements in a row from which on the sign counts as one.
        excuse: When bad measurements are no sign: healthy learning ends with little variance,
            entropy and variety as well.
        source: Where the rule comes from.
        advice: What to try.
    """

    name: str
    metric: str
    meaning: str
    rule: Rule
    patience: int
    excuse: Excuse
    source: str
    advice: str


class SuccessHistory:
    """How well a policy plays, as far as that excuses a sign of collapse.

    Levels are means over iterations, since one iteration plays few start states: the recent level is
    that of the latest three, the best one the highest of five in a row, the first one of the first
    five.
    """

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._best = 0.0

    def add(self, success_rate: float) -> None:
        """Take the success rate of the next iteration."""
        self._rates.append(success_rate)
        self._best = max(self._best, float(np.mean(self._rates[-_NUM_AVERAGED:])))

    def excuses(self, excuse: Excuse) -> bool:
        """Tell whether the policy plays well enough for this excuse."""
        if excuse == "none" or not self._rates:
            return False
        return self.is_solved or (excuse == "learned" and self.is_near_best and self.has_risen)

    @property
    def is_solved(self) -> bool:
        """Whether the recent level is at least `SOLVED`."""
        return self._recent >= SOLVED

    @property
    def is_near_best(self) -> bool:
        """Whether the recent level is at least `NEAR_BEST` of the best one, give or take noise."""
        if not self._rates:
            return True
        return _angle(self._recent) >= _angle(NEAR_BEST * self._best) - self._noise

    @property
    def has_risen(self) -> bool:
        """Whether the recent level is above the first one by `LEAST_RISE` and more than noise."""
        if len(self._rates) < _NUM_AVERAGED + _NUM_RECENT:
            return False
        first = float(np.mean(self._rates[:_NUM_AVERAGED]))
        rise = _angle(self._recent) - _angle(first)
        return self._recent - first > LEAST_RISE and rise > RISE_Z * self._noise

    @property
    def _noise(self) -> float:
        """The std of the difference between a recent level and another one, as an angle."""
        are_enough = len(self._rates) >= _NUM_AVERAGED + _NUM_RECENT
        noise = noise_of(self._rates) if are_enough else _FIRST_NOISE
        return noise * math.sqrt(1 / _NUM_RECENT + 1 / _NUM_AVERAGED)

    @property
    def _recent(self) -> float:
        return float(np.mean(self._rates[-_NUM_RECENT:]))


def _angle(rate: float) -> float:
    """Return the scale on which the noise of a rate does not depend on the rate."""
    return math.asin(math.sqrt(rate))


def default_signals(patience: int = 3) -> list[Signal]:
    """Return the signs that are watched unless told otherwise.

    "RAGEN" is arXiv:2504.20073, "RAGEN-2" arXiv:2604.06268. Where a paper names a sign without a
    number, the number is ours.

    Args:
        patience: Bad measurements in a row that count as a sign, where the source has no number of its
            own.
    """
    return [
        *_variance_signals(),
        *_variety_signals(patience),
        *_format_signals(),
        *_gradient_signals(),
        *_success_signals(),
    ]


def _variance_signals() -> list[Signal]:
    keep = "a stricter filter (lower `rollout_filter_ratio`), more `num_generations`"
    states = "start states that are neither hopeless nor trivial"
    return [
        Signal(
            name="reward_std",
            metric="rollout/in_group_reward_std",
            meaning="the std of returns within groups",
            rule=BelowStart(0.1),
            patience=10,
            excuse="solved",
            source="RAGEN-2, early stopping (a)",
            advice=f"{keep}, {states}, a higher temperature",
        ),
        Signal(
            name="zero_variance",
            metric="rollout/zero_variance_ratio",
            meaning="the share of groups without variance",
            rule=AtLeast(0.9),
            patience=10,
            excuse="solved",
            source="RAGEN (variance falls first); numbers ours",
            advice=f"{states}, `rollout_refill_tries`, more `num_generations`",
        ),
        Signal(
            name="nothing_kept",
            metric="rollout/skipped_update",
            meaning="the share of rollouts that taught nothing",
            rule=AtLeast(1.0),
            patience=5,
            excuse="solved",
            source="RAGEN-2, early stopping (c)",
            advice=f"{states}, `rollout_refill_tries`, a looser filter",
        ),
    ]


def _variety_signals(patience: int) -> list[Signal]:
    explore = f"{_SOFTER}, a higher `entropy_coef`"
    return [
        Signal(
            name="entropy",
            metric="entropy",
            meaning="the entropy of sampled tokens",
            rule=BelowStart(0.25),
            patience=patience,
            excuse="learned",
            source="RAGEN (drops sharply); numbers ours",
            advice=f"{explore}, `epsilon_high` of 0.28 or more",
        ),
        Signal(
            name="response_length",
            metric="rollout/response_length",
            meaning="the length of replies",
            rule=BelowStart(0.5),
            patience=patience,
            excuse="learned",
            source="RAGEN (replies shrink); numbers ours",
            advice=f"{explore}, rewards that depend on the reasoning",
        ),
        Signal(
            name="distinct_ngrams",
            metric="rollout/distinct_ngrams",
            meaning="the share of different word trigrams",
            rule=BelowStart(0.3),
            patience=patience,
            excuse="learned",
            source="RAGEN (replies turn into the same few sentences); numbers ours",
            advice=f"{explore}, more different start states (`num_env_groups`)",
        ),
        Signal(
            name="near_duplicates",
            metric="rollout/near_duplicate_ratio",
            meaning="the share of pairs of replies that are near-duplicates",
            rule=AboveStart(),
            patience=patience,
            excuse="learned",
            source="RAGEN (replies turn into the same few sentences); numbers ours",
            advice=f"{explore}, more different start states (`num_env_groups`)",
        ),
    ]


def _format_signals() -> list[Signal]:
    return [
        Signal(
            name="valid_think",
            metric="rollout/valid_think_ratio",
            meaning="the share of replies with a closed think block that says something",
            rule=Decline(0.3),
            patience=1,
            excuse="none",
            source="RAGEN-2 (watch closed think blocks); numbers ours",
            advice=f"{_SOFTER}, a larger `format_penalty`, more `max_new_tokens_per_turn`",
        ),
        Signal(
            name="valid_replies",
            metric="rollout/valid_reply_ratio",
            meaning="the share of valid replies",
            rule=Decline(0.3),
            patience=1,
            excuse="none",
            source="ours",
            advice=f"{_SOFTER}, a larger `format_penalty`",
        ),
    ]


def _gradient_signals() -> list[Signal]:
    calmer = "a lower `learning_rate`, a lower `max_grad_norm`, fewer `num_iterations`"
    return [
        # It comes before the damage: the rollout of the same update was played before the jump.
        Signal(
            name="policy_jump",
            metric="update_kl",
            meaning="the KL divergence that the updates on one rollout caused (nats per token)",
            rule=AtLeast(1.0),
            patience=1,
            excuse="none",
            source="ours; PPO's implementations stop updates at a KL of some hundredths",
            advice=calmer,
        ),
        Signal(
            name="gradient_spike",
            metric="grad_norm",
            meaning="the gradient norm",
            rule=Spike(4.0),
            patience=2,
            excuse="none",
            source="RAGEN (spikes mark the point of no return); numbers ours",
            advice=calmer,
        ),
        Signal(
            name="gradient_not_finite",
            metric="grad_norm",
            meaning="the gradient norm",
            rule=NotFinite(),
            patience=1,
            excuse="none",
            source="ours",
            advice=f"{calmer}, bf16 in place of fp16",
        ),
    ]


def _success_signals() -> list[Signal]:
    back = "the checkpoint from before, a lower `learning_rate`, a stricter filter"
    return [
        Signal(
            name="success_decline",
            metric="success_rate",
            meaning="the success rate in training",
            rule=Decline(0.25),
            patience=1,
            excuse="none",
            source="RAGEN (reward stalls or falls); numbers ours",
            advice=back,
        ),
        Signal(
            name="validation_decline",
            metric="eval_success_rate",
            meaning="the success rate in evaluation",
            rule=BelowBest(0.75),
            patience=2,
            excuse="none",
            source="RAGEN (reward stalls or falls); numbers ours",
            advice=back,
        ),
        Signal(
            name="validation_failure",
            metric="eval_success_rate",
            meaning="the success rate in evaluation",
            rule=Below(0.01),
            patience=5,
            excuse="none",
            source="RAGEN-2, early stopping (b)",
            advice="easier start states, a warm start by imitation, " + back,
        ),
    ]
