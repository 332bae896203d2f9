import itertools
import re

import gymnasium as gym
import numpy as np
import pytest

import ragen_envs  # noqa: F401  # registers the ids
from ragen_envs import AgentTurns, parse_reply
from ragen_envs.baselines import play_random
from ragen_trl.chat import ChatCodec
from ragen_trl.tiny.demonstrations import play_demonstrations
from tests.fakes import ScriptedTextEnv, Step

BANDIT, LAKE, SOKOBAN = "ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0"
DRY = {"is_slippery": False}


def make(env_id, kwargs=None, **agent_turns):
    return AgentTurns(gym.make(env_id, **(kwargs or {})), **agent_turns)


def demonstrate(tokenizer, env, count, *, teacher="solver", seed=0):
    chat = ChatCodec(tokenizer, eos_token_ids=[tokenizer.eos_token_id])
    return list(itertools.islice(play_demonstrations(env, chat, teacher=teacher, seed=seed), count))


def replies_of(demonstration, tokenizer):
    """Return the ids of every reply: the runs of tokens that the teacher wrote."""
    pairs = zip(demonstration.token_ids, demonstration.is_reply, strict=True)
    runs = itertools.groupby(pairs, key=lambda pair: pair[1])
    return [[token_id for token_id, _ in run] for is_reply, run in runs if is_reply]


def success_rate(demonstrations):
    return sum(d.success for d in demonstrations) / len(demonstrations)


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("teacher", ["solver", "random"])
@pytest.mark.parametrize("env_id", [BANDIT, LAKE, SOKOBAN])
def test_demonstration_replies_are_marked_valid_and_ended(tiny_tokenizer, env_id, teacher, think):
    env = make(env_id, think=think)
    end = tiny_tokenizer.eos_token_id
    names = {name.casefold() for name in ("Dragon", "Phoenix", "Up", "Down", "Left", "Right")}
    for demonstration in demonstrate(tiny_tokenizer, env, 8, teacher=teacher):
        texts = [
            tiny_tokenizer.decode(ids[:-1]) for ids in replies_of(demonstration, tiny_tokenizer)
        ]
        assert all(
            ids[-1] == end and ids.count(end) == 1
            for ids in replies_of(demonstration, tiny_tokenizer)
        )
        num_actions = 0
        for text in texts:
            parsed = parse_reply(text, tuple(names), think=think)
            assert parsed.is_valid
            assert ("<think>" in text) is think
            assert len(parsed.actions) <= env.max_actions_per_turn
            num_actions += len(parsed.actions)
        assert 0 < num_actions <= env.max_actions_per_episode
        assert 0 < len(texts) <= env.max_turns


def test_demonstration_by_a_function_holds_what_it_wrote(tiny_tokenizer):
    seen = []

    def teacher(env, rng):
        seen.append((env, int(rng.integers(2**40))))
        return "<answer>Left</answer>" if len(seen) % 2 else "nonsense"

    env = make(LAKE, DRY, think=False, max_turns=4)
    (demonstration,) = demonstrate(tiny_tokenizer, env, 1, teacher=teacher)
    texts = [tiny_tokenizer.decode(ids[:-1]) for ids in replies_of(demonstration, tiny_tokenizer)]
    assert texts == ["<answer>Left</answer>", "nonsense"] * (len(texts) // 2) + [
        "<answer>Left</answer>"
    ] * (len(texts) % 2)
    assert all(env is played for played, _ in seen)
    assert len({number for _, number in seen}) == len(seen) == len(texts)


@pytest.mark.parametrize(
    ("script", "success"),
    [
        ([Step(reward=1.0, terminated=True)], True),
        ([Step(reward=0.0, terminated=True)], False),
        ([Step(reward=1.0, truncated=True)], False),
    ],
)
def test_demonstration_without_the_success_key_is_judged_by_its_end(
    tiny_tokenizer, script, success
):
    env = AgentTurns(ScriptedTextEnv(script), think=False, max_actions_per_turn=1)
    (demonstration,) = demonstrate(tiny_tokenizer, env, 1, teacher="random")
    assert demonstration.success is success


