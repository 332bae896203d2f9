import math
from dataclasses import replace

import pytest
import torch

from ragen_trl.update_kl import MAX_EPISODES, first_episodes, update_kl_sums
from tests.training import BANDIT, train_logs


def test_sums_are_over_sampled_tokens_that_have_a_number():
    batch = {
        "sampling_per_token_logps": torch.tensor([[-1.0, 7.0, -2.0], [-0.5, math.nan, -3.0]]),
        "action_mask": torch.tensor([[True, False, True], [True, True, False]]),
    }
    logps = torch.tensor([[-1.5, math.inf, -1.0], [-2.5, -1.0, math.nan]])
    # Lost: 0.5 and -1 in the first row, 2 in the second.
    assert update_kl_sums(logps, batch).tolist() == [1.5, 3.0]


def test_first_episodes_are_few_and_complete():
    batch = {"a": torch.arange(20).reshape(10, 2), "b": torch.arange(10)}
    first = first_episodes(batch)
    assert [tuple(tensor.shape) for tensor in first.values()] == [
        (MAX_EPISODES, 2),
        (MAX_EPISODES,),
    ]
    assert first["b"].tolist() == list(range(MAX_EPISODES))


def score(model, trajectories):
    """Return the log-probabilities of what was sampled, by one plain pass per episode."""
    logps = []
    for trajectory in trajectories:
        ids = torch.tensor([trajectory.prompt_ids + trajectory.completion_ids])
        with torch.no_grad():
            rows = model(ids).logits[0, :-1].log_softmax(-1)
        chosen = rows.gather(1, ids[0, 1:, None])[len(trajectory.prompt_ids) - 1 :, 0]
        logps.append(chosen[torch.tensor(trajectory.action_mask)])
    return torch.cat(logps)


def test_logged_number_is_what_the_sampled_tokens_lost(make_trainer):
    # Four episodes are kept, and all of them are read again.
    trainer = make_trainer(max_steps=1, learning_rate=1e-2, advantage_estimator="grpo")
    kept, queue = [], trainer._queue_updates

    def keep(selection):
        kept.extend(row.trajectory for row in selection.rows)
        queue(selection)

    trainer._queue_updates = keep
    trainer.train()
    (logs,) = train_logs(trainer)
    before = torch.tensor(
        [x for t in kept for x, m in zip(t.logps, t.action_mask, strict=True) if m]
    )
    lost = before - score(trainer.model.eval(), kept)
    assert logs["update_kl"] == pytest.approx(lost.mean().item(), abs=1e-4)
    assert abs(logs["update_kl"]) > 1e-2


def test_policy_that_stands_still_has_not_moved(make_trainer):
    trainer = make_trainer(max_steps=1, learning_rate=0.0)
    trainer.train()
    assert abs(train_logs(trainer)[0]["update_kl"]) < 1e-5


def test_is_logged_once_per_rollout_with_the_last_update(make_trainer):
    trainer = make_trainer(
        max_steps=4, per_device_train_batch_size=8, rollout_filter="none", num_iterations=1
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "policy_loss" in entry]
    assert ["update_kl" in entry for entry in logs] == [False, True] * 2


def test_is_not_logged_where_nothing_was_learned(make_trainer):
    trainer = make_trainer(env=BANDIT, advantage_estimator="grpo")
    play = trainer._play
    trainer._play = lambda *args, **kwargs: [
        replace(t, turn_rewards=[0.15], format_penalties=[0.0], turns=t.turns[:1])
        for t in play(*args, **kwargs)
    ]
    trainer.train()
    assert "update_kl" not in train_logs(trainer)[0]


def test_is_not_logged_while_the_critic_warms_up(make_trainer):
    trainer = make_trainer(max_steps=3, critic_warmup_steps=2)
    trainer.train()
    # The second update is the last of the warm-up; the policy moves in the third.
    assert ["update_kl" in entry for entry in train_logs(trainer)] == [False, False, True]
