"""The table of `rollout.py` on a GPU, and whether the GPU computes what the CPU does.

    python benchmarks/gpu.py                            # written for under five minutes on one GPU
    python benchmarks/gpu.py --device cpu --sizes tiny  # tries the script where there is none

For Qwen2.5-0.5B and 1.5B with random weights in bfloat16 and a LoRA adapter. First, log-probabilities and loss
of scripted episodes are computed in float32 on the CPU and in bfloat16 on the device, from the same
weights, by the trainer's own code; they must agree to the precision of bfloat16. Then the engines take
turns, as in `rollout.py`.
"""

import argparse
import copy
import tempfile
from typing import Any, NamedTuple

import torch
from comparing import HEADER, Cell, compare
from peft import LoraConfig
from synthetic import QWEN_SHAPES, QWEN_VOCABULARY, build_qwen, script_trajectories
from torch import Tensor

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.collation import Row
from ragen_trl.tiny import load_tiny_policy
from ragen_trl.update import build_micro_batches

CELLS = {
    "full": (Cell(8, 16, 2), Cell(8, 16, 5), Cell(8, 16, 10)),
    "small": (Cell(2, 4, 2), Cell(2, 4, 3)),
}
# bfloat16 keeps 8 bits: steps of 2^-8 around 1, a few of them in a random model's logits.
MAX_MEAN_DIFFERENCE, MAX_DIFFERENCE = 2**-6, 2**-3


class Score(NamedTuple):
    """Log-probabilities of the sampled tokens, and the loss of the micro-batch."""

    logps: Tensor
    loss: float


def make_trainer(model: Any, tokenizer: Any, folder: str) -> StarPOTrainer:
    """Make a trainer on the CPU, with an adapter of random weights; a fresh one changes nothing."""
    args = StarPOConfig(
        folder,
        use_cpu=True,
        bf16=False,
        entropy_coef=0.01,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
    )
    lora = LoraConfig(
        r=64,
        lora_alpha=64,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        init_lora_weights=False,
    )
    return StarPOTrainer(
        model, args, env="ragen/Bandit-v0", processing_class=tokenizer, peft_config=lora
    )


def score(
    trainer: StarPOTrainer, model: Any, batch: dict[str, Tensor], old_logps: Tensor | None
) -> Score:
    """Score a micro-batch; `old_logps` are what ratios start from, the model's own if not given."""
    batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
    with torch.no_grad():
        logps = trainer._logps(model, batch)
        batch["old_per_token_logps"] = logps if old_logps is None else old_logps.to(logps)
        loss = trainer._compute_loss(model, batch)
    return Score(logps.float().cpu(), loss.item())


def make_batch(num_ids: int) -> dict[str, Tensor]:
    """Write a micro-batch of scripted episodes with advantages of both signs."""
    episodes = script_trajectories(
        num_groups=2, num_generations=2, num_turns=3, tokens_per_part=24, num_ids=num_ids
    )
    rows = [
        Row(t, (2.0 * t.success - 1.0 + 0.1 * t.group_id,) * len(t.turns), (0.0,) * len(t.turns))
        for t in episodes
    ]
    (batch,) = build_micro_batches(
        rows,
        loss_type="dapo",
        max_tokens=2048,
        num_micro_batches=1,
        process_index=0,
        num_processes=1,
        pad_token_id=0,
        pad_to_multiple_of=None,
    )
    return batch


def check_agreement(name: str, trainer: StarPOTrainer, rounded: Any) -> None:
    """Compare log-probabilities and loss, print the differences, and fail where they are large."""
    batch = make_batch(trainer.model.config.vocab_size)
    first = score(trainer, trainer.model, batch, None)
    second = score(trainer, rounded, batch, first.logps)
    difference = (first.logps - second.logps)[batch["action_mask"]].abs()
    mean, most = difference.mean().item(), difference.max().item()
    in_loss = abs(first.loss - second.loss)
    print(
        f"{name}: log-probabilities differ by {mean:.4f} on average and {most:.4f} at most; loss "
        f"{first.loss:.4f} in float32, {second.loss:.4f} in bfloat16.",
        flush=True,
    )
    # Advantages are about 1, so the loss differs by no more than the log-probabilities.
    if mean > MAX_MEAN_DIFFERENCE or most > MAX_DIFFERENCE or in_loss > MAX_MEAN_DIFFERENCE:
        raise SystemExit(
            f"{name}: must agree within {MAX_MEAN_DIFFERENCE} on average and {MAX_DIFFERENCE} at most."
        )


def main() -> None:
    """Check, then print one line per size and cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="+", choices=QWEN_SHAPES, default=["0.5B", "1.5B"])
    parser.add_argument("--rounds", type=int, default=2, help="Times that each cell is played.")
    options = parser.parse_args()
    _, tokenizer = load_tiny_policy()
    for size in options.sizes:
        name = f"Qwen2.5-{size}"
        model = build_qwen(tokenizer, vocab_size=QWEN_VOCABULARY, size=size)
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(model, tokenizer, folder)
            rounded = copy.deepcopy(trainer.model).to(options.device, torch.bfloat16).eval()
            check_agreement(name, trainer, rounded)
        print(HEADER)
        for cell in CELLS["small" if size == "tiny" else "full"]:
            compare(f"{name}, bf16, LoRA", rounded, cell, rounds=options.rounds)


if __name__ == "__main__":
    main()
