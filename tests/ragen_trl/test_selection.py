import math
import random
import statistics
from dataclasses import replace

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.selection import select_trajectories
from tests.episodes import make_trajectory
from tests.reference import advantages as reference
from tests.reference import filtering


def select(trajectories, *, estimator="grpo", rollout_filter="top_k", ratio=0.25, **options):
    groups = {t.group_id for t in trajectories}
    args = StarPOConfig(
        "unused",
        advantage_estimator=estimator,
        rollout_filter=rollout_filter,
        rollout_filter_ratio=ratio,
        num_env_groups=len(groups),
        num_generations=max(2, len(trajectories) // len(groups)),
        **options,
    )
    return select_trajectories(trajectories, args)


def kept_groups(selection):
    """Ids of the groups that were kept, each of which must be whole."""
    kept = {}
    for trajectory, is_kept in zip(selection.trajectories, selection.is_kept.tolist(), strict=True):
        kept.setdefault(trajectory.group_id, set()).add(is_kept)
    assert all(len(flags) == 1 for flags in kept.values())
    return [group_id for group_id, flags in kept.items() if flags == {True}]


def make_group_with_std(std, size=4):
    """Returns of a sample standard deviation: -a, a, -a, a ... has sqrt(4 a^2 / 3)."""
    return [std * math.sqrt(3 / 4) * (-1) ** i for i in range(size)]


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
        "rollout/kept_episode_ratio": 0.25,
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
    kept = filtering.select_groups(scores, "top_k", ratio, include_zero=True)
    assert [row.trajectory for row in selection.rows] == [t for t in rollout if t.group_id in kept]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "reinforce_pp"])
def test_select_advantages_are_estimated_on_what_was_kept(estimator):
    rollout = make_rollout(*random_groups(4, 5, seed=2))
    selection = select(rollout, estimator=estimator, ratio=0.5)
    kept = [t for t, flag in zip(rollout, selection.is_kept.tolist(), strict=True) if flag]
    expected = reference.group_advantages(
        [t.total_reward for t in kept], [t.group_id for t in kept], estimator, eps=1e-4
    )
    assert [row.trajectory for row in selection.rows] == kept
    assert len(kept) == 10
    for row, value in zip(selection.rows, expected, strict=True):
        assert row.advantages == pytest.approx((value,), rel=1e-9)


def test_select_the_return_counts_format_penalties():
    rollout = [
        make_trajectory(turn_rewards=[1.0], format_penalties=[penalty]) for penalty in (0.0, -0.5)
    ]
    selection = select(rollout, estimator="dr_grpo")
    assert [row.advantages[0] for row in selection.rows] == pytest.approx([0.25, -0.25])
    critic = select(rollout, estimator="gae")
    assert [row.rewards for row in critic.rows] == [(1.0,), (0.5,)]
    assert [row.advantages for row in critic.rows] == [(0.0,), (0.0,)]


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
    assert [row.advantages for row in selection.rows[:16]] == [(0.0,)] * 16
    assert selection.no_variance.tolist() == [True, False]
    assert selection.metrics()["rollout/zero_variance_ratio"] == 0.5
    assert selection.scores[0] == 0.0


