"""What a rollout does with tokens: nothing is lost, added, decoded or encoded again."""

import time

import pytest

from ragen_trl.rollout import RolloutTimer, TokenLimits
from tests.fakes import Step, reply
from tests.rollouts import (
    WIDE,
    ScriptedPolicy,
    make_codec,
    make_starts,
    play,
    prefix_of_turn,
)

END, START, PAD = "<|im_end|>", "<|im_start|>", "<|endoftext|>"


@pytest.fixture(scope="module")
def odd_ids(tiny_tokenizer):
    """Ids that decoding and encoding again would change, each kind for another reason."""
    to_ids = tiny_tokenizer.convert_tokens_to_ids
    spelled = to_ids(list("<answer>Up</answer>"))  # letters instead of words and tags
    half_a_character = to_ids(["Ã"])  # the byte C3, which begins a character and has no end
    special = to_ids([PAD, START, START])
    return [*spelled, *half_a_character, *special]


@pytest.fixture
def ids_of(tiny_tokenizer):
    """Encode an ended reply."""
    return make_codec(tiny_tokenizer).encode_reply


def play_three(tokenizer, ids_of, odd_ids):
    """Play three episodes of two, three and one turns; some replies have no end, one is empty."""
    scripts = [[Step(), Step(terminated=True)], [], [Step(terminated=True)]]
    starts, inner = make_starts(scripts, agent_turns={"max_turns": 3, "think": False})
    up = "<answer>Up</answer>"
    policy = ScriptedPolicy(
        [ids_of(up), odd_ids, ids_of(up)],
        [[*odd_ids, *ids_of(up)], []],
        [ids_of("rubbish")[:-1]],
    )
    return play(starts, policy, tokenizer), policy, inner


@pytest.fixture
def played(tiny_tokenizer, ids_of, odd_ids):
    return play_three(tiny_tokenizer, ids_of, odd_ids)


def replies_of(policy):
    """Return each episode's replies in the three-episode rollout."""
    (a0, b0, c0), (a1, b1), (b2,) = policy.replies
    return [[a0, a1], [b0, b1, b2], [c0]]


def test_odd_ids_do_not_survive_decoding(tiny_tokenizer, odd_ids):
    # Negative control of the tests below.
    text = tiny_tokenizer.decode(odd_ids)
    assert tiny_tokenizer(text, add_special_tokens=False)["input_ids"] != odd_ids
    plain = tiny_tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    assert plain["input_ids"] != odd_ids


def test_play_generates_for_live_episodes_in_order(played):
    trajectories, policy, inner = played
    assert [len(rows) for rows, _ in policy.calls] == [3, 2, 1]
    assert [len(t.turns) for t in trajectories] == [2, 3, 1]
    assert [len(env.received) for env in inner] == [2, 1, 1]  # the rest held no legal action
    assert [env.episode_seeds for env in inner] == [[3], [4], [5]]
    assert [(t.env_id, t.seed, t.group_id) for t in trajectories] == [
        ("env0", 3, 0),
        ("env1", 4, 1),
        ("env2", 5, 2),
    ]


def test_play_every_call_reads_prompt_and_completion_so_far(played):
    trajectories, policy, _ = played
    a, b, c = trajectories
    (first, _), (second, _), (third, _) = policy.calls
    assert first == [a.prompt_ids, b.prompt_ids, c.prompt_ids]
    # The empty reply of b in turn 1 has no token, so that its place is found from turn 2.
    assert second[0] == prefix_of_turn(a, 1)
    assert second[1] == (b.prompt_ids + b.completion_ids)[: len(second[1])]
    assert third == [prefix_of_turn(b, 2)]
    assert third[0][: len(second[1])] == second[1]


def test_play_every_call_reads_the_template_around_the_observations(
    played, tiny_tokenizer, odd_ids
):
    trajectories, policy, _ = played
    b = trajectories[1]
    texts = [tiny_tokenizer.decode(odd_ids), ""]
    messages = [turn.observation for turn in b.turns]
    expected = f"{START}user\n{messages[0]}{END}\n{START}assistant\n"
    assert tiny_tokenizer.decode(policy.calls[0][0][1]) == expected
    for call, text, message in zip(policy.calls[1:], texts, messages[1:], strict=True):
        expected += f"{text}{END}\n{START}user\n{message}{END}\n{START}assistant\n"
        assert tiny_tokenizer.decode(call[0][-1]) == expected


