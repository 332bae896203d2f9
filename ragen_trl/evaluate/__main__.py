"""Evaluate models on fixed start states, beside random play and the optimum.

python -m ragen_trl.evaluate runs/demo/bandit --env ragen/Bandit-v0 --no-think --output runs/eval
python -m ragen_trl.evaluate Qwen/Qwen2.5-0.5B-Instruct --suite generalisation --compare runs/eval
python -m ragen_trl.evaluate --api-model NAME --base-url http://localhost:8000/v1 --env ragen/Bandit-v0
accelerate launch --num_processes 2 -m ragen_trl.evaluate tiny --env ragen/Bandit-v0  # two GPUs
torchrun --nproc_per_node 2 -m ragen_trl.evaluate tiny --env ragen/Bandit-v0  # on CPUs
"""

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from accelerate import PartialState

from ragen_envs.output_files import to_readable
from ragen_trl.environments import EnvSpec
from ragen_trl.evaluate.endpoint_arguments import add_endpoint_arguments, make_endpoint_player
from ragen_trl.evaluate.evaluating import evaluate
from ragen_trl.evaluate.records import Player
from ragen_trl.evaluate.result import EvaluationResult, compare_results, read_result
from ragen_trl.evaluate.settings import EvaluationSettings
from ragen_trl.evaluate.store import write_json
from ragen_trl.evaluate.suites import SUITES
from ragen_trl.evaluate.table import format_comparison, format_result

COMPARISON_FILE = "comparison.json"
DTYPES = ("float32", "bfloat16", "float16", "auto")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, evaluate, write the files, print the tables."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        tables = _run(options)
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        parser.error(str(error))
    except ConnectionError as error:
        parser.exit(1, f"{error}\n")
    except OSError as error:
        of_output = "`--output` must be a folder that can be written: "
        parser.error(f"{of_output if options.output is not None else ''}{error}")
    if PartialState().is_main_process:
        sys.stdout.write(to_readable("\n\n".join(tables)) + "\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; every field of `EvaluationSettings` is an option."""
    parser = argparse.ArgumentParser(
        prog="python -m ragen_trl.evaluate",
        description="Success of models on fixed start states with a 95 % Wilson interval, beside "
        "random play and the optimum. An interrupted evaluation goes on where it was if it is "
        "started again with the same `--output`.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="'tiny', a model id, a folder, an adapter")
    add("--env", nargs="+", metavar="ID", default=[], help="ids of environments")
    add("--env-kwargs", default="{}", metavar="JSON", help="arguments by id, as one JSON object")
    add("--suite", choices=sorted(SUITES), help="a set of environments instead of `--env`")
    add("--output", type=_path, help="folder for episodes and results; of several models, one each")
    add("--compare", metavar="RESULT_OR_MODEL", help="test every model against this one")
    add("--batch-size", type=int, default=16, help="episodes side by side, per process")
    add("--dtype", choices=DTYPES, default="float32", help="of the weights")
    add(
        "--bf16",
        action=argparse.BooleanOptionalAction,
        help="compute in bfloat16; by default where a GPU supports it",
    )
    for field in dataclasses.fields(EvaluationSettings):
        name = f"--{field.name.replace('_', '-')}"
        help_text = field.metadata["help"]
        if isinstance(field.default, bool):
            add(
                name,
                action=argparse.BooleanOptionalAction,
                default=field.default,
                help=help_text,
            )
        elif field.default is None:
            add(name, metavar="JSON", help=help_text)
        else:
            add(name, type=type(field.default), default=field.default, help=help_text)
    add_endpoint_arguments(parser)
    return parser


def _run(options: argparse.Namespace) -> list[str]:
    environments = _read_environments(options)
    chosen = {f.name: getattr(options, f.name) for f in dataclasses.fields(EvaluationSettings)}
    if chosen["chat_template_kwargs"] is not None:
        chosen["chat_template_kwargs"] = _read_json(
            "--chat-template-kwargs", chosen["chat_template_kwargs"], '{"enable_thinking": false}'
        )
    settings = EvaluationSettings(**chosen)

    def play(model: str | Player, folder: Path | None) -> EvaluationResult:
        return evaluate(
            model,
            environments,
            settings=settings,
            output=folder,
            batch_size=options.batch_size,
            dtype=options.dtype,
            bf16=options.bf16,
            show_progress=sys.stderr.isatty(),
        )

    endpoint = make_endpoint_player(options, settings=settings)
    models: list[str | Player] = [*options.models, *([] if endpoint is None else [endpoint])]
    names = [*options.models, *([] if endpoint is None else [endpoint.name])]
    other_folder, *folders = _choose_folders(names, options.output)
    other = None
    if options.compare is not None:
        # First, so that a name that is neither a result nor a model costs no evaluation.
        other = read_result(options.compare) or play(options.compare, other_folder)
    results = [play(model, folder) for model, folder in zip(models, folders, strict=True)]
    tables = [format_result(result) for result in results]
    if other is None:
        return tables
    tables.append(format_result(other))
    for result, folder in zip(results, folders, strict=True):
        comparisons = compare_results(result, other)
        tables.append(format_comparison(result.model, other.model, comparisons))
        if folder is not None and PartialState().is_main_process:
            by_name = {name: found.to_dict() for name, found in comparisons.items()}
            pair = {"first": result.model, "second": other.model}
            write_json(folder / COMPARISON_FILE, {**pair, "environments": by_name})
    return tables


def _read_environments(options: argparse.Namespace) -> dict[str, EnvSpec]:
    """Return the environments by name."""
    if (options.suite is None) == (not options.env):
        raise ValueError("`--env` or `--suite` must be given, and not both.")
    example = '{"ragen/FrozenLake-v0": {"is_slippery": false}}'
    kwargs = _read_json("--env-kwargs", options.env_kwargs, example)
    if not isinstance(kwargs, dict) or set(kwargs) - set(options.env):
        raise ValueError(
            f"`--env-kwargs` must map ids of `--env` {options.env} to arguments, got {kwargs!r}."
        )
    if options.suite is not None:
        return SUITES[options.suite]
    return {env_id: EnvSpec(env_id, kwargs=kwargs.get(env_id, {})) for env_id in options.env}


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"`--output` must be the path of a folder, got {text!r}.")
    return Path(text)


def _read_json(option: str, text: str, example: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError(
            f"`{option}` must be JSON such as '{example}', got {text!r}: {error}"
        ) from error


def _choose_folders(names: Sequence[str], output: Path | None) -> list[Path | None]:
    """Return the folder of the model compared with, and one per model."""
    if not names:
        raise ValueError("`MODEL` or `--api-model` must be given.")
    if len(set(names)) < len(names):
        raise ValueError(f"`MODEL` must name different models, got {names}.")
    if output is None:
        return [None] * (len(names) + 1)
    own: list[Path | None] = [output]
    if len(names) > 1:
        own = [output / re.sub(r"[^\w.-]+", "_", name) for name in names]
    return [output / "compare", *own]


if __name__ == "__main__":
    main()
