"""How much of an update the uncertainty filter saves, measured against no filter in one process.

    python benchmarks/filter.py

Two trainers with equal weights play the same number of episodes; one trains on a quarter of the
groups, the other on all. They take turns, and the ratio of the medians of `time/update` (selection,
log-probabilities, forward and backward passes of one iteration) is printed.
"""

import argparse
import statistics
import tempfile

from ragen_trl import EnvSpec, StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy


def make_trainer(rollout_filter: str, folder: str) -> StarPOTrainer:
    """Make a trainer whose `train()` plays and trains on exactly one rollout."""
    model, tokenizer = load_tiny_policy()
    args = StarPOConfig(
        output_dir=folder,
        enable_think=False,
        max_new_tokens_per_turn=24,
        max_trajectory_tokens=1500,
        rollout_filter=rollout_filter,
        max_steps=1 if rollout_filter == "top_k" else 4,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_trajectories=False,
    )
    lake = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})
    return StarPOTrainer(model, args, env=lake, processing_class=tokenizer)


def main() -> None:
    """Alternate between the two and print the medians."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=6, help="Rollouts of each; at least 2.")
    rounds = parser.parse_args().rounds
    if rounds < 2:
        parser.error(f"--rounds must be at least 2: the first is not counted, got {rounds}.")
    seconds: dict[str, list[float]] = {"top_k": [], "none": []}
    with tempfile.TemporaryDirectory() as folder:
        trainers = {name: make_trainer(name, folder) for name in seconds}
        for _ in range(rounds):
            for name, trainer in trainers.items():
                trainer.train()
                logs = [x for x in trainer.state.log_history if "time/update" in x]
                seconds[name].append(logs[-1]["time/update"])
    # The first round of each pays for allocation.
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    print(f"update of one iteration, a quarter of the groups: {medians['top_k']:.3f} s")
    print(f"update of one iteration, all groups:              {medians['none']:.3f} s")
    print(f"ratio: {medians['top_k'] / medians['none']:.3f}")


if __name__ == "__main__":
    main()