def test_select_nothing_but_equal_returns_keeps_a_group_and_trains_on_nothing():
    selection = select(make_rollout([0.15] * 4, [0.15] * 4))
    assert selection.is_kept.tolist() == [True] * 4 + [False] * 4
    assert selection.rows == []
    assert selection.metrics() == {
        "rollout/in_group_reward_std": 0.0,
        "rollout/kept_group_ratio": 0.5,
        "rollout/kept_episode_ratio": 0.5,
        "rollout/zero_variance_ratio": 1.0,
        "rollout/skipped_update": 1.0,
    }


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
    assert [(row.trajectory, row.advantages) for row in selection.rows] == [
        (speaking, pytest.approx((2.0 - 1 / 3,)))
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


# --- The filters ------------------------------------------------------------------------------

FORCED_STDS = [0.0, 0.5, 0.1, 0.0]


@pytest.mark.parametrize("ratio", [0.25, 0.01])
def test_forced_stds_keep_exactly_the_most_uncertain_group_whole(ratio):
    rollout = make_rollout(*map(make_group_with_std, FORCED_STDS))
    selection = select(rollout, ratio=ratio)
    assert selection.scores.tolist() == pytest.approx(FORCED_STDS)
    assert kept_groups(selection) == [1]
    assert len(selection.rows) == 4


def test_ties_go_to_the_lower_group_whatever_the_order_of_the_rows():
    rollout = make_rollout(*[[0.0, 1.0, 0.5]] * 6)
    for seed in range(5):
        random.Random(seed).shuffle(rollout)
        assert sorted(kept_groups(select(rollout, ratio=0.34))) == [0, 1]


@pytest.mark.parametrize("include_zero", [True, False])
@pytest.mark.parametrize(
    ("options", "method", "value"),
    [
        ({"rollout_filter": "top_k", "ratio": 0.6}, "top_k", 0.6),
        ({"rollout_filter": "top_k", "rollout_filter_num_groups": 3}, "top_k_abs", 3),
        ({"rollout_filter": "top_p", "ratio": 0.7}, "top_p", 0.7),
        (
            {"rollout_filter": "top_p", "ratio": 0.7, "rollout_filter_top_p": "softmax"},
            "top_p_softmax",
            0.7,
        ),
        ({"rollout_filter": "min_p", "ratio": 0.4}, "min_p", 0.4),
        (
            {"rollout_filter": "percentile_range", "rollout_filter_percentiles": [0.2, 0.9]},
            "percentile_range",
            (0.2, 0.9),
        ),
    ],
)
def test_filters_of_groups_keep_what_their_definition_keeps(options, method, value, include_zero):
    stds = [0.0, 0.5, 0.1, 0.3, 0.0, 0.9, 0.4, 0.0, 0.2, 0.6]
    rollout = make_rollout(*map(make_group_with_std, stds))
    selection = select(rollout, rollout_filter_include_zero=include_zero, **options)
    scores = filtering.group_scores(
        [t.total_reward for t in rollout], [t.group_id for t in rollout]
    )
    expected = filtering.select_groups(scores, method, value, include_zero)
    assert kept_groups(selection) == list(expected)
    assert 0 < len(expected) < 10


def test_filter_without_zeros_drops_them_by_variance_and_not_by_score():
    # All replies have the same length, so the score says nothing; one group has no variance.
    rollout = make_rollout([1.0, 0.0], [0.5, 0.5], [0.0, 2.0])
    options = {"rollout_filter_score": "response_length", "ratio": 1.0}
    assert kept_groups(select(rollout, **options)) == [0, 1, 2]
    assert kept_groups(select(rollout, **options, rollout_filter_include_zero=False)) == [0, 2]
    for name in ("soft", "within_group", "none"):
        selection = select(
            rollout, rollout_filter=name, ratio=1.0, rollout_filter_include_zero=False
        )
        assert kept_groups(selection) == [0, 2]


def test_nothing_kept_skips_the_update():
    rollout = make_rollout([0.15] * 4, [-0.1] * 4)
    selection = select(rollout, estimator="gae", rollout_filter_include_zero=False)
    assert not selection.is_kept.any()
    assert selection.rows == []
    metrics = selection.metrics()
    assert metrics["rollout/kept_group_ratio"] == 0.0
    assert metrics["rollout/skipped_update"] == 1.0
    assert all(math.isfinite(value) for value in metrics.values())


def test_within_group_keeps_the_episodes_that_spread_most():
    # Of four, the two extremes.
    rollout = make_rollout([0.0, 1.0, 0.4, 0.5], [3.0, 2.0, 2.9, 7.0])
    selection = select(rollout, rollout_filter="within_group", ratio=0.5, estimator="dr_grpo")
    assert selection.is_kept.tolist() == [True, True, False, False, False, True, False, True]
    metrics = selection.metrics()
    assert metrics["rollout/kept_group_ratio"] == 1.0
    assert metrics["rollout/kept_episode_ratio"] == 0.5
    # Compared with each other, the others being gone.
    assert [row.advantages[0] for row in selection.rows] == pytest.approx([-0.5, 0.5, -2.5, 2.5])


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.7])
def test_within_group_reaches_the_best_variance_of_all_choices(ratio):
    groups = random_groups(5, 7, seed=4)
    selection = select(make_rollout(*groups), rollout_filter="within_group", ratio=ratio)
    for group_id, group in enumerate(groups):
        kept = [
            row.trajectory.total_reward
            for row in selection.rows
            if row.trajectory.group_id == group_id
        ]
        assert len(kept) == int(ratio * 7)
        best = filtering.best_variance_within(group, len(kept))
        assert statistics.pvariance(kept) == pytest.approx(best, rel=1e-12)


def test_soft_keeps_everything_and_weighs_advantages_by_score():
    rollout = make_rollout(*map(make_group_with_std, [0.5, 0.25, 0.0]))
    selection = select(rollout, rollout_filter="soft")
    assert selection.is_kept.all()
    scales = [row.advantage_scale for row in selection.rows]
    assert scales == pytest.approx([1.0] * 4 + [0.5] * 4 + [0.0] * 4)
    plain = select(rollout, rollout_filter="none")
    assert {row.advantage_scale for row in plain.rows} == {1.0}


def test_soft_weights_stay_with_their_episodes_where_others_are_dropped():
    rollout = make_rollout(*map(make_group_with_std, [0.0, 0.25, 0.5]))
    selection = select(rollout, rollout_filter="soft", rollout_filter_include_zero=False)
    assert kept_groups(selection) == [1, 2]
    assert [row.advantage_scale for row in selection.rows] == pytest.approx([0.5] * 4 + [1.0] * 4)


