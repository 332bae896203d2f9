import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragen_trl.engines import JointEngine, ReferenceEngine, Reply
from tests.conversations import VOCABULARY, converse

FILLER = [0]


class Processes:
    """Threads that stand for processes: `gather` returns when all of them have called it."""

    def __init__(self, count, patience):
        self.count = count
        self._entries = [None] * count
        # A process that waits for another in vain fails instead of hanging.
        self._barrier = threading.Barrier(count, timeout=patience)

    def gather(self, rank, entries):
        self._entries[rank] = list(entries)
        self._barrier.wait()
        everyone = [entry for own in self._entries for entry in own]
        self._barrier.wait()
        return everyone


class Server:
    """Generates as TRL does with a vLLM server: gathers prompts, deals out replies by position."""

    def __init__(self, processes):
        self._processes = processes
        self.calls = [[] for _ in range(processes.count)]

    def generate(self, rank, prompts, most):
        everyone = self._processes.gather(rank, prompts)
        self.calls[rank].append((len(prompts), most, everyone))
        first = rank * len(prompts)
        return [write(ids, most) for ids in everyone][first : first + len(prompts)]


def write(ids, most):
    """A policy whose reply depends on all it has read."""
    seed = sum(i * position for position, i in enumerate(ids, start=1))
    reply = [5 + (seed + 7 * i) % (VOCABULARY - 5) for i in range(most)]
    return Reply(reply, [-float(i) for i in reply])


def run_together(count, play, *, patience=20):
    """Call `play(engine, rank)` in every process; return the results, and the server."""
    processes = Processes(count, patience)
    server = Server(processes)

    def run(rank):
        engine = JointEngine(
            lambda prompts, most: server.generate(rank, prompts, most),
            gather=lambda entries: processes.gather(rank, entries),
            filler_ids=FILLER,
            stop=None,
            name="vllm",
        )
        return play(engine, rank)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count))), server


def shape(num_episodes, *, max_turns=5, wave_size=None):
    return {
        "num_groups": num_episodes,
        "group_size": 1,
        "max_turns": max_turns,
        "wave_size": wave_size,
    }


@pytest.mark.parametrize(
    "shapes",
    [
        [shape(6), shape(6)],
        [shape(2, max_turns=1), shape(7)],
        [shape(7), shape(2, max_turns=1)],
        [shape(5, wave_size=2), shape(6, wave_size=2), shape(4)],
        [shape(0, wave_size=1), shape(3)],
    ],
    ids=["alike", "ends first", "ends last", "waves", "no episode"],
)
def test_processes_make_the_same_calls_and_play_as_they_would_alone(shapes):
    def play(engine, rank):
        episodes, _ = converse(engine, seed=rank, **shapes[rank])
        engine.finish()
        return episodes

    together, server = run_together(len(shapes), play)
    for rank, episodes in enumerate(together):
        engine = ReferenceEngine(lambda prompts, most: [write(ids, most) for ids in prompts])
        alone, _ = converse(engine, seed=rank, **shapes[rank])
        assert episodes == alone
    sizes = [[call[:2] for call in calls] for calls in server.calls]
    assert all(own == sizes[0] for own in sizes)
    assert sizes[0]
    # Nobody plays for nothing: in every call some process has its rows full.
    for _, _, everyone in server.calls[0]:
        assert len(everyone) % len(shapes) == 0
        own = len(everyone) // len(shapes)
        parts = [everyone[i : i + own] for i in range(0, len(everyone), own)]
        assert any(FILLER not in part for part in parts)


def test_rollouts_follow_each_other():
    def play(engine, rank):
        for seed in range(3):
            converse(engine, seed=10 * rank + seed, **shape(3))
            engine.finish()

    _, server = run_together(2, play)
    assert len(server.calls[0]) == len(server.calls[1])


def test_without_finish_the_others_wait_in_vain():
    # Control: the processes of these tests do depend on each other.
    def play(engine, rank):
        converse(engine, seed=rank, **shape(3, max_turns=1 + 4 * rank))

    with pytest.raises(threading.BrokenBarrierError):
        run_together(2, play, patience=0.5)


def test_episodes_with_luck_of_their_own_are_generated_like_the_others():
    def play(engine, rank):
        session = engine.start([[3, rank + 1]], luck_seeds=[rank])
        (reply,) = session.reply([0], [[]], [2])
        engine.finish()
        return reply

    replies, _ = run_together(2, play)
    assert replies == [write([3, 1], 2), write([3, 2], 2)]
