"""Two processes on this machine, joined by gloo, must train one policy."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys
import torch
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy

torch.set_num_threads(1)
model, tokenizer = load_tiny_policy()
args = StarPOConfig(
    output_dir=sys.argv[1], num_env_groups=3, num_generations=4, rollout_filter_ratio=0.4,
    enable_think=False, max_new_tokens_per_turn=16, max_trajectory_tokens=1200, max_steps=2,
    learning_rate=1e-3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
    gradient_checkpointing=False, eval_episodes=5, save_strategy="no", report_to="none",
    disable_tqdm=True, use_cpu=True,
)
trainer = StarPOTrainer(model, args, env="ragen/Bandit-v0", processing_class=tokenizer)
trainer.train()
metrics = trainer.evaluate()
weights = sum(p.double().abs().sum().item() for p in trainer.model.parameters())
logs = [x["reward"] for x in trainer.state.log_history if "reward" in x]
result = [weights, logs, metrics["eval_success_rate"], metrics["eval_num_episodes"]]
with open(f"{sys.argv[1]}/rank{trainer.accelerator.process_index}.json", "w") as file:
    json.dump(result, file)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_keep_one_policy_and_log_the_same(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    root = Path(__file__).parents[2]
    common = {**os.environ, "PYTHONPATH": str(root), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    first, second = (
        json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(2)
    )
    assert first == second
    assert len(first[1]) == 2
    assert first[3] == 5
    # One group of three is kept (0.4 * 3), in one update of at most 2 * 2 * 2 episodes.
    records = (tmp_path / "trajectories" / "train-00000.jsonl").read_text(encoding="utf-8")
    kept = [json.loads(line)["is_kept"] for line in records.splitlines()]
    assert (len(kept), sum(kept)) == (12, 4)