@pytest.mark.parametrize("estimator", ["gae", "bi_level_gae", "reinforce_pp"])
def test_soft_weights_that_are_all_zero_skip_the_update(estimator):
    # Returns differ between the groups, so that these estimators find advantages; none of them
    # would survive its weight, and the entropy bonus alone would be left.
    rollout = make_rollout([0.0, 0.0], [1.0, 1.0])
    selection = select(rollout, rollout_filter="soft", estimator=estimator)
    assert selection.is_kept.all()
    assert selection.rows == []
    assert len(select(rollout, rollout_filter="none", estimator=estimator).rows) == 4


@pytest.mark.parametrize(("kind", "expected"), [("none", 1.0), ("ratio", 0.25), ("sqrt", 0.5)])
def test_loss_scale_is_that_of_the_share_of_episodes_kept(kind, expected):
    rollout = make_rollout(*random_groups(4, 3))
    assert select(rollout, rollout_loss_scale=kind).loss_scale == pytest.approx(expected)


def test_scores_of_entropy_and_length_are_those_of_the_sampled_tokens():
    def group(group_id, *mean_surprises, length=2):
        return [
            make_trajectory(
                completion_ids=range(2 * length),
                action_mask=[1, 0] * length,
                logps=[-surprise, 0.0] * length,
                reward=float(i),
                group_id=group_id,
            )
            for i, surprise in enumerate(mean_surprises)
        ]

    rollout = group(0, 1.0, 3.0) + group(1, 0.5, 0.5, length=5) + group(2, 2.5, 2.5)
    scores = {
        kind: select(rollout, rollout_filter_score=kind).scores.tolist()
        for kind in ("entropy", "entropy_variance", "response_length", "reward_mean", "reward_sum")
    }
    assert scores["entropy"] == pytest.approx([2.0, 0.5, 2.5])
    assert scores["entropy_variance"] == pytest.approx([2.0, 0.0, 0.0])
    assert scores["response_length"] == pytest.approx([2.0, 5.0, 2.0])
    assert scores["reward_mean"] == pytest.approx([0.5] * 3)
    assert scores["reward_sum"] == pytest.approx([1.0] * 3)
    # What is logged about variance stays that of the returns.
    other = select(rollout, rollout_filter_score="entropy")
    assert other.reward_stds.tolist() == pytest.approx([math.sqrt(0.5)] * 3)


def test_scores_of_entropy_leave_out_tokens_without_a_number():
    # Surprises 1 and 3 of the tokens that have one; the observation between them does not count.
    odd = make_trajectory(
        completion_ids=range(4), action_mask=[1, 1, 0, 1], logps=[-1.0, math.nan, 0.0, -3.0]
    )
    short = make_trajectory(logps=[-4.0], reward=1.0)
    nothing = make_trajectory(logps=[math.nan])
    selection = select([odd, short, nothing], rollout_filter_score="entropy")
    assert selection.scores.tolist() == pytest.approx([(2.0 + 4.0 + 0.0) / 3])


def test_record_says_what_was_kept_and_with_which_advantages():
    rollout = make_rollout([0.0, 1.0], [0.0, 0.1])
    selection = select(rollout, estimator="dr_grpo", ratio=0.5)
    high, low = (pytest.approx(spread / math.sqrt(2)) for spread in (1.0, 0.1))
    assert list(selection.records(rollout)) == [
        {"is_kept": True, "group_score": high, "advantages": [-0.5]},
        {"is_kept": True, "group_score": high, "advantages": [0.5]},
        {"is_kept": False, "group_score": low, "advantages": None},
        {"is_kept": False, "group_score": low, "advantages": None},
    ]
    # Played, but not among those that were selected from; equal to one of them, but another.
    stranger = replace(rollout[0], group_id=9)
    expected = {"is_kept": False, "group_score": None, "advantages": None}
    assert list(selection.records([stranger])) == [expected]
    critic = select(rollout, estimator="gae", ratio=0.5)
    expected = {"is_kept": True, "group_score": high, "advantages": None}
    assert list(critic.records(rollout[:1])) == [expected]


def test_records_go_through_the_rollout_as_often_for_many_episodes_as_for_one():
    class CountPasses(list):
        passes = 0

        def __iter__(self):
            CountPasses.passes += 1
            return super().__iter__()

    rollout = make_rollout(*random_groups(4, 8))
    selection = select(rollout)
    selection = selection._replace(
        trajectories=CountPasses(rollout), rows=CountPasses(selection.rows)
    )
    passes = []
    for count in (1, 32):
        CountPasses.passes = 0
        assert len(list(selection.records(rollout[:count]))) == count
        passes.append(CountPasses.passes)
    assert passes == [3, 3]
