"""The agent's side of an environment: one step is one turn, one action is one whole reply."""

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from ragen_envs import prompts
from ragen_envs.agent_checks import (
    check_action_names,
    check_limit,
    check_penalty,
    check_reward,
    check_spaces,
    check_state,
    check_task_description,
)
from ragen_envs.argument_checks import check_env, check_flag, show
from ragen_envs.parsing import DEFAULT_SEPARATOR, ParsedReply, check_separator, parse_reply
from ragen_envs.text_space import SharedText

MAX_REPLY_LENGTH = 4000
MESSAGE_CHARSET = frozenset(string.ascii_letters + string.digits + string.punctuation + " \n")
# No reward takes more characters; see `prompts.format_reward`.
WIDEST_REWARD = -999_999.999


class _Outcome(NamedTuple):
    """What the actions of one turn did together."""

    executed_actions: tuple[str, ...]
    reward: float
    num_effective_actions: int
    terminated: bool
    truncated: bool


class AgentTurns(gym.Wrapper[str, str, str, Any], gym.utils.RecordConstructorArgs):
    """Let a language model play: its reply goes in, the next user message comes out.

    One step is one turn of RAGEN (arXiv:2504.20073) section 2: the reply is parsed
    (`ragen_envs.parse_reply`), cut to the limits and executed in order until the environment ends.
    No content of a reply raises.

    Observation:
        The next user message: on reset the environment's `task_description` (left out where it has
        none), later the reward of the last turn as `step` returned it; then the state on its own
        lines, the action names, what is left of turns and actions, and the reply format. After the
        end: the reward and the final state. The declared space holds every message as long as
        action names and task description keep their characters and total length.

    Actions:
        Any `str`; the declared space is there for sampling.

    Reward:
        The sum of the environment's rewards in this turn, plus `format_penalty` once if the reply
        was malformed or held an unknown action. Actions beyond a limit are cut free of charge.

    Episode end:
        Terminated with the environment. Truncated with the environment, or when turns or actions
        are used up before it terminates. A malformed reply uses up a turn.

    Info:
        The environment's own info after its last action (or its reset), and:

        | key | type | meaning |
        |---|---|---|
        | `num_actions` | int | actions executed in this episode |
        | `num_turns` | int | turns used in this episode |
        | `state` | str | the environment's own observation, without the words around it |
        | `reply` | ParsedReply | what was read from the reply (step only) |
        | `executed_actions` | tuple of str | canonical names, in order (step only) |
        | `turn_reward` | float | sum of the environment's rewards alone (step only) |
        | `format_penalty` | float | 0.0 or the penalty (step only) |
        | `num_effective_actions` | int | actions of this turn that changed the state (step only) |

        An action is effective if the environment's `action_is_effective` says so, or else if the
        observation changed.

    Arguments:
        env: Environment with `Text` observations and either a `Discrete` action space and
            `action_names` (by index; they may be reordered between steps) or a `Text` action space,
            whose members are then the legal actions.
        max_turns: Turns per episode.
        max_actions_per_turn: Actions executed per turn.
        max_actions_per_episode: Actions executed per episode.
        separator: What stands between two actions of a reply.
        think: Whether a reply must begin with a closed think block.
        format_penalty: Added to the reward of a turn with an invalid reply; at most 0.

    Raises:
        TypeError: If a space or an argument has the wrong type.
        ValueError: If an argument is out of range, or the action names are missing, ambiguous, not
            one per action, or hold the separator.
    """

    def __init__(
        self,
        env: gym.Env[str, Any],
        *,
        max_turns: int = 5,
        max_actions_per_turn: int = 5,
        max_actions_per_episode: int = 10,
        separator: str = DEFAULT_SEPARATOR,
        think: bool = True,
        format_penalty: float = -0.1,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            max_turns=max_turns,
            max_actions_per_turn=max_actions_per_turn,
            max_actions_per_episode=max_actions_per_episode,
            separator=separator,
            think=think,
            format_penalty=format_penalty,
        )
        check_env(env)
        gym.Wrapper.__init__(self, env)
        _check_not_nested(env)
        check_separator(separator)
        self.max_turns = check_limit("max_turns", max_turns)
        self.max_actions_per_turn = check_limit("max_actions_per_turn", max_actions_per_turn)
        self.max_actions_per_episode = check_limit(
            "max_actions_per_episode", max_actions_per_episode
        )
        self.separator = separator
        self.think = check_flag("think", think)
        self.format_penalty = check_penalty(format_penalty)
        self._label = str(type(env.unwrapped).__name__ if env.spec is None else env.spec.id)
        check_spaces(env, self._label)
        self._reply_example = prompts.write_reply_example(
            max_actions_per_turn=self.max_actions_per_turn, separator=separator, think=self.think
        )
        self._is_running = False
        self._num_turns = self._num_actions = 0
        self._state = ""
        self._env_info: dict[str, Any] = {}
        self._checked_actions: tuple[tuple[str, ...], int, int] | None = None
        self._action_indices: dict[str, int] = {}
        self.observation_space = self._build_observation_space()
        self.action_space = self._build_action_space()

    @property
    def turns_left(self) -> int:
        """Turns that this episode may still take."""
        return self.max_turns - self._num_turns

    @property
    def actions_left(self) -> int:
        """Actions that this episode may still take."""
        return self.max_actions_per_episode - self._num_actions

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Reset the environment and return the first message.

        Raises:
            TypeError: If the environment's observation or task description is not a `str`.
        """
        self._is_running = False
        state, self._env_info = self.env.reset(seed=seed, options=options)
        self._state = check_state(state, self._label, "at reset")
        self._num_turns = self._num_actions = 0
        message = self._write_first_message(self._state)
        self._is_running = True
        return message, self._collect_info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn.

        Args:
            action: The model's whole reply.

        Raises:
            ResetNeeded: Before the first `reset`, after the end of an episode, and after a turn in
                which the environment raised.
            TypeError: If `action`, the environment's observation or its reward has the wrong type.
            ValueError: If a reward of the environment is not finite.
        """
        if not self._is_running:
            raise ResetNeeded(
                "The episode is over (or never began). Call `reset()` before `step()`."
            )
        if not isinstance(action, str):
            raise TypeError(
                f"`action` must be a str, the model's whole reply, got {show(action)}. "
                "Decode it first."
            )
        indices = self._read_action_indices()
        reply = self._parse(action, indices)
        # Until the turn is complete: an environment that raised half-way has no defined state.
        self._is_running = False
        self._num_turns += 1
        outcome = self._execute(self._cut(reply.actions), indices)
        is_used_up = self.turns_left == 0 or self.actions_left == 0
        truncated = outcome.truncated or (is_used_up and not outcome.terminated)
        is_over = outcome.terminated or truncated
        penalty = 0.0 if reply.is_valid else self.format_penalty
        reward = outcome.reward + penalty
        info = self._collect_info(
            reply=reply,
            executed_actions=outcome.executed_actions,
            turn_reward=outcome.reward,
            format_penalty=penalty,
            num_effective_actions=outcome.num_effective_actions,
        )
        if is_over:
            message = prompts.write_last_message(reward, self._state)
        else:
            message = prompts.write_turn_message(reward, reply, self._state, self._write_request())
        self._is_running = not is_over
        return message, reward, outcome.terminated, truncated, info

    def _parse(self, text: str, indices: Mapping[str, int] | None) -> ParsedReply:
        if indices is not None:
            return parse_reply(text, tuple(indices), separator=self.separator, think=self.think)
        reply = parse_reply(text, None, separator=self.separator, think=self.think)
        known = tuple(filter(self.env.action_space.contains, reply.actions))
        return ParsedReply(reply.thought, known, 0 < len(known) == len(reply.actions))

    def _cut(self, actions: tuple[str, ...]) -> tuple[str, ...]:
        return actions[: min(self.max_actions_per_turn, self.actions_left)]

    def _execute(self, actions: tuple[str, ...], indices: Mapping[str, int] | None) -> _Outcome:
        """Carry out the actions in order until the environment ends."""
        turn_reward, num_effective, num_executed = 0.0, 0, 0
        terminated = truncated = False
        for action in actions:
            env_action: Any = action if indices is None else indices[action]
            state, reward, terminated, truncated, self._env_info = self.env.step(env_action)
            self._num_actions += 1
            num_executed += 1
            when = f"in turn {self._num_turns} after action {action!r}"
            turn_reward += check_reward(reward, self._label, when)
            has_changed = check_state(state, self._label, when) != self._state
            num_effective += bool(self._env_info.get("action_is_effective", has_changed))
            self._state = state
            if terminated or truncated:
                break
        executed = actions[:num_executed]
        return _Outcome(executed, turn_reward, num_effective, bool(terminated), bool(truncated))

    def _read_action_indices(self) -> dict[str, int] | None:
        """Return the env's actions by name as they are now, `None` where actions are free text."""
        action_space = self.env.action_space
        if not isinstance(action_space, spaces.Discrete):
            return None
        try:
            names = self.env.get_wrapper_attr("action_names")
        except AttributeError:
            raise ValueError(
                f"`env` must name its actions, but {self._label} has a Discrete action space and no "
                "`action_names`. Set `action_names` on the env, a tuple with one name per action."
            ) from None
        # They rarely change, and checking them takes longer than the rest of a turn.
        actions = (names, int(action_space.n), int(action_space.start))
        if not (isinstance(names, tuple) and actions == self._checked_actions):
            _, num_actions, start = actions
            check_action_names(names, num_actions, self.separator, self._label)
            self._action_indices = {name: start + index for index, name in enumerate(names)}
            self._checked_actions = actions
        return self._action_indices

    def _read_task_description(self) -> str:
        try:
            description = self.env.get_wrapper_attr("task_description")
        except AttributeError:
            return ""
        return check_task_description(description, self._label)

    def _collect_info(self, **turn_info: Any) -> dict[str, Any]:
        own = {
            "num_actions": self._num_actions,
            "num_turns": self._num_turns,
            "state": self._state,
        }
        return {**self._env_info, **own, **turn_info}

    def _write_request(self) -> str:
        return prompts.write_request(
            self._read_action_indices(),
            turns_left=self.turns_left,
            actions_left=self.actions_left,
            reply_example=self._reply_example,
        )

    def _write_first_message(self, state: str) -> str:
        return prompts.write_first_message(
            self._read_task_description(),
            state,
            self._write_request(),
            max_actions_per_turn=self.max_actions_per_turn,
            separator=self.separator,
        )

    def _build_observation_space(self) -> spaces.Text:
        """Bound the messages by the longest ones, written around an empty state."""
        first = self._write_first_message("")
        malformed = ParsedReply("", (), is_valid=False)
        later = prompts.write_turn_message(WIDEST_REWARD, malformed, "", self._write_request())
        env_space = self.env.observation_space
        assert isinstance(env_space, spaces.Text)  # by `check_spaces`
        return SharedText(
            max_length=max(len(first), len(later)) + env_space.max_length,
            charset=MESSAGE_CHARSET.union(first, later, env_space.character_set),
        )

    def _build_action_space(self) -> spaces.Text:
        env_charset = frozenset[str]()
        if isinstance(self.env.action_space, spaces.Text):
            env_charset = self.env.action_space.character_set
        charset = frozenset(string.printable).union(self._write_request(), env_charset)
        return spaces.Text(max_length=MAX_REPLY_LENGTH, min_length=0, charset=charset)


def _check_not_nested(env: gym.Env[Any, Any]) -> None:
    """Refuse an environment that is in the agent's view already: its actions are replies."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, AgentTurns):
            raise TypeError(f"`env` must not be wrapped in AgentTurns already, got {env}.")
        inner = inner.env
