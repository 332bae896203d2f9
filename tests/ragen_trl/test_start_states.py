import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_envs import solve
from ragen_envs.curriculum import Curriculum
from ragen_envs.splits import canonical_form, is_held_out
from ragen_trl.environments import EnvPool, EnvSpec, make_pools
from ragen_trl.start_states import GroupDealer, GroupStart, deal_groups, validation_seeds
from tests.episodes import make_trajectory
from tests.fakes import ScriptedTextEnv

BANDIT, LAKE, SOKOBAN = "ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0"
STAGES = [(1, 2), (3, 4), (5, None)]


def make_pool(env_id=SOKOBAN, **spec):
    return EnvPool(EnvSpec(env_id, **spec), {})


def make_dealer(weights=(3, 1, 2.5), first_seed=10, validation_share=0.3):
    pools = make_pools(list(zip([LAKE, BANDIT, SOKOBAN], weights, strict=True)), {})
    return GroupDealer(pools, first_seed=first_seed, validation_share=validation_share)


def level_of(start):
    env = start.pool.take(1)[0]
    env.reset(seed=start.seed, options=dict(start.options) or None)
    return env


# --- Whose turn it is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "first"),
    [
        # Equal weights, written in ways whose floating-point sums differ.
        ([1, 1, 1], [0, 1, 2, 0, 1, 2, 0, 1, 2]),
        ([0.1, 0.1, 0.1], [0, 1, 2, 0, 1, 2, 0, 1, 2]),
        ([1 / 7] * 7, [0, 1, 2, 3, 4, 5, 6, 0, 1]),
        ([5], [0, 0, 0]),
        # Half of the groups, never twice in a row.
        ([3, 1, 1, 1], [0, 1, 0, 2, 0, 3, 0, 1, 0]),
    ],
)
def test_deal_groups_order_of_the_first_groups(weights, first):
    assert list(itertools.islice(deal_groups(weights), len(first))) == first


@pytest.mark.parametrize(
    "weights",
    [
        [6, 3, 2, 1],
        [1, 1000],
        # Dealing to the one that lags most would give the heavy one a group too many here.
        [1] * 20 + [5] * 4 + [19],
    ],
)
def test_deal_groups_shares_are_exact_after_every_whole_round(weights):
    total = sum(weights)
    dealt = list(itertools.islice(deal_groups(weights), 3 * total))
    for rounds in (1, 2, 3):
        counts = [dealt[: rounds * total].count(i) for i in range(len(weights))]
        assert counts == [rounds * weight for weight in weights]
    assert_shares_within_one_group(weights, dealt)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_deal_groups_shares_are_within_one_group_at_all_times(weights):
    assert_shares_within_one_group(weights, list(itertools.islice(deal_groups(weights), 100)))


def assert_shares_within_one_group(weights, dealt):
    counts = [0] * len(weights)
    for num_dealt, index in enumerate(dealt, start=1):
        counts[index] += 1
        for count, weight in zip(counts, weights, strict=True):
            # In whole numbers, so that the bound is exact.
            assert abs(count * sum(weights) - weight * num_dealt) < sum(weights)


# --- Training seeds ---------------------------------------------------------------------------


def test_group_dealer_without_a_split_takes_consecutive_seeds():
    dealer = make_dealer(first_seed=70, validation_share=0)
    groups = dealer.deal(3) + dealer.deal(1) + dealer.deal(5)
    assert [group.seed for group in groups] == list(range(70, 79))
    assert [group.pool.name for group in groups][:4] == [LAKE, SOKOBAN, LAKE, SOKOBAN]


def test_group_dealer_never_deals_a_level_of_the_validation_side_and_wastes_no_other():
    dealer = GroupDealer([make_pool()], first_seed=0, validation_share=0.3)
    groups = dealer.deal(60)
    assert not any(is_held_out(level_of(group), 0.3) for group in groups)
    dealt = {group.seed for group in groups}
    assert [group.seed for group in groups] == sorted(dealt)  # none twice
    skipped = set(range(groups[-1].seed)) - dealt
    assert len(skipped) > 5
    assert all(is_held_out(level_of(GroupStart(groups[0].pool, seed)), 0.3) for seed in skipped)


@pytest.mark.parametrize("env_id", [SOKOBAN, LAKE])
def test_training_and_validation_have_no_level_in_common_up_to_symmetry(env_id):
    pool = make_pool(env_id)
    seeds = validation_seeds(pool, first_seed=123, num_seeds=40, validation_share=0.1)
    groups = GroupDealer([pool], first_seed=123, validation_share=0.1).deal(300)
    held_out = {canonical_form(level_of(GroupStart(pool, seed))) for seed in seeds}
    assert held_out.isdisjoint(canonical_form(level_of(group)) for group in groups)
    # The control: seeds as they come do meet, these small boards at least.
    trained = GroupDealer([pool], first_seed=1000, validation_share=0).deal(300)
    seeds = validation_seeds(pool, first_seed=123, num_seeds=300, validation_share=0)
    plain = {canonical_form(level_of(GroupStart(pool, seed))) for seed in seeds}
    assert not plain.isdisjoint(canonical_form(level_of(group)) for group in trained)


def test_validation_seeds_of_an_environment_without_levels_differ_from_training_seeds():
    pool = make_pool(BANDIT)
    seeds = validation_seeds(pool, first_seed=5, num_seeds=20, validation_share=0.1)
    trained = GroupDealer([pool], first_seed=5, validation_share=0.1).deal(200)
    assert len(set(seeds)) == 20
    assert set(seeds).isdisjoint(group.seed for group in trained)


