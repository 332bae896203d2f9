"""Write an episode as an animated GIF, or its start as a PNG picture.

    python examples/render_gif.py --env ragen/Sokoban-v0 --seed 3 --output sokoban.gif
    python examples/render_gif.py --env ragen/FrozenLake-v0 --play random --output start.png

The pictures in docs/images were made with `--docs`. Needs `pip install 'ragen-envs[render]'`.
"""

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import numpy as np

import ragen_envs
from ragen_envs.output_files import to_readable

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# Seeds picked for levels that show what matters: several pushes, holes beside the way.
PICTURES_OF_THE_DOCS = (
    ("ragen/Sokoban-v0", {"min_solution_length": 9}, 5, "sokoban.gif"),
    ("ragen/LargeSokoban-v0", {"min_solution_length": 18}, 2, "large_sokoban.gif"),
    ("ragen/FrozenLake-v0", {"is_slippery": False, "size": (6, 6)}, 34, "frozen_lake.gif"),
    ("ragen/Bandit-v0", {}, 0, "bandit.gif"),
)


def play(env: gym.Env[str, int], how: str, seed: int) -> Iterator[int]:
    """Yield actions for ever: the solver's next one, or random ones."""
    rng = np.random.default_rng(seed)
    while True:
        plan = ragen_envs.solve(env) if how == "solver" else None
        yield plan[0] if plan else int(rng.integers(int(env.action_space.n)))


def write(env_id: str, arguments: dict[str, object], seed: int, how: str, path: Path) -> None:
    """Write one picture; the suffix of the path says of what kind."""
    with closing(gym.make(env_id, render_mode="rgb_array", **arguments)) as env:
        if path.suffix == ".gif":
            ragen_envs.render_gif(env, play(env, how, seed), path, seed=seed)
        else:
            from PIL import Image  # in here, so that --help needs no extra

            env.reset(seed=seed)
            Image.fromarray(env.render()).save(path, optimize=True)
    print(to_readable(f"{path}: {path.stat().st_size / 1000:.1f} kB"))


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description="Write an episode as a picture.")
    parser.add_argument("--env", default="ragen/Sokoban-v0", help="an id of ragen_envs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the start state")
    parser.add_argument("--play", choices=("solver", "random"), default="solver")
    parser.add_argument("--output", type=Path, default=Path("episode.gif"), help=".gif or .png")
    parser.add_argument("--docs", action="store_true", help="make the pictures in docs/images")
    args = parser.parse_args()
    try:
        if args.docs:
            for env_id, arguments, seed, name in PICTURES_OF_THE_DOCS:
                write(env_id, arguments, seed, "solver", IMAGES / name)
        else:
            write(args.env, {}, args.seed, args.play, args.output)
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        parser.error(f"cannot draw {args.env!r} into {str(args.output)!r}: {error}")
    except OSError as error:
        parser.error(f"`--output` must be a file that can be written: {error}")


if __name__ == "__main__":
    main()
