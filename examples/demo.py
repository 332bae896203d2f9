"""What `make demo` runs: the embedded policy learns Bandit and FrozenLake, one training each.

python examples/demo.py
"""

from pathlib import Path

from train import Columns, ScriptArguments, main
from trl import TrlParser

from ragen_trl import StarPOConfig
from ragen_trl.evaluation import format_table

CONFIGS = Path(__file__).parent / "configs"


def run_demo() -> None:
    """Train twice from the same start, then print both results in one table."""
    parser = TrlParser((ScriptArguments, StarPOConfig))
    together: Columns = {}
    for name in ("demo_bandit", "demo_frozen_lake"):
        options = ["--config", str(CONFIGS / f"{name}.yaml")]
        columns = main(*parser.parse_args_and_config(args=options))
        for title, rates in columns.items():
            together.setdefault(title, {}).update(rates)
    print(format_table(together))
    print("\nLook at runs/demo/*/curves.png, and at the episodes in runs/demo/*/trajectories.")


if __name__ == "__main__":
    run_demo()