@pytest.mark.parametrize(
    ("env_id", "kwargs"), [(BANDIT, {}), (LAKE, {}), (LAKE, DRY), (SOKOBAN, {})]
)
def test_demonstration_is_the_conversation_of_its_episode(tiny_tokenizer, env_id, kwargs):
    (demonstration,) = demonstrate(tiny_tokenizer, make(env_id, kwargs), 1, seed=4)
    texts = [tiny_tokenizer.decode(ids[:-1]) for ids in replies_of(demonstration, tiny_tokenizer)]
    # Play the same replies again, and let the template write what was said.
    env = make(env_id, kwargs)
    message, _ = env.reset(seed=int(np.random.default_rng(4).integers(2**31)))
    messages = []
    for text in texts:
        messages += [{"role": "user", "content": message}, {"role": "assistant", "content": text}]
        message, _, terminated, truncated, info = env.step(text)
    assert terminated or truncated
    assert info["success"] is demonstration.success
    rendering = tiny_tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
    assert demonstration.token_ids == rendering[:-1]  # but for the last newline


def test_solver_demonstrations_solve_what_fits_into_the_limits(tiny_tokenizer):
    generous = {"max_turns": 20, "max_actions_per_episode": 100}
    for env in (make(LAKE, DRY, **generous), make(SOKOBAN, **generous)):
        assert success_rate(demonstrate(tiny_tokenizer, env, 20)) == 1.0
    # One plan, cut into turns of the allowed length.
    (demonstration,) = demonstrate(tiny_tokenizer, make(SOKOBAN, max_actions_per_turn=1), 1)
    text = tiny_tokenizer.decode(demonstration.token_ids)
    assert "||" not in "".join(re.findall(r"<answer>([^<]*)</answer><\|im_end", text))


@pytest.mark.parametrize(
    ("env_id", "kwargs", "agent_turns"),
    [
        (BANDIT, {}, {}),
        (LAKE, DRY, {}),
        (SOKOBAN, {}, {}),
    ],
)
def test_random_demonstrations_succeed_as_often_as_random_play(
    tiny_tokenizer, env_id, kwargs, agent_turns
):
    count = 300
    env = make(env_id, kwargs, **agent_turns)
    rate = success_rate(demonstrate(tiny_tokenizer, env, count, teacher="random"))
    results = play_random(make(env_id, kwargs, **agent_turns), seeds=range(count))
    baseline = sum(result.success for result in results) / count
    # Four standard deviations of the difference of two rates.
    spread = (2 * max(baseline * (1 - baseline), 0.02) / count) ** 0.5
    assert abs(rate - baseline) < 4 * spread
    if env_id != BANDIT:  # whose better arm no teacher knows
        solver = success_rate(demonstrate(tiny_tokenizer, env, 50))
        assert solver > baseline + 4 * spread


@pytest.mark.parametrize("teacher", ["solver", "random"])
def test_bandit_demonstrations_do_not_tell_the_better_arm(tiny_tokenizer, teacher):
    count = 400
    rate = success_rate(demonstrate(tiny_tokenizer, make(BANDIT), count, teacher=teacher))
    assert abs(rate - 0.5) < 4 * (0.25 / count) ** 0.5
    texts = [
        tiny_tokenizer.decode(replies_of(d, tiny_tokenizer)[0])
        for d in demonstrate(tiny_tokenizer, make(BANDIT), 40, teacher=teacher)
    ]
    assert all(re.search(r"<answer>(Dragon|Phoenix)</answer>", text) for text in texts)  # one pull


def test_demonstrations_are_fixed_by_their_seed(tiny_tokenizer):
    first, again, other = (
        demonstrate(tiny_tokenizer, make(LAKE), 5, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert first[0] != first[1]
