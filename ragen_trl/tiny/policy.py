"""The embedded policy: a small Qwen2 that is made on the spot and learns on a CPU."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ragen_envs import AgentTurns
from ragen_envs.baselines import random_reply
from ragen_trl.chat import ChatCodec
from ragen_trl.environments import EnvLike, EnvPool, make_pools, open_pools
from ragen_trl.tiny.demonstrations import Demonstration, Teacher, play_demonstrations
from ragen_trl.tiny.tokenizer import build_tokenizer

CONTEXT_TOKENS = 4096
# Episodes of random play whose messages give the tokenizer its words.
_VOCABULARY_EPISODES = 20


def build_tiny_policy(
    env_ids: Sequence[EnvLike],
    *,
    hidden_size: int = 192,
    num_layers: int = 2,
    seed: int = 0,
    **agent_turns: Any,
) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Make an untrained policy and a tokenizer that knows the words of the given environments.

    Args:
        env_ids: Environments in any form that `StarPOTrainer` takes.
        hidden_size: Width, a multiple of 32.
        num_layers: Depth. 192 wide and 2 deep gives about a million parameters.
        seed: Of the weights; the global random state is left alone.
        agent_turns: Arguments of `AgentTurns`.

    Returns:
        The model, in float32, and its tokenizer.
    """
    if hidden_size % 32:
        raise ValueError(f"`hidden_size` must be a multiple of 32, got {hidden_size}.")
    pools = make_pools(list(env_ids), agent_turns)
    tokenizer = build_tokenizer(_collect_messages(pools))
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        # At the usual 0.02 a model this narrow does not learn to read a board.
        initializer_range=hidden_size**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    return model.eval(), tokenizer


def warm_start(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    env_ids: Sequence[EnvLike],
    *,
    num_steps: int = 150,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    teacher: Teacher = "solver",
    seed: int = 0,
    on_step: Callable[[int, float], None] | None = None,
    **agent_turns: Any,
) -> list[float]:
    """Teach the reply format, and with a solver as teacher some play, by supervised steps.

    Args:
        model: Changed in place.
        tokenizer: Its tokenizer.
        env_ids: Environments to take demonstrations from, in equal shares.
        num_steps: Optimizer steps (AdamW, one-cycle schedule).
        batch_size: Episodes per step.
        learning_rate: Highest learning rate.
        teacher: "solver" follows optimal plans where there are any; "random" plays legal actions
            at random, which teaches the format and nothing else; a function of the environment, in
            its `AgentTurns`, and a generator writes the next reply.
        seed: Of the episodes.
        on_step: Called with the number of each step and its loss.
        agent_turns: Arguments of `AgentTurns`.

    Returns:
        The loss of every step.
    """
    chat = ChatCodec(tokenizer, eos_token_ids=[tokenizer.eos_token_id])
    pools = make_pools(list(env_ids), agent_turns)
    with open_pools(pools):
        streams = itertools.cycle(
            [
                play_demonstrations(pool.take(1)[0], chat, teacher=teacher, seed=seed + i)
                for i, pool in enumerate(pools)
            ]
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=learning_rate, total_steps=num_steps
        )
        model.train()
        losses = []
        for step in range(num_steps):
            batch = [next(stream) for stream in itertools.islice(streams, batch_size)]
            loss = _imitation_loss(model, batch, pad_token_id=tokenizer.pad_token_id)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if on_step is not None:
                on_step(step, losses[-1])
    model.eval()
    return losses


def _collect_messages(pools: Sequence[EnvPool]) -> list[str]:
    """Return messages of every environment, the heading of a state, and every reply format."""
    texts = ["State: <think></think><answer> ||</answer>"]
    with open_pools(pools):
        for env, seed in itertools.product(
            [pool.take(1)[0] for pool in pools], range(_VOCABULARY_EPISODES)
        ):
            texts += _play_to_the_end(env, seed, _write_random_replies(env, seed))
            names = env.get_wrapper_attr("action_names")
            texts += [f"{name} {name}" for name in names]
            texts += _play_to_the_end(env, seed, ("", f"{names[0]}?"))
    return texts


def _write_random_replies(env: AgentTurns, seed: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    while True:
        names = env.get_wrapper_attr("action_names")
        yield random_reply(names, rng, num_actions=1, separator=env.separator, think=env.think)


def _play_to_the_end(env: AgentTurns, seed: int, replies: Iterable[str]) -> Iterator[str]:
    """Yield the messages of an episode until it, or the replies, end."""
    yield env.reset(seed=seed)[0]
    for reply in replies:
        message, _, terminated, truncated, _ = env.step(reply)
        yield message
        if terminated or truncated:
            return


def _imitation_loss(
    model: Qwen2ForCausalLM, batch: Sequence[Demonstration], *, pad_token_id: int
) -> torch.Tensor:
    """Mean cross-entropy over the teacher's tokens."""
    width = max(len(demonstration.token_ids) for demonstration in batch)
    ids = torch.full((len(batch), width), pad_token_id)
    labels = torch.full((len(batch), width), -100)
    for i, demonstration in enumerate(batch):
        row = torch.tensor(demonstration.token_ids)
        ids[i, : len(row)] = row
        labels[i, : len(row)] = row.masked_fill(~torch.tensor(demonstration.is_reply), -100)
    # Rows stand flush left and attention is causal, so padding needs no mask.
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    logits = model.lm_head(hidden[targets != -100])
    return F.cross_entropy(logits, targets[targets != -100])


def load_tiny_policy(*, dtype: str = "float32") -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Load the policy that comes with the package, and its tokenizer.

    It was warmed up on Bandit and on FrozenLake without slipping, without think blocks, by
    `examples/make_tiny_checkpoint.py`: it speaks the reply format, pulls arms at random and finds
    the goal in part of the lakes.
    """
    with as_file(files("ragen_trl.tiny") / "checkpoint") as folder:
        model = Qwen2ForCausalLM.from_pretrained(folder, dtype=dtype)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return model.eval(), tokenizer
