"""The multi-turn loop: live environments on one side, an engine that writes replies on the other."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ragen_envs import AgentTurns
from ragen_trl.chat import ChatCodec
from ragen_trl.engines import Engine, Reply
from ragen_trl.environments import reset_options
from ragen_trl.start_states import GroupStart
from ragen_trl.trajectory import Trajectory, Turn

# Apart from what the environment draws with the same seed and member.
_TOKEN_STREAM = 0x546F6B65


@dataclass(frozen=True)
class EpisodeStart:
    """Where one episode begins.

    Attributes:
        env: The environment in the agent's view; no other episode of the rollout may use it.
        env_id: Its name, for records and messages.
        seed: Seed of the start state, shared by the group.
        group_id: Index of the group in the rollout.
        member: Index of the episode in its group; decides the luck after the start.
        options: Further options of `reset`.
    """

    env: AgentTurns
    env_id: str
    seed: int
    group_id: int
    member: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def luck_seed(self) -> int:
        """Seed of the tokens that are drawn in the episode where its luck is its own."""
        entropy = np.random.SeedSequence([_TOKEN_STREAM, self.seed, self.member])
        return int(entropy.generate_state(1, np.uint64)[0])


def start_episodes(episodes: Sequence[tuple[GroupStart, int, int]]) -> list[EpisodeStart]:
    """Give every episode an environment of its own.

    Args:
        episodes: Start of the group, index of the group, and member of each.
    """
    counts = Counter(start.pool for start, *_ in episodes)
    free = {pool: iter(pool.take(count)) for pool, count in counts.items()}
    return [
        EpisodeStart(next(free[pool]), pool.name, seed, group_id, member, options)
        for (pool, seed, options), group_id, member in episodes
    ]


@dataclass(frozen=True)
class TokenLimits:
    """Two limits with two meanings.

    Attributes:
        max_new_tokens_per_turn: A longer reply is cut; it counts as it stands, and play goes on.
        max_trajectory_tokens: Prompt and completion together; the episode ends as truncated where
            the next message would leave no room for a reply.
    """

    max_new_tokens_per_turn: int
    max_trajectory_tokens: int


@dataclass
class RolloutTimer:
    """What a rollout took.

    Attributes:
        environment: Seconds of resets and steps.
        generation: Seconds of the engine.
        cache_bytes: Most memory that keys and values took, in bytes.
    """

    environment: float = 0.0
    generation: float = 0.0
    cache_bytes: int = 0


class TurnReport(NamedTuple):
    """Where a wave of episodes stands after a turn.

    Attributes:
        turn: Number of the turn, counted from 1.
        num_finished: Episodes that ended in it.
        num_tokens: Tokens that were sampled in it.
    """

    turn: int
    num_finished: int
    num_tokens: int


@dataclass
class _Episode:
    """One episode while it is played."""

    start: EpisodeStart
    observation: str = ""
    state: str = ""
    unread_ids: list[int] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    action_mask: list[bool] = field(default_factory=list)
    turn_index: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    format_penalties: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    num_effective_actions: int = 0

    @property
    def is_live(self) -> bool:
        return not (self.terminated or self.truncated)

    @property
    def token_ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    def add_tokens(self, ids: Sequence[int], logps: Sequence[float] | None, turn: int) -> None:
        self.completion_ids += ids
        self.action_mask += [logps is not None] * len(ids)
        self.turn_index += [turn if logps is not None else -1] * len(ids)
        self.logps += logps if logps is not None else [0.0] * len(ids)

    def finish(self) -> Trajectory:
        return Trajectory(
            env_id=self.start.env_id,
            seed=self.start.seed,
            group_id=self.start.group_id,
            prompt_ids=self.prompt_ids,
            completion_ids=self.completion_ids,
            action_mask=self.action_mask,
            turn_index=self.turn_index,
            logps=self.logps,
            turn_rewards=self.turn_rewards,
            format_penalties=self.format_penalties,
            terminated=self.terminated,
            truncated=self.truncated,
            success=self.success,
            turns=self.turns,
            num_effective_actions=self.num_effective_actions,
            final_state=self.state,
        )


def play_episodes(
    starts: Sequence[EpisodeStart],
    *,
    engine: Engine,
    chat: ChatCodec,
    limits: TokenLimits,
    has_own_luck: bool = False,
    timer: RolloutTimer | None = None,
    on_turn: Callable[[TurnReport], None] | None = None,
) -> list[Trajectory]:
    """Play all episodes side by side, turn by turn; only live ones are generated for and stepped.

    Args:
        starts: The episodes, in the order of the result.
        engine: Writes the replies.
        chat: Writes messages as token ids and reads replies.
        limits: Token limits per turn and per trajectory.
        has_own_luck: Whether the tokens of an episode depend on its seed and member alone, and not on
            what is played beside it; by default torch's generator serves all.
        timer: Collects what the rollout took, if given.
        on_turn: Called after every turn.

    Returns:
        One trajectory per start.

    Raises:
        RuntimeError: If an environment raises, pays something that is not a finite number, or
            observes something that is not text (the message names environment, seed and turn), or
            if the engine fails (it names engine, turn and number of rows).
    """
    timer = timer or RolloutTimer()
    episodes = [_Episode(start) for start in starts]
    for episode in episodes:
        _begin(episode, timer)
    # The members of a group have one first message.
    prompts = {text: chat.encode_start(text) for text in {e.observation for e in episodes}}
    for episode in episodes:
        episode.prompt_ids = list(prompts[episode.observation])
        episode.truncated = len(episode.prompt_ids) >= limits.max_trajectory_tokens
    luck_seeds = [start.luck_seed for start in starts] if has_own_luck else None
    session = engine.start([episode.prompt_ids for episode in episodes], luck_seeds)
    turn = 0
    while rows := [row for row, episode in enumerate(episodes) if episode.is_live]:
        turn += 1
        live = [episodes[row] for row in rows]
        room = [limits.max_trajectory_tokens - len(episode.token_ids) for episode in live]
        budgets = [min(limits.max_new_tokens_per_turn, most) for most in room]
        begin = time.perf_counter()
        try:
            replies = session.reply(rows, [episode.unread_ids for episode in live], budgets)
        except Exception as error:
            raise RuntimeError(
                f"Engine {engine.name!r} failed in turn {turn} with {len(rows)} rows: "
                f"{type(error).__name__}: {error}"
            ) from error
        timer.generation += time.perf_counter() - begin
        for episode, reply in zip(live, replies, strict=True):
            _take_turn(episode, reply, chat, limits, timer)
        if on_turn is not None:
            num_finished = sum(not episode.is_live for episode in live)
            on_turn(TurnReport(turn, num_finished, sum(len(reply.ids) for reply in replies)))
    timer.cache_bytes = max(timer.cache_bytes, session.cache_bytes)
    return [episode.finish() for episode in episodes]


def _begin(episode: _Episode, timer: RolloutTimer) -> None:
    start, begin = episode.start, time.perf_counter()
    try:
        luck = reset_options(start.env, start.seed, start.member) or {}
        episode.observation, info = start.env.reset(
            seed=start.seed, options={**start.options, **luck} or None
        )
    except Exception as error:
        raise _environment_error(start, "reset", error) from error
    timer.environment += time.perf_counter() - begin
    episode.state = info["state"]


def _take_turn(
    episode: _Episode, reply: Reply, chat: ChatCodec, limits: TokenLimits, timer: RolloutTimer
) -> None:
    turn = len(episode.turns)
    episode.add_tokens(reply.ids, reply.logps, turn)
    text = chat.decode_reply(reply.ids)
    begin = time.perf_counter()
    try:
        observation, _, terminated, truncated, info = episode.start.env.step(text)
    except Exception as error:
        raise _environment_error(episode.start, f"turn {turn + 1}", error) from error
    timer.environment += time.perf_counter() - begin
    _record_turn(episode, text, info)
    episode.terminated, episode.truncated = terminated, truncated
    # An environment that does not report success counts as solved when its end is rewarded.
    episode.success = bool(info.get("success", terminated and info["turn_reward"] > 0))
    if not episode.is_live:
        return
    episode.observation = observation
    message_ids = chat.encode_next(observation, reply_ids=reply.ids)
    if len(episode.token_ids) + len(message_ids) >= limits.max_trajectory_tokens:
        episode.truncated = True
    else:
        episode.add_tokens(message_ids, None, turn)
        episode.unread_ids = message_ids


def _record_turn(episode: _Episode, reply: str, info: dict[str, Any]) -> None:
    parsed = info["reply"]
    episode.turns.append(
        Turn(
            observation=episode.observation,
            reply=reply,
            actions=tuple(parsed.actions),
            executed_actions=tuple(info["executed_actions"]),
            is_valid=parsed.is_valid,
            state=episode.state,
        )
    )
    episode.state = info["state"]
    episode.turn_rewards.append(float(info["turn_reward"]))
    episode.format_penalties.append(float(info["format_penalty"]))
    episode.num_effective_actions += info["num_effective_actions"]


def _environment_error(start: EpisodeStart, where: str, error: Exception) -> RuntimeError:
    return RuntimeError(
        f"Environment {start.env_id!r} failed with seed {start.seed} in {where}: "
        f"{type(error).__name__}: {error}"
    )
