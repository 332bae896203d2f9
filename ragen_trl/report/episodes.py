"""The episodes of a run as the report shows them, and what the filter did with their groups."""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from ragen_envs.frozen_lake.env import VOCABULARIES as LAKE_VOCABULARIES
from ragen_envs.parsing import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from ragen_envs.sokoban.env import VOCABULARIES as SOKOBAN_VOCABULARIES
from ragen_trl.report.records import is_episode
from ragen_trl.report.run_folder import RunFolder, read_json_lines
from ragen_trl.report.sample import order_for_display, split_by, spread_evenly
from ragen_trl.report.series import round_number

# A file that is shown at all gets at least this many bytes.
BYTES_PER_FILE = 40_000
MAX_TEXT_LENGTH = 6000
MAX_ROLLOUTS_WITH_GROUPS = 400

# By a part of the environment's name.
_VOCABULARIES = {"FrozenLake": LAKE_VOCABULARIES, "Sokoban": SOKOBAN_VOCABULARIES}

_BLOCKS = re.compile(
    f"({THINK_OPEN}.*?{THINK_CLOSE}|{ANSWER_OPEN}.*?{ANSWER_CLOSE})", flags=re.DOTALL
)


@dataclass
class EpisodeBook:
    """The episodes of one run.

    Attributes:
        files: One entry per rollout and evaluation: `kind` "train" or "eval", `env` of an
            evaluation, `iteration`, `step`, `num_episodes`, `num_shown`.
        groups: Groups of the rollouts; see `summarize_groups`.
        episodes: Those that are shown.
        texts: What messages have in common; episodes refer to it by position.
        train_names: Names of the environments that rollouts played.
        cells: Cell kinds by symbol, by name of the environment, where they are known.
        notes: What is damaged or left out, in words.
    """

    files: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    train_names: list[str] = field(default_factory=list)
    cells: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_episodes(run: RunFolder, max_bytes: int) -> EpisodeBook:
    """Read all episodes of a run, one file after the other, and keep what is shown.

    Args:
        run: The run.
        max_bytes: Of the shown episodes as JSON.
    """
    book = EpisodeBook()
    shown = set(spread_evenly(run.episode_files, max(1, max_bytes // BYTES_PER_FILE)))
    rollouts = [path for path in run.episode_files if path.name.startswith("train-")]
    with_groups = set(spread_evenly(rollouts, MAX_ROLLOUTS_WITH_GROUPS))
    texts = _Texts(book.texts)
    for path in run.episode_files:
        records = _read_file(path, book.notes)
        if not records:
            continue
        entry = _describe_file(path, records)
        position = len(book.files)
        book.files.append(entry)
        if entry["kind"] == "train":
            names = [record["env_id"] for record in records]
            book.train_names = list(dict.fromkeys([*book.train_names, *names]))
        if path in with_groups:
            book.groups += summarize_groups(records, position)
        share = max_bytes // len(shown) if path in shown else 0
        chosen = _fill_share(order_for_display(records), share, position, texts)
        entry["num_shown"] = len(chosen)
        book.episodes += chosen
    book.cells = _find_cells(book.episodes)
    _note_what_is_left_out(book, len(rollouts) - len(with_groups))
    return book


def summarize_groups(records: Sequence[Mapping[str, Any]], file: int) -> list[dict[str, Any]]:
    """Say of every group of a rollout how its returns spread, and what the filter kept of it.

    Args:
        records: All episodes of the rollout.
        file: Position of the rollout among the files.

    Returns:
        Entries with `file`, `group`, `env`, `seed`, `size`, `num_kept`, `num_solved`, `mean` and
        `std` of the returns (the sample std, as the filter's; 0 of one episode; `None` where it is
        beyond all floats, or one of them is), and the filter's `score`, `None` where it was not recorded.
    """
    groups = split_by(records, lambda record: record["group_id"])
    return [
        {
            "file": file,
            "group": group_id,
            "env": members[0]["env_id"],
            "seed": members[0]["seed"],
            "size": len(members),
            "num_kept": sum(bool(m.get("is_kept")) for m in members),
            "num_solved": sum(bool(m["success"]) for m in members),
            "mean": _of_returns(statistics.fmean, members),
            "std": _of_returns(_sample_std, members),
            "score": round_number(members[0].get("group_score")),
        }
        for group_id, members in sorted(groups.items())
    ]


def split_reply(reply: str) -> list[list[str]]:
    """Cut a reply into (kind, text) pieces: "thought", "answer" and what is neither, "text".

    Together the pieces are the reply. A block counts wherever it stands, also where the parser
    would not read it: this is how the reply is shown, not what was played.
    """
    pieces = []
    for text in _BLOCKS.split(reply):
        if text:
            is_block = _BLOCKS.fullmatch(text) is not None
            kind = ("thought" if text.startswith(THINK_OPEN) else "answer") if is_block else "text"
            pieces.append([kind, text])
    return pieces


class _Texts:
    """Texts that many messages share, each stored once."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._positions: dict[str, int] = {}

    def size_of_new(self, texts: Iterable[str]) -> int:
        """Return the bytes that would be added."""
        return sum(len(json.dumps(text)) for text in set(texts) if text not in self._positions)

    def position(self, text: str) -> int:
        if text not in self._positions:
            self._positions[text] = len(self._texts)
            self._texts.append(text)
        return self._positions[text]


def _sample_std(returns: Sequence[float]) -> float:
    return statistics.stdev(returns) if len(returns) > 1 else 0.0


def _of_returns(
    measure: Callable[[Sequence[float]], float], members: Sequence[Mapping[str, Any]]
) -> float | None:
    returns = [member["total_reward"] for member in members]
    try:
        return None if None in returns else round_number(measure(returns))
    except OverflowError:
        return None


def _read_file(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    records = list(read_json_lines(path, notes))
    whole = [record for record in records if is_episode(record)]
    if len(whole) < len(records):
        notes.append(f"{path.name}: left out {len(records) - len(whole)} lines without an episode.")
    return whole


def _describe_file(path: Path, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kind, _, rest = path.stem.partition("-")
    return {
        "kind": kind,
        "env": records[0]["env_id"] if kind == "eval" else None,
        "label": rest,
        "iteration": records[0].get("iteration"),
        "step": records[0].get("step"),
        "num_episodes": len(records),
        "num_shown": 0,
    }


def _fill_share(
    records: Iterable[Mapping[str, Any]], share: int, file: int, texts: _Texts
) -> list[dict[str, Any]]:
    """Return the first episodes, as the report shows them, that fit into `share` bytes."""
    chosen = []
    for record in records:
        episode, messages = _shorten(record, file)
        size = len(json.dumps(episode)) + texts.size_of_new(text for m in messages for text in m)
        if size > share:
            break
        share -= size
        for turn, message in zip(episode["turns"], messages, strict=True):
            turn["message"] = [texts.position(text) for text in message]
        chosen.append(episode)
    return chosen


def _shorten(record: Mapping[str, Any], file: int) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """Return an episode without its messages, and the messages without the state."""
    advantages = record.get("advantages")
    episode = {
        "file": file,
        "env": record["env_id"],
        "seed": record["seed"],
        "group": record["group_id"],
        "reward": round_number(record["total_reward"]),
        "is_solved": bool(record["success"]),
        "end": "truncated" if record.get("truncated") else "terminated",
        "is_kept": record.get("is_kept"),
        "advantages": advantages and [round_number(value) for value in advantages],
        "tokens": record.get("action_tokens"),
        "final_state": _cut(record.get("final_state") or ""),
        "turns": [_shorten_turn(turn) for turn in record["turns"]],
    }
    return episode, [_without_state(turn) for turn in record["turns"]]


def _shorten_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "state": _cut(turn.get("state") or ""),
        "reply": split_reply(_cut(turn["reply"])),
        "actions": turn.get("actions") or [],
        "executed": turn.get("executed_actions") or [],
        "is_valid": bool(turn.get("is_valid")),
        "reward": round_number(turn.get("reward")),
        "penalty": round_number(turn.get("format_penalty")),
        "tokens": turn.get("action_tokens"),
    }


def _without_state(turn: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a message says around the state, which is stored by itself."""
    state = turn.get("state")
    if not state or state != _cut(state):
        return (_cut(turn["observation"]),)
    return tuple(_cut(part) for part in turn["observation"].split(state, 1))


def _cut(text: str) -> str:
    missing = len(text) - MAX_TEXT_LENGTH
    if missing <= 0:
        return text
    return f"{text[:MAX_TEXT_LENGTH]}\n[{missing} more characters are in the run's folder]"


def _find_cells(episodes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Find, by environment, the vocabulary that knows every symbol of its boards."""
    cells: dict[str, dict[str, str]] = {}
    for name, members in split_by(episodes, lambda episode: episode["env"]).items():
        family = next((f for part, f in _VOCABULARIES.items() if part in name), {})
        boards = (board_rows(turn["state"]) for episode in members for turn in episode["turns"])
        symbols = {symbol for rows in boards for row in rows for symbol in row}
        for vocabulary in family.values():
            if symbols and symbols <= set(vocabulary.values()):
                cells[name] = {symbol: kind for kind, symbol in vocabulary.items()}
    return cells


def board_rows(state: str) -> list[str]:
    r"""Return the leading lines of equal length, which are the board where there is one.

    Example:
        >>> board_rows("#_P\n#O_\nplayer: row 0, column 2.")
        ['#_P', '#O_']
    """
    rows = state.split("\n")
    return list(takewhile(lambda row: len(row) == len(rows[0]), rows))


def _note_what_is_left_out(book: EpisodeBook, num_without_groups: int) -> None:
    if num_without_groups:
        book.notes.append(
            f"The filter's choice is shown for {MAX_ROLLOUTS_WITH_GROUPS} rollouts at equal "
            f"distances; {num_without_groups} lie between them."
        )
    beyond = sum(None in (group["mean"], group["std"]) for group in book.groups)
    if beyond:
        book.notes.append(
            f"The returns of {beyond} groups are too large, or not finite, for a mean or std, which is "
            "left out."
        )
    without = sum(not entry["num_shown"] for entry in book.files)
    if without:
        book.notes.append(
            f"{without} of {len(book.files)} rollouts and evaluations show no episodes, to keep the "
            "file small. All are in the run's folder."
        )
