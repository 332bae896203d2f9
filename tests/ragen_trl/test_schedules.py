"""Learning rates of policy and critic over skipped updates, warm-ups and repeated training."""

import json
import warnings

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from ragen_trl.schedules import begin_later
from tests.processes import run_script
from tests.training import (
    BANDIT,
    KeepCriticGradients,
    KeepGradients,
    assert_same_tensors,
    pay_alike,
    train_logs,
)

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
    with warnings.catch_warnings():
        # Of torch, where a schedule moves on before its optimizer has.
        warnings.filterwarnings("error", message="Detected call of")
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


def test_critics_schedule_begins_anew_beside_a_schedule_of_the_users_own(make_trainer):
    trainer = make_trainer(BANDIT, **LINEAR, max_steps=2)
    trainer.lr_scheduler = LambdaLR(trainer.create_optimizer(), lambda _: 0.5)
    for _ in range(2):
        trainer.train()
        logs = [x for x in trainer.state.log_history if "value_loss" in x][-2:]
        assert [x["critic/learning_rate"] for x in logs] == pytest.approx([1e-2, 5e-3])
        assert {x["learning_rate"] for x in logs} == {5e-4}


def test_training_that_was_broken_off_leaves_nothing_for_the_next(make_trainer):
    """The same as one that begins with the start states that come next."""
    options = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}
    broken, fresh = (make_trainer(BANDIT, **LINEAR, **options) for _ in range(2))
    learn, calls = broken.critic.learn, []

    def fail_in_the_second_call(batch):
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return learn(batch)

    broken.critic.learn = fail_in_the_second_call
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    fresh._dealer.load_state_dict(broken._dealer.state_dict())
    fresh._iteration = broken._iteration
    collected = []
    for trainer in (broken, fresh):
        gradients = KeepGradients(seed=3)
        trainer.add_callback(gradients)
        of_critic = KeepCriticGradients(trainer)
        trainer.train()
        (logs,) = train_logs(trainer)
        of_clock = ("time/", "memory/", "step_time", "rollout/tokens_per_second")
        logs = {k: v for k, v in logs.items() if not k.startswith(of_clock)}
        collected.append((gradients.steps[0] | of_critic.steps[0], logs))
    assert_same_tensors(collected[0][0], collected[1][0], atol=0.0)
    assert collected[0][1] == collected[1][1]


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


# Six updates of which the second to fourth teach nothing, then two more of a second training.
SKIPPING = """
import json, sys
from dataclasses import replace
import torch
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy
from tests.training import pay_alike

torch.set_num_threads(1)
model, tokenizer = load_tiny_policy()
args = StarPOConfig(
    output_dir=sys.argv[1], num_env_groups=2, num_generations=4, rollout_filter="none",
    enable_think=False, max_new_tokens_per_turn=16, max_trajectory_tokens=1200, max_steps=6,
    learning_rate=1e-3, critic_learning_rate=1e-2, lr_scheduler_type="linear",
    per_device_train_batch_size=int(sys.argv[2]), gradient_accumulation_steps=2,
    gradient_checkpointing=False, eval_episodes=4, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
)
trainer = StarPOTrainer(model, args, env="ragen/Bandit-v0", processing_class=tokenizer)
original, played, seeds = trainer._play, [], []

def play(groups, **kwargs):
    seeds.append([group.seed for group in groups])
    played.append(original(groups, **kwargs))
    if len(played) in (2, 3, 4):
        return pay_alike(played[-1])
    # What is sampled depends on the number of processes, and may not decide what is skipped.
    return [
        replace(t, turn_rewards=[0.0] * (len(t.turns) - 1) + [float(i % 2)])
        for i, t in enumerate(played[-1])
    ]

trainer._play, logs = play, []
trainer.train()
logs += trainer.state.log_history
trainer.args.max_steps = 3
# A rollout more than it has updates for: the rest is left over.
trainer.num_iterations = 2
trainer.train()
logs += trainer.state.log_history
left = len(trainer._pending)
trainer.train()
logs += trainer.state.log_history
rates = [(x["learning_rate"], x.get("critic/learning_rate")) for x in logs if "learning_rate" in x]
with open(f"{sys.argv[1]}/rank{trainer.accelerator.process_index}.json", "w") as file:
    json.dump({"rates": rates, "left": left, "seeds": seeds}, file)
"""


def test_schedules_of_two_processes_are_those_of_one(tmp_path):
    found = []
    for num_processes in (1, 2):
        folder = tmp_path / str(num_processes)
        folder.mkdir()
        run_script(SKIPPING, folder, folder, 4 // num_processes, num_processes=num_processes)
        ranks = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("rank*"))]
        # The log is the main process's.
        assert all(rank["seeds"] == ranks[0]["seeds"] for rank in ranks)
        assert all(rank["left"] > 0 for rank in ranks)
        found.append((ranks[0]["rates"], ranks[0]["seeds"]))
    (rates, seeds), others = found
    assert (rates, seeds) == others
    expected = [(1 - k / 6, k not in (1, 2, 3)) for k in range(6)]
    assert [rate for rate, _ in rates[:6]] == pytest.approx([1e-3 * share for share, _ in expected])
    for (rate, critic), (_, learns) in zip(rates, expected, strict=False):
        assert critic == (pytest.approx(10 * rate) if learns else None)
    for later in (rates[-6:-3], rates[-3:]):
        assert [rate for rate, _ in later] == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3])
        assert [critic for _, critic in later] == pytest.approx([1e-2, 2e-2 / 3, 1e-2 / 3])
