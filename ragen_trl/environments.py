"""Which environments are played: specifications and pools of instances."""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import gymnasium as gym

from ragen_envs import AgentTurns
from ragen_envs.curriculum import Curriculum
from ragen_envs.text_env import DYNAMICS_SEED

EnvFactory = Callable[..., gym.Env[Any, Any]]


@dataclass(frozen=True)
class EnvSpec:
    """One environment of a mixture.

    Attributes:
        id_or_factory: A Gymnasium id, or a callable that returns an environment.
        weight: Share of the groups, relative to the other environments of the mixture.
        kwargs: Keyword arguments of `gymnasium.make` or of the callable.
        agent_turns: Arguments of `AgentTurns` that differ from the trainer's configuration.
        curriculum: Moves the range of solution lengths in training, by the success of what was
            played; evaluation plays the range of `kwargs`. Needs an environment whose `reset` knows
            the options `min_solution_length` and `max_solution_length`. It changes as training goes
            on, so give each trainer its own.
    """

    id_or_factory: str | EnvFactory
    weight: float = 1.0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    agent_turns: Mapping[str, Any] = field(default_factory=dict)
    curriculum: Curriculum | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.id_or_factory, str) or callable(self.id_or_factory)):
            raise TypeError(
                "`env` must be a Gymnasium id, a callable that returns an environment, an "
                f"`EnvSpec`, or a list of these, got {self.id_or_factory!r}."
            )
        if not isinstance(self.weight, Real):
            raise TypeError(
                f"`weight` must be a number, got {self.weight!r} for {self.id_or_factory!r}. Several "
                "environments are given as a list."
            )
        if not 0 < self.weight < math.inf:
            raise ValueError(
                f"`weight` must be positive and finite, got {self.weight} for "
                f"{self.id_or_factory!r}. Leave the environment out instead."
            )
        if not isinstance(self.curriculum, Curriculum | None):
            raise TypeError(
                f"`curriculum` must be a `ragen_envs.curriculum.Curriculum`, got {self.curriculum!r} "
                f"for {self.id_or_factory!r}."
            )


EnvLike = str | EnvFactory | EnvSpec | tuple[str | EnvFactory | EnvSpec, float]


def resolve_env_specs(env: EnvLike | Sequence[EnvLike]) -> list[EnvSpec]:
    """Turn every accepted form of `env` into a list of specifications.

    Raises:
        TypeError: If an entry is none of the accepted forms or a weight not a number.
        ValueError: If the list is empty or a weight is not positive and finite.
    """
    entries = env if isinstance(env, list) else [env]
    if not entries:
        raise ValueError("`env` must name at least one environment, got an empty list.")
    specs = []
    for entry in entries:
        if isinstance(entry, tuple) and len(entry) != 2:
            raise TypeError(
                f"`env` must hold (environment, weight) pairs, got {entry!r}. Several environments "
                "are given as a list."
            )
        source, weight = entry if isinstance(entry, tuple) else (entry, None)
        spec = source if isinstance(source, EnvSpec) else EnvSpec(source)
        specs.append(spec if weight is None else replace(spec, weight=weight))
    return specs


