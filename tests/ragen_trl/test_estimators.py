import random
from dataclasses import replace

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.estimators import teaches_nothing, turn_advantages, turn_rewards
from tests.episodes import make_trajectory, make_turn
from tests.reference import advantages as reference_advantages
from tests.reference import rewards as reference_rewards
from tests.reference import turn_advantages as reference_turns


@pytest.fixture
def make_args(tmp_path):
    return lambda estimator="gae", **options: StarPOConfig(
        str(tmp_path), advantage_estimator=estimator, **options
    )


def make_episode(rewards, *, penalties=None, group_id=0, env_id="env", states=None):
    states = states or [str(k) for k in range(len(rewards))]
    return make_trajectory(
        turns=[replace(make_turn(), state=state) for state in states],
        turn_rewards=list(rewards),
        format_penalties=list(penalties or [0.0] * len(rewards)),
        group_id=group_id,
        env_id=env_id,
    )


def test_rewards_of_turns_count_penalties_and_stand_where_they_were_earned(make_args):
    episode = make_episode([1.0, 0.0, -0.5], penalties=[0.0, -0.1, -0.1])
    assert turn_rewards([episode], make_args(turn_rewards=True)) == [
        pytest.approx((1.0, -0.1, -0.6))
    ]
    assert turn_rewards([episode], make_args()) == [pytest.approx((0.0, 0.0, 0.3))]


def test_rewards_of_an_episode_without_a_turn_are_none(make_args):
    empty = make_trajectory(completion_ids=[], turns=[], turn_rewards=[])
    assert turn_rewards([empty], make_args()) == [()]
    assert turn_rewards([empty], make_args(turn_rewards=True)) == [()]
    assert turn_advantages([empty], make_args("grpo")) == [()]


def test_truncated_and_terminated_episodes_are_paid_alike(make_args):
    ended = make_episode([1.0, 2.0])
    cut = replace(ended, terminated=False, truncated=True)
    rewards = turn_rewards([ended, cut], make_args())
    assert rewards[0] == rewards[1] == (0.0, 3.0)


@pytest.mark.parametrize("kind", ["mean", "mean_std", "asym_clip"])
@pytest.mark.parametrize("grouping", ["group", "env", "batch"])
def test_returns_are_normalised_over_the_asked_episodes(kind, grouping, make_args):
    rng = random.Random(1)
    episodes = [
        make_episode([rng.gauss(0, 3), 1.0], group_id=i % 3, env_id="ab"[i % 2]) for i in range(12)
    ]
    args = make_args(reward_normalization=kind, reward_grouping=grouping)
    units = {
        "group": [t.group_id for t in episodes],
        "env": ["ab".index(t.env_id) for t in episodes],
        "batch": [0] * 12,
    }[grouping]
    returns = [t.total_reward for t in episodes]
    expected = reference_rewards.normalize_returns(returns, units, kind, 1e-6)
    rewards = turn_rewards(episodes, args)
    assert [first for first, _ in rewards] == [0.0] * 12
    assert [last for _, last in rewards] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "reinforce_pp"])
def test_estimators_of_episodes_give_all_turns_the_same(estimator, make_args):
    rng = random.Random(2)
    episodes = [make_episode([rng.gauss(0, 1)] * (1 + i % 3), group_id=i % 4) for i in range(16)]
    expected = reference_advantages.group_advantages(
        [t.total_reward for t in episodes], [t.group_id for t in episodes], estimator, 1e-4
    )
    advantages = turn_advantages(episodes, make_args(estimator))
    assert [len(a) for a in advantages] == [len(t.turns) for t in episodes]
    for turns, value in zip(advantages, expected, strict=True):
        assert list(turns) == pytest.approx([value] * len(turns), rel=1e-6)


def test_gigpo_compares_turns_of_a_group_that_saw_the_same_state(make_args):
    # Returns with gamma 1 from each turn: A: 3 2, B: 5 1, C (another group): 7.
    # State "s": A's first (3), B's second (1) -> mean 2. "x" and "y" stand alone, "s" of C as well.
    a = make_episode([1.0, 2.0], states=["s", "x"])
    b = make_episode([4.0, 1.0], states=["y", "s"])
    c = make_episode([7.0], group_id=1, states=["s"])
    args = make_args("gigpo", turn_gamma=1.0, gigpo_step_weight=0.5, gigpo_divide_by_std=False)
    # Episodes: 3 and 5, mean 4; C has nobody to compare with.
    advantages = turn_advantages([a, b, c], args)
    assert [list(turns) for turns in advantages] == [
        pytest.approx([-1 + 0.5 * 1, -1]),
        pytest.approx([1, 1 + 0.5 * -1]),
        pytest.approx([0]),
    ]


