"""The table at the top of a report: what each run reached in each environment."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragen_trl.report.run_folder import RunFolder
from ragen_trl.report.series import Panel, round_number


def summarize(run: RunFolder, index: int, success_panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return one row per environment that the run's log knows.

    Args:
        run: The run.
        index: Its position among the runs of the panels.
        success_panels: As `make_success_panels` returns them.

    Returns:
        Rows with `env`, `last` and `best` (of evaluations where there are any, else of updates:
        `step`, `y` and, of evaluations, `low` and `high`), `is_evaluated`, `random_play`,
        `optimum`, and `num_updates`.
    """
    rows = []
    num_updates = max((entry["step"] for entry in run.log), default=0)
    for panel in success_panels:
        lines = {line["kind"]: line for line in panel["lines"] if line["run"] == index}
        line = lines.get("eval") or lines.get("train")
        if line is None:
            continue
        best = max(range(len(line["x"])), key=lambda i: line["y"][i])
        reference = run.references.get(panel["env"], {})
        random_play = reference.get("random_play")
        rows.append(
            {
                "env": panel["env"],
                "is_evaluated": "eval" in lines,
                "last": _point(line, -1),
                "best": _point(line, best),
                "random_play": round_number((random_play or {}).get("rate")),
                "optimum": round_number(reference.get("optimum")),
                "num_updates": num_updates,
            }
        )
    return rows


def _point(line: Mapping[str, Any], position: int) -> dict[str, float]:
    point = {name: line[name][position] for name in ("y", "low", "high") if name in line}
    return {"step": line["x"][position], **point}
