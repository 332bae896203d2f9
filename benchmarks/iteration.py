"""What one iteration of training costs, and where the time goes.

    python benchmarks/iteration.py                              # the demo's two halves; two minutes
    python benchmarks/iteration.py --settings qwen2-0.5b        # random weights, LoRA; minutes on a CPU
    python benchmarks/iteration.py --against ../older-checkout  # two source trees, alternating
    python benchmarks/iteration.py --against ../older-checkout --learning --seeds 0 1 2

An iteration is a rollout with its updates, in the setting of `examples/configs/demo_*.yaml` with a filter
that keeps a quarter of the groups. Every run is a process of its own, which trains from the embedded
policy (or from random weights, which are paid by chance, because they earn nothing); its first iteration
pays for allocation and is left out, except for the large model, which plays only that one. With `--against`, the runs of this checkout and of the other one take
turns, and medians and their ratio are printed. With `--learning` the demo's training is run to its end, and the
success of an evaluation before it and after it is printed with its 95 % Wilson interval, seed by seed, and how many
of the first rollouts are alike in both trees. There the trainers of both play the environments of this checkout,
without a split, so that a seed stands for the same levels.
"""

import argparse
import dataclasses
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from peft import LoraConfig
from synthetic import QWEN_VOCABULARY, build_qwen
from transformers import PrinterCallback, TrainerCallback

from ragen_trl import EnvSpec, StarPOConfig, StarPOTrainer, Trajectory
from ragen_trl.tiny import load_tiny_policy

ROOT = Path(__file__).parents[1]
DEMO = {"bandit": "demo_bandit", "lake": "demo_frozen_lake"}
QWEN = "qwen2-0.5b"
FILTER_RATIO = 0.25
# What the trainer logs of an iteration; older checkouts log less.
PARTS = ("time/rollout", "time/generate", "time/env", "time/filter", "time/logps", "time/update")


class Clock(TrainerCallback):
    """Notes when training began and when each update ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())


def read_setting(name: str) -> tuple[dict[str, Any], list[EnvSpec]]:
    """Return the options of one half of the demo, and what it plays."""
    path = ROOT / "examples" / "configs" / f"{DEMO[name]}.yaml"
    options = yaml.safe_load(path.read_text(encoding="utf-8"))
    kwargs = json.loads(options.pop("env_kwargs", "{}"))
    envs = [EnvSpec(i, kwargs=kwargs.get(i, {})) for i in options.pop("environments")]
    del options["model"], options["output_dir"]
    return options, envs


def make_trainer(name: str, folder: str, **changes: Any) -> StarPOTrainer:
    """Make the trainer of one setting."""
    model, tokenizer = load_tiny_policy()
    peft_config = None
    options, envs = read_setting("lake" if name == QWEN else name)
    if name == QWEN:
        model = build_qwen(tokenizer, vocab_size=QWEN_VOCABULARY)
        peft_config = LoraConfig(r=64, lora_alpha=64, target_modules="all-linear")
        # Less than the demo plays, so that a CPU comes to an end.
        options |= {"num_env_groups": 4, "num_generations": 4, "per_device_train_batch_size": 4}
    trainer = StarPOTrainer(
        model,
        StarPOConfig(folder, disable_tqdm=True, **options | changes),
        env=envs,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.remove_callback(PrinterCallback)
    if name == QWEN:
        pay_by_chance(trainer)
    return trainer


def pay_by_chance(trainer: StarPOTrainer) -> None:
    """Let the last turn of every episode pay a random reward."""
    play, rng = trainer._play, random.Random(0)

    def pay(episode: Trajectory) -> Trajectory:
        rewards = [*episode.turn_rewards[:-1], rng.random()]
        return dataclasses.replace(episode, turn_rewards=rewards)

    trainer._play = lambda *args, **kwargs: [pay(e) for e in play(*args, **kwargs)]


def time_iterations(name: str, count: int) -> dict[str, float]:
    """Train for `count` iterations after the first, and return medians of seconds per iteration.

    A `count` of 0 times the first one.
    """
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, folder, rollout_filter_ratio=FILTER_RATIO, eval_strategy="no")
        args = trainer.args
        num_kept = int(FILTER_RATIO * args.num_env_groups) * args.num_generations
        num_updates = -(-num_kept // args.update_batch_size)
        args.max_steps = num_updates * (count + 1)
        trainer.add_callback(clock)
        trainer.train()
    ends = clock.times[::num_updates]
    seconds = {"iteration": [end - begin for begin, end in itertools.pairwise(ends)]}
    for part in PARTS:
        seconds[part] = [entry[part] for entry in trainer.state.log_history if part in entry]
    return {part: statistics.median(own[1:] or own) for part, own in seconds.items() if own}


def learn(name: str, seed: int, max_steps: int | None) -> dict[str, Any]:
    """Run the demo's training, and return its success before, in and after it.

    `curve` holds success and length of reply of every rollout.
    """
    changes: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
    if hasattr(StarPOConfig, "validation_share"):  # older checkouts have no split
        changes["validation_share"] = 0.0
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(
            name, folder, seed=seed, train_seed=10_000 * (seed + 1), eval_strategy="no", **changes
        )
        before = trainer.evaluate()
        trainer.train()
        after = trainer.evaluate()
    keys = ("success_rate", "success_rate_low", "success_rate_high")
    rollouts = [entry for entry in trainer.state.log_history if "success_rate" in entry]
    return {
        "start": before["eval_success_rate"],
        "end": [after[f"eval_{key}"] for key in keys],
        "curve": [(entry["success_rate"], entry["rollout/response_length"]) for entry in rollouts],
    }


def with_own_environments(tree: Path, folder: Path) -> Path:
    """Put the trainer of a source tree beside the environments of this checkout, in a new folder."""
    folder.mkdir()
    (folder / "ragen_trl").symlink_to(tree / "ragen_trl")
    (folder / "ragen_envs").symlink_to(ROOT / "ragen_envs")
    return folder


def run_in(tree: Path, *arguments: str) -> dict[str, Any]:
    """Run this script with the packages of a source tree, and return what it printed last."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed in {tree}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare_speed(name: str, trees: dict[str, Path], *, rounds: int, count: int) -> None:
    """Let the source trees take turns, and print medians."""
    runs: dict[str, list[dict[str, float]]] = {title: [] for title in trees}
    for _ in range(rounds):
        for title, tree in trees.items():
            runs[title].append(run_in(tree, "--time", name, "--iterations", str(count)))
    medians = {
        title: {key: statistics.median(run[key] for run in own) for key in own[0]}
        for title, own in runs.items()
    }
    for title, own in medians.items():
        cells = [f"{own[key]:.3f}" if key in own else "" for key in ("iteration", *PARTS)]
        share = own["time/env"] / own["time/rollout"]
        print(f"| {name} | {title} | {' | '.join(cells)} | {share:.1%} |", flush=True)
    if "before" in medians:
        ratio = medians["before"]["iteration"] / medians["now"]["iteration"]
        print(f"\n{name}: an iteration is {ratio:.2f} times as fast as before.\n", flush=True)


