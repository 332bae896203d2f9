import random
import statistics

import pytest

from ragen_trl.selection import select_trajectories
from tests.episodes import make_trajectory
from tests.reference import advantages as reference
from tests.reference import filtering


def select(trajectories, *, estimator="grpo", rollout_filter="top_k", ratio=0.25):
    return select_trajectories(
        trajectories,
        advantage_estimator=estimator,
        rollout_filter=rollout_filter,
        rollout_filter_ratio=ratio,
    )


def make_rollout(*groups, **kwargs):
    """One trajectory per return; every group is a list of returns."""
    return [
        make_trajectory(group_id=group_id, reward=value, **kwargs)
        for group_id, returns in enumerate(groups)
        for value in returns
    ]


def random_groups(num_groups, size, *, seed=0):
    rng = random.Random(seed)
    return [[rng.gauss(0, 1 + 3 * rng.random()) for _ in range(size)] for _ in range(num_groups)]


def test_select_a_quarter_of_eight_groups_keeps_the_two_most_uncertain_whole():
    groups = random_groups(8, 16)
    deviations = [statistics.stdev(group) for group in groups]
    best = sorted(sorted(range(8), key=lambda i: deviations[i])[-2:])
    selection = select(make_rollout(*groups))
    assert [row.trajectory.group_id for row in selection.rows] == [best[0]] * 16 + [best[1]] * 16
    assert selection.scores.tolist() == pytest.approx(deviations, rel=1e-12)
    assert selection.is_kept.tolist() == [i in best for i in range(8) for _ in range(16)]
    assert selection.metrics() == {
        "rollout/in_group_reward_std": pytest.approx(statistics.mean(deviations), rel=1e-12),
        "rollout/kept_group_ratio": 0.25,
        "rollout/zero_variance_ratio": 0.0,
        "rollout/skipped_update": 0.0,
    }


@pytest.mark.parametrize("ratio", [0.01, 0.25, 0.4, 0.999, 1.0])
def test_select_keeps_the_documented_groups_whole_in_any_order_of_the_rows(ratio):
    rollout = make_rollout(*random_groups(7, 4, seed=1))
    random.Random(0).shuffle(rollout)
    selection = select(rollout, ratio=ratio)
    returns, group_ids = [t.total_reward for t in rollout], [t.group_id for t in rollout]
    scores = filtering.group_scores(returns, group_ids)
    kept = filtering.select_top_k(scores, ratio, include_zero=True)
    assert [row.trajectory for row in selection.rows] == [t for t in rollout if t.group_id in kept]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo"])
def test_select_advantages_are_those_of_the_whole_group_and_reach_the_rows(estimator):
    rollout = make_rollout(*random_groups(4, 5, seed=2))
    selection = select(rollout, estimator=estimator, ratio=0.5)
    expected = reference.group_advantages(
        [t.total_reward for t in rollout], [t.group_id for t in rollout], estimator, eps=1e-4
    )
    assert selection.advantages.tolist() == pytest.approx(expected, rel=1e-9)
    by_trajectory = {id(t): a for t, a in zip(rollout, expected, strict=True)}
    assert len(selection.rows) == 10
    for row in selection.rows:
        assert row.advantage == pytest.approx(by_trajectory[id(row.trajectory)], rel=1e-9)


def test_select_the_return_counts_format_penalties():
    rollout = [
        make_trajectory(turn_rewards=[1.0], format_penalties=[penalty]) for penalty in (0.0, -0.5)
    ]
    selection = select(rollout, estimator="dr_grpo")
    assert selection.advantages.tolist() == pytest.approx([0.25, -0.25])


@pytest.mark.parametrize("value", [0.15, -0.1, 10.9])
def test_select_equal_returns_get_no_advantage_and_count_as_no_variance(value):
    # Sums of steps, which do not add up to the same binary fraction in every order.
    parts = [value / 3, value / 3, value / 3]
    equal = [
        make_trajectory(group_id=0, turn_rewards=[value], format_penalties=[0.0]),
        *(make_trajectory(group_id=0, reward=sum(parts)) for _ in range(15)),
    ]
    other = make_rollout([], [0.0, 1.0])
    selection = select(equal + other, rollout_filter="none")
    assert selection.advantages[:16].tolist() == [0.0] * 16
    assert selection.no_variance.tolist() == [True, False]
    assert selection.metrics()["rollout/zero_variance_ratio"] == 0.5
    assert selection.scores[0] == 0.0


def test_select_nothing_but_equal_returns_keeps_a_group_and_trains_on_nothing():
    selection = select(make_rollout([0.15] * 4, [0.15] * 4))
    assert selection.is_kept.tolist() == [True] * 4 + [False] * 4
    assert set(selection.advantages.tolist()) == {0.0}
    assert selection.rows == []
    assert selection.metrics()["rollout/skipped_update"] == 1.0


def test_select_filter_off_keeps_every_row_in_order():
    rollout = make_rollout([1.0, 0.0], [0.5, 0.5], [2.0, 3.0])
    selection = select(rollout, rollout_filter="none", ratio=0.25)
    assert [row.trajectory for row in selection.rows] == rollout
    assert selection.is_kept.all()
    assert selection.metrics()["rollout/kept_group_ratio"] == 1.0


def test_select_group_ids_need_not_be_consecutive():
    rollout = [
        make_trajectory(group_id=group_id, reward=reward)
        for group_id, reward in [(9, 0.0), (4, 1.0), (9, 8.0), (4, 1.5)]
    ]
    selection = select(rollout, ratio=0.5)
    assert [row.trajectory.total_reward for row in selection.rows] == [0.0, 8.0]
    assert selection.is_kept.tolist() == [True, False, True, False]


def test_select_rows_without_sampled_tokens_are_left_out_but_count_in_their_group():
    silent = make_trajectory(completion_ids=[7, 8], action_mask=[0, 0], reward=-1.0)
    empty = make_trajectory(completion_ids=[], reward=-1.0, turns=[], turn_rewards=[])
    speaking = make_trajectory(reward=2.0)
    selection = select([silent, speaking, empty], estimator="dr_grpo")
    # The mean of -1, 2 and 0; an episode without a turn earned nothing.
    assert [(row.trajectory, row.advantage) for row in selection.rows] == [
        (speaking, pytest.approx(2.0 - 1 / 3))
    ]
    assert selection.is_kept.tolist() == [True] * 3


def test_select_nothing_to_train_on_is_refused_with_the_length_of_the_prompt():
    # The spread of group 0 is larger, but nothing was sampled in it.
    prompt = list(range(42))
    too_long = [
        make_trajectory(prompt_ids=prompt, completion_ids=[], group_id=0, reward=value)
        for value in (0.0, 9.0)
    ]
    rollout = too_long + make_rollout([], [0.0, 1.0])
    with pytest.raises(
        ValueError, match=r"nothing to train on.* 42 tokens.*`max_trajectory_tokens`"
    ):
        select(rollout, ratio=0.5)
    assert len(select(rollout, ratio=1.0).rows) == 2
