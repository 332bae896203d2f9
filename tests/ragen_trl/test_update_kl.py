import math

import pytest
import torch

from ragen_trl.update_kl import MAX_EPISODES, AfterUpdate, as_finite, spread_rows, update_kl_sums
from tests.training import (
    BANDIT,
    assert_same_tensors,
    copy_tensors,
    make_lora,
    pay_alike,
    train_logs,
)


def test_sums_are_over_sampled_tokens_that_have_a_number():
    batch = {
        "old_per_token_logps": torch.full((2, 3), -9.0),
        "sampling_per_token_logps": torch.tensor([[-1.0, 7.0, -2.0], [-0.5, math.nan, -3.0]]),
        "action_mask": torch.tensor([[True, False, True], [True, True, False]]),
    }
    logps = torch.tensor([[-1.5, math.inf, -1.0], [-2.5, -1.0, math.nan]])
    # Lost: 0.5 and -1 in the first row, 2 in the second.
    assert update_kl_sums(logps, batch).tolist() == [1.5, 3.0]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, [0]),
        (16, list(range(16))),
        (17, list(range(0, 17, 2))),
        (64, list(range(0, 64, 4))),
    ],
)
def test_rows_that_are_read_again_are_spread_over_all(count, expected):
    assert spread_rows(list(range(count))) == expected
    assert len(expected) <= MAX_EPISODES


def test_number_that_is_not_finite_becomes_the_largest_one():
    largest = torch.finfo(torch.float64).max
    assert [as_finite(x) for x in (0.5, math.nan, math.inf)] == [0.5, largest, largest]


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


def test_is_logged_before_every_save(make_trainer):
    trainer = make_trainer(
        max_steps=3, num_iterations=3, save_strategy="steps", save_steps=2, learning_rate=1e-2
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "policy_loss" in entry]
    assert ["update_kl" in entry for entry in logs] == [False, True, True]


def test_is_not_logged_where_nothing_was_learned(make_trainer):
    trainer = make_trainer(env=BANDIT, advantage_estimator="grpo", max_steps=2)
    played, play = [], trainer._play

    def equal_in_the_second_rollout(*args, **kwargs):
        played.append(play(*args, **kwargs))
        return pay_alike(played[1]) if len(played) == 2 else played[0]

    trainer._play = equal_in_the_second_rollout
    trainer.train()
    assert ["update_kl" in entry for entry in train_logs(trainer)] == [True, False]


def test_policy_stands_still_while_the_critic_warms_up(make_trainer):
    trainer = make_trainer(max_steps=3, critic_warmup_steps=2, learning_rate=1e-2)
    trainer.train()
    moved = [abs(entry["update_kl"]) > 1e-5 for entry in train_logs(trainer)]
    assert moved == [False, False, True]


def test_tokens_without_a_number_measure_nothing(make_trainer):
    trainer = make_trainer()
    trainer.train()
    trainer._metrics["train"].clear()
    trainer._watched["sampling_per_token_logps"].fill_(math.nan)
    trainer._measure_update()
    assert "update_kl" not in trainer._metrics["train"]


def test_measuring_changes_nothing_in_training(make_trainer):
    weights = []
    for is_measured in (True, False):
        # The adapter has dropout, which draws random numbers wherever the model is left training.
        trainer = make_trainer(peft_config=make_lora(), disable_dropout=False, max_steps=2)
        if not is_measured:
            trainer.remove_callback(AfterUpdate)
        torch.manual_seed(5)
        trainer.train()
        assert ("update_kl" in train_logs(trainer)[0]) is is_measured
        weights.append(copy_tensors(trainer.model.named_parameters()) | {"rng": torch.rand(3)})
    assert_same_tensors(*weights, atol=0.0)
