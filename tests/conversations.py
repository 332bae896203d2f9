"""Conversations of random tokens, to be played through an engine; no environment behind them."""

import random
from contextlib import nullcontext
from typing import NamedTuple

import torch
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from ragen_trl.engines import CachedEngine, ReferenceEngine, SamplingRules
from ragen_trl.generation import sample_replies

VOCABULARY = 60
ENDS = [3, 4]
ARCHITECTURES = {"qwen2": (Qwen2ForCausalLM, Qwen2Config), "llama": (LlamaForCausalLM, LlamaConfig)}


def make_model(architecture="qwen2", *, tied=True, seed=0):
    """An untrained model whose greedy replies end early now and then."""
    model_class, config_class = ARCHITECTURES[architecture]
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    torch.manual_seed(seed)
    return model_class(config).eval()


def make_reference(model, *, temperature=0.0, stop=None, **options):
    def write(histories, most, luck=None):
        config = GenerationConfig(
            max_new_tokens=most,
            do_sample=temperature > 0,
            temperature=temperature or 1.0,
            pad_token_id=0,
            eos_token_id=ENDS,
            disable_compile=True,
            **options,
        )
        return sample_replies(model, histories, config, eos_token_ids=ENDS, luck=luck)

    return ReferenceEngine(write, stop=stop)


def make_cached(model, *, stop=None, ends=ENDS, **rules):
    rules = SamplingRules(**{"temperature": 0.0, **rules})
    return CachedEngine(lambda: nullcontext(model), rules, eos_token_ids=ends, stop=stop)


class Played(NamedTuple):
    """One episode: all tokens in order, which were sampled, their log-probabilities, its replies."""

    ids: list
    is_sampled: list
    logps: list
    replies: list


def converse(
    engine, *, num_groups, group_size, max_turns=5, wave_size=None, seed=0, has_own_luck=False
):
    """Play episodes of 1 to `max_turns` turns; members of a group share the first prompt."""
    rng = random.Random(seed)
    groups = [
        [rng.randrange(5, VOCABULARY) for _ in range(rng.randint(3, 20))] for _ in range(num_groups)
    ]
    prompts = [prompt for prompt in groups for _ in range(group_size)]
    # Decided before: waves must not change what happens.
    num_turns = [rng.randint(1, max_turns) for _ in prompts]
    messages = [
        [[rng.randrange(5, VOCABULARY) for _ in range(rng.randint(1, 9))] for _ in range(max_turns)]
        for _ in prompts
    ]
    budgets = [[rng.randint(1, 8) for _ in range(max_turns)] for _ in prompts]
    episodes = [Played(list(p), [False] * len(p), [0.0] * len(p), []) for p in prompts]
    sessions = []
    wave_size = wave_size or len(prompts)
    for first in range(0, len(prompts), wave_size):
        wave = range(first, min(first + wave_size, len(prompts)))
        luck_seeds = [1000 + i for i in wave] if has_own_luck else None
        session = engine.start([prompts[i] for i in wave], luck_seeds)
        sessions.append(session)
        for turn in range(max_turns):
            live = [i for i in wave if num_turns[i] > turn]
            if not live:
                break
            new = [messages[i][turn] if turn else [] for i in live]
            replies = session.reply(
                [i - first for i in live], new, [budgets[i][turn] for i in live]
            )
            for i, ids, reply in zip(live, new, replies, strict=True):
                add(episodes[i], ids, None)
                add(episodes[i], reply.ids, reply.logps)
                episodes[i].replies.append(reply)
    return episodes, sessions


def add(episode, ids, logps):
    episode.ids.extend(ids)
    episode.is_sampled.extend([logps is not None] * len(ids))
    episode.logps.extend(logps if logps is not None else [0.0] * len(ids))
