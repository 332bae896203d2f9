"""A playing trainer that reads its episodes again, to know how probable each sampled token is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ragen_trl.completions import can_share_prompts, score_tokens
from ragen_trl.functional import importance_weights
from ragen_trl.playing_trainer import PlayingTrainer
from ragen_trl.trl_compat import disable_gradient_checkpointing, use_adapter


class ScoringTrainer(PlayingTrainer):
    """PlayingTrainer that scores batches of episodes with the policy, and with its reference."""

    @contextmanager
    def _scoring(self) -> Iterator[None]:
        """Let the policy read without learning."""
        checkpointing = disable_gradient_checkpointing(
            self.model, self.args.gradient_checkpointing_kwargs
        )
        with torch.no_grad(), checkpointing, self._policy_at_rest():
            yield

    def _add_fixed_logps(self, batches: list[dict[str, Tensor]], *, is_single_update: bool) -> None:
        """Add the log-probabilities of the policy that played and of the reference, where needed.

        With a single update per rollout the ratio to the policy that played is 1, whatever the
        tokens, and its log-probabilities need no pass of their own.
        """
        are_recorded = self.args.old_logps == "rollout"
        corrects_vllm = (
            self.use_vllm and self.vllm_importance_sampling_correction and not are_recorded
        )
        has_kl_reward = self.args.kl_in_reward_coef != 0.0
        needs_old = corrects_vllm or has_kl_reward or not is_single_update
        for batch in batches:
            if are_recorded:
                batch["old_per_token_logps"] = batch["sampling_per_token_logps"]
            elif needs_old:
                batch["old_per_token_logps"] = self._logps(self.model, batch)
            if corrects_vllm:
                batch["importance_weights"] = importance_weights(
                    batch["old_per_token_logps"],
                    batch["sampling_per_token_logps"],
                    batch["action_mask"],
                    mode=self.vllm_importance_sampling_mode,
                    clip_min=self.vllm_importance_sampling_clip_min,
                    clip_max=self.vllm_importance_sampling_clip_max,
                )
            if self._has_reference:
                batch["ref_per_token_logps"] = self._reference_logps(batch)

    @property
    def _has_reference(self) -> bool:
        return self.beta != 0.0 or self.args.kl_in_reward_coef != 0.0

    def _logps(self, model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        return self._score(model, batch)[0]

    def _score(self, model: Any, batch: Mapping[str, Tensor]) -> list[Tensor]:
        is_alone = self.accelerator.num_processes == 1
        shares = is_alone and can_share_prompts(self.args, self.model)
        with self.accelerator.autocast():
            return score_tokens(model, batch, shares_prompts=shares, in_parts=is_alone)

    def _reference_logps(self, batch: Mapping[str, Tensor]) -> Tensor:
        if self.ref_model is not None:
            return self._logps(self.ref_model, batch)
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name=self._reference.adapter_name):
            return self._logps(self.model, batch)
