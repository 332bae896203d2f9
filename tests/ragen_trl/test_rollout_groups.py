"""Groups: one start, different luck, and an environment for every episode."""

import pytest

from ragen_envs import BanditEnv, FrozenLakeEnv
from ragen_trl.environments import EnvPool, EnvSpec
from ragen_trl.rollout import start_episodes
from ragen_trl.start_states import GroupStart
from tests.fakes import ScriptedTextEnv, reply
from tests.rollouts import ScriptedPolicy, make_codec, play_groups

MEMBERS = 16


@pytest.fixture
def ids_of(tiny_tokenizer):
    return make_codec(tiny_tokenizer).encode_reply


def by_group(trajectories):
    groups = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    return groups


def test_bandit_group_shares_the_start_and_differs_in_luck(tiny_tokenizer, ids_of):
    policy = ScriptedPolicy([ids_of(reply("Dragon"))] * (2 * MEMBERS))
    groups = by_group(
        play_groups(BanditEnv, policy, tiny_tokenizer, seeds=[5, 6], num_generations=MEMBERS)
    )
    lucks = []
    for members in groups.values():
        assert len({tuple(member.prompt_ids) for member in members}) == 1
        assert all(member.success for member in members)
        lucks.append([member.total_reward for member in members])
        # The high arm pays with probability 1/4: 16 equal payments have probability 0.01.
        assert set(lucks[-1]) == {0.0, 1.0}
    assert lucks[0] != lucks[1]


def test_bandit_groups_with_equal_prompts_stay_two_groups(tiny_tokenizer, ids_of):
    seeds = list(range(6))  # two orders of the arms: some prompts must be equal
    policy = ScriptedPolicy([ids_of(reply("Phoenix"))] * (3 * len(seeds)))
    trajectories = play_groups(BanditEnv, policy, tiny_tokenizer, seeds=seeds, num_generations=3)
    assert [t.group_id for t in trajectories] == [
        0,
        0,
        0,
        1,
        1,
        1,
        2,
        2,
        2,
        3,
        3,
        3,
        4,
        4,
        4,
        5,
        5,
        5,
    ]
    assert [t.seed for t in trajectories] == [t.group_id for t in trajectories]
    assert len({tuple(t.prompt_ids) for t in trajectories}) == 2


def test_slippery_lake_group_shares_the_start_and_differs_in_luck(tiny_tokenizer, ids_of):
    policy = ScriptedPolicy([ids_of(reply("Right", "Down"))] * (2 * MEMBERS))
    groups = by_group(
        play_groups(
            FrozenLakeEnv,
            policy,
            tiny_tokenizer,
            seeds=[1, 2],
            num_generations=MEMBERS,
            max_actions_per_episode=2,
        )
    )
    first = [{member.turns[0].observation for member in members} for members in groups.values()]
    assert [len(observations) for observations in first] == [1, 1]
    assert first[0] != first[1]
    for members in groups.values():
        outcomes = {(m.num_effective_actions, m.terminated, m.success) for m in members}
        assert len(outcomes) > 1


def test_dry_lake_group_plays_the_same_episode(tiny_tokenizer, ids_of):
    # Control of the test above: without luck, equal replies give equal episodes.
    policy = ScriptedPolicy(*[[ids_of(reply("Right"))] * 4] * 2)
    trajectories = play_groups(
        lambda: FrozenLakeEnv(is_slippery=False),
        policy,
        tiny_tokenizer,
        seeds=[3],
        num_generations=4,
        max_turns=2,
        max_actions_per_episode=2,
    )
    assert len({tuple(t.completion_ids[:-1]) for t in trajectories}) == 1


def test_group_is_played_again_exactly(tiny_tokenizer, ids_of):
    def play_once():
        policy = ScriptedPolicy([ids_of(reply("Dragon"))] * 8)
        return play_groups(BanditEnv, policy, tiny_tokenizer, seeds=[9], num_generations=8)

    assert play_once() == play_once()


def test_every_episode_has_one_reset_in_an_environment_of_its_own(tiny_tokenizer, ids_of):
    made = []

    def make():
        made.append(ScriptedTextEnv())
        return made[-1]

    policy = ScriptedPolicy([ids_of("a")] * 6)
    play_groups(make, policy, tiny_tokenizer, seeds=[4, 8], num_generations=3, max_turns=1)
    assert len(made) == 6
    assert [env.episode_seeds for env in made] == [[4]] * 3 + [[8]] * 3


def test_start_episodes_deals_no_environment_twice_and_makes_no_more_than_needed():
    pools = [EnvPool(EnvSpec(BanditEnv), {}), EnvPool(EnvSpec(FrozenLakeEnv), {})]
    episodes = [(GroupStart(pools[i % 2], i), i, 0) for i in range(7)]
    for _ in range(2):  # a second rollout uses the same instances
        starts = start_episodes(episodes)
        assert len({id(start.env) for start in starts}) == 7
        names = ["BanditEnv", "FrozenLakeEnv"]
        assert [start.env_id for start in starts] == [names[i % 2] for i in range(7)]
        assert [(s.seed, s.group_id, s.member) for s in starts] == [(i, i, 0) for i in range(7)]
    again = start_episodes(episodes)
    assert [id(start.env) for start in again] == [id(start.env) for start in starts]


def test_foreign_environment_is_reset_by_seed_alone(tiny_tokenizer, ids_of):
    received = []

    class Foreign(ScriptedTextEnv):
        def reset(self, *, seed=None, options=None):
            received.append((seed, options))
            return super().reset(seed=seed)

    policy = ScriptedPolicy([ids_of("a")] * 2)
    play_groups(Foreign, policy, tiny_tokenizer, seeds=[11], num_generations=2, max_turns=1)
    assert received == [(11, None), (11, None)]
