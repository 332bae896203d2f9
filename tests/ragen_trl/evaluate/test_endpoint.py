"""Whole episodes against a server that answers, stalls, refuses and hangs up."""

import json
import queue
import random
import threading
import time
import zlib

import pytest

from ragen_envs.parsing import format_reply
from ragen_trl.engines import ReferenceEngine, Reply
from ragen_trl.environments import EnvPool, EnvSpec
from ragen_trl.evaluate import EpisodeJob, EvaluationSettings, endpoint
from ragen_trl.evaluate.endpoint import EndpointPlayer
from ragen_trl.rollout import play_episodes, start_episodes
from ragen_trl.start_states import GroupStart
from tests.chat_server import Answer, completion, refusal, serve
from tests.fakes import ScriptedTextEnv, Step
from tests.rollouts import WIDE, make_codec

LAKE = "ragen/FrozenLake-v0"
MOVES = ("Left", "Down", "Right", "Up")
GOOD = format_reply(("Up",))
NOWHERE = "http://127.0.0.1:1/v1"
SOON = {"retry_after_ms": "5"}


def make_jobs(env=LAKE, seeds=range(3), samples=2, **agent_turns):
    pool = EnvPool(EnvSpec(env), agent_turns)
    return [EpisodeJob("env", pool, seed, sample) for seed in seeds for sample in range(samples)]


def make_player(server, **arguments):
    defaults = {"base_url": server.url, "timeout": 5.0, "max_retries": 0, "concurrency": 3}
    return EndpointPlayer("m", settings=EvaluationSettings(), **{**defaults, **arguments})


def play(player, jobs):
    records = []
    player.play(jobs, records.append)
    return records


def by_job(records):
    return {(record.env, record.seed, record.sample): record for record in records}


def digest(messages):
    return zlib.crc32(json.dumps(messages).encode())


