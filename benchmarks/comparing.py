"""Engine against reference: one model, one process, alternating; what `rollout.py` and `gpu.py` share."""

import random
import statistics
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

from transformers import GenerationConfig

from ragen_trl.engines import CachedEngine, Engine, ReferenceEngine, Reply, SamplingRules
from ragen_trl.generation import sample_replies

# Tokens of an episode's prompt, of a reply, and of a message between two replies.
PROMPT, REPLY, MESSAGE = 220, 16, 70
HEADER = (
    "| model | groups | turns | reference, tokens/s | engine, tokens/s | ratio | "
    "reference, s per turn (2nd, last) | engine, s per turn (2nd, last) | cache, MB |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


class Cell(NamedTuple):
    """One rollout: so many groups of so many episodes, all of so many turns."""

    num_groups: int
    group_size: int
    num_turns: int


class Timing(NamedTuple):
    """What one rollout took; the first turn reads the prompts, the second is like all others."""

    tokens_per_second: float
    second_turn: float
    last_turn: float
    cache_megabytes: float


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


def play(engine: Engine, cell: Cell, *, num_ids: int) -> Timing:
    """Play one rollout of random messages and time its turns."""
    rng = random.Random(0)

    def words(count: int) -> list[int]:
        return [rng.randrange(5, num_ids) for _ in range(count)]

    starts = [words(PROMPT) for _ in range(cell.num_groups)]
    prompts = [prompt for prompt in starts for _ in range(cell.group_size)]
    rows = list(range(len(prompts)))
    seconds: list[float] = []
    new_ids: list[list[int]] = [[] for _ in rows]
    session = engine.start(prompts)
    for _ in range(cell.num_turns):
        begin = time.perf_counter()
        session.reply(rows, new_ids, [REPLY] * len(rows))
        seconds.append(time.perf_counter() - begin)
        new_ids = [words(MESSAGE) for _ in rows]
    num_tokens = len(rows) * cell.num_turns * REPLY
    return Timing(num_tokens / sum(seconds), seconds[1], seconds[-1], session.cache_bytes / 1e6)


def compare(name: str, model: Any, cell: Cell, *, rounds: int) -> float:
    """Let the engines take turns on one cell, print medians, and return the ratio of speeds."""
    timings: dict[str, list[Timing]] = {"reference": [], "transformers": []}
    engines = make_engines(model)
    num_ids = model.config.vocab_size
    for _ in range(rounds):
        for engine, own in timings.items():
            own.append(play(engines[engine], cell, num_ids=num_ids))
    old, new = (Timing(*map(statistics.median, zip(*own, strict=True))) for own in timings.values())
    ratio = new.tokens_per_second / old.tokens_per_second
    print(
        f"| {name} | {cell.num_groups} x {cell.group_size} | {cell.num_turns} "
        f"| {old.tokens_per_second:.0f} | {new.tokens_per_second:.0f} | {ratio:.2f} "
        f"| {old.second_turn:.2f}, {old.last_turn:.2f} | {new.second_turn:.2f}, {new.last_turn:.2f} "
        f"| {new.cache_megabytes:.0f} |",
        flush=True,
    )
    return ratio
