"""What an evaluation found, in memory and as a JSON file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Any

from ragen_trl.evaluate.comparison import PairedComparison, compare_records
from ragen_trl.evaluate.records import EpisodeRecord, read_record
from ragen_trl.evaluate.scoring import EnvSummary, summarize
from ragen_trl.evaluate.store import RESULTS_FILE
from ragen_trl.evaluation import Rate

_PACKAGES = ("ragen-envs", "gymnasium", "numpy", "torch", "transformers", "trl", "peft")
# What two evaluations must have in common for a start state to be the same task.
_TASK = ("max_turns", "max_actions_per_turn", "max_actions_per_episode", "think")


@dataclass(frozen=True)
class EvaluationResult:
    """One model's evaluation.

    Attributes:
        settings: All that decided the outcome: `model`, `environments` by name, and the fields of
            `EvaluationSettings`.
        episodes: One record per episode, environment by environment, in the order of the seeds.
        random_success: Success of random play on the same start states, by environment; `None`
            where the actions are free text.
        optimal_success: Best reachable success on them; `None` where it is not known.
        usage: What the player says that playing took; empty for local models.
        timings: Seconds, and what they depend on; the only part that differs between two runs.
    """

    settings: Mapping[str, Any]
    episodes: Sequence[EpisodeRecord]
    random_success: Mapping[str, Rate | None]
    optimal_success: Mapping[str, float | None]
    usage: Mapping[str, float]
    timings: Mapping[str, Any]

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.settings["model"]["name"])

    @property
    def summaries(self) -> dict[str, EnvSummary]:
        """What came out, by environment."""
        return {
            name: summarize(record for record in self.episodes if record.env == name)
            for name in self.settings["environments"]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return what a JSON file holds."""
        random_play = {
            name: None if rate is None else rate._asdict()
            for name, rate in self.random_success.items()
        }
        return {
            "settings": dict(self.settings),
            "summary": {name: summary.to_dict() for name, summary in self.summaries.items()},
            "random_success": random_play,
            "optimal_success": dict(self.optimal_success),
            "episodes": [asdict(record) for record in self.episodes],
            "usage": dict(self.usage),
            "versions": list_versions(),
            "timings": dict(self.timings),
        }


def read_result(path: str | Path) -> EvaluationResult | None:
    """Read a result from its file or folder; `None` where there is none, or something else.

    Raises:
        ValueError: If the file is damaged or cannot be read.
    """
    path = Path(path)
    try:
        path = path / RESULTS_FILE if path.is_dir() else path
        if path.suffix != ".json" or not path.is_file():
            return None
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            return None
        if not {"settings", "episodes", "random_success"} <= content.keys():
            return None
        return _from_dict(content)
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"`compare` must be a result or a model, but {path} cannot be read "
            f"({type(error).__name__}: {error})."
        ) from error


def _from_dict(content: Mapping[str, Any]) -> EvaluationResult:
    return EvaluationResult(
        settings={**content["settings"]},
        episodes=[read_record(record) for record in content["episodes"]],
        random_success={
            name: None if rate is None else Rate(**rate)
            for name, rate in content["random_success"].items()
        },
        optimal_success=content["optimal_success"],
        usage=content["usage"],
        timings=content["timings"],
    )


def compare_results(
    first: EvaluationResult, second: EvaluationResult
) -> dict[str, PairedComparison]:
    """Compare two models on the start states that both played.

    Returns:
        By environment, for those that both played, and for all together as "all" if there are
        several.

    Raises:
        ValueError: If they have no environment in common, or one of the same name that differs, or
            limits under which the same start state is another task.
    """
    ours, theirs = first.settings["environments"], second.settings["environments"]
    common = [name for name in ours if name in theirs]
    if not common:
        raise ValueError(
            f"`compare` needs an environment that both models played, got {list(ours)} and "
            f"{list(theirs)}."
        )
    for name in common:
        _check_same(f"environment {name!r}", ours[name], theirs[name])
    for name in _TASK:
        _check_same(f"`{name}`", first.settings[name], second.settings[name])

    def compare(names: list[str]) -> PairedComparison:
        return compare_records(
            [record for record in first.episodes if record.env in names],
            [record for record in second.episodes if record.env in names],
        )

    comparisons = {name: compare([name]) for name in common}
    return comparisons | ({"all": compare(common)} if len(common) > 1 else {})


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide what an evaluation gives."""
    installed = {found.name: found.version for found in metadata.distributions()}
    return {"python": python_version()} | {
        name: installed[name] for name in _PACKAGES if name in installed
    }


def _check_same(what: str, first: Any, second: Any) -> None:
    if first != second:
        raise ValueError(
            f"`compare` needs the same tasks, but {what} is {first!r} for one model and {second!r} "
            "for the other. Evaluate both with the same settings."
        )
