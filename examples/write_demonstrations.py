r"""Write optimal play as conversations, one JSON object a line, ready for supervised fine-tuning.

    python examples/write_demonstrations.py --env ragen/Sokoban-v0 --episodes 1000 --thoughts
    python examples/write_demonstrations.py --env ragen/FrozenLake-v0 --output lake.parquet \
        --env-kwargs '{"is_slippery": false}' --agent-turns-kwargs '{"max_actions_per_turn": 1}'

`datasets.load_dataset("json", data_files="demonstrations.jsonl")` reads the lines. A file name that
ends in `.parquet` is written by way of `datasets`. For the `prompt` and `completion` columns of
other trainers, split `messages` before its first reply.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym

import ragen_envs
from ragen_envs.output_files import replace_file, to_json, to_readable


def write(episodes: Iterable[dict[str, Any]], path: Path) -> tuple[int, int]:
    """Write the episodes; return how many there are and how many were solved."""
    if path.suffix == ".parquet":
        from datasets import Dataset  # not needed for JSON

        records = list(episodes)
        Dataset.from_list(records).to_parquet(path)
        return len(records), sum(record["success"] for record in records)
    num_episodes = num_solved = 0
    with replace_file(path) as file:
        for episode in episodes:
            file.write(to_json(episode) + "\n")
            num_episodes += 1
            num_solved += episode["success"]
    return num_episodes, num_solved


def read_object(text: str) -> dict[str, Any]:
    """Read a JSON object of the command line."""
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"must be a JSON object, got {text[:80]!r}: {error}"
        ) from error
    if not isinstance(content, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text[:80]!r}")
    return content


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description="Write optimal play as conversations.")
    parser.add_argument("--env", default="ragen/Sokoban-v0", help="an id of ragen_envs")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode")
    parser.add_argument("--thoughts", action="store_true", help="fill the think blocks")
    parser.add_argument("--env-kwargs", type=read_object, default={}, metavar="JSON")
    parser.add_argument("--agent-turns-kwargs", type=read_object, default={}, metavar="JSON")
    parser.add_argument("--output", type=Path, default=Path("demonstrations.jsonl"))
    args = parser.parse_args()
    try:
        episodes = ragen_envs.demonstrations(
            args.env,
            args.episodes,
            seed=args.seed,
            thoughts=args.thoughts,
            env_kwargs=args.env_kwargs,
            **args.agent_turns_kwargs,
        )
        num_episodes, num_solved = write(episodes, args.output)
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        parser.error(f"cannot write demonstrations of {args.env!r}: {error}")
    except OSError as error:
        parser.error(f"`--output` must be a file that can be written: {error}")
    print(to_readable(f"{args.output}: {num_episodes} episodes, {num_solved} of them solved"))


if __name__ == "__main__":
    main()
