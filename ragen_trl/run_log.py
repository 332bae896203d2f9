"""What a run writes down while it runs: its log, and what its success rates are read against."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ragen_envs.output_files import replace_file, to_json
from ragen_trl.evaluation import EvaluationPanel

LOG_FILE = "log.jsonl"
REFERENCES_FILE = "references.json"
# Written by `ragen_trl.monitor.EchoTrapCallback`.
COLLAPSE_FILE = "collapse.jsonl"


class RunLogCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Appends every log entry to `<output_dir>/log.jsonl` as it happens, one JSON object per line.

    A run that goes on from a checkpoint, or back to one, appends: what it logs anew comes later in
    the file and counts. Numbers that are not finite are written as null, which JSON has. The first
    evaluation also writes `references.json`: by name of the environment `random_play` (`rate`,
    `low`, `high`, or null where actions are free text) and `optimum` (null where it is not known).

    Args:
        panel: What is evaluated on.
    """

    def __init__(self, panel: EvaluationPanel) -> None:
        self._panel = panel
        self._has_references = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Append the newest entry of the log."""
        if state.is_world_process_zero:
            _append_line(Path(args.output_dir) / LOG_FILE, to_json(state.log_history[-1]))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Write the references, once per trainer: the start states may not be those of before."""
        if self._has_references or not state.is_world_process_zero:
            return
        references = {}
        for name in self._panel.names:
            random_play = self._panel.random_success(name)
            references[name] = {
                "random_play": random_play and random_play._asdict(),
                "optimum": self._panel.optimal_success(name),
            }
        with replace_file(Path(args.output_dir) / REFERENCES_FILE) as file:
            file.write(to_json(references, indent=2))
        self._has_references = True


def _append_line(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        # A process that was killed may have left half a line.
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode() + b"\n")
