"""Print what random play, a greedy heuristic and optimal play reach in every environment.

python -m ragen_envs.baselines
python -m ragen_envs.baselines --episodes 200 --ids ragen/Sokoban-v0 --json
"""

import argparse
import sys
from collections.abc import Sequence

import gymnasium as gym

import ragen_envs  # noqa: F401  # registers the ids
from ragen_envs.argument_checks import show
from ragen_envs.baselines.report import format_baselines, measure_baseline
from ragen_envs.output_files import to_json

NUM_EPISODES = 1000
MAX_EPISODES = 1_000_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print."""
    known_ids = sorted(env_id for env_id in gym.registry if env_id.startswith("ragen/"))
    parser = argparse.ArgumentParser(
        prog="python -m ragen_envs.baselines",
        description="Success without a model, under the default budget of AgentTurns. Shares come "
        "with 95 % Wilson intervals; the optimal length is least / median / largest; levels are "
        "those that differ by more than symmetry, in brackets all that differ.",
    )
    parser.add_argument("--episodes", type=int, default=NUM_EPISODES, help="episodes per policy")
    parser.add_argument("--ids", nargs="+", default=known_ids, metavar="ID", help="default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object per id")
    options = parser.parse_args(arguments)
    if not 1 <= options.episodes <= MAX_EPISODES:
        parser.error(
            f"`--episodes` must be from 1 to {MAX_EPISODES:,}, got {show(options.episodes)}."
        )
    try:
        baselines = [measure_baseline(i, seeds=range(options.episodes)) for i in options.ids]
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        parser.error(str(error))
    if options.json:
        lines = [to_json(baseline.to_dict()) for baseline in baselines]
    else:
        lines = [format_baselines(baselines)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
