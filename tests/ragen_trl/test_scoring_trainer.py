"""Log-probabilities from before the updates, in whole training runs."""

import pytest

from tests.training import KeepGradients, assert_same_tensors, train_logs


def test_old_logps_of_the_rollout_are_used_when_asked(make_trainer):
    collected = []
    for old_logps in ("recompute", "rollout"):
        gradients = KeepGradients(seed=3)
        trainer = make_trainer(
            callbacks=[gradients], old_logps=old_logps, num_iterations=2, max_steps=2
        )
        batches, compute_loss = [], trainer._compute_loss

        def keep_batch(model, inputs, batches=batches, compute_loss=compute_loss):
            batches.append(inputs)
            return compute_loss(model, inputs)

        trainer._compute_loss = keep_batch
        trainer.train()
        is_recorded = [b["old_per_token_logps"] is b["sampling_per_token_logps"] for b in batches]
        assert is_recorded == [old_logps == "rollout"] * 2
        assert train_logs(trainer)[0]["sampling_logp_difference"] < 1e-5
        collected.append(gradients.steps)
    for recomputed, recorded in zip(*collected, strict=True):
        assert_same_tensors(recorded, recomputed, atol=1e-5)


def test_update_reads_each_prompt_once_and_without_its_logits(make_trainer):
    trainer = make_trainer(advantage_estimator="grpo", rollout_filter_ratio=1.0)
    prompts, seen = set(), []
    compute_loss = trainer._compute_loss

    def watch(model, inputs):
        prompts.update(
            tuple(ids[: int(n)].tolist())
            for ids, n in zip(inputs["input_ids"], inputs["prompt_lengths"], strict=True)
        )
        hook = model.lm_head.register_forward_hook(
            lambda _head, _inputs, logits: seen.append(logits.shape[:2])
        )
        loss = compute_loss(model, inputs)
        hook.remove()
        return loss

    trainer._compute_loss = watch
    trainer.train()
    # TRL's fused head, which scores the replies, does not come by here.
    assert seen == [(len(prompts), 1)]
    assert 1 < len(prompts) < 5


def test_reference_model_is_used_only_with_beta(make_trainer, saved_start):
    trainer = make_trainer(model=saved_start, beta=0.1, max_steps=3)
    trainer.train()
    kl = [logs["kl"] for logs in train_logs(trainer)]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[2] > 1e-5
