"""What a critic adds to the memory of a training run, as a second LoRA adapter and as a second model.

    python benchmarks/critic_memory.py
    python benchmarks/critic_memory.py --model tiny

The policy is a random model of the shape of Qwen2.5-0.5B, its vocabulary included, in float32 with
Adam. Each case is a process of its own, which makes two updates on two short episodes; in the second
one both optimizers have their moments. The bytes are those of live tensors at the moment of the
critic's optimizer step; `peak` is the largest resident size of the process, which also holds the
policy, activations, and what Python and torch need.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from peft import LoraConfig
from synthetic import QWEN_VOCABULARY, build_qwen, script_trajectories
from torch import Tensor

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy

MIB = 2**20
# Policy and estimator of every case; those without a critic show what the critic adds to the peak.
CASES = {
    "LoRA policy, no critic": (True, "grpo"),
    "LoRA policy, critic as second adapter": (True, "gae"),
    "whole policy, no critic": (False, "grpo"),
    "whole policy, critic as second model": (False, "gae"),
}


def num_bytes(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))


def make_trainer(model_name: str, case: str, folder: str) -> StarPOTrainer:
    has_adapter, estimator = CASES[case]
    model, tokenizer = load_tiny_policy()
    if model_name == "qwen2-0.5b":
        model = build_qwen(tokenizer, vocab_size=QWEN_VOCABULARY)
    lora = LoraConfig(r=64, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
    args = StarPOConfig(
        output_dir=folder,
        advantage_estimator=estimator,
        rollout_filter="none",
        num_env_groups=1,
        num_generations=2,
        max_steps=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=1,
        max_new_tokens_per_turn=24,
        max_trajectory_tokens=200,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_trajectories=False,
    )
    return StarPOTrainer(
        model,
        args,
        env="ragen/Bandit-v0",
        processing_class=tokenizer,
        peft_config=lora if has_adapter else None,
    )


def measure(model_name: str, case: str) -> dict[str, float]:
    """Make two updates, and return MiB by what holds them."""
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(model_name, case, folder)
        rollout = script_trajectories(
            num_groups=1, num_generations=2, num_turns=1, tokens_per_part=16, num_ids=100
        )
        trainer._play = lambda *_, **__: rollout
        if trainer.critic is not None:
            optimizer = trainer.critic.optimizer
            parameters = list(trainer.critic.critic.trained_parameters().values())

            def keep_sizes(*_: Any) -> None:
                sizes["parameters"] = num_bytes(parameters)
                sizes["gradients"] = num_bytes(p.grad for p in parameters)
                moments = (t for state in optimizer.state.values() for t in state.values())
                sizes["Adam"] = num_bytes(moments)

            optimizer.register_step_post_hook(keep_sizes)
        trainer.train()
    sizes["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {name: size / MIB for name, size in sizes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["tiny", "qwen2-0.5b"], default="qwen2-0.5b")
    parser.add_argument("--case", choices=CASES, help="Measure this one and print it as JSON.")
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(options.model, options.case)))
        return
    names = ("parameters", "gradients", "Adam")
    print("| MiB | critic's parameters | gradients | Adam | all three | peak of the process |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        command = [sys.executable, __file__, "--model", options.model, "--case", case]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        sizes = json.loads(output.splitlines()[-1])
        parts = [sizes.get(name, 0.0) for name in names]
        numbers = " | ".join(f"{size:,.1f}" for size in (*parts, sum(parts)))
        print(f"| {case} | {numbers} | {sizes['peak']:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
