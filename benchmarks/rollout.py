"""Sampled tokens per second of the cached engine against the reference, on conversations of noise.

    python benchmarks/rollout.py            # all cells; about ten minutes on two quiet cores
    python benchmarks/rollout.py --quick    # few, small cells

Both engines drive the same random weights in one process and take turns. An episode has a prompt of
220 tokens, replies of 16 and messages of 70; replies do not end early, so that both sample equally many
tokens. Printed are medians of sampled tokens per second, their ratio, the seconds of the first and the
last turn (attention over what was said grows for both; reading it anew is the reference's alone), and the
memory of the cache.
"""

import argparse
import random
import statistics
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from ragen_trl.engines import CachedEngine, Engine, ReferenceEngine, Reply, SamplingRules
from ragen_trl.generation import sample_replies

VOCABULARY = 360
PROMPT, REPLY, MESSAGE = 220, 16, 70
SHAPES = {"tiny (128 x 2)": (128, 2), "256 x 6": (256, 6)}


class Timing(NamedTuple):
    """One rollout."""

    tokens_per_second: float
    first_turn: float
    last_turn: float
    cache_megabytes: float


def make_model(hidden_size: int, num_layers: int) -> Any:
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


def make_engines(model: Any) -> dict[str, Engine]:
    """Make both engines on one model; nothing ends a reply but its budget."""

    def write(histories: list[list[int]], most: int) -> list[Reply]:
        config = GenerationConfig(
            max_new_tokens=most,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            pad_token_id=0,
            disable_compile=True,
        )
        return sample_replies(model, histories, config, eos_token_ids=[])

    cached = CachedEngine(lambda: nullcontext(model), SamplingRules(), eos_token_ids=[])
    return {"reference": ReferenceEngine(write), "transformers": cached}


def play(engine: Engine, num_groups: int, group_size: int, num_turns: int) -> Timing:
    """Play one rollout and time its turns."""
    rng = random.Random(0)

    def words(count: int) -> list[int]:
        return [rng.randrange(5, VOCABULARY) for _ in range(count)]

    prompts = [prompt for prompt in map(words, [PROMPT] * num_groups) for _ in range(group_size)]
    rows = list(range(len(prompts)))
    seconds, new_ids = [], [[] for _ in rows]
    session = engine.start(prompts)
    for _ in range(num_turns):
        begin = time.perf_counter()
        session.reply(rows, new_ids, [REPLY] * len(rows))
        seconds.append(time.perf_counter() - begin)
        new_ids = [words(MESSAGE) for _ in rows]
    num_tokens = len(rows) * num_turns * REPLY
    megabytes = session.cache_bytes / 1e6
    return Timing(num_tokens / sum(seconds), seconds[0], seconds[-1], megabytes)


def compare(name: str, model: Any, *cell: int, rounds: int) -> None:
    """Let the engines take turns on one cell and print a line."""
    timings: dict[str, list[Timing]] = {"reference": [], "transformers": []}
    engines = make_engines(model)
    for _ in range(rounds):
        for engine, own in timings.items():
            own.append(play(engines[engine], *cell))
    old, new = (
        [statistics.median(column) for column in zip(*own, strict=True)] for own in timings.values()
    )
    groups, size, turns = cell
    print(
        f"{name:15} {groups:2} x {size:2}, {turns:2} turns: {old[0]:7.0f} -> {new[0]:7.0f} tokens/s, "
        f"ratio {new[0] / old[0]:5.2f} | first and last turn {old[1]:.2f} {old[2]:.2f} -> "
        f"{new[1]:.2f} {new[2]:.2f} s | cache {new[3]:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Print one line per cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few, small cells")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        compare("tiny (128 x 2)", make_model(128, 2), 2, 4, 3, rounds=1)
        return
    for name, shape in SHAPES.items():
        model = make_model(*shape)
        for num_turns in (2, 5, 10, 20) if shape[1] == 2 else (2, 5, 10):
            rounds = options.rounds if num_turns <= 5 else 1
            compare(name, model, 8, 16, num_turns, rounds=rounds)
    for num_groups, size in ((32, 1), (8, 4), (2, 16)):
        compare("tiny (128 x 2)", make_model(128, 2), num_groups, size, 5, rounds=options.rounds)


if __name__ == "__main__":
    main()
