import gymnasium as gym
import pytest
from gymnasium import spaces

import ragen_envs  # noqa: F401  (registers the ids)
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.baselines.episodes import EpisodeResult, play, play_random
from ragen_envs.baselines.policies import solver_policy
from ragen_envs.parsing import format_reply
from tests.fakes import ScriptedTextEnv, Step


def test_play_random_uses_the_whole_budget_and_sums_rewards():
    inner = ScriptedTextEnv([Step(0.5, info={"success": False})] * 7)
    env = AgentTurns(inner, max_actions_per_turn=3, max_actions_per_episode=7)
    assert play_random(env, seeds=[4, 9]) == [EpisodeResult(False, 3.5)] * 2
    assert len(inner.received) == 14
    assert inner.episode_seeds == [4, 9]
    assert set(inner.received) == {0, 1}


def test_play_random_reports_success_of_the_environment():
    inner = ScriptedTextEnv([Step(-1.0, terminated=True, info={"success": True})])
    assert play_random(AgentTurns(inner), seeds=[0]) == [EpisodeResult(True, -1.0)]


@pytest.mark.parametrize(
    ("last", "success"),
    [
        (Step(1.0, terminated=True), True),
        (Step(0.0, terminated=True), False),
        (Step(1.0, truncated=True), False),
    ],
)
def test_play_random_without_reported_success_asks_for_a_rewarded_end(last, success):
    assert play_random(AgentTurns(ScriptedTextEnv([last])), seeds=[0])[0].success is success


def test_play_random_depends_on_the_seed_alone():
    env = AgentTurns(gym.make("ragen/FrozenLake-v0"))
    forward = play_random(env, seeds=range(30))
    backward = play_random(env, seeds=reversed(range(30)))
    assert forward == backward[::-1]
    assert len(set(forward)) > 1


def test_play_random_does_not_guess_what_the_environment_drew():
    drawn = []
    inner = ScriptedTextEnv(
        [Step(terminated=True)],
        on_reset=lambda env: drawn.append(int(env.np_random.integers(2, size=1)[0])),
    )
    env = AgentTurns(inner, max_actions_per_turn=1)
    play_random(env, seeds=range(400))
    matches = sum(a == b for a, b in zip(inner.received, drawn, strict=True))
    # Binomial(400, 1/2): five standard deviations are 50; a shared stream gives 400 matches.
    assert abs(matches - 200) < 50


def test_play_random_on_bandit_pulls_both_arms_equally_often():
    env = AgentTurns(gym.make("ragen/Bandit-v0"))
    successes = [result.success for result in play_random(env, seeds=range(1000))]
    # Binomial(1000, 1/2): five standard deviations are 79.
    assert abs(sum(successes) - 500) < 79


def test_play_random_on_free_text_raises():
    env = AgentTurns(ScriptedTextEnv(action_space=spaces.Text(3)))
    with pytest.raises(TypeError, match=r"`env` must wrap an environment with a Discrete"):
        play_random(env, seeds=[0])


def test_play_gives_the_policy_its_own_stream_and_the_state_before_each_turn():
    seen = []

    def watch(env, rng):
        seen.append((env.turns_left, env.actions_left, int(rng.integers(10**9))))
        return format_reply(["Up", "Down"])

    inner = ScriptedTextEnv([Step(0.25)] * 6)
    env = AgentTurns(inner, max_turns=4, max_actions_per_episode=5)
    assert play(env, watch, seeds=[3, 3, 8]) == [EpisodeResult(False, 1.25)] * 3
    assert [entry[:2] for entry in seen] == [(4, 5), (3, 3), (2, 1)] * 3
    drawn = [entry[2] for entry in seen]
    assert drawn[:3] == drawn[3:6] != drawn[6:]


def test_play_of_the_solver_solves_what_fits_into_the_limits():
    env = AgentTurns(gym.make("ragen/Sokoban-v0", max_solution_length=10))
    assert all(result.success for result in play(env, solver_policy, seeds=range(30)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env": None}, TypeError, "`env` must be a Gymnasium environment"),
        ({"policy": 5}, TypeError, "`policy` must be a function that writes replies, got 5"),
        ({"policy": lambda env, rng: 5}, TypeError, "`policy` must write replies of type str, got"),
        ({"seeds": 5}, TypeError, "`seeds` must be a list of integers, got 5"),
        ({"seeds": [0, -1]}, ValueError, "`seeds` must be at least 0, got -1"),
    ],
)
def test_play_with_odd_arguments_names_them(arguments, error, message):
    env = AgentTurns(gym.make("ragen/Bandit-v0"))
    with pytest.raises(error, match=f"^{message}"):
        play(**{"env": env, "policy": solver_policy, "seeds": [0], **arguments})
