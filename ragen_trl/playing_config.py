"""What is played and how: the part of the configuration that does not ask who learns from it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from trl import GRPOConfig


@dataclass
class PlayingConfig(GRPOConfig):
    """Fields of environments and rollouts; [`StarPOConfig`] documents and checks them."""

    _VALID_DICT_FIELDS = GRPOConfig._VALID_DICT_FIELDS

    # Environment
    num_env_groups: int = field(
        default=8,
        metadata={
            "help": "Start states per rollout (P in the paper); each is one group of `num_generations` episodes."
        },
    )
    max_turns: int = field(default=5, metadata={"help": "Replies per episode."})
    max_actions_per_turn: int = field(
        default=5,
        metadata={"help": "Actions executed per reply; further ones are cut without penalty."},
    )
    max_actions_per_episode: int = field(
        default=10, metadata={"help": "Actions executed per episode."}
    )
    action_separator: str = field(
        default="||", metadata={"help": "Text between two actions of one reply."}
    )
    enable_think: bool = field(
        default=True,
        metadata={"help": "Whether a reply must hold a closed think block before its answer."},
    )
    format_penalty: float = field(
        default=-0.1,
        metadata={
            "help": "Added to the return once per turn whose reply is malformed or holds an illegal action."
        },
    )
    train_seed: int = field(
        default=10_000,
        metadata={"help": "Seed from which training start states are taken, in ascending order."},
    )
    eval_seed: int = field(
        default=123,
        metadata={"help": "Seed from which evaluation start states are taken, in ascending order."},
    )
    eval_episodes: int = field(
        default=256, metadata={"help": "Start states per evaluation and environment."}
    )
    validation_share: float = field(
        default=0.1,
        metadata={
            "help": "Share of the levels that training never plays, rotated or mirrored neither; 0 takes seeds as they come."
        },
    )
    eval_temperature: float = field(
        default=0.5,
        metadata={"help": "Sampling temperature in evaluation; 0 takes the most probable token."},
    )

    # Rollout
    max_new_tokens_per_turn: int = field(
        default=400,
        metadata={"help": "Tokens of one reply; a longer reply is cut and counts as it stands."},
    )
    max_trajectory_tokens: int = field(
        default=3600,
        metadata={
            "help": "Tokens of one episode, prompt included; where they run out the episode is truncated."
        },
    )
    rollout_engine: Literal["transformers", "reference"] = field(
        default="transformers",
        metadata={
            "help": "What writes the replies: `transformers` keeps its cache across turns, `reference` reads everything anew in every turn."
        },
    )
    rollout_row_budget: int | None = field(
        default=None,
        metadata={
            "help": "Most episodes played side by side per process, which bounds the memory of the cache; all when not given."
        },
    )
    stop_at_answer: bool = field(
        default=False,
        metadata={
            "help": "Whether a reply ends where its answer closes, instead of at its end-of-turn token."
        },
    )
    log_trajectories: bool = field(
        default=True,
        metadata={
            "help": "Whether to write every episode as a JSON line under `<output_dir>/trajectories`."
        },
    )

    @property
    def agent_turns(self) -> dict[str, Any]:
        """The arguments of `ragen_envs.AgentTurns` that this configuration stands for."""
        return {
            "max_turns": self.max_turns,
            "max_actions_per_turn": self.max_actions_per_turn,
            "max_actions_per_episode": self.max_actions_per_episode,
            "separator": self.action_separator,
            "think": self.enable_think,
            "format_penalty": self.format_penalty,
        }
