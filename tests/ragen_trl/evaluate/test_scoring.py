import json
import math

import pytest

from ragen_trl.evaluate.scoring import record_episode, summarize
from ragen_trl.statistics import wilson_interval
from tests.episodes import make_trajectory, make_turn


def test_record_episode_counts_what_happened():
    trajectory = make_trajectory(
        completion_ids=[1, 2, 3, 4, 5],
        action_mask=[1, 1, 0, 1, 1],
        turns=[make_turn(executed=["Up", "Up", "Down"]), make_turn(is_valid=False)],
        turn_rewards=[-0.3, 10.9],
        format_penalties=[0.0, -0.1],
        success=True,
        num_effective_actions=2,
    )
    record = record_episode(trajectory, env="room", sample=4)
    assert (record.env, record.seed, record.sample) == ("room", trajectory.seed, 4)
    assert record.success
    assert record.reward == pytest.approx(10.5)
    assert (record.turns, record.valid_turns) == (2, 1)
    assert (record.actions, record.effective_actions) == (3, 2)
    assert record.response_tokens == 4
    assert record.error is None


def test_summarize_by_hand(make_record):
    summary = summarize(
        [
            make_record(
                success=True, reward=1.0, turns=1, valid_turns=1, actions=2, effective_actions=2
            ),
            make_record(
                seed=2, reward=-0.5, turns=3, valid_turns=1, actions=4, effective_actions=1
            ),
            # Whatever it says, an episode with an error is only counted.
            make_record(seed=3, success=True, reward=99.0, turns=99, error="cut off"),
        ]
    )
    assert (summary.num_episodes, summary.num_errors) == (2, 1)
    assert summary.success_rate == 0.5
    assert (summary.success_rate_low, summary.success_rate_high) == wilson_interval(1, 2)
    assert summary.reward == 0.25
    assert (summary.turns, summary.actions) == (2.0, 3.0)
    assert summary.valid_reply_ratio == 2 / 4
    assert summary.effective_action_ratio == 3 / 6
    assert summary.response_length == 20 / 4
    assert summary.pass_at_k == {}


def test_pass_at_k_is_unbiased_and_averaged_over_start_states(make_record):
    # Solved 1 of 4, 4 of 4, 0 of 4. pass@2 of the first: 1 - C(3,2)/C(4,2) = 1/2.
    wins = {1: [True, False, False, False], 2: [True] * 4, 3: [False] * 4}
    records = [
        make_record(seed=seed, sample=i, success=won)
        for seed, row in wins.items()
        for i, won in enumerate(row)
    ]
    summary = summarize(records)
    assert summary.pass_at_k == {2: pytest.approx((1 / 2 + 1 + 0) / 3), 4: pytest.approx(2 / 3)}
    assert summary.success_rate == pytest.approx(5 / 12)


def test_pass_at_k_leaves_out_start_states_with_fewer_samples(make_record):
    records = [make_record(seed=1, sample=i, success=i == 0) for i in range(3)]
    records += [make_record(seed=2, sample=i, error="lost" if i else None) for i in range(3)]
    # Of the second start state one sample is left: too few for k = 2 and for k = 3.
    assert summarize(records).pass_at_k == {2: pytest.approx(2 / 3), 3: 1.0}


def test_without_any_episode_nothing_is_known(make_record):
    summary = summarize([make_record(error="lost")])
    assert (summary.num_episodes, summary.num_errors) == (0, 1)
    assert math.isnan(summary.success_rate)
    assert (summary.success_rate_low, summary.success_rate_high) == (0.0, 1.0)
    written = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert written["success_rate"] is None
    assert written["reward"] is None


def test_an_episode_without_actions_has_ratio_zero(make_record):
    assert summarize([make_record(actions=0, effective_actions=0)]).effective_action_ratio == 0.0
