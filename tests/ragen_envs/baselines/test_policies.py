import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import ragen_envs  # noqa: F401  (registers the ids)
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.baselines.episodes import play
from ragen_envs.baselines.policies import (
    greedy_actions,
    greedy_policy,
    random_policy,
    random_reply,
    solver_policy,
)
from ragen_envs.parsing import parse_reply
from ragen_envs.solvers import optimal_turn_success, solve_turn
from tests.fakes import ScriptedTextEnv

NAMES = ("Up", "Down", "Left", "Right")
LEFT, DOWN, RIGHT, UP = range(4)


def make_lake(*desc, is_slippery=True, **limits):
    env = AgentTurns(gym.make("ragen/FrozenLake-v0", desc=desc, is_slippery=is_slippery), **limits)
    env.reset(seed=0)
    return env


def read_actions(env, reply):
    parsed = parse_reply(
        reply, env.get_wrapper_attr("action_names"), separator=env.separator, think=env.think
    )
    assert parsed.is_valid
    return list(parsed.actions)


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("separator", ["||", ";"])
def test_random_reply_is_legal_and_as_long_as_asked(think, separator):
    rng = np.random.default_rng(0)
    for num_actions in (1, 2, 5):
        text = random_reply(NAMES, rng, num_actions=num_actions, separator=separator, think=think)
        parsed = parse_reply(text, NAMES, separator=separator, think=think)
        assert parsed.is_valid
        assert len(parsed.actions) == num_actions


def test_random_reply_draws_every_action_equally_often():
    text = random_reply(NAMES, np.random.default_rng(0), num_actions=4000)
    counts = [parse_reply(text, NAMES).actions.count(name) for name in NAMES]
    # Five standard deviations of Binomial(4000, 1/4): 5 * sqrt(4000 * 3/16) = 137.
    assert all(abs(count - 1000) < 137 for count in counts)


@pytest.mark.parametrize(
    ("names", "num_actions", "message"),
    [
        ((), 1, "`action_names` must hold a name, got none"),
        (NAMES, 0, "`num_actions` must be at least 1, got 0"),
        (NAMES, 10**9, "`num_actions` must be at most 100,000, got 1000000000"),
    ],
)
def test_random_reply_of_nothing_or_too_much_raises(names, num_actions, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        random_reply(names, np.random.default_rng(0), num_actions=num_actions)


def test_policies_without_the_agents_view_name_env():
    env = gym.make("ragen/Bandit-v0")
    for policy in (random_policy, greedy_policy, solver_policy):
        with pytest.raises(TypeError, match=r"^`env` must be an environment in AgentTurns, got "):
            policy(env, np.random.default_rng(0))


@pytest.mark.parametrize("policy", [random_policy, greedy_policy, solver_policy])
@pytest.mark.parametrize("name", ["Bandit", "FrozenLake", "Sokoban"])
@pytest.mark.parametrize("think", [True, False])
def test_policies_write_legal_replies_within_the_limits_and_leave_the_env_alone(
    policy, name, think
):
    env = AgentTurns(
        gym.make(f"ragen/{name}-v0"), max_actions_per_turn=3, separator=";", think=think
    )
    for seed in range(10):
        env.reset(seed=seed)
        before = env.env.np_random.bit_generator.state
        observation = env.unwrapped._observe()
        reply = policy(env, np.random.default_rng(seed))
        assert 1 <= len(read_actions(env, reply)) <= 3
        assert env.env.np_random.bit_generator.state == before
        assert env.unwrapped._observe() == observation


def test_random_policy_takes_all_that_is_left():
    env = AgentTurns(gym.make("ragen/Sokoban-v0"), max_actions_per_episode=7)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for expected in (5, 2):
        reply = random_policy(env, rng)
        assert len(read_actions(env, reply)) == expected
        env.step(reply)


def test_greedy_policy_on_firm_ice_walks_the_shortest_path_around_holes():
    env = make_lake("SHG", "FFF", is_slippery=False)
    assert greedy_actions(env) == [DOWN, RIGHT, RIGHT, UP]
    assert read_actions(env, greedy_policy(env, np.random.default_rng(0))) == [
        "Down",
        "Right",
        "Right",
        "Up",
    ]
    env = make_lake("SHG", "FFF", is_slippery=False, max_actions_per_turn=3)
    assert greedy_actions(env) == [DOWN, RIGHT, RIGHT]


@pytest.mark.parametrize(
    ("max_turns", "max_actions", "per_turn", "expected"),
    [(5, 10, 5, 2), (4, 10, 5, 3), (1, 3, 5, 3), (10, 10, 5, 1), (2, 10, 3, 3)],
)
def test_greedy_policy_on_slippery_ice_spreads_its_actions_over_the_turns(
    max_turns, max_actions, per_turn, expected
):
    env = make_lake(
        "SFFF",
        "FFFF",
        "FFFG",
        max_turns=max_turns,
        max_actions_per_episode=max_actions,
        max_actions_per_turn=per_turn,
    )
    assert len(greedy_actions(env)) == expected


def test_greedy_policy_stuck_in_sokoban_draws_an_action():
    level = "######\n#    #\n# $  #\n#@ . #\n######"
    env = AgentTurns(gym.make("ragen/Sokoban-v0", levels=level))
    env.reset(seed=0)
    assert greedy_actions(env)
    env.step("<think></think><answer>Right || Up</answer>")  # the box is at the upper wall now
    assert greedy_actions(env) == []
    assert len({greedy_policy(env, np.random.default_rng(seed)) for seed in range(40)}) == 4


def test_greedy_policy_pulls_the_high_arm_whatever_the_order():
    env = AgentTurns(gym.make("ragen/Bandit-v0"))
    assert all(result.success for result in play(env, greedy_policy, seeds=range(20)))


def test_solver_policy_plays_the_turn_of_the_solver():
    env = AgentTurns(gym.make("ragen/FrozenLake-v0"))
    names = env.unwrapped.action_names
    for seed in range(5):
        env.reset(seed=seed)
        reply = solver_policy(env, np.random.default_rng(0))
        assert read_actions(env, reply) == [names[action] for action in solve_turn(env)]


def test_solver_policy_is_greedy_where_success_is_out_of_reach():
    env = make_lake("SFFF", "FFFF", "FFFG", max_actions_per_episode=3)
    assert optimal_turn_success(env) == 0.0
    assert solver_policy(env, np.random.default_rng(0)) == greedy_policy(
        env, np.random.default_rng(0)
    )


def test_policies_succeed_in_the_order_of_what_they_know():
    env = AgentTurns(gym.make("ragen/FrozenLake-v0"))
    shares = [
        np.mean([result.success for result in play(env, policy, seeds=range(250))])
        for policy in (random_policy, greedy_policy, solver_policy)
    ]
    # The standard error of a difference is about 0.04.
    assert shares[0] + 0.06 < shares[1] < shares[2] - 0.02


def test_policies_on_foreign_environments_raise():
    rng = np.random.default_rng(0)
    with pytest.raises(TypeError, match=r"`env` must wrap an environment with a Discrete"):
        random_policy(AgentTurns(ScriptedTextEnv(action_space=spaces.Text(3))), rng)
    for policy in (greedy_policy, solver_policy):
        env = AgentTurns(ScriptedTextEnv())
        env.reset()
        with pytest.raises(TypeError, match="got ScriptedTextEnv"):
            policy(env, rng)
