"""Our environments and the installed peers side by side: resets, steps with text, many at once.

    python benchmarks/environments.py                              # ours and Gymnasium's
    python benchmarks/environments.py --peers peers/bin/python     # and the others; five minutes
    python benchmarks/environments.py --quick                      # one short round, to see it work

The other peers ask for versions of their own and for Gym, which is not Gymnasium, so they are measured in
an interpreter of their own:

    python -m venv peers
    peers/bin/pip install gem-llm==0.1.0 textarena==0.7.4 gym-sokoban==0.0.6 'setuptools<81'

What is not installed there is said to be so. Ours are the complete environments that `gymnasium.make` and
`make_vec` give, with all wrappers. In each round ours and its peers take turns, one at a time. Times are
CPU time; printed are medians over the rounds, and for resets percentiles over all of them.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

WORKER = Path(__file__).with_name("environment_subjects.py")
BATCH_SIZES = (128, 1024)
LEVEL_FILE_MEGABYTES = 10
UNLIMITED = 3600.0

OURS = "ours"
RANDOM_MAPS, FIXED_MAP = "Gymnasium 1.4, random maps", "Gymnasium 1.4, fixed map"
GEM, TEXTARENA, GYM_SOKOBAN = "gem-llm 0.1.0", "textarena 0.7.4", "gym-sokoban 0.0.6"
IN_OUR_INTERPRETER = (OURS, RANDOM_MAPS, FIXED_MAP)

LAKE = "FrozenLake 4x4"
SMALL, CROWDED, MIDDLE, LARGE, HARD = (
    f"Sokoban {kind}"
    for kind in ("6x6, 1 box", "6x6, 3 boxes", "7x7, 2 boxes", "8x8, 2 boxes", "10x10, 4 boxes")
)

Key = tuple[str, str]  # what is measured, and whose
Subject = tuple[str, dict[str, Any]]  # opener of the worker, and its arguments


def ours(env_id: str, **arguments: Any) -> Subject:
    """Describe one of our single environments."""
    return "single", {"env_id": f"ragen_envs:ragen/{env_id}", **arguments}


def our_batch(env_id: str) -> Subject:
    """Describe one of our vector environments."""
    return "batch", {"env_id": f"ragen_envs:ragen/{env_id}", "mode": "vector_entry_point"}


FIXED_LAKE = {"env_id": "FrozenLake-v1", "render_mode": "ansi"}

SINGLES: dict[Key, Subject] = {
    (LAKE, OURS): ours("FrozenLake-v0"),
    (LAKE, RANDOM_MAPS): ("random lakes", {}),
    (LAKE, FIXED_MAP): ("single", FIXED_LAKE),
    (LAKE, TEXTARENA): ("textarena", {"env_id": "FrozenLake-v0-random"}),
    (SMALL, OURS): ours("Sokoban-v0"),
    (SMALL, GEM): ("gem sokoban", {}),
    (CROWDED, OURS): ours("Sokoban-v0", num_boxes=3),
    (CROWDED, TEXTARENA): ("textarena", {"env_id": "Sokoban-v0"}),
    (MIDDLE, OURS): ours("Sokoban-v0", size=[7, 7], num_boxes=2),
    (MIDDLE, GYM_SOKOBAN): ("gym-sokoban", {}),
    (LARGE, OURS): ours("LargeSokoban-v0"),
    (HARD, OURS): ours("Sokoban-v0", size=[10, 10], num_boxes=4),
}

BATCHES: dict[Key, Subject] = {
    (LAKE, OURS): our_batch("FrozenLake-v0"),
    (LAKE, FIXED_MAP): ("batch", {"mode": "sync", **FIXED_LAKE}),
    (SMALL, OURS): our_batch("Sokoban-v0"),
    (SMALL, GEM): ("gem sokoban batch", {}),
    (LARGE, OURS): our_batch("LargeSokoban-v0"),
    ("Bandit", OURS): our_batch("Bandit-v0"),
}


class Effort(NamedTuple):
    """How much a round does. Peers that take longer than `seconds` of CPU time do less."""

    num_rounds: int
    num_resets: int
    num_steps: int
    seconds: float
    batch_seconds: float


FULL = Effort(num_rounds=5, num_resets=200, num_steps=5_000, seconds=2.5, batch_seconds=0.5)
QUICK = Effort(num_rounds=1, num_resets=50, num_steps=1_000, seconds=0.5, batch_seconds=0.1)


class Worker:
    """A process that opens and measures the environments of one interpreter."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, measure: str, subject: Subject, **arguments: Any) -> Any:
        """Return the measurement, or `None` where the package is not installed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        request = {"measure": measure, "subject": subject, "arguments": arguments}
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"The worker stopped at {request}; its traceback is above.")
        return json.loads(answer).get("result")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Bench:
    """Takes the measurements and keeps them, an entry per round.

    Attributes:
        resets: Seconds of each reset.
        steps: Steps per second.
        batches: Steps per second by the number of environments.
    """

    def __init__(self, peers: str | None, effort: Effort) -> None:
        self._own = Worker(sys.executable)
        self._other = None if peers is None else Worker(peers)
        self._effort = effort
        self.resets: dict[Key, list[list[float]]] = {key: [] for key in SINGLES}
        self.steps: dict[Key, list[float]] = {key: [] for key in SINGLES}
        self.batches: dict[tuple[Key, int], list[float]] = {
            (key, num_envs): [] for key in BATCHES for num_envs in BATCH_SIZES
        }

    def run_round(self, number: int) -> None:
        """Measure everything once, ours and its peers in turn."""
        effort = self._effort
        for key, subject in SINGLES.items():
            limits = {
                "first_seed": number * effort.num_resets,
                "seconds": UNLIMITED if key[1] == OURS else effort.seconds,
            }
            resets = self._measure(key, "resets", subject, num_resets=effort.num_resets, **limits)
            if resets is None:
                continue
            self.resets[key].append(resets)
            steps = self._measure(key, "steps", subject, num_steps=effort.num_steps, **limits)
            self.steps[key].append(steps)
        for key, (opener, arguments) in BATCHES.items():
            for num_envs in BATCH_SIZES:
                subject = opener, {**arguments, "num_envs": num_envs}
                steps = self._measure(key, "batches", subject, seconds=effort.batch_seconds)
                if steps is not None:
                    self.batches[key, num_envs].append(steps)

    def _measure(self, key: Key, measure: str, subject: Subject, **arguments: Any) -> Any:
        worker = self._own if key[1] in IN_OUR_INTERPRETER else self._other
        return None if worker is None else worker.measure(measure, subject, **arguments)

    def close(self) -> None:
        """End the workers."""
        self._own.close()
        if self._other is not None:
            self._other.close()


def count_per_second(rounds: list[list[float]]) -> list[float]:
    """Turn the times of each round into a rate."""
    return [len(times) / sum(times) for times in rounds]


def print_singles(bench: Bench) -> None:
    """Print the table of single environments."""
    print("| one environment | | resets/s | p50, ms | p99, ms | max, ms | of | steps/s with text |")
    print("|---|---|---|---|---|---|---|---|")
    for key, rounds in bench.resets.items():
        if not rounds:
            print(f"| {key[0]} | {key[1]} | not installed | | | | | |")
            continue
        times = sorted(1e3 * seconds for times in rounds for seconds in times)
        p99 = times[int(0.99 * (len(times) - 1))]
        cells = [
            *key,
            write_rate(count_per_second(rounds)),
            f"{statistics.median(times):.2f}",
            f"{p99:.2f}",
            f"{times[-1]:.2f}",
            str(len(times)),
            write_rate(bench.steps[key]),
        ]
        print(f"| {' | '.join(cells)} |")


def print_batches(bench: Bench) -> None:
    """Print the table of vector environments."""
    print(f"| many at once, steps/s with text | | {' | '.join(f'{n} envs' for n in BATCH_SIZES)} |")
    print("|---|---|" + "---|" * len(BATCH_SIZES))
    for key in BATCHES:
        rates = [bench.batches[key, num_envs] for num_envs in BATCH_SIZES]
        cells = [*key, *(write_rate(rate) if rate else "not installed" for rate in rates)]
        print(f"| {' | '.join(cells)} |")


def write_rate(rates: list[float]) -> str:
    """Write the median with two digits, which is what it is good for."""
    rate = float(f"{statistics.median(rates):.2g}")
    return f"{rate:,.0f}" if rate >= 10 else str(rate)


def print_ratio(name: str, own: list[float], theirs: list[float], least: float) -> None:
    """Print whether ours is at least `least` times as fast, in the median of the rounds."""
    if not theirs:
        print(f"not installed: {name}")
        return
    ratios = [mine / other for mine, other in zip(own, theirs, strict=True)]
    ratio = statistics.median(ratios)
    verdict = "PASS" if ratio >= least else "MISSED"
    between = f"{min(ratios):.1f} to {max(ratios):.1f}"
    print(f"{verdict}: {name}: {ratio:.1f} times as many ({between}), wanted {least}")


def print_limit(name: str, value: float, limit: float, unit: str) -> None:
    """Print whether a time is at most `limit`."""
    verdict = "PASS" if value <= limit else "MISSED"
    print(f"{verdict}: {name}: {value:.2f} {unit}, wanted at most {limit} {unit}")


def print_verdicts(bench: Bench) -> None:
    """Print what is wanted of these numbers and whether it is so."""
    for setting, peer, least in ((SMALL, GEM, 10), (LAKE, RANDOM_MAPS, 10)):
        own, theirs = (count_per_second(bench.resets[setting, who]) for who in (OURS, peer))
        print_ratio(f"{setting}, resets/s against {peer}", own, theirs, least)
    for setting, peer, least in ((SMALL, GEM, 5), (LAKE, RANDOM_MAPS, 3), (LAKE, FIXED_MAP, 3)):
        own, theirs = (bench.steps[setting, who] for who in (OURS, peer))
        print_ratio(f"{setting}, steps/s against {peer}", own, theirs, least)
    most = max(BATCH_SIZES)
    own, theirs = (bench.batches[(LAKE, who), most] for who in (OURS, FIXED_MAP))
    print_ratio(f"{LAKE}, steps/s of {most} at once against {FIXED_MAP}", own, theirs, 20)
    for setting, limit in ((SMALL, 5), (LARGE, 30), (HARD, 150)):
        times = [seconds for round_ in bench.resets[setting, OURS] for seconds in round_]
        print_limit(f"{setting}, slowest of {len(times)} resets", 1e3 * max(times), limit, "ms")
    name = f"reading {LEVEL_FILE_MEGABYTES} MB of Sokoban levels"
    print_limit(name, time_level_file(LEVEL_FILE_MEGABYTES * 10**6), 2, "s")


def time_level_file(num_bytes: int) -> float:
    """Return the CPU seconds in which an environment is made from a file of ten-by-ten levels."""
    env_id = "ragen_envs:ragen/Sokoban-v0"
    writer = gymnasium.make(env_id, size=(10, 10), num_boxes=4, symbols="ascii")
    levels = "".join(f"; {seed}\n{writer.reset(seed=seed)[0]}\n\n" for seed in range(100))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "levels.txt"
        path.write_text(levels * (num_bytes // len(levels) + 1))
        begin = time.thread_time()
        gymnasium.make(env_id, levels=path)
        return time.thread_time() - begin


def main() -> None:
    """Measure, and print two tables and what is wanted of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="the interpreter that the peers are installed for")
    parser.add_argument("--quick", action="store_true", help="one short round")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    bench = Bench(options.peers, effort)
    for number in range(effort.num_rounds):
        bench.run_round(number)
        print(f"round {number + 1} of {effort.num_rounds} done", file=sys.stderr, flush=True)
    bench.close()
    print_singles(bench)
    print()
    print_batches(bench)
    print()
    print_verdicts(bench)


if __name__ == "__main__":
    main()
