"""Make the policy that comes with the package: `ragen_trl/tiny/checkpoint`.

    python examples/make_tiny_checkpoint.py

A few minutes on two cores. The policy imitates shortest paths on FrozenLake without slipping, stopped
early, and random pulls on Bandit: it speaks the reply format, reads a board a little, and leaves
most of the learning to `make demo`. Weights are stored in half precision.
"""

import argparse
from pathlib import Path

import torch

from ragen_trl import EnvSpec
from ragen_trl.tiny import build_tiny_policy, warm_start

LAKE = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})
BANDIT = "ragen/Bandit-v0"
FOLDER = Path(__file__).parents[1] / "ragen_trl" / "tiny" / "checkpoint"


def main() -> None:
    """Build, warm up, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden_size", type=int, default=128)
    parser.add_argument("--num_layers", type=int, default=2)
    parser.add_argument("--num_steps", type=int, default=300)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    # The other ids lend their words, so that the same tokenizer serves them.
    vocabulary = [LAKE, BANDIT, "ragen/Sokoban-v0"]
    model, tokenizer = build_tiny_policy(
        vocabulary, hidden_size=args.hidden_size, num_layers=args.num_layers, seed=0, think=False
    )
    losses = warm_start(
        model,
        tokenizer,
        [BANDIT, *[LAKE] * 7],
        num_steps=args.num_steps,
        learning_rate=args.learning_rate,
        think=False,
        on_step=lambda step, loss: (
            print(f"step {step:4d}  loss {loss:.3f}", flush=True) if step % 20 == 0 else None
        ),
    )
    model.to(torch.float16).save_pretrained(args.folder)
    tokenizer.save_pretrained(args.folder)
    print(f"final loss {sum(losses[-10:]) / 10:.3f}; written to {args.folder}")


if __name__ == "__main__":
    main()
