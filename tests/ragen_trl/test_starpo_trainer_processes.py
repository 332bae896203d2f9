"""What must hold over several processes of this machine, and from one process to the next."""

import json

import pytest
import torch

from tests.processes import run_script
from tests.training import assert_same_tensors

PLAYING = """
import json, sys
import torch
from ragen_trl import MutualInformationCallback, StarPOConfig, StarPOTrainer
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
trainer = StarPOTrainer(
    model, args, env="ragen/Bandit-v0", processing_class=tokenizer,
    callbacks=[MutualInformationCallback(every=1)],
)
trainer.train()
metrics = trainer.evaluate()
weights = sum(p.double().abs().sum().item() for p in trainer.model.parameters())
names = ("reward", "mi/num_pairs", "mi/conditional_entropy", "mi/mutual_information",
         "update_kl")
logs = [[x.get(n) for n in names] for x in trainer.state.log_history if "reward" in x]
result = [weights, logs, metrics["eval_success_rate"], metrics["eval_num_episodes"]]
with open(f"{sys.argv[1]}/rank{trainer.accelerator.process_index}.json", "w") as file:
    json.dump(result, file)
"""


# Trains on the same written episodes, whatever the number of processes; most variance, and so every
# kept group, is in the half that the first of two processes would play.
UPDATING = """
import random, sys
import torch
from peft import LoraConfig
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import build_tiny_policy
from tests.episodes import make_trajectory, make_turn

torch.set_num_threads(1)
root, world = sys.argv[1:]

def play(groups, *, num_generations, **_):
    rng = random.Random(groups[0][1])
    rollout = []
    for group_id in range(len(groups)):
        for _ in range(num_generations):
            num_turns = rng.randint(1, 3)
            completion, mask, turn_index = [], [], []
            for turn in range(num_turns):
                for count, sampled in ((rng.randint(1, 5), True), (rng.randint(1, 3), False)):
                    completion += [rng.randrange(5, len(tokenizer)) for _ in range(count)]
                    mask += [sampled] * count
                    turn_index += [turn if sampled else -1] * count
            scale = 1.0 if group_id < len(groups) / 2 else 0.1
            trajectory = make_trajectory(
                [rng.randrange(5, len(tokenizer)) for _ in range(rng.randint(2, 9))],
                completion, mask, group_id=group_id,
                turns=[make_turn() for _ in range(num_turns)],
                turn_rewards=[scale * rng.gauss(0, 1) for _ in range(num_turns)],
            )
            trajectory.turn_index[:] = turn_index
            rollout.append(trajectory)
    return rollout

for name, uses_lora in (
    ("grpo", False), ("gae", False), ("gae in passes", False), ("bi_level_gae", True)
):
    # Two passes of three updates each, whose splits differ.
    has_passes, estimator = name.endswith("in passes"), name.split()[0]
    folder = f"{root}/{name}"
    model, tokenizer = build_tiny_policy(["ragen/Bandit-v0"], hidden_size=32, num_layers=1, seed=0)
    torch.manual_seed(0)
    args = StarPOConfig(
        folder, num_env_groups=8, num_generations=3, rollout_filter_ratio=0.5,
        advantage_estimator=estimator, turn_rewards=estimator == "bi_level_gae",
        max_steps=6 if has_passes else 3, num_iterations=2 if has_passes else 1,
        learning_rate=0.1, critic_learning_rate=None if estimator == "grpo" else 0.1,
        max_grad_norm=0.0, entropy_coef=0.01,
        per_device_train_batch_size=2 if world == "2" else 4,
        gradient_accumulation_steps=1 if has_passes else 3,
        max_trajectory_tokens=500, max_new_tokens_per_turn=20, save_strategy="no",
        report_to="none", disable_tqdm=True, use_cpu=True, optim="sgd",
    )
    trainer = StarPOTrainer(
        model, args, env="ragen/Bandit-v0", processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules="all-linear") if uses_lora else None,
    )
    trainer._play = play
    trainer.train()
    if trainer.accelerator.is_main_process:
        tensors = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
        if trainer.critic is not None:
            trained = trainer.critic.critic.trained_parameters()
            tensors |= {n: p.detach() for n, p in trained.items()}
        names = ("grad_norm", "critic/grad_norm", "value_loss", "policy_loss")
        logs = [
            {n: entry[n] for n in names if n in entry}
            for entry in trainer.state.log_history if "policy_loss" in entry
        ]
        torch.save((tensors, logs), f"{folder}/result.pt")
"""