def test_play_mask_marks_the_sampled_ids_verbatim(played):
    trajectories, policy, _ = played
    for trajectory, replies in zip(trajectories, replies_of(policy), strict=True):
        sampled = [token_id for r in replies for token_id in r.ids]
        pairs = zip(trajectory.completion_ids, trajectory.action_mask, strict=True)
        assert [token_id for token_id, is_action in pairs if is_action] == sampled
        assert sum(trajectory.action_mask) == trajectory.num_action_tokens == len(sampled)


def test_play_turn_index_marks_the_replies_of_each_turn(played):
    trajectories, policy, _ = played
    for trajectory, replies in zip(trajectories, replies_of(policy), strict=True):
        for turn, r in enumerate(replies):
            pairs = zip(trajectory.completion_ids, trajectory.turn_index, strict=True)
            assert [token_id for token_id, k in pairs if k == turn] == r.ids
        is_outside = [k == -1 for k in trajectory.turn_index]
        assert is_outside == [not is_action for is_action in trajectory.action_mask]


def test_play_logps_stand_at_their_tokens_and_are_zero_elsewhere(played):
    trajectories, policy, _ = played
    for trajectory, replies in zip(trajectories, replies_of(policy), strict=True):
        pairs = list(zip(trajectory.logps, trajectory.action_mask, strict=True))
        expected = [logp for r in replies for logp in r.logps]
        assert [logp for logp, is_action in pairs if is_action] == expected
        assert {logp for logp, is_action in pairs if not is_action} <= {0.0}


def test_play_completion_ends_with_the_last_reply(played):
    trajectories, policy, _ = played
    for trajectory, replies in zip(trajectories, replies_of(policy), strict=True):
        last = replies[-1].ids
        assert trajectory.completion_ids[-len(last) :] == last
        assert trajectory.action_mask[-1]


def test_play_reply_is_recorded_as_text_without_its_end(played, tiny_tokenizer, odd_ids):
    trajectories, _, _ = played
    odd = tiny_tokenizer.decode(odd_ids)
    up = "<answer>Up</answer>"
    assert [[turn.reply for turn in t.turns] for t in trajectories] == [
        [up, odd + up],
        [odd, "", "rubbish"],
        [up],
    ]


def test_play_empty_replies_alone_leave_no_sampled_token(tiny_tokenizer):
    starts, _ = make_starts([[]], agent_turns={"max_turns": 2})
    (trajectory,) = play(starts, ScriptedPolicy([[]], [[]]), tiny_tokenizer)
    assert trajectory.num_action_tokens == 0
    assert trajectory.format_penalties == [-0.1, -0.1]
    assert trajectory.completion_ids[0] == tiny_tokenizer.eos_token_id  # of the empty first reply


def test_play_rewards_and_penalties_stand_per_turn(tiny_tokenizer, ids_of):
    script = [Step(1.0), Step(-0.25), Step(5.0, truncated=True)]
    starts, _ = make_starts([script])
    policy = ScriptedPolicy(
        [ids_of(reply("Up", "Down"))],
        [ids_of("nothing")],
        [ids_of(reply("Up", "Jump"))],
    )
    (trajectory,) = play(starts, policy, tiny_tokenizer)
    assert trajectory.turn_rewards == [0.75, 0.0, 5.0]
    assert trajectory.format_penalties == [0.0, -0.1, -0.1]
    assert trajectory.total_reward == pytest.approx(5.55)
    assert [turn.is_valid for turn in trajectory.turns] == [True, False, False]
    assert [turn.actions for turn in trajectory.turns] == [("Up", "Down"), (), ("Up",)]
    assert trajectory.turns[0].executed_actions == ("Up", "Down")
    assert (trajectory.terminated, trajectory.truncated) == (False, True)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (Step(1.0, terminated=True), (True, False, True)),
        (Step(0.0, terminated=True), (True, False, False)),
        (Step(1.0, truncated=True), (False, True, False)),
        (Step(1.0), (False, True, False)),  # the turns run out
        (Step(0.0, terminated=True, info={"success": True}), (True, False, True)),
        (Step(1.0, terminated=True, info={"success": False}), (True, False, False)),
    ],
)
def test_play_end_is_the_environments(tiny_tokenizer, ids_of, last, expected):
    starts, _ = make_starts([[Step(), last]], agent_turns={"max_turns": 2})
    policy = ScriptedPolicy([ids_of(reply("Up"))], [ids_of(reply("Up"))])
    (trajectory,) = play(starts, policy, tiny_tokenizer)
    assert (trajectory.terminated, trajectory.truncated, trajectory.success) == expected


