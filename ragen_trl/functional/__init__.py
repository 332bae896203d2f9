"""Numeric kernels of StarPO as pure functions of torch tensors.

No trainer, config, logging, collectives, device moves or in-place edits. Tensors come first,
scalars are keyword-only, masks are bool with `True` = counts. Numbers are computed in at least
float32 and come back in the dtype of the input.

Shape letters, used by every docstring of this package:
    P: Env groups, that is initial states (one environment and one seed each).
    G: Rollouts per group (N in the RAGEN paper).
    B: Trajectories, `B = P * G` unless groups differ in size.
    T: Tokens of a row after padding.
    K: Turns of a trajectory.
"""

from ragen_trl.functional.advantages import group_advantages, has_no_variance
from ragen_trl.functional.filtering import group_scores, select_groups, select_within_groups
from ragen_trl.functional.gae import GAEOutput, compute_bi_level_gae, compute_gae
from ragen_trl.functional.importance import importance_weights
from ragen_trl.functional.kl import kl_k1, kl_k2, kl_k3
from ragen_trl.functional.losses import (
    PolicyLoss,
    ValueLoss,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    explained_variance_from_moments,
    row_weights,
)
from ragen_trl.functional.masking import (
    Moments,
    combine_moments,
    masked_mean,
    masked_moments,
    masked_sum,
    whiten,
)
from ragen_trl.functional.mutual_information import Information, measure_information
from ragen_trl.functional.rewards import normalize_returns
from ragen_trl.functional.reweighting import loss_scale, soft_group_weights
from ragen_trl.functional.turn_advantages import (
    discounted_turn_returns,
    gigpo_advantages,
    rebn_advantages,
    turns_to_tokens,
)

__all__ = [
    "GAEOutput",
    "Information",
    "Moments",
    "PolicyLoss",
    "ValueLoss",
    "clipped_policy_loss",
    "clipped_value_loss",
    "combine_moments",
    "compute_bi_level_gae",
    "compute_gae",
    "discounted_turn_returns",
    "explained_variance",
    "explained_variance_from_moments",
    "gigpo_advantages",
    "group_advantages",
    "group_scores",
    "has_no_variance",
    "importance_weights",
    "kl_k1",
    "kl_k2",
    "kl_k3",
    "loss_scale",
    "masked_mean",
    "masked_moments",
    "masked_sum",
    "measure_information",
    "normalize_returns",
    "rebn_advantages",
    "row_weights",
    "select_groups",
    "select_within_groups",
    "soft_group_weights",
    "turns_to_tokens",
    "whiten",
]