# Six updates of PPO with LoRA, or the first or last three of them.
RESUMING = """
import sys
import torch
from peft import LoraConfig
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy

torch.set_num_threads(1)
def run(folder, steps, resumes):
    model, tokenizer = load_tiny_policy()
    args = StarPOConfig(
        folder, num_env_groups=2, num_generations=4, rollout_filter_ratio=0.5, enable_think=False,
        max_new_tokens_per_turn=16, max_trajectory_tokens=1200, max_steps=steps, num_iterations=2,
        learning_rate=1e-3, per_device_train_batch_size=4, gradient_accumulation_steps=1,
        gradient_checkpointing=False, save_strategy="steps", save_steps=3, report_to="none",
        disable_tqdm=True, use_cpu=True,
    )
    torch.manual_seed(5)
    trainer = StarPOTrainer(
        model, args, env="ragen/Bandit-v0", processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules="all-linear"),
    )
    if resumes:
        torch.manual_seed(77)
    trainer.train(resume_from_checkpoint=resumes)
    learner = trainer.critic
    tensors = {n: p.detach() for n, p in trainer.model.named_parameters()}
    tensors |= {n: p.detach() for n, p in learner.critic.trained_parameters().items()}
    for name, optimizer in (("policy", trainer.optimizer), ("critic", learner.optimizer)):
        for i, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name} {i} {key}": torch.as_tensor(value) for key, value in state.items()}
    torch.save((tensors, trainer._dealer.num_dealt), f"{folder}/result.pt")

root = sys.argv[1]
if sys.argv[2] == "start":
    run(f"{root}/straight", 6, False)
    run(f"{root}/parts", 3, False)
else:
    run(f"{root}/parts", 6, True)
"""


def test_two_processes_keep_one_policy_and_log_the_same(tmp_path):
    run_script(PLAYING, tmp_path, tmp_path, num_processes=2)
    first, second = (
        json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(2)
    )
    assert first == second
    assert len(first[1]) == 2
    # The reasoning of all twelve episodes is scored, those of the other process included.
    assert [logs[1] for logs in first[1]] == [12, 12]
    # As each process reads other episodes again, equal numbers are sums over both.
    assert first[1][0][4] is not None
    assert first[3] == 5
    # One group of three is kept (0.4 * 3), in one update of at most 2 * 2 * 2 episodes.
    records = (tmp_path / "trajectories" / "train-00000.jsonl").read_text(encoding="utf-8")
    kept = [json.loads(line)["is_kept"] for line in records.splitlines()]
    assert (len(kept), sum(kept)) == (12, 4)


@pytest.fixture(scope="module")
def updated_folders(tmp_path_factory):
    """Folders of the same three trainings, by one process and by two."""
    folders = {world: tmp_path_factory.mktemp(f"world{world}") for world in (1, 2)}
    for world, folder in folders.items():
        run_script(UPDATING, folder, folder, world, num_processes=world)
    return folders


@pytest.mark.parametrize("estimator", ["grpo", "gae", "gae in passes", "bi_level_gae"])
def test_two_processes_train_like_one_with_the_double_batch(estimator, updated_folders):
    results = []
    for folder in updated_folders.values():
        lines = [
            json.loads(line)
            for path in sorted((folder / estimator / "trajectories").glob("train-*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        kept = [(line["group_id"], line["is_kept"]) for line in lines]
        results.append((*torch.load(folder / estimator / "result.pt"), kept))
    (one, one_logs, one_kept), (two, two_logs, two_kept) = results
    assert {group for group, is_kept in one_kept if is_kept} == {0, 1, 2, 3}
    assert two_kept == one_kept
    # With plain gradient descent at a rate of 0.1, this is 1e-5 in the gradients.
    assert_same_tensors(two, one, atol=1e-6)
    assert len(one_logs) == (6 if estimator == "gae in passes" else 3)
    for alone, together in zip(one_logs, two_logs, strict=True):
        assert together == pytest.approx(alone, rel=1e-4, abs=1e-5)


def test_six_steps_equal_three_and_three_in_a_new_process_for_ppo_with_lora(tmp_path):
    run_script(RESUMING, tmp_path, tmp_path, "start")
    run_script(RESUMING, tmp_path, tmp_path, "resume")
    straight, parts = (torch.load(tmp_path / run / "result.pt") for run in ("straight", "parts"))
    assert_same_tensors(parts[0], straight[0], atol=1e-6)
    assert any(name.startswith("critic 0") for name in straight[0])
    assert parts[1] == straight[1] == 6
