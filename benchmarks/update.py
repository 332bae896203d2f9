"""What an update costs: every estimator, with the filter at all, a half and a quarter of the groups.

    python benchmarks/update.py
    python benchmarks/update.py --model qwen2-0.5b --rounds 3   # five minutes a round on one core

One rollout is used for everything: 8 groups of 16 episodes that the embedded policy played on the
lake, or a few short scripted ones for a random model of the shape of Qwen2.5-0.5B with a LoRA adapter.
`time/update` of one iteration is measured: selection, log-probabilities, values, forward and backward
passes, and the critic's optimizer step; playing is not in it. The cases take turns, in rounds, and
medians over the rounds are printed as ratios: to `grpo` without a filter, and to the same estimator
without one.
"""

import argparse
import copy
import gc
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from peft import LoraConfig
from synthetic import build_qwen, script_trajectories
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback

from ragen_trl import EnvSpec, StarPOConfig, StarPOTrainer, Trajectory
from ragen_trl.config_choices import CRITIC_ESTIMATORS, AdvantageEstimator
from ragen_trl.tiny import load_tiny_policy

ESTIMATORS = get_args(AdvantageEstimator)
RATIOS = (1.0, 0.5, 0.25)
# Of an estimator's own unfiltered update; what a quarter of the groups may cost.
LIMIT = 0.35

LAKE = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})


class Workload(NamedTuple):
    """A policy and the sizes of what it trains on.

    Attributes:
        model: Every case trains a copy of it.
        tokenizer: The model's.
        peft_config: Adapter to train in place of the whole model.
        sizes: Options of `StarPOConfig`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    peft_config: LoraConfig | None
    sizes: dict[str, Any]


def load_workload(name: str) -> Workload:
    tiny, tokenizer = load_tiny_policy()
    if name == "tiny":
        sizes = {"num_env_groups": 8, "num_generations": 16, "per_device_train_batch_size": 32}
        return Workload(tiny, tokenizer, None, sizes)
    model = build_qwen(tokenizer, vocab_size=len(tokenizer))
    lora = LoraConfig(r=64, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
    sizes = {"num_env_groups": 4, "num_generations": 2, "per_device_train_batch_size": 2}
    return Workload(model, tokenizer, lora, sizes)


def make_trainer(
    workload: Workload, estimator: AdvantageEstimator, ratio: float, folder: str
) -> StarPOTrainer:
    """Make a trainer whose `train()` is exactly one iteration."""
    sizes = workload.sizes
    kept = int(ratio * sizes["num_env_groups"]) * sizes["num_generations"]
    args = StarPOConfig(
        output_dir=folder,
        advantage_estimator=estimator,
        rollout_filter_ratio=ratio,
        max_steps=-(-kept // sizes["per_device_train_batch_size"]),
        gradient_accumulation_steps=1,
        enable_think=False,
        max_new_tokens_per_turn=24,
        max_trajectory_tokens=1500,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_trajectories=False,
        **sizes,
    )
    return StarPOTrainer(
        copy.deepcopy(workload.model),
        args,
        env=LAKE,
        processing_class=workload.tokenizer,
        peft_config=workload.peft_config,
    )


def prepare_rollout(name: str, workload: Workload, folder: str) -> list[Trajectory]:
    sizes = workload.sizes
    if name == "tiny":
        trainer = make_trainer(workload, "grpo", 1.0, folder)
        return trainer.rollout(
            seeds=range(sizes["num_env_groups"]),
            num_generations=sizes["num_generations"],
            temperature=1.0,
        )
    return script_trajectories(
        num_groups=sizes["num_env_groups"],
        num_generations=sizes["num_generations"],
        num_turns=2,
        tokens_per_part=16,
        num_ids=len(workload.tokenizer),
    )


def measure(trainer: StarPOTrainer, rollout: list[Trajectory]) -> float:
    """Train on the rollout as if it had been played, and return the seconds of the update."""
    trainer._play = lambda *_, **__: rollout
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    (seconds,) = (x["time/update"] for x in trainer.state.log_history if "time/update" in x)
    return seconds


def print_table(seconds: dict[tuple[str, float], Sequence[float]]) -> None:
    medians = {case: statistics.median(times) for case, times in seconds.items()}
    unit = medians["grpo", 1.0]
    print(f"\n1.000 = {unit:.3f} s, the update of grpo without a filter\n")
    print("| estimator | critic | to grpo, 1.0 | 0.5 | 0.25 | to itself, 0.5 | 0.25 |")
    print("|---|---|---|---|---|---|---|")
    for estimator in ESTIMATORS:
        own = [medians[estimator, ratio] for ratio in RATIOS]
        numbers = [*(time / unit for time in own), *(time / own[0] for time in own[1:])]
        has_critic = "yes" if estimator in CRITIC_ESTIMATORS else "no"
        print(f"| `{estimator}` | {has_critic} | {' | '.join(f'{x:.3f}' for x in numbers)} |")
    worst = max(medians[e, 0.25] / medians[e, 1.0] for e in ESTIMATORS)
    verdict = "at most" if worst <= LIMIT else "MORE than"
    print(f"\nA quarter of the groups costs {worst:.3f} at worst, {verdict} {LIMIT}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["tiny", "qwen2-0.5b"], default="tiny")
    parser.add_argument("--rounds", type=int, default=5, help="Times that each case is measured.")
    options = parser.parse_args()
    workload = load_workload(options.model)
    cases = [(estimator, ratio) for estimator in ESTIMATORS for ratio in RATIOS]
    seconds: dict[tuple[str, float], list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        rollout = prepare_rollout(options.model, workload, folder)
        # The first update of a process pays for allocation.
        measure(make_trainer(workload, "gae", 0.25, folder), rollout)
        for _ in range(options.rounds):
            for case in cases:
                # A trainer is full of reference cycles, and holds a model.
                gc.collect()
                seconds[case].append(measure(make_trainer(workload, *case, folder), rollout))
    print_table(seconds)


if __name__ == "__main__":
    main()
