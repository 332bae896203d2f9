"""The multi-turn loop: live environments on one side, a function that writes replies on the other."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragen_envs import AgentTurns
from ragen_trl.chat import ChatCodec
from ragen_trl.environments import EnvPool, reset_options
from ragen_trl.generation import GenerateFn, Reply
from ragen_trl.trajectory import Trajectory, Turn


@dataclass(frozen=True)
class EpisodeStart:
    """Where one episode begins.

    Attributes:
        env: The environment in the agent's view; no other episode of the rollout may use it.
        env_id: Its name, for records and messages.
        seed: Seed of the start state, shared by the group.
        group_id: Index of the group in the rollout.
        member: Index of the episode in its group; decides the luck after the start.
    """

    env: AgentTurns
    env_id: str
    seed: int
    group_id: int
    member: int


def start_episodes(episodes: Sequence[tuple[EnvPool, int, int, int]]) -> list[EpisodeStart]:
    """Give every episode an environment of its own.

    Args:
        episodes: Pool, seed, group and member of each.
    """
    counts = Counter(pool for pool, *_ in episodes)
    free = {pool: iter(pool.take(count)) for pool, count in counts.items()}
    return [
        EpisodeStart(next(free[pool]), pool.name, seed, group_id, member)
        for pool, seed, group_id, member in episodes
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
    """Seconds spent in a rollout, by what they were spent on."""

    environment: float = 0.0
    generation: float = 0.0


@dataclass
class _Episode:
    """One episode while it is played."""

    start: EpisodeStart
    observation: str = ""
    state: str = ""
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
        )


def play_episodes(
    starts: Sequence[EpisodeStart],
    *,
    generate: GenerateFn,
    chat: ChatCodec,
    limits: TokenLimits,
    timer: RolloutTimer | None = None,
) -> list[Trajectory]:
    """Play all episodes side by side, turn by turn; only live ones are generated for and stepped.

    Args:
        starts: The episodes, in the order of the result.
        generate: Writes one reply per live episode.
        chat: Writes messages as token ids and reads replies.
        limits: Token limits per turn and per trajectory.
        timer: Collects the time spent, if given.

    Returns:
        One trajectory per start.

    Raises:
        RuntimeError: If an environment raises, pays something that is not a finite number, or
            observes something that is not text; the message names environment, seed and turn.
    """
    timer = timer or RolloutTimer()
    episodes = [_Episode(start) for start in starts]
    begin = time.perf_counter()
    for episode in episodes:
        _begin(episode, chat, limits)
    timer.environment += time.perf_counter() - begin
    while live := [episode for episode in episodes if episode.is_live]:
        begin = time.perf_counter()
        room = [limits.max_trajectory_tokens - len(episode.token_ids) for episode in live]
        budget = min(limits.max_new_tokens_per_turn, max(room))
        replies = generate([episode.token_ids for episode in live], budget)
        generated = time.perf_counter()
        for episode, reply, most in zip(live, replies, room, strict=True):
            _take_turn(episode, Reply(reply.ids[:most], reply.logps[:most]), chat, limits)
        timer.generation += generated - begin
        timer.environment += time.perf_counter() - generated
    return [episode.finish() for episode in episodes]


def _begin(episode: _Episode, chat: ChatCodec, limits: TokenLimits) -> None:
    start = episode.start
    try:
        episode.observation, info = start.env.reset(
            seed=start.seed, options=reset_options(start.env, start.seed, start.member)
        )
    except Exception as error:
        raise _environment_error(start, "reset", error) from error
    episode.state = info["state"]
    episode.prompt_ids = chat.encode_start(episode.observation)
    episode.truncated = len(episode.prompt_ids) >= limits.max_trajectory_tokens


def _take_turn(episode: _Episode, reply: Reply, chat: ChatCodec, limits: TokenLimits) -> None:
    turn = len(episode.turns)
    episode.add_tokens(reply.ids, reply.logps, turn)
    text = chat.decode_reply(reply.ids)
    try:
        observation, _, terminated, truncated, info = episode.start.env.step(text)
    except Exception as error:
        raise _environment_error(episode.start, f"turn {turn + 1}", error) from error
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