def wander(body, attempt):
    """Reply with one or two moves that depend on nothing but the conversation."""
    number = digest(body["messages"])
    moves = [MOVES[number % 4], MOVES[number // 4 % 4]][: 1 + number // 16 % 2]
    return completion(format_reply(moves, thought="hm"))


def test_episodes_are_those_of_a_rollout(tiny_tokenizer):
    script = [("Down", "Right"), ("Right", "Right"), ("Up",), ("Left", "Down"), ("Down",)]
    replies = [format_reply(moves, thought="go") for moves in script[:2]]
    replies += ["no idea", *(format_reply(moves, thought="go") for moves in script[3:])]

    def answer(body, attempt):
        return completion(replies[len(body["messages"]) // 2])

    jobs = make_jobs()
    with serve(answer) as server:
        records = by_job(play(make_player(server), jobs))
    codec = make_codec(tiny_tokenizer)
    turns = iter(replies)

    def generate(token_ids, max_new_tokens):
        ids = codec.encode_reply(next(turns))
        return [Reply(ids, [0.0] * len(ids)) for _ in token_ids]

    starts = start_episodes([(GroupStart(job.pool, job.seed), 0, job.sample) for job in jobs])
    rollout = play_episodes(starts, engine=ReferenceEngine(generate), chat=codec, limits=WIDE)
    assert len({trajectory.total_reward for trajectory in rollout}) > 1
    conversations = [request["messages"] for request in server.requests]
    for job, expected in zip(jobs, rollout, strict=True):
        record = records["env", job.seed, job.sample]
        assert record.error is None
        assert record.success == expected.success
        assert record.reward == pytest.approx(expected.total_reward, abs=1e-12)
        assert record.turns == len(expected.turns)
        assert record.valid_turns == sum(turn.is_valid for turn in expected.turns)
        assert record.actions == sum(len(turn.executed_actions) for turn in expected.turns)
        assert record.effective_actions == expected.num_effective_actions
        assert record.response_tokens == 5 * record.turns
        # The last question showed all that the policy of the rollout was shown.
        asked = [turn.observation for turn in expected.turns]
        said = [turn.reply for turn in expected.turns[:-1]]
        assert any(
            [m["content"] for m in messages if m["role"] == "user"] == asked
            and [m["content"] for m in messages if m["role"] == "assistant"] == said
            for messages in conversations
        )


def test_records_depend_neither_on_order_nor_on_concurrency():
    jobs = make_jobs(seeds=range(6))
    with serve(wander) as server:
        alone = play(make_player(server, concurrency=1), jobs)
        shuffled = random.Random(0).sample(jobs, len(jobs))
        together = play(make_player(server, concurrency=5), shuffled)
    assert [(record.seed, record.sample) for record in alone] == [job[2:] for job in jobs]
    assert len(together) == len(jobs)
    assert by_job(together) == by_job(alone)
    assert len({record.turns for record in alone}) > 1


@pytest.mark.parametrize(("concurrency", "expected"), [(1, 1), (3, 3), (20, 6)])
def test_as_many_questions_at_once_as_allowed_and_no_more(concurrency, expected):
    together = threading.Barrier(expected, timeout=5)

    def answer(body, attempt):
        together.wait()
        return completion(GOOD)

    with serve(answer) as server:
        jobs = make_jobs(ScriptedTextEnv, max_turns=2)
        records = play(make_player(server, concurrency=concurrency), jobs)
    assert server.max_in_flight == expected
    assert not together.broken
    assert [record.error for record in records] == [None] * 6


TROUBLE = {
    "rate_limit": [refusal(429, **SOON), refusal(429)],
    "server": [refusal(500, **SOON)],
    "timeout": [completion(GOOD, delay=30.0)],
    "connection": [completion(GOOD, is_cut=True)],
    "malformed": [Answer(body='{"choices": [{"mess')],
}


def test_trouble_on_the_way_changes_no_result():
    jobs = make_jobs(seeds=range(10), max_turns=2)
    kinds = [*TROUBLE, None]

    def troubled(body, attempt):
        number = digest(body["messages"])
        answers = TROUBLE.get(kinds[number % len(kinds)], [])
        return answers[number % len(answers)] if answers and attempt == 0 else wander(body, 0)

    with serve(wander) as server:
        expected = by_job(play(make_player(server, concurrency=8), jobs))
    with serve(troubled) as server:
        player = make_player(server, concurrency=20, timeout=1.0, max_retries=3)
        records = play(player, jobs)
    assert by_job(records) == expected
    usage = player.usage()
    assert usage["retries"] > 5
    assert usage["requests"] == len(server.requests)
    assert not [name for name in usage if name.startswith("failed/")]


def test_what_stays_unanswered_is_an_error_of_its_kind_and_no_failed_episode():
    jobs = make_jobs(seeds=range(6), samples=1, max_turns=3)
    kinds = dict(zip(range(5), TROUBLE, strict=True))
    pool = jobs[0].pool
    firsts = {pool.take(1)[0].reset(seed=seed)[0]: seed for seed in range(6)}
    assert len(firsts) == 6

    def answer(body, attempt):
        seed = firsts[body["messages"][0]["content"]]
        is_second_turn = len(body["messages"]) == 3
        return TROUBLE[kinds[seed]][0] if seed in kinds and is_second_turn else completion("hm")

    with serve(answer) as server:
        player = make_player(server, concurrency=6, timeout=1.0, max_retries=1)
        records = by_job(play(player, jobs))
    for seed, kind in kinds.items():
        record = records["env", seed, 0]
        assert record.error is not None
        assert record.error.startswith(f"{kind}: ")
        assert (record.success, record.turns) == (False, 1)
    assert records["env", 5, 0].error is None
    usage = player.usage()
    assert {name: usage[name] for name in usage if name.startswith("failed/")} == {
        f"failed/{kind}": 1 for kind in TROUBLE
    }
    # One first question each, and the second of the whole episode and of the broken ones.
    assert usage["retries"] == 5


@pytest.mark.parametrize("answer", [refusal(401, "bad key"), refusal(404, "no model")])
def test_a_hopeless_evaluation_stops_at_once(answer):
    with (
        serve(answer) as server,
        pytest.raises(ConnectionError, match="The server refused model 'm'"),
    ):
        play(make_player(server, concurrency=3), make_jobs(seeds=range(50)))
    # Those that were under way together.
    assert len(server.requests) <= 3


def test_an_interrupt_keeps_what_has_ended_and_waits_for_nothing():
    jobs = make_jobs(seeds=range(8), samples=1, max_turns=1)
    last = jobs[0].pool.take(1)[0].reset(seed=7)[0]
    is_patient = [False]

    def answer(body, attempt):
        is_slow = body["messages"][-1]["content"] == last and not is_patient[0]
        return completion(GOOD, delay=30.0 if is_slow else 0.0)

    kept = []

    def keep(record):
        kept.append(record)
        if len(kept) == 7:
            raise KeyboardInterrupt

    with serve(answer) as server:
        player = make_player(server, concurrency=2, timeout=60.0)
        begin = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            player.play(jobs, keep)
        assert time.perf_counter() - begin < 10
        is_patient[0] = True
        rest = play(player, [job for job in jobs if job.seed == 7])
    assert sorted(record.seed for record in [*kept, *rest]) == list(range(8))


@pytest.mark.parametrize(
    ("make_env", "text"),
    [
        (
            lambda: ScriptedTextEnv([Step(1.0), Step(error=OSError("disk"))]),
            "Environment 'env' failed with seed 4 in turn 2: OSError: disk",
        ),
        (
            lambda: ScriptedTextEnv(first_observation=3),
            "Environment 'env' failed with seed 4 in reset: TypeError: ",
        ),
    ],
)
def test_an_environment_that_fails_is_named_and_what_has_ended_is_kept(make_env, text):
    whole = make_jobs(lambda: ScriptedTextEnv([Step(1.0, terminated=True)]), [2], 1)
    kept = []
    with serve(completion(GOOD)) as server:
        player = make_player(server, concurrency=1)
        with pytest.raises(RuntimeError, match=text):
            player.play([*whole, *make_jobs(make_env, [4], 1)], kept.append)
    # This environment reports no success of its own; its end was rewarded.
    assert [(record.seed, record.success, record.error) for record in kept] == [(2, True, None)]


def test_an_episode_that_another_ones_error_breaks_off_is_not_handed_in(monkeypatch):
    class SlowToHandInErrors(queue.SimpleQueue):
        def put(self, item):
            if isinstance(item, Exception):
                time.sleep(0.5)
            super().put(item)

    # Widens the time between an error and its being known.
    monkeypatch.setattr(endpoint, "SimpleQueue", SlowToHandInErrors)
    failing = make_jobs(lambda: ScriptedTextEnv([Step(error=OSError("disk"))]), [4], 1)
    endless = make_jobs(lambda: ScriptedTextEnv([Step(0.0)] * 50), [2], 1, max_turns=50)
    kept = []
    with serve(completion(GOOD, delay=0.1)) as server:
        player = make_player(server, concurrency=2)
        with pytest.raises(RuntimeError, match="OSError: disk"):
            player.play([*failing, *endless], kept.append)
    assert kept == []


@pytest.mark.parametrize(
    ("think", "content", "is_valid"),
    [
        (True, "<answer>Up</answer>", True),
        (True, "<think>a</think><answer>Up</answer>", True),
        (True, "Up", False),
        (False, "<answer>Up</answer>", True),
    ],
)
def test_reasoning_that_the_server_split_off_is_put_back(think, content, is_valid):
    with serve(completion(content, reasoning_content="hm")) as server:
        jobs = make_jobs(ScriptedTextEnv, [0], 1, max_turns=2, think=think)
        (record,) = play(make_player(server), jobs)
    assert record.valid_turns == (record.turns if is_valid else 0)
    said = server.requests[-1]["messages"][1]["content"]
    is_put_back = think and "<think>" not in content
    assert said == (f"<think>hm</think>{content}" if is_put_back else content)


def test_empty_replies_are_invalid_turns_and_no_errors():
    with serve(completion(None, finish_reason="length")) as server:
        player = make_player(server)
        (record,) = play(player, make_jobs(ScriptedTextEnv, [0], 1, max_turns=3))
    assert record.error is None
    assert (record.turns, record.valid_turns, record.success) == (3, 0, False)
    usage = player.usage()
    assert (usage["empty_replies"], usage["cut_replies"]) == (3, 3)


def test_template_arguments_are_sent_along():
    settings = EvaluationSettings(chat_template_kwargs={"enable_thinking": False})
    with serve(completion(GOOD)) as server:
        player = EndpointPlayer("m", settings=settings, base_url=server.url)
        play(player, make_jobs(seeds=[0], samples=1, max_turns=1))
        play(make_player(server), make_jobs(seeds=[0], samples=1, max_turns=1))
    sent = [request.get("chat_template_kwargs") for request in server.requests]
    assert sent == [{"enable_thinking": False}, None]


def test_tokens_and_cost_add_up():
    prices = {"price_per_million_prompt_tokens": 2.0, "price_per_million_completion_tokens": 8.0}
    with serve(completion(GOOD)) as server:
        player = make_player(server, **prices)
        assert player.usage() == {"requests": 0, "retries": 0, "cost": 0.0}
        play(player, make_jobs(ScriptedTextEnv, seeds=[0, 1], samples=1, max_turns=2))
        usage = player.usage()
        free = make_player(server)
        play(free, make_jobs(seeds=[0], samples=1, max_turns=1))
    # Four questions of 20 and 5 tokens: 80 * 2 + 20 * 8 millionths.
    assert (usage["requests"], usage["prompt_tokens"], usage["completion_tokens"]) == (4, 80, 20)
    assert usage["cost"] == pytest.approx(320e-6, rel=1e-12)
    assert "cost" not in free.usage()
    assert json.loads(json.dumps(usage)) == usage


def test_nothing_to_play_asks_nothing():
    with serve(completion(GOOD)) as server:
        assert play(make_player(server), []) == []
    assert server.requests == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"concurrency": 0}, "`concurrency` must be at least 1, got 0"),
        ({"max_retries": -1}, "`max_retries` must be at least 0, got -1"),
        ({"timeout": 0}, "`timeout` must be positive, got 0"),
        ({"timeout": float("nan")}, "`timeout` must be positive, got nan"),
        ({"price_per_million_prompt_tokens": 1.0}, "must both be given .* got 1.0 and None"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        EndpointPlayer("m", settings=EvaluationSettings(), base_url=NOWHERE, **arguments)


def test_a_model_without_a_name_is_refused():
    with pytest.raises(ValueError, match="`model` must be the model's name"):
        EndpointPlayer("", settings=EvaluationSettings(), base_url=NOWHERE)


@pytest.mark.parametrize(
    ("content", "think", "thought", "is_said"),
    [
        ("hm</think><answer>Up</answer>", True, None, True),
        ("hm</think><answer>Up</answer>", False, None, False),
        ("hm</think><answer>Up</answer>", True, "hm", False),
        (GOOD, True, None, False),
        ("<answer>Up</answer>", True, None, False),
    ],
)
def test_replies_that_begin_inside_the_think_block_are_said_once(
    caplog, content, think, thought, is_said
):
    with serve(completion(content, reasoning_content=thought)) as server:
        records = play(make_player(server), make_jobs(think=think))
    assert caplog.text.count("closes a think block that it has not opened") == is_said
    if is_said:
        assert not any(record.valid_turns for record in records)
        assert "`--reasoning-parser`" in caplog.text
