"""The two token limits: one reply is cut and play goes on; one episode ends."""

import pytest

from ragen_trl.rollout import TokenLimits
from tests.fakes import Step, reply
from tests.rollouts import WIDE, ScriptedPolicy, make_codec, make_starts, play, prefix_of_turn

NO_TURN_LIMIT = WIDE.max_new_tokens_per_turn


@pytest.fixture
def ids_of(tiny_tokenizer):
    return make_codec(tiny_tokenizer).encode_reply


@pytest.fixture
def lengths(tiny_tokenizer, ids_of):
    """Lengths of prompt, reply "Up" and the message behind it, of an episode without limits."""
    starts, _ = make_starts([[]], agent_turns={"max_turns": 2})
    up = ids_of(reply("Up"))
    (trajectory,) = play(starts, ScriptedPolicy([up], [up]), tiny_tokenizer)
    between = trajectory.turn_index.index(1) - len(up)
    return len(trajectory.prompt_ids), len(up), between


def test_turn_limit_cuts_a_reply_and_play_goes_on(tiny_tokenizer, ids_of):
    whole = ids_of(reply("Up"))
    limit = len(whole) - 2  # neither its end token nor the closing tag
    starts, inner = make_starts([[Step(1.0), Step(7.0)]], agent_turns={"max_turns": 2})
    policy = ScriptedPolicy([whole], [ids_of("a")])
    limits = TokenLimits(limit, WIDE.max_trajectory_tokens)
    (trajectory,) = play(starts, policy, tiny_tokenizer, limits=limits)
    assert [turn.reply for turn in trajectory.turns] == ["<think>hm</think><answer>Up", "a"]
    assert inner[0].received == []  # an answer without its closing tag is none
    assert trajectory.turn_rewards == [0.0, 0.0]
    assert trajectory.format_penalties == [-0.1, -0.1]
    # The end of turn is added for the model, but not sampled.
    assert trajectory.completion_ids[: limit + 1] == [*whole[:limit], tiny_tokenizer.eos_token_id]
    assert trajectory.action_mask[: limit + 1] == [True] * limit + [False]
    assert policy.calls[1][0] == [prefix_of_turn(trajectory, 1)]


def test_turn_limit_leaves_the_answer_of_a_cut_reply_valid(tiny_tokenizer, ids_of):
    whole = ids_of(reply("Up") + " and so on and on")
    limit = len(ids_of(reply("Up"))) - 1
    starts, inner = make_starts([[Step(1.0)]], agent_turns={"max_turns": 2})
    limits = TokenLimits(limit, WIDE.max_trajectory_tokens)
    policy = ScriptedPolicy([whole], [ids_of("a")])
    (trajectory,) = play(starts, policy, tiny_tokenizer, limits=limits)
    assert inner[0].received == [0]
    assert trajectory.turn_rewards[0] == 1.0
    assert trajectory.turns[0].is_valid


def test_trajectory_limit_ends_the_episode_and_keeps_its_rewards(tiny_tokenizer, ids_of, lengths):
    prompt, up, between = lengths
    # One token less than a second reply of one token would need.
    limits = TokenLimits(NO_TURN_LIMIT, prompt + up + between)
    starts, _ = make_starts([[Step(2.5)]])
    policy = ScriptedPolicy([ids_of(reply("Up"))])
    (trajectory,) = play(starts, policy, tiny_tokenizer, limits=limits)
    assert (trajectory.terminated, trajectory.truncated) == (False, True)
    assert trajectory.turn_rewards == [2.5]
    assert len(trajectory.turns) == 1
    # The message that found no room is left out; nothing stands behind the last sampled token.
    assert trajectory.completion_ids == ids_of(reply("Up"))


def test_trajectory_limit_with_room_for_one_token_plays_one_more_turn(
    tiny_tokenizer, ids_of, lengths
):
    prompt, up, between = lengths
    limits = TokenLimits(NO_TURN_LIMIT, prompt + up + between + 1)
    starts, _ = make_starts([[Step(2.5)]])
    policy = ScriptedPolicy([ids_of(reply("Up"))], [ids_of(reply("Up"))])
    (trajectory,) = play(starts, policy, tiny_tokenizer, limits=limits)
    assert [budget for _, budget in policy.calls] == [up + between + 1, 1]
    assert trajectory.turn_index.count(1) == 1
    assert trajectory.format_penalties == [0.0, -0.1]
    assert trajectory.truncated