@pytest.mark.parametrize("estimator", ["gigpo", "rebn"])
def test_estimators_of_turns_equal_their_definition(estimator, make_args):
    rng = random.Random(3)
    episodes = []
    for i in range(12):
        states = [rng.choice("abc") for _ in range(rng.randint(1, 4))]
        rewards = [rng.gauss(0, 1) for _ in states]
        episodes.append(make_episode(rewards, group_id=i % 3, states=states))
    args = make_args(estimator, turn_gamma=0.8, gigpo_step_weight=0.7)
    rewards = [t.turn_rewards for t in episodes]
    if estimator == "gigpo":
        observations = [[turn.state for turn in t.turns] for t in episodes]
        groups = [t.group_id for t in episodes]
        expected = reference_turns.gigpo(rewards, observations, groups, 0.8, 0.7, True, 1e-4)
    else:
        expected = reference_turns.rebn(rewards, 0.8, 1e-8)
    for turns, wanted in zip(turn_advantages(episodes, args), expected, strict=True):
        assert list(turns) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_critics_estimators_leave_advantages_to_the_critic(make_args):
    episodes = [make_episode([1.0, 2.0]), make_episode([0.0])]
    assert turn_advantages(episodes, make_args("gae")) == [(0.0, 0.0), (0.0,)]


def test_reward_in_the_last_turn_reaches_the_first_with_every_estimator(make_args):
    won, lost = make_episode([0.0, 0.0, 1.0]), make_episode([0.0, 0.0, 0.0])
    for estimator in ("grpo", "dr_grpo", "rloo", "reinforce_pp", "gigpo", "rebn"):
        (first, *_), _ = turn_advantages([won, lost], make_args(estimator))
        assert first > 0, estimator


@pytest.mark.parametrize("estimator", ["grpo", "gae"])
def test_equal_returns_teach_nothing(estimator, make_args):
    equal = [make_episode([0.1] * 3), make_episode([0.3]), make_episode([0.2, 0.1])]
    other = [*equal, make_episode([1.0])]
    assert teaches_nothing(equal, make_args(estimator))
    assert teaches_nothing([], make_args(estimator))
    assert not teaches_nothing(other, make_args(estimator))


def test_equal_returns_of_different_groups_teach_a_critic_only(make_args):
    groups = [make_episode([float(i // 2)], group_id=i // 2) for i in range(4)]
    assert teaches_nothing(groups, make_args("grpo"))
    assert not teaches_nothing(groups, make_args("gae"))
    assert not teaches_nothing(groups, make_args("reinforce_pp"))


def test_returns_that_normalisation_makes_equal_teach_a_critic_nothing(make_args):
    # Each group is constant, so that less its own mean nothing is left; over the batch it is.
    groups = [make_episode([0.0, float(i // 2)], group_id=i // 2) for i in range(4)]
    for kind in ("mean", "mean_std", "asym_clip"):
        by_group = make_args(reward_normalization=kind)
        assert {value for rewards in turn_rewards(groups, by_group) for value in rewards} == {0.0}
        assert teaches_nothing(groups, by_group)
        assert teaches_nothing(groups, make_args(reward_normalization=kind, gamma=0.9))
        by_batch = make_args(reward_normalization=kind, reward_grouping="batch")
        assert not teaches_nothing(groups, by_batch)


def test_turns_that_earn_differently_teach_a_critic_though_the_returns_are_equal(make_args):
    # From the second turn on one episode lost 1 and the other nothing.
    episodes = [make_episode([1.0, -1.0]), make_episode([0.0, 0.0])]
    assert not teaches_nothing(episodes, make_args(turn_rewards=True))
    assert teaches_nothing(episodes, make_args())
    # Of different lengths, but what is still to come is the same wherever both are.
    alike = [make_episode([0.3, 0.1]), make_episode([0.3, 0.1, 0.0])]
    assert teaches_nothing(alike, make_args(turn_rewards=True))


def test_episodes_without_a_turn_do_not_make_the_others_teach(make_args):
    empty = make_trajectory(completion_ids=[], turns=[], turn_rewards=[])
    for args in (make_args(), make_args(turn_rewards=True)):
        assert teaches_nothing([empty, make_episode([1.0]), make_episode([1.0])], args)
        assert teaches_nothing([empty], args)


def test_equal_returns_teach_speed_where_there_is_a_discount(make_args):
    equal = [make_episode([0.0, 1.0]), make_episode([1.0])]
    assert not teaches_nothing(equal, make_args("gae", gamma=0.99))
    assert not teaches_nothing(equal, make_args("bi_level_gae"))
    assert teaches_nothing(equal, make_args("bi_level_gae", turn_gamma=1.0))
    nothing = [make_episode([0.0, 0.0]), make_episode([0.0])]
    assert teaches_nothing(nothing, make_args("gae", gamma=0.99))
