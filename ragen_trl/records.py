"""Episodes as JSON lines, one file per rollout or evaluation."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ragen_envs.output_files import replace_file, to_json
from ragen_trl.trajectory import Trajectory

EPISODES_FOLDER = "trajectories"


def write_trajectories(
    path: Path, episodes: Iterable[tuple[Trajectory, Mapping[str, Any]]]
) -> None:
    """Write one line per episode: `Trajectory.to_record()` after the given further fields.

    The file is replaced, so that a resumed run leaves one record of every iteration. Numbers that
    are not finite, such as a sum of rewards beyond all floats, are null.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        for trajectory, further in episodes:
            record = {**further, **trajectory.to_record()}
            file.write(to_json(record) + "\n")
