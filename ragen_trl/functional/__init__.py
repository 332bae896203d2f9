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
from ragen_trl.functional.filtering import group_scores, select_groups
from ragen_trl.functional.losses import (
    PolicyLoss,
    clipped_policy_loss,
    importance_weights,
    kl_k3,
    row_weights,
)
from ragen_trl.functional.masking import masked_mean, masked_sum

__all__ = [
    "PolicyLoss",
    "clipped_policy_loss",
    "group_advantages",
    "group_scores",
    "has_no_variance",
    "importance_weights",
    "kl_k3",
    "masked_mean",
    "masked_sum",
    "row_weights",
    "select_groups",
]
