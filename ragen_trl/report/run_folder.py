"""What a run left behind, read with care: every damaged or missing piece becomes a note."""

import json
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from ragen_envs.output_files import to_readable
from ragen_trl.records import EPISODES_FOLDER
from ragen_trl.run_log import COLLAPSE_FILE, LOG_FILE, REFERENCES_FILE

STATE_FILE = "trainer_state.json"
# Of one log; each may become a panel. Twenty environments with thirty measures each stay below.
MAX_LOG_NAMES = 1000


@dataclass(frozen=True)
class RunFolder:
    """One run.

    Attributes:
        path: Its folder, the trainer's `output_dir`.
        name: What it is called in the report.
        log: Log entries in the order of their steps; each step has what was logged of it last.
        references: By name of the environment: `random_play` with `rate`, `low`, `high`, and
            `optimum`; both may be `None`.
        collapse: Warnings of the collapse monitor.
        episode_files: Files of episodes, rollouts before evaluations.
        notes: What is missing or damaged, in words.
    """

    path: Path
    name: str
    log: list[dict[str, Any]]
    references: dict[str, dict[str, Any]]
    collapse: list[dict[str, Any]]
    episode_files: list[Path]
    notes: list[str] = field(default_factory=list)

    @cached_property
    def entries_by_name(self) -> dict[str, list[dict[str, Any]]]:
        """Entries of the log by each of the names that they hold."""
        entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in self.log:
            for name in entry:
                entries[name].append(entry)
        return dict(entries)


def read_run(path: Path, name: str | None = None) -> RunFolder:
    """Read the folder of a run; its episodes are found, not read.

    Args:
        path: The trainer's `output_dir`.
        name: What to call the run; the folder's name when not given.

    Raises:
        FileNotFoundError: If there is no such folder, or nothing in it that a run leaves behind.
    """
    try:
        problem = "" if path.is_dir() else "is no folder"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        raise FileNotFoundError(
            f"`RUN` must be the output folder of a training, got {str(path)!r}, which {problem}."
        )
    notes: list[str] = []
    log = _keep_common_names(_read_log(path, notes), notes)
    folder = path / EPISODES_FOLDER
    episode_files = sorted(folder.glob("train-*.jsonl")) + sorted(folder.glob("eval-*.jsonl"))
    if not log and not episode_files:
        raise FileNotFoundError(
            f"`RUN` must hold {LOG_FILE}, a checkpoint or trajectories, but none is in "
            f"{str(path)!r}. Pass the `output_dir` of the training."
        )
    if not episode_files:
        notes.append("There are no episodes (`log_trajectories` was off, or they were moved).")
    if not any("eval_success_rate" in entry for entry in log):
        notes.append(
            "There is no evaluation in the log: success is that of training, where the policy "
            "samples at its training temperature. Set `eval_strategy` or call `evaluate()`."
        )
    return RunFolder(
        path=path,
        name=to_readable(name or path.resolve().name),
        log=log,
        references=_read_references(path / REFERENCES_FILE, notes),
        collapse=_with_steps(read_json_lines(path / COLLAPSE_FILE, notes)),
        episode_files=episode_files,
        notes=notes,
    )


def read_json_lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, leaving out lines that hold none; no file has no lines.

    Args:
        path: The file.
        notes: Gets a sentence if lines were left out.
    """
    damaged: list[str] = []
    try:
        with path.open("rb") as file:
            yield from _parse_lines(file, damaged)
    except FileNotFoundError:
        return
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}.")
    if damaged:
        shown = ", ".join(damaged[:5]) + (", ..." if len(damaged) > 5 else "")
        notes.append(f"{path.name}: left out what cannot be read (line {shown}).")


def _parse_lines(lines: Iterable[bytes], damaged: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            # NaN and Infinity, which Python writes, are not JSON.
            entry = json.loads(
                line, parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole
            )
        except (ValueError, OverflowError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield entry
        elif line.strip():
            damaged.append(str(number))


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise OverflowError(f"{text} is no number that JSON can hold.")
    return value


def _whole(text: str) -> int:
    value = int(text)
    float(value)  # fails where no curve could show it
    return value


def keep_latest(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop what a run logged before it went back to an earlier step.

    An update at step s replaces all that was logged at s or later; an evaluation replaces the one
    of the same step.
    """
    steps: list[int] = []
    # By step, then by the names of the entry, so that none is looked for in the whole log.
    latest: dict[int, dict[frozenset[str], dict[str, Any]]] = {}
    for entry in entries:
        step, names = entry["step"], frozenset(entry)
        position = bisect_left(steps, step)
        if _is_update(entry):
            for later in steps[position:]:
                del latest[later]
            del steps[position:]
        if step not in latest:
            steps.insert(position, step)
            latest[step] = {}
        # At the end of its step, also where it replaces one.
        latest[step].pop(names, None)
        latest[step][names] = entry
    return [entry for step in steps for entry in latest[step].values()]


def _is_update(entry: Mapping[str, Any]) -> bool:
    return "loss" in entry or "reward" in entry


def _read_log(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    entries = _with_steps(read_json_lines(path / LOG_FILE, notes))
    return keep_latest(entries or _read_trainer_state(path, notes))


def _keep_common_names(log: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Bound how many names a log has, since each takes room on the page."""
    counts = Counter(chain.from_iterable(log))
    if len(counts) <= MAX_LOG_NAMES:
        return log
    kept = {"step"} | {name for name, _ in counts.most_common(MAX_LOG_NAMES)}
    notes.append(
        f"The log has {len(counts)} names; the {MAX_LOG_NAMES} that most of its entries hold are "
        "shown."
    )
    return [{name: value for name, value in e.items() if name in kept} for e in log]


def _read_trainer_state(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """Return the log that goes furthest, of those that transformers saved."""
    files = [path / STATE_FILE, *sorted(path.glob(f"checkpoint-*/{STATE_FILE}"))]
    histories = [_read_history(file) for file in files]
    furthest = max(histories, key=lambda history: max((e["step"] for e in history), default=-1))
    if furthest:
        source = files[histories.index(furthest)].relative_to(path)
        notes.append(f"There is no {LOG_FILE}; the log is that of {source}.")
    else:
        notes.append(f"There is neither {LOG_FILE} nor a checkpoint, and so there are no curves.")
    return furthest


def _read_history(path: Path) -> list[dict[str, Any]]:
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    history = state.get("log_history") if isinstance(state, dict) else None
    return _with_steps(history) if isinstance(history, list) else []


def _with_steps(entries: Iterable[Any]) -> list[dict[str, Any]]:
    return [e for e in entries if isinstance(e, dict) and _is_step(e.get("step"))]


def _is_step(value: Any) -> bool:
    # Beyond 2**53 the page's numbers are no longer whole.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _read_references(path: Path, notes: list[str]) -> dict[str, dict[str, Any]]:
    try:
        references = json.loads(path.read_bytes())
    except FileNotFoundError:
        references = None
    except (OSError, ValueError, RecursionError):
        notes.append(f"{path.name} cannot be read.")
        references = None
    if not isinstance(references, dict) or not references:
        notes.append(
            f"There is no {REFERENCES_FILE}, and so no lines of random play and the optimum. An "
            "evaluation writes it."
        )
        return {}
    return {
        name: value | {"random_play": _object_or_none(value.get("random_play"))}
        for name, value in references.items()
        if isinstance(value, dict)
    }


def _object_or_none(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None
