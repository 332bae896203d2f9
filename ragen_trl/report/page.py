"""One HTML file out of runs: data, style and script in one, and nothing from elsewhere."""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ragen_envs.output_files import replace_file
from ragen_trl.report.episodes import EpisodeBook, read_episodes
from ragen_trl.report.run_folder import RunFolder, read_run
from ragen_trl.report.sample import RULE
from ragen_trl.report.series import make_panels, make_success_panels
from ragen_trl.report.summary import summarize

# Of the shown episodes of all runs together; the rest takes a few megabytes at most.
MAX_EPISODE_BYTES = 12_000_000

_SCRIPTS = ("dom.js", "chart.js", "overview.js", "filter.js", "board.js", "episodes.js", "page.js")
# What could end the data block early or start a tag, a comment or an entity in it.
_UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})


def write_report(folders: Sequence[Path | str], output: Path | str) -> list[RunFolder]:
    """Write the report of one or several runs.

    Args:
        folders: Output folders of trainings.
        output: The HTML file; replaced, if it exists, once all is written.

    Returns:
        The runs as they were read, with notes on what is missing or damaged.

    Raises:
        ValueError: If there is no folder.
        FileNotFoundError: If a folder is none of a run.
        OSError: If the file cannot be written.
    """
    if not folders:
        raise ValueError("`folders` must name at least one run, got none.")
    paths = [Path(folder) for folder in folders]
    runs = [read_run(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    page = render_page(build_data(runs), title=", ".join(run.name for run in runs))
    try:
        with replace_file(output) as file:
            file.write(page)
    except OSError as error:
        raise OSError(f"`output` must be a file that can be written: {error}") from error
    return runs


def build_data(runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Return all that the page shows, as JSON can hold it."""
    books = [read_episodes(run, MAX_EPISODE_BYTES // len(runs)) for run in runs]
    logs = [(run, book.train_names) for run, book in zip(runs, books, strict=True)]
    success_panels = make_success_panels(logs)
    return {
        "rule": RULE,
        "panels": [*success_panels, *make_panels(logs)],
        "runs": [
            _describe_run(run, book) | {"summary": summarize(run, index, success_panels)}
            for index, (run, book) in enumerate(zip(runs, books, strict=True))
        ],
    }


def render_page(data: Any, *, title: str) -> str:
    """Put data, style and script into the page.

    A policy in the page allows this very script and style and nothing else, no request either.
    """
    style = _read("report.css")
    script = "".join(_read(name) for name in _SCRIPTS)
    parts = {
        "title": html.escape(title),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "data": to_inert_json(data),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("report.html"))


def to_inert_json(data: Any) -> str:
    r"""Write JSON that can stand inside a `<script type="application/json">`, whatever it says.

    Only ASCII is written, and without the characters that mean something in HTML.

    Raises:
        ValueError: If a number is not finite, which JSON cannot hold.

    Example:
        >>> to_inert_json({"reply": "</script>"})
        '{"reply":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the folders' names, or paths where names are not unique."""
    names = Counter(path.resolve().name for path in paths)
    return [
        path.resolve().name if names[path.resolve().name] == 1 else path.as_posix()
        for path in paths
    ]


def _describe_run(run: RunFolder, book: EpisodeBook) -> dict[str, Any]:
    return {
        "name": run.name,
        "notes": run.notes + book.notes,
        "collapse": [_describe_event(event) for event in run.collapse],
        "files": book.files,
        "groups": book.groups,
        "episodes": book.episodes,
        "texts": book.texts,
        "cells": book.cells,
    }


def _describe_event(event: Mapping[str, Any]) -> dict[str, Any]:
    types = {"step": int, "since": int, "signal": str, "message": str, "action": str}
    found = {name: event.get(name) for name in types}
    return {
        name: value if isinstance(value, types[name]) else None for name, value in found.items()
    }


def _read(name: str) -> str:
    return files("ragen_trl.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
