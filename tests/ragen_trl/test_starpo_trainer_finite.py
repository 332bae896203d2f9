"""Numbers that are not finite: no step is made with them, and nothing of them is saved."""

import json
import math
import re

import pytest

from tests.processes import run_script
from tests.training import BANDIT, copy_tensors


def spoil(parameter, *, at_update, trainer, value=math.inf):
    """Make one number of a gradient infinite."""

    def hook(gradient):
        if trainer.state.global_step + 1 < at_update:
            return gradient
        gradient = gradient.clone()
        gradient.view(-1)[0] = value
        return gradient

    parameter.register_hook(hook)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
@pytest.mark.parametrize("spoilt", ["policy", "critic"])
def test_gradients_that_are_not_finite_are_neither_stepped_nor_saved(
    make_trainer, tmp_path, spoilt, max_grad_norm, value
):
    trainer = make_trainer(
        BANDIT,
        advantage_estimator="gae",
        max_grad_norm=max_grad_norm,
        max_steps=4,
        save_strategy="steps",
        save_steps=1,
    )
    critic = trainer.critic.critic.trained_parameters()
    own = dict(trainer.model.named_parameters()) if spoilt == "policy" else critic
    spoil(next(iter(own.values())), at_update=3, trainer=trainer, value=value)
    with pytest.raises(FloatingPointError, match=r"gradient norm is (inf|nan); .*was not made"):
        trainer.train()
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == [
        "checkpoint-1",
        "checkpoint-2",
    ]
    weights = copy_tensors([*trainer.model.named_parameters(), *critic.items()])
    assert all(tensor.isfinite().all() for tensor in weights.values())


SPOILING = """
import math, sys
import torch
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy

torch.set_num_threads(1)
root, spoilt = sys.argv[1:]
model, tokenizer = load_tiny_policy()
args = StarPOConfig(
    output_dir=root, old_logps="rollout" if spoilt == "record" else "recompute", num_env_groups=2, num_generations=4, rollout_filter="none",
    enable_think=False, max_new_tokens_per_turn=16, max_trajectory_tokens=1200, max_steps=3,
    per_device_train_batch_size=2, gradient_accumulation_steps=2, gradient_checkpointing=False,
    save_strategy="steps", save_steps=1, report_to="none", disable_tqdm=True, use_cpu=True,
)
trainer = StarPOTrainer(model, args, env="ragen/Bandit-v0", processing_class=tokenizer)
weights = [p for p in trainer.model.parameters()]
critic = list(trainer.critic.critic.trained_parameters().values())
rank = trainer.accelerator.process_index

def infinite(gradient):
    is_due = rank == 1 and trainer.state.global_step == 1
    return torch.full_like(gradient, math.inf) if is_due else gradient

if spoilt == "loss":
    original = trainer._score
    def score(model, batch):
        logps, *rest = original(model, batch)
        if rank == 1 and trainer.state.global_step == 1 and torch.is_grad_enabled():
            logps = logps + math.nan
        return [logps, *rest]
    trainer._score = score
elif spoilt == "record":
    play = trainer._play
    def play_with_a_gap(*args, **kwargs):
        played = play(*args, **kwargs)
        if trainer.state.global_step == 1:
            logps = played[0].logps
            logps[played[0].action_mask.index(1)] = math.nan
        return played
    trainer._play = play_with_a_gap
else:
    (weights if spoilt == "policy" else critic)[0].register_hook(infinite)
try:
    trainer.train()
except (FloatingPointError, ValueError) as error:
    message = str(error)
finite = all(p.isfinite().all() for p in [*weights, *critic])
with open(f"{root}/rank{rank}.txt", "w") as file:
    file.write(f"{finite} {message}")
"""


@pytest.mark.parametrize("spoilt", ["policy", "critic", "loss", "record"])
def test_one_process_with_such_a_number_ends_all(spoilt, tmp_path):
    # The script fails, or hangs, where only one of the two raises.
    run_script(SPOILING, tmp_path, tmp_path, spoilt, num_processes=2)
    texts = [(tmp_path / f"rank{rank}.txt").read_text(encoding="utf-8") for rank in (0, 1)]
    assert texts[0] == texts[1]
    assert re.match("True (The .* is (inf|nan); the step|`old_logps='rollout'` needs)", texts[0])
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-1"]


def test_log_is_json_where_a_number_is_not_finite(make_trainer, tmp_path):
    trainer = make_trainer(BANDIT)
    trainer.train()
    further = {"list": [1.0, math.nan], "dict": {"a": (math.inf, "b")}}
    trainer.log({"nan": math.nan, "inf": -math.inf, "one": 1.0, **further})
    lines = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    entry = [json.loads(line, parse_constant=refuse) for line in lines][-1]
    assert (entry["nan"], entry["inf"], entry["one"]) == (None, None, 1.0)
    assert (entry["list"], entry["dict"]) == ([1.0, None], {"a": [None, "b"]})
