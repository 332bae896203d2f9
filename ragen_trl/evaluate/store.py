"""The folder of an evaluation: what was asked, and every episode as soon as it is over."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ragen_envs.output_files import replace_file, to_json
from ragen_trl.evaluate.records import EpisodeRecord, read_record

SETTINGS_FILE = "settings.json"
EPISODES_FILE = "episodes.jsonl"
RESULTS_FILE = "results.json"


class EpisodeKey(NamedTuple):
    """Which episode of an evaluation."""

    env: str
    seed: int
    sample: int

    @classmethod
    def of(cls, record: EpisodeRecord) -> "EpisodeKey":
        """Return the key of a record."""
        return cls(record.env, record.seed, record.sample)


class EpisodeStore:
    """Keeps finished episodes, so that an interrupted evaluation goes on where it was.

    Each process appends to a file of its own; `finish` puts them together. A line counts once it is
    complete: one that was cut by the interruption, or cannot be read, is played again.

    Args:
        folder: Made where it does not exist.
        settings: All that decides the outcome, as JSON can hold it. They are written down, and a
            later evaluation in the same folder must have the same ones.
        rank: Number of this process; process 0 writes what is common.

    Raises:
        ValueError: If the folder holds the episodes of other settings, of settings that cannot be
            read, or other results.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any], *, rank: int = 0) -> None:
        self.folder = Path(folder)
        self._own = self.folder / (EPISODES_FILE if rank == 0 else f"episodes.rank{rank}.jsonl")
        self._check(json.loads(to_json(settings)))
        if rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / SETTINGS_FILE, settings)

    def read(self) -> dict[EpisodeKey, EpisodeRecord]:
        """Return all episodes that were played to their end, whichever process played them."""
        records: dict[EpisodeKey, EpisodeRecord] = {}
        for path in self._files():
            for record in _read_lines(path):
                if record.error is None:
                    records[EpisodeKey.of(record)] = record
        return records

    def append(self, record: EpisodeRecord) -> None:
        """Write one episode; it is on disk, or on its way there, when this returns."""
        with self._own.open("ab") as file:
            file.write((to_json(asdict(record)) + "\n").encode())

    def drop_cut_line(self) -> None:
        """Remove what an interruption left of a line, so that the next one is readable."""
        if self._own.exists():
            content = self._own.read_bytes()
            with self._own.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)

    def finish(self, records: Iterable[EpisodeRecord]) -> None:
        """Replace the files of all processes by one with these episodes in order."""
        old = self._files()
        with replace_file(self.folder / EPISODES_FILE) as file:
            file.writelines(f"{to_json(asdict(record))}\n" for record in records)
        for path in old:
            if path.name != EPISODES_FILE:
                path.unlink()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("episodes*.jsonl"))

    def _check(self, settings: dict[str, Any]) -> None:
        path = self.folder / SETTINGS_FILE
        if not path.exists():
            taken = [
                name for name in (EPISODES_FILE, RESULTS_FILE) if (self.folder / name).exists()
            ]
            if taken:
                raise ValueError(
                    f"`output` must be a new folder or that of an evaluation, but {self.folder} holds "
                    f"{taken[0]!r} of something else. Choose another folder."
                )
            return
        old = _read_object(path)
        if old is None:
            raise ValueError(
                f"`output` {self.folder} holds episodes of settings that are not known: "
                f"{SETTINGS_FILE} cannot be read. Choose another folder."
            )
        names = [name for name in {**old, **settings} if old.get(name) != settings.get(name)]
        if names:
            name = names[0]
            raise ValueError(
                f"`output` {self.folder} holds episodes of other settings: `{name}` was "
                f"{old.get(name)!r} and is {settings.get(name)!r} now"
                f"{f' (and {len(names) - 1} more)' if names[1:] else ''}. Use the same settings to "
                "go on, or another folder."
            )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file that is either whole or not there."""
    with replace_file(path) as file:
        file.write(to_json(content, indent=2) + "\n")


def _read_lines(path: Path) -> Iterator[EpisodeRecord]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                record = read_record(json.loads(line))
            except (RecursionError, TypeError, ValueError):
                continue
            yield record


def _read_object(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (RecursionError, ValueError):
        return None
    return content if isinstance(content, dict) else None
