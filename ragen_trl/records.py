"""Episodes as JSON lines, one file per rollout or evaluation."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ragen_trl.trajectory import Trajectory

EPISODES_FOLDER = "trajectories"


def write_trajectories(
    path: Path, episodes: Iterable[tuple[Trajectory, Mapping[str, Any]]]
) -> None:
    """Write one line per episode: `Trajectory.to_record()` after the given further fields.

    The file is replaced, so that a resumed run leaves one record of every iteration.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for trajectory, further in episodes:
            record = {**further, **trajectory.to_record()}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
