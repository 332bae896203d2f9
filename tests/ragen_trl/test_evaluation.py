import gymnasium as gym
import pytest

from ragen_envs import AgentTurns, solve
from ragen_trl import evaluation
from ragen_trl.evaluation import Rate, format_table, mean_optimal_success
from ragen_trl.statistics import wilson_interval
from tests.fakes import ScriptedTextEnv


def make_lake(**agent_turns):
    return AgentTurns(
        gym.make("ragen/FrozenLake-v0", size=(3, 3), is_slippery=False), **agent_turns
    )


def find_seed(num_actions):
    """Return a seed whose goal is that many steps away."""
    env = make_lake()
    for seed in range(100):
        env.reset(seed=seed)
        if len(solve(env)) == num_actions:
            return seed
    raise AssertionError("no such lake")


def test_rate_of_outcomes():
    rate = Rate.of([True, False, False, True, False])
    assert rate == (0.4, *wilson_interval(2, 5))
    assert rate.low < rate.rate < rate.high


def test_mean_optimal_success_of_the_bandit_is_one():
    assert mean_optimal_success(AgentTurns(gym.make("ragen/Bandit-v0")), range(5)) == 1.0


@pytest.mark.parametrize(
    ("agent_turns", "expected"),
    [
        # The goal is three steps away.
        ({"max_turns": 1, "max_actions_per_turn": 2}, 0.0),
        ({"max_turns": 1, "max_actions_per_turn": 3}, 1.0),
        ({"max_turns": 3, "max_actions_per_turn": 1}, 1.0),
        ({"max_turns": 2, "max_actions_per_turn": 1}, 0.0),
        ({"max_actions_per_episode": 2}, 0.0),
        ({"max_actions_per_episode": 3}, 1.0),
    ],
)
def test_mean_optimal_success_counts_the_actions_that_the_limits_allow(agent_turns, expected):
    assert mean_optimal_success(make_lake(**agent_turns), [find_seed(3)]) == expected


def test_mean_optimal_success_averages_over_the_start_states():
    env = make_lake(max_actions_per_episode=2)
    single = [mean_optimal_success(env, [seed]) for seed in range(12)]
    assert set(single) == {0.0, 1.0}
    assert mean_optimal_success(env, range(12)) == pytest.approx(sum(single) / 12)


def test_mean_optimal_success_of_a_foreign_environment_is_unknown():
    env = ScriptedTextEnv()
    assert mean_optimal_success(AgentTurns(env), range(5)) is None
    assert env.episode_seeds == []


def test_mean_optimal_success_is_unknown_where_a_search_takes_too_long(monkeypatch):
    def search(env, horizon):
        raise ValueError("too many states")

    monkeypatch.setattr(evaluation, "optimal_success", search)
    assert mean_optimal_success(make_lake(), range(5)) is None


def test_format_table_one_row_per_environment_one_column_per_policy():
    table = format_table(
        {
            "random": {"ragen/Bandit-v0": Rate(0.5, 0.25, 0.75), "door": Rate(0.0, 0.0, 0.125)},
            "optimum": {"ragen/Bandit-v0": 1.0, "door": None},
        }
    )
    assert table.split("\n") == [
        "success rate [95 % interval] | random                  | optimum",
        "-----------------------------+-------------------------+--------",
        "ragen/Bandit-v0              |  50.0% [ 25.0%,  75.0%] | 100.0%",
        "door                         |   0.0% [  0.0%,  12.5%] | -",
    ]
