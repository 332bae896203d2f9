"""From a log to the panels of the report: which curve stands beside which lines."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragen_trl.report.run_folder import RunFolder

MAX_POINTS = 1000

# Log name, headline; those of success come first, one per environment.
_PANELS = (
    ("reward", "Return per episode"),
    ("rollout/in_group_reward_std", "Spread of returns within a group (std)"),
    ("entropy", "Entropy of sampled tokens (nats)"),
    ("grad_norm", "Gradient norm"),
    ("update_kl", "KL divergence of the updates on a rollout (nats per token)"),
    ("rollout/response_length", "Tokens per reply"),
    ("rollout/valid_reply_ratio", "Share of valid replies"),
    ("rollout/kept_group_ratio", "Share of groups that the filter kept"),
    ("rollout/zero_variance_ratio", "Share of groups without variance"),
)
_LOW = "success_rate_low"
_NOT_MEASURED = ("step", "epoch")

Panel = dict[str, Any]
Line = dict[str, Any]
# A run and the names of the environments it trains on.
NamedRun = tuple[RunFolder, Sequence[str]]


def round_number(value: Any) -> float | None:
    """Return a finite number with six digits, `None` for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        rounded = float(f"{value:.6g}")
    except OverflowError:  # a whole number beyond all floats
        return None
    return rounded if math.isfinite(rounded) else None


def thin(points: Sequence[tuple[float, ...]], most: int = MAX_POINTS) -> list[tuple[float, ...]]:
    """Keep the lowest and the highest of equally many neighbours, so that no spike is lost.

    Args:
        points: Tuples of x, y and whatever belongs to them.
        most: Points to keep at most, even.
    """
    if len(points) <= most:
        return list(points)
    num_bins = most // 2
    kept = []
    for k in range(num_bins):
        begin, end = (len(points) * edge // num_bins for edge in (k, k + 1))
        places = range(begin, end)
        lowest = min(places, key=lambda i: points[i][1])
        highest = max(places, key=lambda i: points[i][1])
        kept += [points[i] for i in sorted({lowest, highest})]
    return kept


def evaluated_names(run: RunFolder, train_names: Sequence[str]) -> dict[str, str]:
    """Return the beginning of the log names of every environment that was evaluated.

    Args:
        run: The run.
        train_names: Names of the environments it trains on.
    """
    keys = run.entries_by_name
    stems = [k.removesuffix(_LOW) for k in keys if k.startswith("eval_") and k.endswith(_LOW)]
    named = {stem.removeprefix("eval_").rstrip("_"): stem for stem in stems if stem != "eval_"}
    if named or "eval_" not in stems:
        return named
    known = list(run.references) or list(train_names)
    return {known[0] if len(known) == 1 else "evaluation": "eval_"}


def trained_names(run: RunFolder, train_names: Sequence[str]) -> dict[str, str]:
    """Return the log name of the training success of every environment that was trained on."""
    keys = run.entries_by_name
    end = "/success_rate"
    named = {key.removesuffix(end): key for key in keys if key.endswith(end)}
    if named or "success_rate" not in keys:
        return named
    known = list(train_names) or list(run.references)
    return {known[0] if len(known) == 1 else "training": "success_rate"}


def make_panels(runs: Sequence[NamedRun]) -> list[Panel]:
    """Put the curves of several runs into common panels, all but those of success.

    Args:
        runs: Every run and the names of the environments it trains on.

    Returns:
        Panels with `title`, `is_share` (the y axis is that of a share), `is_main`, `rules` (none)
        and `lines` (`run`, `kind` "train" or "eval", `x`, `y`).
    """
    shown = {key for key, _ in _PANELS}
    further = {key for run, _ in runs for key in _further_keys(run)}
    further -= shown | {f"eval_{key}" for key in shown}
    panels = [
        _panel(title, is_share=key.endswith("_ratio"), lines=_lines(runs, key, f"eval_{key}"))
        for key, title in _PANELS
    ]
    panels += [_panel(key, is_main=False, lines=_lines(runs, key)) for key in sorted(further)]
    return [panel for panel in panels if panel["lines"]]


def make_success_panels(runs: Sequence[NamedRun]) -> list[Panel]:
    """Put the success rates of several runs into one panel per environment.

    Args:
        runs: Every run and the names of the environments it trains on.

    Returns:
        Panels as those of `make_panels`, with the `env`, with `rules` (level lines: `kind`
        "random_play" or "optimum", `y`) and, in the lines of evaluations, `low` and `high`.
    """
    panels: dict[str, Panel] = {}
    for index, (run, train_names) in enumerate(runs):
        trained, evaluated = trained_names(run, train_names), evaluated_names(run, train_names)
        for name in dict.fromkeys([*trained, *evaluated]):
            new = _panel(f"Success, {name}", is_share=True, lines=[]) | {"env": name}
            panel = panels.setdefault(name, new)
            if name in trained:
                panel["lines"] += _line(run, index, trained[name], kind="train")
            if name in evaluated:
                panel["lines"] += _interval(run, index, evaluated[name])
            panel["rules"] += [
                rule for rule in _rules(run.references.get(name, {})) if rule not in panel["rules"]
            ]
    return [panel for panel in panels.values() if panel["lines"]]


def _panel(title: str, *, lines: list[Line], is_share: bool = False, is_main: bool = True) -> Panel:
    return {"title": title, "is_share": is_share, "is_main": is_main, "rules": [], "lines": lines}


def _lines(runs: Iterable[NamedRun], *keys: str) -> list[Line]:
    return [
        line
        for index, (run, _) in enumerate(runs)
        for key in keys
        for line in _line(run, index, key, kind="eval" if key.startswith("eval_") else "train")
    ]


def _points(run: RunFolder, *keys: str) -> list[tuple[float, ...]]:
    entries = run.entries_by_name.get(keys[0], [])
    rows = ([round_number(entry.get(key)) for key in ("step", *keys)] for entry in entries)
    return thin([tuple(row) for row in rows if None not in row])  # type: ignore[arg-type]


def _line(run: RunFolder, index: int, key: str, *, kind: str) -> list[Line]:
    points = _points(run, key)
    if not points:
        return []
    x, y = zip(*points, strict=True)
    return [{"run": index, "kind": kind, "x": x, "y": y}]


def _interval(run: RunFolder, index: int, stem: str) -> list[Line]:
    ends = (f"{stem}{_LOW}", f"{stem}success_rate_high")
    points = _points(run, f"{stem}success_rate", *ends)
    if not points:
        return []
    x, y, low, high = zip(*points, strict=True)
    return [{"run": index, "kind": "eval", "x": x, "y": y, "low": low, "high": high}]


def _rules(reference: Mapping[str, Any]) -> list[dict[str, Any]]:
    random_play = reference.get("random_play")
    rate = random_play.get("rate") if isinstance(random_play, dict) else None
    levels = {"random_play": round_number(rate), "optimum": round_number(reference.get("optimum"))}
    return [{"kind": kind, "y": level} for kind, level in levels.items() if level is not None]


def _further_keys(run: RunFolder) -> set[str]:
    """Return the names of the log that are numbers and not parts of a success rate's curve."""
    keys = set(run.entries_by_name) - set(_NOT_MEASURED)
    return {key for key in keys if not key.endswith((_LOW, "success_rate_high", "success_rate"))}
