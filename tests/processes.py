"""Running a training script in processes of its own, alone or joined by gloo."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_script(source, folder, *arguments, num_processes=1):
    """Run `source` with `arguments`, and fail unless every process ends well."""
    script = folder / "script.py"
    script.write_text(source, encoding="utf-8")
    common = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [{}]
    if num_processes > 1:
        common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        common |= {"WORLD_SIZE": str(num_processes), "LOCAL_WORLD_SIZE": str(num_processes)}
        ranks = [{"RANK": str(r), "LOCAL_RANK": str(r)} for r in range(num_processes)]
    command = [sys.executable, str(script), *map(str, arguments)]
    processes = [subprocess.Popen(command, env={**common, **rank}) for rank in ranks]
    assert [process.wait(timeout=400) for process in processes] == [0] * num_processes
