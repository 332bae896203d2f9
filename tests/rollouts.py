"""A policy that writes what the test says, and rollouts of it in scripted environments."""

import itertools
from collections.abc import Sequence

from ragen_envs import AgentTurns
from ragen_trl.chat import ChatCodec
from ragen_trl.engines import ReferenceEngine, Reply
from ragen_trl.environments import EnvPool, EnvSpec
from ragen_trl.rollout import EpisodeStart, TokenLimits, play_episodes, start_episodes
from ragen_trl.start_states import GroupStart
from tests.fakes import ScriptedTextEnv

WIDE = TokenLimits(max_new_tokens_per_turn=10**6, max_trajectory_tokens=10**6)


class ScriptedPolicy:
    """A `generate` function that plays back ids; log-probabilities are -1, -2, -3, ... in order.

    Attributes:
        calls: What it was given: per call the ids of every row, and the token budget.
        replies: What it answered: per call and row a `Reply`.
    """

    def __init__(self, *calls: Sequence[Sequence[int]]) -> None:
        self.calls: list[tuple[list[list[int]], int]] = []
        self.replies: list[list[Reply]] = []
        self._script = [[list(ids) for ids in call] for call in calls]
        self._clock = itertools.count(1)

    def __call__(self, token_ids, max_new_tokens):
        self.calls.append(([list(ids) for ids in token_ids], max_new_tokens))
        rows = self._script[len(self.calls) - 1]
        assert len(rows) == len(token_ids), (
            f"call {len(self.calls)}: {len(token_ids)} live episodes"
        )
        # As a real policy would, it obeys the budget.
        cut = [ids[:max_new_tokens] for ids in rows]
        self.replies.append([Reply(ids, [-float(next(self._clock)) for _ in ids]) for ids in cut])
        return self.replies[-1]


def make_codec(tokenizer):
    return ChatCodec(tokenizer, eos_token_ids=[tokenizer.eos_token_id])


def make_starts(scripts, *, agent_turns=None, seed=3, **kwargs):
    """Return one episode per script of `Step`s, and the scripted environments inside."""
    inner = [ScriptedTextEnv(script, **kwargs) for script in scripts]
    starts = [
        EpisodeStart(AgentTurns(env, **(agent_turns or {})), f"env{i}", seed + i, i, 0)
        for i, env in enumerate(inner)
    ]
    return starts, inner


def play(starts, policy, tokenizer, *, limits=WIDE, timer=None):
    return play_episodes(
        starts,
        engine=ReferenceEngine(policy),
        chat=make_codec(tokenizer),
        limits=limits,
        timer=timer,
    )


def play_groups(make_env, policy, tokenizer, *, seeds, num_generations, **agent_turns):
    """Play one group per seed in environments of one pool."""
    pool = EnvPool(EnvSpec(make_env), agent_turns)
    starts = start_episodes(
        [
            (GroupStart(pool, seed), g, m)
            for g, seed in enumerate(seeds)
            for m in range(num_generations)
        ]
    )
    return play(starts, policy, tokenizer)


def prefix_of_turn(trajectory, turn):
    """Return all ids that stand before the first token of a turn's reply."""
    first = trajectory.turn_index.index(turn)
    return trajectory.prompt_ids + trajectory.completion_ids[:first]
