"""What the fields of `StarPOConfig` with many choices may be."""

from typing import Literal

# Estimators that need a critic: token level, with PPO's value function.
CRITIC_ESTIMATORS = ("gae", "bi_level_gae")

AdvantageEstimator = Literal[
    "gae", "bi_level_gae", "grpo", "dr_grpo", "rloo", "reinforce_pp", "gigpo", "rebn"
]
RolloutFilter = Literal[
    "top_k", "top_p", "min_p", "percentile_range", "within_group", "soft", "none"
]
RolloutFilterScore = Literal[
    "reward_std", "reward_mean", "reward_sum", "entropy", "entropy_variance", "response_length"
]
