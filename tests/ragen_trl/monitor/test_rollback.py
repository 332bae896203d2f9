import json

import pytest
import torch
from transformers import get_scheduler

from ragen_trl.monitor.rollback import HealthyCheckpoints, base_rates, set_base_rates
from tests.runs import write_lines


def save_checkpoint(output_dir, step, content="weights"):
    folder = output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model").write_text(f"{content} {step}")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_latest_two_healthy_checkpoints_stay_when_the_run_deletes_its_own(tmp_path):
    healthy = HealthyCheckpoints(tmp_path, last_step=0)
    for step in (9, 10, 11):
        save_checkpoint(tmp_path, step)
        healthy.keep(step)
        (tmp_path / f"checkpoint-{step}" / "model").unlink()
    assert names(tmp_path / "healthy") == ["checkpoint-10", "checkpoint-11"]
    assert [(folder / "model").read_text() for folder in healthy.kept] == [
        "weights 10",
        "weights 11",
    ]


def test_checkpoints_are_taken_back_to_front_and_the_last_one_stays(tmp_path):
    healthy = HealthyCheckpoints(tmp_path, last_step=0)
    for step in (1, 2):
        save_checkpoint(tmp_path, step)
        healthy.keep(step)
    assert [healthy.take_last().name for _ in range(3)] == [
        "checkpoint-2",
        "checkpoint-1",
        "checkpoint-1",
    ]


def test_step_that_is_reached_again_replaces_its_copy(tmp_path):
    healthy = HealthyCheckpoints(tmp_path, last_step=0)
    save_checkpoint(tmp_path, 1, "first")
    healthy.keep(1)
    (tmp_path / "checkpoint-1" / "model").write_text("second")
    # Left behind by a copy that was interrupted.
    (tmp_path / "healthy" / "unfinished-checkpoint-1").mkdir()
    healthy.keep(1)
    assert [folder.name for folder in healthy.kept] == ["checkpoint-1"]
    assert (healthy.kept[0] / "model").read_text() == "second"
    assert names(tmp_path / "healthy") == ["checkpoint-1"]


def test_copies_of_another_run_are_not_taken_and_those_of_a_resumed_one_are(tmp_path):
    for step in (5, 10, 20):
        save_checkpoint(tmp_path / "healthy", step)
    assert HealthyCheckpoints(tmp_path, last_step=0).kept == []
    kept = HealthyCheckpoints(tmp_path, last_step=10).kept
    assert [folder.name for folder in kept] == ["checkpoint-5", "checkpoint-10"]


def test_later_checkpoints_are_put_aside_and_earlier_ones_stay(tmp_path):
    healthy = HealthyCheckpoints(tmp_path, last_step=0)
    for step in (2, 10, 12):
        save_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    healthy.put_aside_after(2)
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-best", "collapsed"]
    assert names(tmp_path / "collapsed") == ["checkpoint-10", "checkpoint-12"]


def test_episodes_of_the_collapsed_part_are_put_aside_with_it(tmp_path):
    # Updates 1 to 4 of two rollouts, one after 0 and one after 2 updates, and the next one after 4.
    for name, step in {
        "train-00000": 0,
        "train-00001": 2,
        "train-00002": 4,
        "eval-00000-lake": 0,
        "eval-00003-lake": 3,
        "eval-00004-lake": 4,
        "eval-00005-lake": 5,
    }.items():
        write_lines(tmp_path / f"trajectories/{name}.jsonl", [{"step": step}, {"step": step}])
    (tmp_path / "trajectories/train-00003.jsonl").write_text('{"step": 5, "cut')
    (tmp_path / "trajectories/notes.txt").write_text("of the user")
    HealthyCheckpoints(tmp_path, last_step=0).put_aside_after(4)
    # What was played after the checkpoint will be played again; its evaluation came before it.
    aside = ["eval-00005-lake.jsonl", "train-00002.jsonl"]
    assert names(tmp_path / "collapsed/trajectories") == aside
    stays = {path.name for path in (tmp_path / "trajectories").iterdir()}
    assert not stays & set(aside)
    assert len(stays) == 7


@pytest.mark.parametrize(
    "line", ["1e999", "NaN", "null", '"x"', "[]", "9" * 5000, "[" * 50_000, '"\udcff"', "5"]
)
def test_episodes_whose_step_cannot_be_read_stay_where_they_are(line, tmp_path):
    path = tmp_path / "trajectories/train-00003.jsonl"
    text = line if line == "5" else f'{{"step": {line}}}\n'
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    HealthyCheckpoints(tmp_path, last_step=0).put_aside_after(2)
    assert names(tmp_path / "trajectories") == ["train-00003.jsonl"]


def test_folder_called_like_a_file_of_episodes_stays_where_it_is(tmp_path):
    (tmp_path / "trajectories/train-00004.jsonl").mkdir(parents=True)
    HealthyCheckpoints(tmp_path, last_step=0).put_aside_after(2)
    assert names(tmp_path / "trajectories") == ["train-00004.jsonl"]


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear", "polynomial"])
def test_other_base_rates_scale_the_whole_schedule_from_its_present_step(kind):
    def make(rates, num_steps):
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in rates]
        groups = [{"params": [p], "lr": r} for p, r in zip(parameters, rates, strict=True)]
        optimizer = torch.optim.AdamW(groups)
        # `polynomial` ends at a rate of its own, which does not scale; it is 0 here.
        extra = {"lr_end": 0.0} if kind == "polynomial" else {}
        scheduler = get_scheduler(kind, optimizer, 2, 10, scheduler_specific_kwargs=extra)
        for _ in range(num_steps):
            optimizer.step()
            scheduler.step()
        return optimizer, scheduler

    optimizer, scheduler = make([0.4, 0.8], 4)
    expected_optimizer, expected = make([0.1, 0.2], 4)
    assert base_rates(scheduler) == [0.4, 0.8]
    set_base_rates(scheduler, [0.1, 0.2])
    for _ in range(3):
        assert scheduler.get_last_lr() == pytest.approx(expected.get_last_lr())
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([g["lr"] for g in expected_optimizer.param_groups])
        for each in (optimizer, scheduler, expected_optimizer, expected):
            each.step()


def test_rates_of_zero_stay_as_they_are():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0)
    scheduler = get_scheduler("constant", optimizer)
    set_base_rates(scheduler, [0.0])
    assert scheduler.get_last_lr() == [0.0]
    assert json.dumps(base_rates(scheduler)) == "[0.0]"
