"""Learning rates of policy and critic over skipped updates, warm-ups and repeated training."""

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from ragen_trl.schedules import begin_later
from tests.training import BANDIT, pay_alike, train_logs

LINEAR = {
    "lr_scheduler_type": "linear",
    "learning_rate": 1e-3,
    "critic_learning_rate": 1e-2,
    "advantage_estimator": "gae",
}


def make_scheduler():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=8.0)
    return LambdaLR(optimizer, lambda step: 2.0**-step)


def rates(scheduler, num_steps):
    found = []
    for _ in range(num_steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_begin_later_holds_the_first_rate():
    scheduler = make_scheduler()
    begin_later(scheduler, 2)
    assert rates(scheduler, 5) == [8.0, 8.0, 8.0, 4.0, 2.0]
    # A schedule that is read back goes on where it was.
    again = make_scheduler()
    begin_later(again, 2)
    again.load_state_dict(scheduler.state_dict())
    again.step()
    assert again.get_last_lr() == [0.5]


def test_begin_later_leaves_schedules_of_a_metric_alone():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=8.0)
    begin_later(ReduceLROnPlateau(optimizer), 2)
    assert optimizer.param_groups[0]["lr"] == 8.0


def skip_from(trainer, first, last):
    """Let the rollouts between the two, counted from 0, teach nothing."""
    original, count = trainer._play, iter(range(100))

    def play(*args, **kwargs):
        played = original(*args, **kwargs)
        return pay_alike(played) if first <= next(count) <= last else played

    trainer._play = play


def test_skipped_updates_move_the_critics_schedule_as_the_policys(make_trainer):
    trainer = make_trainer(BANDIT, **LINEAR, max_steps=6)
    skip_from(trainer, 1, 3)
    trainer.train()
    logs = train_logs(trainer)
    assert [entry["rollout/skipped_update"] for entry in logs] == [0, 1, 1, 1, 0, 0]
    both = [(e["learning_rate"], e["critic/learning_rate"]) for e in logs if "value_loss" in e]
    assert [critic / policy for policy, critic in both] == pytest.approx([10.0] * 3)
    assert [policy for policy, _ in both] == pytest.approx([1e-3, 1e-3 / 3, 1e-3 / 6])
    assert trainer.critic.scheduler.get_last_lr() == [0.0, 0.0]


def test_skipped_updates_of_several_micro_batches_count_once(make_trainer):
    options = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}
    trainer = make_trainer(BANDIT, **LINEAR, **options, max_steps=4)
    skip_from(trainer, 0, 2)
    trainer.train()
    (learned,) = [entry for entry in train_logs(trainer) if "value_loss" in entry]
    assert learned["critic/learning_rate"] == pytest.approx(1e-2 / 4)


def test_second_training_begins_both_schedules_anew_and_plays_anew(make_trainer):
    # Two updates on a rollout, of which the first training makes one.
    trainer = make_trainer(BANDIT, **LINEAR, max_steps=3, num_iterations=2)
    played = []
    original = trainer._play
    trainer._play = lambda *args, **kwargs: played.append(1) or original(*args, **kwargs)
    trainer.train()
    assert len(played) == 2
    assert trainer._pending
    trainer.train()
    assert len(played) == 4
    logs = [x for x in trainer.state.log_history if "value_loss" in x][-3:]
    assert [x["critic/learning_rate"] for x in logs] == pytest.approx([1e-2, 2e-2 / 3, 1e-2 / 3])
    assert [x["learning_rate"] for x in logs] == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3])
    # Nothing has moved since its episodes were played.
    assert logs[0]["clip_ratio/region_mean"] == 0.0
    assert logs[0]["sampling_logp_difference"] < 1e-4


def test_policys_schedule_begins_when_the_critic_is_warm(make_trainer, tmp_path):
    options = {**LINEAR, "critic_warmup_steps": 2, "max_steps": 6, "warmup_steps": 2}
    trainer = make_trainer(BANDIT, **options, save_strategy="steps", save_steps=3)
    trainer.train()
    expected = [0.0, 0.0, 0.0, 5e-4, 1e-3, 5e-4]
    assert [x["learning_rate"] for x in train_logs(trainer)] == pytest.approx(expected)
    again = make_trainer(BANDIT, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert [x["learning_rate"] for x in train_logs(again)] == pytest.approx(expected)
    critic = [x["critic/learning_rate"] for x in train_logs(again)]
    assert critic == pytest.approx([0.0, 5e-3, 1e-2, 7.5e-3, 5e-3, 2.5e-3])
