"""Sampled tokens per second of the cached engine against the reference, on conversations of noise.

    python benchmarks/rollout.py                   # two shapes, all cells; half an hour on two cores
    python benchmarks/rollout.py --quick           # one small cell
    python benchmarks/rollout.py --shape qwen-0.5b # ten turns of two episodes; some minutes

Both engines drive the same random weights in one process and take turns. An episode has a prompt of
220 tokens, replies of 16 and messages of 70; replies do not end early, so that both sample equally many
tokens. Printed are medians: sampled tokens per second, their ratio, the seconds of the second and the last
turn (attention over what was said grows for both; reading it anew is the reference's alone), and the
memory of the cache.
"""

import argparse

import torch
from comparing import HEADER, Cell, compare
from synthetic import QWEN_SHAPES, QWEN_VOCABULARY
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 360
LARGE = "qwen-0.5b"


def _small(hidden_size: int, num_layers: int) -> dict[str, int]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }


# The first is that of the embedded policy.
SHAPES = {
    "tiny (128 x 2)": _small(128, 2),
    "256 x 6": _small(256, 6),
    LARGE: {"vocab_size": QWEN_VOCABULARY, **QWEN_SHAPES["0.5B"]},
}
CELLS = (
    *(Cell(8, 16, num_turns) for num_turns in (2, 5, 10, 20)),
    *(Cell(num_groups, size, 5) for num_groups, size in ((128, 1), (32, 4))),
)
# What a CPU gets through with a large model.
FEW_EPISODES = (Cell(1, 2, 10),)
# A cell with more turns is long enough to be measured once.
LONG = 10


def make_model(shape: str) -> Qwen2ForCausalLM:
    """Make an untrained model."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SHAPES[shape], max_position_embeddings=4096)).eval()


def main() -> None:
    """Print one line per cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="One small cell.")
    parser.add_argument("--shape", choices=SHAPES, help="One shape; the two small ones by default.")
    parser.add_argument("--rounds", type=int, default=3, help="Times that each cell is played.")
    options = parser.parse_args()
    print(HEADER)
    names = [name for name in SHAPES if name != LARGE]
    if options.quick:
        compare(names[0], make_model(names[0]), Cell(2, 4, 3), rounds=1)
        return
    for name in [options.shape] if options.shape else names:
        model = make_model(name)
        for cell in FEW_EPISODES if name == LARGE else CELLS:
            compare(name, model, cell, rounds=1 if cell.num_turns >= LONG else options.rounds)


if __name__ == "__main__":
    main()