def test_validation_seeds_without_a_split_come_one_after_the_other():
    seeds = validation_seeds(make_pool(), first_seed=123, num_seeds=3, validation_share=0)
    assert seeds == (123, 124, 125)


def test_too_few_levels_for_two_sides_name_the_environment_and_the_way_out():
    level = "#####\n#@$.#\n#####"
    pool = make_pool(kwargs={"levels": level})

    def train():
        GroupDealer([pool], first_seed=0, validation_share=0.1).deal(1)

    def validate():
        validation_seeds(pool, first_seed=0, num_seeds=1, validation_share=0.1)

    empty_side = train if is_held_out(level_of(GroupStart(pool, 0)), 0.1) else validate
    with pytest.raises(ValueError, match=r"ragen/Sokoban-v0.*`validation_share=0`"):
        empty_side()
    dealer = GroupDealer([pool], first_seed=0, validation_share=0)
    assert [group.seed for group in dealer.deal(2)] == [0, 1]


@pytest.mark.parametrize("num_dealt", [0, 1, 4, 7, 23])
def test_group_dealer_goes_on_identically_from_its_saved_state(num_dealt):
    def seen(groups):
        return [(group.pool.name, group.seed) for group in groups]

    whole = seen(make_dealer().deal(40))
    dealer = make_dealer()
    dealer.deal(num_dealt)
    resumed = make_dealer()
    resumed.deal(3)
    resumed.load_state_dict(json.loads(json.dumps(dealer.state_dict())))
    assert seen(resumed.deal(10) + resumed.deal(5)) == whole[num_dealt : num_dealt + 15]


def test_state_of_another_mixture_is_refused():
    one = GroupDealer([make_pool()], first_seed=0, validation_share=0)
    with pytest.raises(ValueError, match=r"`env` must hold .* which has 3, got 1"):
        one.load_state_dict(make_dealer().state_dict())


# --- Curriculum -------------------------------------------------------------------------------


def make_curriculum_dealer(window=4):
    curriculum = Curriculum(STAGES, window=window)
    pool = make_pool(curriculum=curriculum)
    return GroupDealer([make_pool(BANDIT), pool], first_seed=0, validation_share=0.1), curriculum


def play(env_id, *successes):
    return [make_trajectory(env_id=env_id, success=success) for success in successes]


def test_groups_come_from_the_present_range_and_stay_off_the_validation_side():
    dealer, curriculum = make_curriculum_dealer()
    for shortest, longest in STAGES:
        groups = [group for group in dealer.deal(24) if group.pool.name == SOKOBAN]
        assert {group.options["min_solution_length"] for group in groups} == {shortest}
        for group in groups:
            env = level_of(group)
            length = len(solve(env))
            assert shortest <= length <= (longest or length)
            assert not is_held_out(env, 0.1)
        curriculum.update(1.0, num_episodes=4)


def test_curriculum_moves_by_the_success_of_its_own_environment():
    dealer, curriculum = make_curriculum_dealer()
    key = f"curriculum/{SOKOBAN}/stage"
    assert dealer.update_curricula(play(BANDIT, *[True] * 8)) == {key: 0.0}
    assert curriculum.num_episodes == 0
    played = play(SOKOBAN, True, True, True, True) + play(BANDIT, *[False] * 8)
    assert dealer.update_curricula(played) == {key: 1.0}
    assert dealer.update_curricula(play(SOKOBAN, True, True, False, False)) == {key: 1.0}
    assert curriculum.success_rate == 0.5


def test_curriculum_is_part_of_the_saved_state():
    dealer, _ = make_curriculum_dealer()
    dealer.update_curricula(play(SOKOBAN, True, True, True, True))
    dealer.update_curricula(play(SOKOBAN, True, False))
    resumed, curriculum = make_curriculum_dealer()
    resumed.load_state_dict(json.loads(json.dumps(dealer.state_dict())))
    assert (curriculum.stage, curriculum.num_episodes) == (1, 2)
    assert [start.seed for start in resumed.deal(6)] == [start.seed for start in dealer.deal(6)]


def test_state_with_and_state_without_a_curriculum_do_not_mix():
    def make(curriculum):
        pool = make_pool(curriculum=curriculum)
        return GroupDealer([pool], first_seed=0, validation_share=0)

    dealers = make(None), make(Curriculum(STAGES))
    for dealer, other in (dealers, dealers[::-1]):
        dealer.deal(2)
        with pytest.raises(
            ValueError, match=r"`curriculum` of 'ragen/Sokoban-v0' must be given where"
        ):
            dealer.load_state_dict(other.state_dict())
        assert dealer.num_dealt == 2


def test_curriculum_of_an_environment_without_solution_lengths_is_refused_at_once():
    for source in (LAKE, ScriptedTextEnv):
        pool = make_pool(source, curriculum=Curriculum(STAGES))
        with pytest.raises(ValueError, match=r"`curriculum` needs .*'min_solution_length'"):
            GroupDealer([pool], first_seed=0, validation_share=0.1)


def test_curriculum_with_a_range_that_no_level_has_is_refused_at_once():
    pool = make_pool(curriculum=Curriculum([(1, 3), (400, 500)]))
    with pytest.raises(ValueError, match=r"`curriculum` holds the range \(400, 500\)"):
        GroupDealer([pool], first_seed=0, validation_share=0.1)


def test_curriculum_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"`curriculum` must be a .*Curriculum.*\[\(1, 2\)\]"):
        EnvSpec(SOKOBAN, curriculum=[(1, 2)])