class EnvPool:
    """Reusable instances of one environment, each in the agent's view (`AgentTurns`).

    Args:
        spec: What to make.
        agent_turns: Arguments of `AgentTurns`; those of the specification take precedence. An
            environment that already is an `AgentTurns` is left as it is.

    Attributes:
        spec: As given.
        name: The environment's id, or the name of the callable that made it.
    """

    def __init__(self, spec: EnvSpec, agent_turns: Mapping[str, Any]) -> None:
        self.spec = spec
        self._agent_turns = {**agent_turns, **spec.agent_turns}
        self._envs: list[AgentTurns] = []
        self._num_users = 0
        first = self.take(1)[0]
        source = spec.id_or_factory
        self.name = first.spec.id if first.spec else getattr(source, "__name__", str(source))

    def take(self, count: int) -> list[AgentTurns]:
        """Return `count` instances, made when there are not enough yet."""
        while len(self._envs) < count:
            self._envs.append(self._make())
        return self._envs[:count]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Close all instances at the end, when nobody else has the pool open; `take` makes new ones."""
        self._num_users += 1
        try:
            yield
        finally:
            self._num_users -= 1
            if self._num_users == 0:
                self.close()

    def close(self) -> None:
        """Close all instances, also where closing one of them fails."""
        with ExitStack() as stack:
            while self._envs:
                stack.callback(self._envs.pop().close)

    def _make(self) -> AgentTurns:
        source = self.spec.id_or_factory
        if isinstance(source, str):
            env = gym.make(source, disable_env_checker=True, **self.spec.kwargs)
        else:
            env = source(**self.spec.kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(
                f"`env` must return a `gymnasium.Env`, but {source!r} returned "
                f"{type(env).__name__}."
            )
        if any(env.unwrapped is other.unwrapped for other in self._envs):
            raise ValueError(
                f"`env` must return a new environment on every call, but {source!r} returned the "
                "same one twice. Episodes are played side by side."
            )
        with close_after_error([env]):
            return self._in_agents_view(env)

    def _in_agents_view(self, env: gym.Env[Any, Any]) -> AgentTurns:
        if not isinstance(env, AgentTurns):
            return AgentTurns(env, **self._agent_turns)
        if self.spec.agent_turns:
            raise ValueError(
                f"`agent_turns` must be left empty for {self.spec.id_or_factory!r}, which returns an "
                f"`AgentTurns` already, got {dict(self.spec.agent_turns)}. Return the environment "
                "inside it."
            )
        return env


def make_pools(env: EnvLike | Sequence[EnvLike], agent_turns: Mapping[str, Any]) -> list[EnvPool]:
    """Make one pool per environment of a mixture; equal names are numbered from the second on."""
    pools: list[EnvPool] = []
    with close_after_error(pools):
        for spec in resolve_env_specs(env):
            pools.append(EnvPool(spec, agent_turns))
    seen: dict[str, int] = {}
    for pool in pools:
        seen[pool.name] = seen.get(pool.name, 0) + 1
        if seen[pool.name] > 1:
            pool.name = f"{pool.name}#{seen[pool.name]}"
    return pools


@contextmanager
def close_after_error(things: Collection[gym.Env[Any, Any] | EnvPool]) -> Iterator[None]:
    """Close environments or pools if the block fails, those that it added meanwhile included."""
    try:
        yield
    except BaseException:
        with ExitStack() as stack:
            for thing in things:
                stack.callback(thing.close)
        raise


@contextmanager
def open_pools(pools: Iterable[EnvPool]) -> Iterator[None]:
    """Keep pools open, each once; see `EnvPool.open`."""
    with ExitStack() as stack:
        for pool in dict.fromkeys(pools):
            stack.enter_context(pool.open())
        yield


def make_eval_pools(
    eval_env: EnvLike | Sequence[EnvLike] | Mapping[str, EnvLike] | None,
    train_pools: Sequence[EnvPool],
    agent_turns: Mapping[str, Any],
) -> dict[str, EnvPool]:
    """Return the evaluation environments by name; those of training when none are given."""
    if isinstance(eval_env, Mapping):
        is_named = all(isinstance(name, str) for name in eval_env)
        if not eval_env or not is_named or any(isinstance(e, list) for e in eval_env.values()):
            raise ValueError(
                "`eval_env` must map names to single environments, got "
                f"{dict(eval_env)!r}. Give every environment a name of its own."
            )
        named: dict[str, EnvPool] = {}
        with close_after_error(named.values()):
            for name, env in eval_env.items():
                named[name] = make_pools(env, agent_turns)[0]
        return named
    pools = train_pools if eval_env is None else make_pools(eval_env, agent_turns)
    return {pool.name: pool for pool in pools}


def reset_options(env: AgentTurns, seed: int, member: int) -> dict[str, Any] | None:
    """Return the options that give one member of a group its own luck after the common start.

    Environments of `ragen_envs`, and those that `ragen_envs.from_gym` returns, know the option
    `dynamics_seed`, as does any other that names it in `option_names`. The rest is reset by seed
    alone, so that all members of a group meet the same luck.
    """
    try:
        option_names = env.get_wrapper_attr("option_names")
    except AttributeError:
        return None
    if DYNAMICS_SEED not in option_names:
        return None
    # A tenth of the time that numpy's SeedSequence takes, which counts beside a short episode.
    luck = hashlib.blake2b(f"{seed}/{member}".encode(), digest_size=8).digest()
    return {DYNAMICS_SEED: int.from_bytes(luck, "little")}
