"""Demonstrations for the embedded policy: conversations as token ids with a loss mask."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ragen_envs import AgentTurns, BanditEnv, FrozenLakeEnv, SokobanEnv, solve
from ragen_envs.baselines import random_reply
from ragen_envs.parsing import format_reply
from ragen_trl.chat import ChatCodec

# A function gets the environment and a generator, and writes the next reply.
Teacher = Literal["solver", "random"] | Callable[[AgentTurns, np.random.Generator], str]


@dataclass(frozen=True)
class Demonstration:
    """One played episode.

    Attributes:
        token_ids: The whole conversation.
        is_reply: `True` where the teacher wrote the token, end-of-turn tokens included.
        success: Whether the teacher solved the task.
    """

    token_ids: list[int]
    is_reply: list[bool]
    success: bool


def play_demonstrations(
    env: AgentTurns, chat: ChatCodec, *, teacher: Teacher, seed: int
) -> Iterator[Demonstration]:
    """Play one episode after the other, without end.

    The "solver" follows an optimal plan where there is one. A bandit has no plan that could be read
    from its text, and slippery ice none that is fixed: there, and as "random", the teacher replies
    with legal actions at random. A function as teacher writes whatever it wants to.
    """
    rng = np.random.default_rng(seed)
    while True:
        yield _play(env, chat, teacher, rng)


def _play(
    env: AgentTurns, chat: ChatCodec, teacher: Teacher, rng: np.random.Generator
) -> Demonstration:
    message, info = env.reset(seed=int(rng.integers(2**31)))
    token_ids = chat.encode_start(message)
    is_reply = [False] * len(token_ids)
    over = False
    while not over:
        budget = min(env.max_actions_per_turn, env.max_actions_per_episode - info["num_actions"])
        reply_ids = chat.encode_reply(_write_reply(env, teacher, rng, budget))
        token_ids += reply_ids
        is_reply += [True] * len(reply_ids)
        message, reward, terminated, truncated, info = env.step(chat.decode_reply(reply_ids))
        over = terminated or truncated
        if not over:
            message_ids = chat.encode_next(message, reply_ids=reply_ids)
            token_ids += message_ids
            is_reply += [False] * len(message_ids)
    success = info.get("success", terminated and reward > 0)
    return Demonstration(token_ids, is_reply, bool(success))


def _write_reply(env: AgentTurns, teacher: Teacher, rng: np.random.Generator, budget: int) -> str:
    if callable(teacher):
        return teacher(env, rng)
    names = env.get_wrapper_attr("action_names")
    plan = _plan(env) if teacher == "solver" else None
    if not plan:
        num_actions = 1 if isinstance(env.unwrapped, BanditEnv) else int(rng.integers(budget)) + 1
        return random_reply(
            names, rng, num_actions=num_actions, separator=env.separator, think=env.think
        )
    actions = [names[action] for action in plan[:budget]]
    return format_reply(actions, separator=env.separator, think=env.think)


def _plan(env: AgentTurns) -> list[int] | None:
    bare = env.unwrapped
    is_plannable = isinstance(bare, SokobanEnv) or (
        isinstance(bare, FrozenLakeEnv) and not bare.is_slippery
    )
    return solve(env) if is_plannable else None
