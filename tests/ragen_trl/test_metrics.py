import numpy as np
import pytest

from ragen_trl.metrics import (
    evaluation_metrics,
    merge_evaluations,
    peak_memory,
    reply_metrics,
    rollout_metrics,
    trajectory_metrics,
)
from ragen_trl.rollout import RolloutTimer
from ragen_trl.statistics import pass_at_k, wilson_interval
from tests.episodes import make_trajectory, make_turn


def two_episodes():
    won = make_trajectory(
        completion_ids=[1, 2, 3, 4, 5],
        action_mask=[1, 1, 0, 1, 1],
        turns=[make_turn(executed=["Up", "Up", "Down"]), make_turn(executed=["Left"])],
        turn_rewards=[-0.3, 10.9],
        format_penalties=[0.0, -0.1],
        success=True,
        num_effective_actions=3,
        env_id="a",
    )
    lost = make_trajectory(
        completion_ids=[1, 2],
        turns=[make_turn(is_valid=False)],
        turn_rewards=[0.0],
        format_penalties=[-0.1],
        truncated=True,
        env_id="b",
    )
    return [won, lost]


TWO_EPISODES = {
    "reward": (10.5 - 0.1) / 2,
    "success_rate": 0.5,
    "rollout/response_length": 6 / 3,  # four and two tokens in three replies
    "rollout/turns": 3 / 2,
    "rollout/actions": 4 / 2,
    "rollout/valid_reply_ratio": 2 / 3,
    "rollout/effective_action_ratio": 3 / 4,
    "rollout/truncated_ratio": 0.5,
}


def test_trajectory_metrics_by_hand():
    assert trajectory_metrics(two_episodes()) == pytest.approx(TWO_EPISODES)


def test_trajectory_metrics_without_a_single_turn_are_finite():
    silent = make_trajectory(completion_ids=[], turns=[], turn_rewards=[], truncated=True)
    assert trajectory_metrics([silent, silent]) == {
        **dict.fromkeys(TWO_EPISODES, 0.0),
        "rollout/truncated_ratio": 1.0,
    }


def test_rollout_metrics_add_speed_and_time():
    episodes = [two_episodes()[0]]
    timer = RolloutTimer(environment=0.5, generation=1.5, cache_bytes=3_000_000)
    assert rollout_metrics(episodes, seconds=2.0, timer=timer) == pytest.approx(
        trajectory_metrics(episodes)
        # Two replies of one letter each, the same one: one trigram of two, a pair of duplicates.
        | {"rollout/distinct_ngrams": 0.5, "rollout/near_duplicate_ratio": 1.0}
        | {"rollout/valid_think_ratio": 0.0}
        | {"rollout/tokens_per_second": 2.0, "rollout/cache_megabytes": 3.0}
        | {"time/rollout": 2.0, "time/env": 0.5, "time/generate": 1.5}
    )


def test_thinking_replies_are_those_with_a_closed_block_that_says_something():
    answer = "<answer>Up</answer>"
    replies = [
        f"<think>go</think>{answer}",
        f"<think> </think>{answer}",
        f"<think>go{answer}",
        answer,
    ]
    assert reply_metrics(replies)["rollout/valid_think_ratio"] == 1 / 4


def test_peak_memory_is_what_this_process_took_at_most():
    (before,) = peak_memory().values()
    held = np.ones(40_000_000)
    (after,) = peak_memory().values()
    assert after >= before
    assert after > held.nbytes / 1e6


def test_rollout_metrics_of_several_environments_name_each():
    metrics = rollout_metrics(two_episodes(), seconds=1.0, timer=RolloutTimer())
    named = {key: value for key, value in metrics.items() if key[:2] in ("a/", "b/")}
    assert named == pytest.approx(
        {"a/reward": 10.5, "a/success_rate": 1.0, "b/reward": -0.1, "b/success_rate": 0.0}
    )
    assert metrics["reward"] == pytest.approx(5.2)


def play(outcomes_by_seed):
    return [
        make_trajectory(seed=seed, success=won)
        for seed, outcomes in outcomes_by_seed.items()
        for won in outcomes
    ]


def test_evaluation_metrics_one_episode_per_seed():
    episodes = play({123: [True], 124: [False], 125: [False], 126: [True], 127: [False]})
    metrics = evaluation_metrics(episodes, optimal_success=0.8)
    low, high = wilson_interval(2, 5)
    assert metrics == pytest.approx(
        trajectory_metrics(episodes)
        | {
            "success_rate_low": low,
            "success_rate_high": high,
            "num_episodes": 5.0,
            "success_vs_optimal": 0.4 / 0.8,
        }
    )


@pytest.mark.parametrize("optimal_success", [None, 0.0])
def test_evaluation_metrics_without_an_optimum_do_not_compare(optimal_success):
    metrics = evaluation_metrics(play({1: [True]}), optimal_success=optimal_success)
    assert "success_vs_optimal" not in metrics


def test_evaluation_metrics_pass_at_k_is_the_mean_over_seeds():
    episodes = play(
        {1: [True, False, False], 2: [False] * 3, 3: [True] * 3, 4: [False, True, True]}
    )
    metrics = evaluation_metrics(episodes, optimal_success=None)
    # Three samples of three: solved at least once or not.
    assert metrics["pass@3"] == pytest.approx(3 / 4)
    assert metrics["success_rate"] == pytest.approx(6 / 12)
    assert pass_at_k(3, 1, 3) == 1.0
    assert not [
        key for key in evaluation_metrics(play({1: [True]}), optimal_success=1.0) if "@" in key
    ]


def test_merge_evaluations_of_one_environment_have_no_name():
    metrics = {"ragen/Bandit-v0": {"reward": 0.3, "rollout/turns": 1.0}}
    assert merge_evaluations(metrics, "eval") == {"eval_reward": 0.3, "eval_rollout/turns": 1.0}


def test_merge_evaluations_of_several_are_named_and_averaged():
    merged = merge_evaluations(
        {
            "a": {"reward": 1.0, "success_rate": 0.5, "num_episodes": 10.0},
            "b": {"reward": 0.0, "success_rate": 0.25, "num_episodes": 90.0},
        },
        "test",
    )
    assert merged == {
        "test_a_reward": 1.0,
        "test_a_success_rate": 0.5,
        "test_a_num_episodes": 10.0,
        "test_b_reward": 0.0,
        "test_b_success_rate": 0.25,
        "test_b_num_episodes": 90.0,
        # Environments count the same, however many episodes they played.
        "test_reward": 0.5,
        "test_success_rate": 0.375,
    }
