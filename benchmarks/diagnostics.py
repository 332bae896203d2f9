"""What the mutual information of prompt and reasoning costs, as a share of training.

    python benchmarks/diagnostics.py                      # embedded policy; some minutes on two cores
    python benchmarks/diagnostics.py --model qwen2-0.5b   # random weights of that shape, small sizes

Trains as anybody would, and measures after every rollout: what an iteration takes without the
measurement (updates and next rollout) and what the measurement takes beside it, so that both see the
same machine. Printed are medians over the iterations, the share of wall time with a measurement in every
fifth iteration, and how much longer it would take to read every prompt again for each reasoning.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import LoraConfig
from synthetic import QWEN_VOCABULARY, build_qwen
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback

from ragen_envs import AgentTurns, solve
from ragen_envs.parsing import format_reply
from ragen_envs.thoughts import write_thought
from ragen_trl import EnvSpec, MutualInformationCallback, StarPOConfig, StarPOTrainer, Trajectory
from ragen_trl.mutual_information import choose_pairs
from ragen_trl.tiny import load_tiny_policy, warm_start

EVERY = 5
# Of the wall time.
LIMIT = 0.03

LAKE = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})


class Workload(NamedTuple):
    """A policy and the sizes that it trains with.

    Attributes:
        model: What is trained.
        tokenizer: The model's.
        peft_config: Adapter to train in place of the whole model.
        sizes: Options of `StarPOConfig`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    peft_config: LoraConfig | None
    sizes: dict[str, Any]


class Cost(NamedTuple):
    """Seconds of one iteration.

    Attributes:
        iteration: From one rollout's end to that of the next: updates, log and rollout.
        measurement: Mutual information.
        rereading: The same scores from whole rows, prompt and reasoning together.
    """

    iteration: float
    measurement: float
    rereading: float


class TimedCallback(MutualInformationCallback):
    """Measures every rollout, and then the scores of one prompt without a cache."""

    def __init__(self) -> None:
        super().__init__(every=1)
        self.costs: list[Cost] = []
        self._end_of_last: float | None = None

    def on_rollout_end(self, args: StarPOConfig, *rest: Any, **named: Any) -> dict[str, float]:
        """Return what is measured; the second part goes into no log."""
        begin = time.perf_counter()
        metrics = super().on_rollout_end(args, *rest, **named)
        seconds = time.perf_counter() - begin
        pairs = choose_pairs(
            named["trajectories"], named["processing_class"], think=args.enable_think, max_pairs=64
        )
        texts = [pair.reasoning_ids for pair in pairs]
        rereading = time.perf_counter()
        for first in range(0, len(texts), 16):
            score_whole_rows(named["model"], pairs[0].prompt_ids, texts[first : first + 16])
        rereading = metrics["mi/num_prompts"] * (time.perf_counter() - rereading)
        # The first iteration of a process pays for allocation.
        if self._end_of_last is not None:
            self.costs.append(Cost(begin - self._end_of_last, seconds, rereading))
            print(
                f"Iteration {self.costs[-1].iteration:.2f} s, measurement {seconds:.2f} s, from whole "
                f"rows {rereading:.2f} s: {len(pairs)} reasonings of "
                f"{sum(map(len, texts)) / len(texts):.0f} tokens, {metrics['mi/num_prompts']:.0f} "
                f"prompts of {len(pairs[0].prompt_ids)}",
                flush=True,
            )
        self._end_of_last = time.perf_counter()
        return metrics


def score_whole_rows(model: Any, prompt: Sequence[int], texts: Sequence[Sequence[int]]) -> None:
    width = max(map(len, texts))
    rows = [[*prompt, *text] + [0] * (width - len(text)) for text in texts]
    labels = [
        [-100] * (len(prompt) - 1) + [*text] + [-100] * (width - len(text) + 1) for text in texts
    ]
    model(
        input_ids=torch.tensor(rows, device=model.device),
        shift_labels=torch.tensor(labels, device=model.device),
        fused_lm_head=True,
    )