def compare_learning(
    name: str, trees: dict[str, Path], *, seeds: list[int], max_steps: int | None
) -> None:
    """Train to the end with every seed in every tree, and print the success rates."""
    more = [] if max_steps is None else ["--max-steps", str(max_steps)]
    rates: dict[str, list[float]] = {title: [] for title in trees}
    for seed in seeds:
        curves = []
        for title, tree in trees.items():
            run = run_in(tree, "--learn", name, "--seeds", str(seed), *more)
            rate, low, high = run["end"]
            rates[title].append(rate)
            curves.append(run["curve"])
            cells = f"{run['start']:.1%} | {rate:.1%} [{low:.1%}, {high:.1%}]"
            print(f"| {name} | {seed} | {title} | {cells} | {_count_alike(curves)} |", flush=True)
    for title, own in rates.items():
        print(
            f"\n{name}, {title}: mean {statistics.mean(own):.1%}, from {min(own):.1%} to {max(own):.1%}"
        )


def _count_alike(curves: list[list[Any]]) -> str:
    """Count the rollouts before the first in which curves differ; empty for a single curve."""
    if len(curves) == 1:
        return ""
    alike = itertools.takewhile(lambda points: points[0] == points[1], zip(*curves, strict=True))
    return f"{len(list(alike))} of {len(curves[0])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="+", choices=[*DEMO, QWEN], default=list(DEMO))
    parser.add_argument("--against", type=Path, help="Root of another checkout.")
    parser.add_argument("--rounds", type=int, default=3, help="Runs of every tree.")
    parser.add_argument("--iterations", type=int, default=5, help="Timed iterations of a run.")
    parser.add_argument("--learning", action="store_true", help="Train to the end instead.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--max-steps", type=int, help="Updates of `--learning`; the demo's if unset."
    )
    for task in ("--time", "--learn"):
        parser.add_argument(task, choices=[*DEMO, QWEN], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time:
        print(json.dumps(time_iterations(options.time, options.iterations)))
        return
    if options.learn:
        print(json.dumps(learn(options.learn, options.seeds[0], options.max_steps)))
        return
    trees = {} if options.against is None else {"before": options.against.resolve()}
    trees["now"] = ROOT
    if options.learning:
        print("| setting | seed | tree | start | end [95 %] | rollouts alike |")
        print("|---" * 6 + "|")
        with tempfile.TemporaryDirectory() as folder:
            trees = {
                title: with_own_environments(trees[title], Path(folder, title)) for title in trees
            }
            for name in options.settings:
                compare_learning(name, trees, seeds=options.seeds, max_steps=options.max_steps)
        return
    print(f"| setting | tree | iteration, s | {' | '.join(PARTS)} | env / rollout |")
    print("|---" * (4 + len(PARTS)) + "|")
    for name in options.settings:
        count = 0 if name == QWEN else options.iterations
        compare_speed(name, trees, rounds=options.rounds, count=count)


if __name__ == "__main__":
    main()
