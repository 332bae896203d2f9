"""Evaluate a model, or an adapter that `examples/train.py` wrote, beside random play and the optimum.

    python examples/evaluate.py --model runs/demo --env ragen/Bandit-v0 --enable_think false
    python examples/evaluate.py --model Qwen/Qwen2.5-0.5B-Instruct --env ragen/Sokoban-v0

Every option of `StarPOConfig` that concerns playing applies: `--eval_episodes`, `--eval_seed`,
`--eval_temperature`, `--max_turns`, ... Episodes are written under `<output_dir>/trajectories`.
"""

from train import Columns, ScriptArguments, rates
from trl import TrlParser

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.evaluation import format_table
from ragen_trl.loading import load_policy


def main(script: ScriptArguments, args: StarPOConfig) -> None:
    """Play the evaluation episodes and print the table."""
    model, tokenizer = load_policy(script.model, dtype=script.dtype)
    trainer = StarPOTrainer(
        model=model, args=args, env=script.env_specs(), processing_class=tokenizer
    )
    metrics = trainer.evaluate()
    panel = trainer.eval_panel
    columns: Columns = {
        "random play": {name: panel.random_success(name) for name in panel.names},
        "policy": rates(metrics, panel.names),
        "optimum": {name: panel.optimal_success(name) for name in panel.names},
    }
    print(format_table(columns))
    for name, value in metrics.items():
        print(f"{name:60s} {value:.4g}")


if __name__ == "__main__":
    main(*TrlParser((ScriptArguments, StarPOConfig)).parse_args_and_config())