def test_play_effective_actions_add_up_over_turns(tiny_tokenizer, ids_of):
    script = [Step(observation="a"), Step(observation="a"), Step(observation="b"), Step()]
    starts, _ = make_starts([script], agent_turns={"max_turns": 2})
    policy = ScriptedPolicy([ids_of(reply("Up", "Up"))], [ids_of(reply("Up", "Up"))])
    (trajectory,) = play(starts, policy, tiny_tokenizer)
    assert trajectory.num_effective_actions == 2  # start -> a, a -> b


def test_play_no_episodes_gives_no_trajectories(tiny_tokenizer):
    assert play([], ScriptedPolicy(), tiny_tokenizer) == []


def test_play_timer_adds_up_over_rollouts(tiny_tokenizer, ids_of):
    timer = RolloutTimer()
    times = []
    for _ in range(2):
        starts, _ = make_starts([[]], agent_turns={"max_turns": 1})
        play(starts, ScriptedPolicy([ids_of("a")]), tiny_tokenizer, timer=timer)
        times.append((timer.generation, timer.environment))
    assert 0 < times[0][0] < times[1][0]
    assert 0 < times[0][1] < times[1][1]


def test_play_timer_tells_generation_from_the_environment(tiny_tokenizer, ids_of):
    def slow_reset(_):
        time.sleep(0.05)

    policy = ScriptedPolicy([ids_of("a")], [ids_of("b")])

    def slow_policy(token_ids, max_new_tokens):
        time.sleep(0.1)
        return policy(token_ids, max_new_tokens)

    starts, _ = make_starts([[]], agent_turns={"max_turns": 2}, on_reset=slow_reset)
    timer, begin = RolloutTimer(), time.perf_counter()
    play(starts, slow_policy, tiny_tokenizer, timer=timer)
    elapsed = time.perf_counter() - begin
    assert timer.generation >= 0.2
    assert timer.environment >= 0.05
    # Nothing is counted twice, and the clock starts at 0.
    assert timer.generation + timer.environment <= elapsed


def test_play_budget_is_the_limit_of_a_turn_where_the_episode_has_room(tiny_tokenizer, ids_of):
    starts, _ = make_starts([[]], agent_turns={"max_turns": 2})
    policy = ScriptedPolicy([ids_of("a")], [ids_of("b")])
    limits = TokenLimits(77, WIDE.max_trajectory_tokens)
    play(starts, policy, tiny_tokenizer, limits=limits)
    assert [budget for _, budget in policy.calls] == [77, 77]


def test_play_turns_hold_the_state_before_the_reply(tiny_tokenizer):
    ids = tiny_tokenizer.encode(reply("Up"), add_special_tokens=False)
    steps = [Step(observation="one"), Step(observation="two"), Step(terminated=True)]
    starts, _ = make_starts([steps])
    policy = ScriptedPolicy([ids], [ids], [ids])
    (trajectory,) = play(starts, policy, tiny_tokenizer)
    states = [turn.state for turn in trajectory.turns]
    assert states == ["start", "one", "two"]
    assert all(
        state in turn.observation != state
        for state, turn in zip(states, trajectory.turns, strict=True)
    )