def think_aloud(env: AgentTurns, rng: np.random.Generator) -> str:
    """Explain an optimal plan and follow it."""
    names, plan = env.get_wrapper_attr("action_names"), solve(env)
    plan = plan or [int(rng.integers(len(names)))]
    count = min(len(plan), env.max_actions_per_turn)
    actions = [names[action] for action in plan[:count]]
    return format_reply(actions, thought=write_thought(env, plan, count))


def load_workload(name: str) -> Workload:
    tiny, tokenizer = load_tiny_policy()
    if name == "tiny":
        # It knows how to answer, but not how to think before.
        warm_start(tiny, tokenizer, [LAKE], num_steps=40, batch_size=8, teacher=think_aloud)
        # Those of the demo, but for thoughts.
        sizes = {
            "num_env_groups": 8,
            "num_generations": 16,
            "rollout_filter_ratio": 0.5,
            "per_device_train_batch_size": 16,
            "max_new_tokens_per_turn": 64,
            "max_trajectory_tokens": 1500,
            "max_turns": 5,
        }
        return Workload(tiny, tokenizer, None, sizes)
    model = build_qwen(tokenizer, vocab_size=QWEN_VOCABULARY)
    lora = LoraConfig(r=64, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
    # Random weights write no think block: the whole reply counts.
    sizes = {
        "num_env_groups": 4,
        "num_generations": 4,
        "rollout_filter_ratio": 0.5,
        "per_device_train_batch_size": 4,
        "max_new_tokens_per_turn": 32,
        "max_trajectory_tokens": 1500,
        "max_turns": 2,
        "enable_think": False,
    }
    return Workload(model, tokenizer, lora, sizes)


def vary_returns(rollout: Sequence[Trajectory]) -> list[Trajectory]:
    """Reward episodes at random, so that each rollout has something to teach."""
    rng = np.random.default_rng(0)
    return [
        replace(t, turn_rewards=[float(r) for r in rng.random(len(t.turn_rewards))])
        for t in rollout
    ]


def measure(workload: Workload, folder: str, num_rollouts: int) -> list[Cost]:
    """Train until that many rollouts are played, and return what every one but the first took."""
    sizes = workload.sizes
    kept = int(sizes["rollout_filter_ratio"] * sizes["num_env_groups"]) * sizes["num_generations"]
    num_updates = kept // sizes["per_device_train_batch_size"]
    args = StarPOConfig(
        output_dir=folder,
        advantage_estimator="grpo",
        max_steps=(num_rollouts - 1) * num_updates + 1,
        gradient_accumulation_steps=1,
        gradient_checkpointing=False,
        learning_rate=1e-5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_trajectories=False,
        **sizes,
    )
    timed = TimedCallback()
    trainer = StarPOTrainer(
        workload.model,
        args,
        env=LAKE,
        processing_class=workload.tokenizer,
        peft_config=workload.peft_config,
        callbacks=[timed],
    )
    trainer.remove_callback(PrinterCallback)
    play = trainer._play
    trainer._play = lambda *positional, **named: vary_returns(play(*positional, **named))
    trainer.train()
    return timed.costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["tiny", "qwen2-0.5b"], default="tiny")
    parser.add_argument("--iterations", type=int, default=5, help="How many are measured.")
    options = parser.parse_args()
    begin = time.perf_counter()
    workload = load_workload(options.model)
    print(f"Ready after {time.perf_counter() - begin:.0f} s.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        costs = measure(workload, folder, options.iterations + 1)
    shares = [cost.measurement / (EVERY * cost.iteration + cost.measurement) for cost in costs]
    share = statistics.median(shares)
    rereading = statistics.median(cost.rereading / cost.measurement for cost in costs)
    verdict = "at most" if share <= LIMIT else "MORE than"
    print(
        f"\nMeasured in every iteration number {EVERY}, mutual information takes {share:.2%} of the "
        f"wall time, {verdict} {LIMIT:.0%}.\nWith every prompt read again for each reasoning it "
        f"would take {rereading:.1f} times as long."
    )


if __name__ == "__main__":
    main()