def test_trajectory_limit_reached_in_the_last_reply_leaves_the_environments_end(
    tiny_tokenizer, ids_of, lengths
):
    prompt, up, _ = lengths
    limits = TokenLimits(NO_TURN_LIMIT, prompt + up)
    starts, _ = make_starts([[Step(1.0, terminated=True)]])
    (trajectory,) = play(
        starts, ScriptedPolicy([ids_of(reply("Up"))]), tiny_tokenizer, limits=limits
    )
    assert (trajectory.terminated, trajectory.truncated) == (True, False)
    assert trajectory.success


def test_trajectory_limit_counts_every_episode_for_itself(tiny_tokenizer, ids_of, lengths):
    prompt, _, _ = lengths
    starts, inner = make_starts([[Step(1.0)], [Step(2.0)]], agent_turns={"max_turns": 1})
    inner[1].first_observation = "X" * 12
    long_ids = ids_of("a" * 30)
    # Obeys the budget of the roomiest row only, as a batched generation does.
    policy = ScriptedPolicy([long_ids, long_ids])
    (short, long) = play(
        starts, policy, tiny_tokenizer, limits=TokenLimits(NO_TURN_LIMIT, prompt + 20)
    )
    extra = len(long.prompt_ids) - len(short.prompt_ids)
    assert 0 < extra < 20
    assert policy.calls[0][1] == 20
    assert short.completion_ids == long_ids[:20]
    assert long.completion_ids == long_ids[: 20 - extra]
    assert long.logps == policy.replies[0][1].logps[: 20 - extra]


@pytest.mark.parametrize("missing", [0, 1, 20])
def test_prompt_without_room_for_a_reply_is_truncated_and_the_others_play(
    tiny_tokenizer, ids_of, missing
):
    starts, inner = make_starts([[Step(1.0)], [Step(1.0)]], agent_turns={"max_turns": 1})
    inner[0].first_observation = "X" * 40
    message, _ = starts[0].env.reset()
    long_prompt_ids = make_codec(tiny_tokenizer).encode_start(message)
    limits = TokenLimits(NO_TURN_LIMIT, len(long_prompt_ids) - missing)
    policy = ScriptedPolicy([ids_of(reply("Up"))])
    full, free = play(starts, policy, tiny_tokenizer, limits=limits)
    assert (full.terminated, full.truncated, full.success) == (False, True, False)
    assert (full.completion_ids, full.turns, full.turn_rewards) == ([], [], [])
    assert full.prompt_ids == long_prompt_ids  # the rules are not cut off
    assert policy.calls[0][0] == [free.prompt_ids]
    assert free.turn_rewards == [1.0]


def test_prompts_without_room_alone_ask_for_no_reply(tiny_tokenizer):
    starts, _ = make_starts([[], []])
    policy = ScriptedPolicy()
    trajectories = play(starts, policy, tiny_tokenizer, limits=TokenLimits(5, 3))
    assert [t.truncated for t in trajectories] == [True, True]
    assert policy.calls == []


def test_no_limit_is_ever_exceeded(tiny_tokenizer, ids_of, lengths):
    prompt, up, between = lengths
    for per_trajectory in range(prompt - 1, prompt + 3 * (up + between) + 2):
        for per_turn in (1, up - 1, up):
            starts, _ = make_starts([[Step(1.0)] * 3], agent_turns={"max_turns": 3})
            policy = ScriptedPolicy(*[[ids_of(reply("Up"))]] * 3)
            limits = TokenLimits(per_turn, per_trajectory)
            (t,) = play(starts, policy, tiny_tokenizer, limits=limits)
            total = len(t.prompt_ids) + len(t.completion_ids)
            assert total <= max(per_trajectory, prompt)
            assert all(t.turn_index.count(k) <= per_turn for k in range(3))
            assert len(policy.calls) == len(t.turns)
            assert all(0 < budget <= per_turn for _, budget in policy.calls)
            assert t.truncated
