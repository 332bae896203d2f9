import json
import math
from types import SimpleNamespace

import pytest
from gymnasium import spaces

from ragen_trl.environments import make_eval_pools
from ragen_trl.evaluation import EvaluationPanel
from ragen_trl.run_log import RunLogCallback
from tests.fakes import ScriptedTextEnv
from tests.training import BANDIT


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def log(callback, folder, entry, *, is_main=True):
    state = SimpleNamespace(is_world_process_zero=is_main, log_history=[{"step": -1}, entry])
    callback.on_log(SimpleNamespace(output_dir=str(folder)), state, None, logs={})


def make_panel(pools, num_seeds):
    return EvaluationPanel(pools, first_seed=0, num_seeds=num_seeds, validation_share=0.0)


def test_log_of_a_training_is_the_trainers_and_survives_without_checkpoints(make_trainer, tmp_path):
    trainer = make_trainer(env=BANDIT, max_steps=2, eval_strategy="steps", eval_steps=1)
    trainer.train()
    entries = read(tmp_path / "run" / "log.jsonl")
    assert entries == trainer.state.log_history
    assert [e["step"] for e in entries if "reward" in e] == [1, 2]
    assert [e["step"] for e in entries if "eval_success_rate" in e] == [1, 2]
    assert list((tmp_path / "run").glob("checkpoint-*")) == []


def test_log_of_a_resumed_training_is_appended(make_trainer, tmp_path):
    options = {"env": BANDIT, "save_strategy": "steps", "save_steps": 2}
    make_trainer(**options, max_steps=3).train()
    make_trainer(**options, max_steps=4).train(resume_from_checkpoint=True)
    steps = [e["step"] for e in read(tmp_path / "run" / "log.jsonl") if "reward" in e]
    # A checkpoint of the last update exists as well.
    assert steps == [1, 2, 3, 4]


def test_log_after_a_killed_process_begins_a_line_of_its_own(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"rew', encoding="utf-8")
    log(
        RunLogCallback(None),
        tmp_path,
        {"step": 2, "kl": math.nan, "norms": [1.0, {"critic": math.inf}]},
    )
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines == [
        '{"step": 1}',
        '{"rew',
        '{"step": 2, "kl": null, "norms": [1.0, {"critic": null}]}',
    ]


def test_log_is_written_by_the_main_process_alone(tmp_path):
    log(RunLogCallback(None), tmp_path, {"step": 1}, is_main=False)
    assert list(tmp_path.iterdir()) == []


def test_references_are_written_by_the_first_evaluation(make_trainer, tmp_path):
    trainer = make_trainer()
    path = tmp_path / "run" / "references.json"
    assert not path.exists()
    trainer.evaluate()
    references = json.loads(path.read_text(encoding="utf-8"))
    panel = trainer.eval_panel
    assert set(references) == {"ragen/Bandit-v0", "ragen/FrozenLake-v0"}
    for name, reference in references.items():
        rate = panel.random_success(name)
        assert reference["random_play"] == {"rate": rate.rate, "low": rate.low, "high": rate.high}
        assert reference["optimum"] == panel.optimal_success(name) == 1.0
    path.unlink()
    trainer.evaluate()
    assert not path.exists()


def test_references_of_free_text_are_unknown(tmp_path):
    class FreeText(ScriptedTextEnv):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Text(10)

    pools = make_eval_pools({"talk": FreeText}, [], {"think": False})
    callback = RunLogCallback(make_panel(pools, num_seeds=3))
    state = SimpleNamespace(is_world_process_zero=True)
    callback.on_evaluate(SimpleNamespace(output_dir=str(tmp_path)), state, None)
    references = json.loads((tmp_path / "references.json").read_text(encoding="utf-8"))
    assert references == {"talk": {"random_play": None, "optimum": None}}


def test_random_success_is_measured_once():
    pools = make_eval_pools({"bandit": BANDIT}, [], {"think": False})
    panel = make_panel(pools, num_seeds=50)
    first = panel.random_success("bandit")
    pools["bandit"].take(1)[0].reset(seed=3)
    assert panel.random_success("bandit") is first
    assert first.rate == pytest.approx(0.5, abs=0.25)
