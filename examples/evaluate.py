"""Evaluate a model, or an adapter that `examples/train.py` wrote, beside random play and the optimum.

    python examples/evaluate.py --model runs/demo --env ragen/Bandit-v0 --enable_think false
    python examples/evaluate.py --model Qwen/Qwen2.5-0.5B-Instruct --env ragen/Sokoban-v0

Every option of `StarPOConfig` that concerns playing applies: `--eval_episodes`, `--eval_seed`,
`--eval_temperature`, `--max_turns`, ... Episodes are written under `<output_dir>/trajectories`.
"""

from train import ScriptArguments, play_references, rates
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
    random_play, optimum = play_references(trainer)
    policy = rates(metrics, trainer.eval_env_names)
    columns = {"random play": random_play, "policy": policy, "optimum": optimum}
    print(format_table(columns))
    for name, value in metrics.items():
        print(f"{name:60s} {value:.4g}")


if __name__ == "__main__":
    main(*TrlParser((ScriptArguments, StarPOConfig)).parse_args_and_config())
