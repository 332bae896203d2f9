"""Sampled tokens per second of the cached engine against the reference, on conversations of noise.

    python benchmarks/rollout.py            # all cells; about fifteen minutes on two quiet cores
    python benchmarks/rollout.py --quick    # one small cell

Both engines drive the same random weights in one process and take turns. An episode has a prompt of
220 tokens, replies of 16 and messages of 70; replies do not end early, so that both sample equally many
tokens. Printed are medians: sampled tokens per second, their ratio, the seconds of the second and the last
turn (attention over what was said grows for both; reading it anew is the reference's alone), and the
memory of the cache.
"""

import argparse

import torch
from comparing import HEADER, Cell, compare
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 360
# Hidden size and layers; the first is that of the embedded policy.
SHAPES = {"tiny (128 x 2)": (128, 2), "256 x 6": (256, 6)}
CELLS = (
    *(Cell(8, 16, num_turns) for num_turns in (2, 5, 10, 20)),
    *(Cell(num_groups, size, 5) for num_groups, size in ((128, 1), (32, 4))),
)
# A cell with more turns is long enough to be measured once.
LONG = 10


def make_model(hidden_size: int, num_layers: int) -> Qwen2ForCausalLM:
    """Make an untrained model."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    return Qwen2ForCausalLM(config).eval()


def main() -> None:
    """Print one line per cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="One small cell.")
    parser.add_argument("--shape", choices=SHAPES, help="One shape; all of them by default.")
    parser.add_argument("--rounds", type=int, default=3, help="Times that each cell is played.")
    options = parser.parse_args()
    print(HEADER)
    if options.quick:
        compare("tiny (128 x 2)", make_model(128, 2), Cell(2, 4, 3), rounds=1)
        return
    for name in [options.shape] if options.shape else SHAPES:
        model = make_model(*SHAPES[name])
        for cell in CELLS:
            compare(name, model, cell, rounds=1 if cell.num_turns >= LONG else options.rounds)


if __name__ == "__main__":
    main()
