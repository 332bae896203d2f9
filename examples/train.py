"""Train a language model to act in text environments with StarPO.

    python examples/train.py --config examples/configs/demo_frozen_lake.yaml
    python examples/train.py --model Qwen/Qwen2.5-0.5B-Instruct --env ragen/Sokoban-v0

Every field of `StarPOConfig` is an option; `--config` reads them from a YAML file, and options on
the command line win. The run folder then holds the trained model, `curves.png`, `results.json` and
one JSON line per episode under `trajectories/`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peft import LoraConfig
from trl import TrlParser

from ragen_envs.output_files import replace_file, to_json
from ragen_trl import EnvSpec, StarPOConfig, StarPOTrainer
from ragen_trl.curves import Reference, plot_curves
from ragen_trl.evaluation import Rate, format_table
from ragen_trl.loading import EMBEDDED, load_policy


@dataclass
class ScriptArguments:
    """What to train, and on what.

    Attributes:
        model: "tiny" for the policy that comes with the package, a model id, or a folder.
        environments: Ids of the environments, played in equal shares; `--env` on the command line.
        env_kwargs: Arguments per id, as JSON: `{"ragen/FrozenLake-v0": {"is_slippery": false}}`.
        dtype: Of the model's weights.
        use_peft: Train a LoRA adapter; by default whenever the model is not the embedded one.
        lora_r: Rank of the adapter.
        lora_alpha: Scale of the adapter.
        resume: Folder of a checkpoint to go on from.
    """

    model: str = field(default=EMBEDDED, metadata={"help": "'tiny', a model id, or a folder."})
    environments: list[str] = field(
        default_factory=lambda: ["ragen/Bandit-v0"],
        # TRL's YAML files use the key `env` for environment variables.
        metadata={
            "aliases": ["--env"],
            "help": "Ids of the environments, played in equal shares; `--env` for short.",
        },
    )
    env_kwargs: str = field(default="{}", metadata={"help": "Arguments per id, as JSON."})
    dtype: str = field(default="float32", metadata={"help": "Of the model's weights."})
    use_peft: bool | None = field(
        default=None, metadata={"help": "Train a LoRA adapter; default: unless embedded."}
    )
    lora_r: int = field(default=64, metadata={"help": "Rank of the adapter."})
    lora_alpha: int = field(default=64, metadata={"help": "Scale of the adapter."})
    resume: str | None = field(default=None, metadata={"help": "Checkpoint to go on from."})

    def env_specs(self) -> list[EnvSpec]:
        """Return one specification per id."""
        kwargs = json.loads(self.env_kwargs)
        if unknown := set(kwargs) - set(self.environments):
            raise ValueError(
                f"`env_kwargs` must name ids of `environments` {self.environments}, got {unknown}."
            )
        return [EnvSpec(env_id, kwargs=kwargs.get(env_id, {})) for env_id in self.environments]

    def peft_config(self) -> LoraConfig | None:
        """Return the adapter to train, or `None` for the whole model."""
        wanted = self.model != EMBEDDED if self.use_peft is None else self.use_peft
        if not wanted:
            return None
        return LoraConfig(
            r=self.lora_r,
            lora_alpha=self.lora_alpha,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )


def rates(metrics: dict[str, Any], names: list[str]) -> dict[str, Rate | float | None]:
    """Read success rates and their intervals out of an evaluation's metrics."""

    def stem(name: str) -> str:
        return "eval_" if len(names) == 1 else f"eval_{name}_"

    fields = ("success_rate", "success_rate_low", "success_rate_high")
    return {name: Rate(*(metrics[stem(name) + key] for key in fields)) for name in names}


Columns = dict[str, dict[str, Rate | float | None]]


def main(script: ScriptArguments, args: StarPOConfig) -> Columns:
    """Measure the references, evaluate, train, evaluate again, and say what came out.

    Returns:
        Success rates by column title and environment.
    """
    model, tokenizer = load_policy(script.model, dtype=script.dtype)
    trainer = StarPOTrainer(
        model=model,
        args=args,
        env=script.env_specs(),
        peft_config=script.peft_config(),
        processing_class=tokenizer,
    )
    print(trainer.describe(), flush=True)
    panel = trainer.eval_panel
    random_play = {name: panel.random_success(name) for name in panel.names}
    optimum = {name: panel.optimal_success(name) for name in panel.names}
    before = trainer.evaluate()
    trainer.train(resume_from_checkpoint=script.resume)
    after = trainer.evaluate()
    trainer.save_model()
    trainer.save_state()

    folder = Path(args.output_dir)
    columns: Columns = {
        "random play": random_play,
        "policy before": rates(before, panel.names),
        "policy after": rates(after, panel.names),
        "optimum": optimum,
    }
    results = {"random_play": random_play, "before": before, "after": after, "optimum": optimum}
    with replace_file(folder / "results.json") as file:
        file.write(to_json(results, indent=2))
    plot_curves(
        [{"step": 0, **before}, *trainer.state.log_history],
        folder / "curves.png",
        references={
            name: Reference(rate and rate.rate, optimum[name]) for name, rate in random_play.items()
        },
        title=f"StarPO, {script.model}",
    )
    print(f"\n{format_table(columns)}")
    print(
        f"\n{args.eval_episodes} episodes per environment, the same start states in every column."
    )
    print(f"Learning curves:  {folder / 'curves.png'}")
    print(f"Every episode:    {folder / 'trajectories'}")
    print(f"Trained model:    {folder}\n", flush=True)
    return columns


if __name__ == "__main__":
    main(*TrlParser((ScriptArguments, StarPOConfig)).parse_args_and_config())
