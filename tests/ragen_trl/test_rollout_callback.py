import json

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from ragen_trl import RolloutCallback
from tests.training import BANDIT, copy_tensors, make_lora, train_logs


class Looking(RolloutCallback):
    """Notes what it is shown, and measures the number of the rollout."""

    def __init__(self):
        self.seen = []

    def on_rollout_end(self, args, state, control, *, model, iteration, **shown):
        no_dropout = not any(module.training for module in model.modules())
        self.seen.append(
            {
                "iteration": iteration,
                "global_step": state.global_step,
                "is_at_rest": no_dropout and not torch.is_grad_enabled(),
                "weights": copy_tensors(model.named_parameters()),
                **shown,
            }
        )
        return {"looks/iteration": float(iteration), "looks/double": 2.0 * iteration}


class Bystander(TrainerCallback):
    """Knows nothing of rollouts."""


@pytest.mark.parametrize("with_lora", [False, True])
def test_every_rollout_is_shown_before_anything_is_learned_from_it(make_trainer, with_lora):
    looking = Looking()
    trainer = make_trainer(
        BANDIT,
        callbacks=[looking, Bystander()],
        max_steps=4,
        per_device_train_batch_size=2,
        rollout_filter_ratio=0.25,
        peft_config=make_lora() if with_lora else None,
    )
    before = copy_tensors(trainer.model.named_parameters())
    trainer.train()
    # One group of four is kept, in two updates of two.
    assert [seen["iteration"] for seen in looking.seen] == [0, 1]
    assert [seen["global_step"] for seen in looking.seen] == [0, 2]
    assert all(seen["is_at_rest"] for seen in looking.seen)
    assert all(torch.equal(before[n], p) for n, p in looking.seen[0]["weights"].items())
    assert trainer.model.training


def test_all_episodes_are_shown_and_not_only_the_kept_ones(make_trainer):
    looking = Looking()
    trainer = make_trainer(BANDIT, callbacks=[looking], rollout_filter_ratio=0.25)
    trainer.train()
    (seen,) = looking.seen
    groups = [trajectory.group_id for trajectory in seen["trajectories"]]
    assert sorted(groups) == sorted([*range(4)] * 4)
    assert seen["processing_class"] is trainer.processing_class


def test_what_a_callback_measures_is_logged_with_the_update(make_trainer):
    trainer = make_trainer(BANDIT, callbacks=[Looking()], max_steps=2)
    trainer.train()
    logs = train_logs(trainer)
    assert [entry["looks/iteration"] for entry in logs] == [0.0, 1.0]
    assert [entry["looks/double"] for entry in logs] == [0.0, 2.0]


def test_numbers_of_numpy_and_torch_are_logged_as_numbers(make_trainer, tmp_path):
    class Measuring(RolloutCallback):
        def on_rollout_end(self, *_, **__):
            return {"looks/numpy": np.float32(0.5), "looks/torch": torch.tensor(0.25)}

    make_trainer(BANDIT, callbacks=[Measuring()]).train()
    line = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()[0]
    entry = json.loads(line)
    assert (entry["looks/numpy"], entry["looks/torch"]) == (0.5, 0.25)


def test_callback_that_forgets_to_return_is_named(make_trainer):
    class Forgetful(RolloutCallback):
        def on_rollout_end(self, *_, **__): ...

    with pytest.raises(TypeError, match=r"`on_rollout_end` of Forgetful .* got None\. Return \{\}"):
        make_trainer(BANDIT, callbacks=[Forgetful()]).train()


def test_callback_that_measures_nothing_adds_nothing(make_trainer):
    plain, watched = make_trainer(BANDIT), make_trainer(BANDIT, callbacks=[RolloutCallback()])
    for trainer in (plain, watched):
        torch.manual_seed(0)
        trainer.train()
    (expected,), (logs,) = train_logs(plain), train_logs(watched)
    assert logs.keys() == expected.keys()
    assert logs["loss"] == expected["loss"]


def test_time_of_callbacks_is_not_that_of_the_update(make_trainer, monkeypatch):
    class Clock:
        now = 0.0

        def perf_counter(self):
            return self.now

    class Slow(RolloutCallback):
        def on_rollout_end(self, *_, **__):
            clock.now += 1000.0
            return {}

    clock = Clock()
    monkeypatch.setattr("ragen_trl.starpo_trainer.time", clock)
    trainer = make_trainer(BANDIT, callbacks=[Slow()])
    trainer.train()
    (entry,) = train_logs(trainer)
    assert entry["time/rollout"] == entry["time/update"] == entry["time/logps"] == 0.0
