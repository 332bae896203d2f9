import gymnasium as gym
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import TimeLimit

from ragen_envs.end_enforcing import EndEnforcing


class Endless(gym.Env):
    """Ends only when action 1 is taken; lets every step pass."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(2)
    num_steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options = options
        return 0, {}

    def step(self, action):
        self.num_steps += 1
        return 0, 1.0, action == 1, False, {}


def test_step_after_truncation_raises_and_does_not_reach_the_environment():
    inner = Endless()
    env = EndEnforcing(TimeLimit(inner, max_episode_steps=2))
    env.reset()
    assert env.step(0)[3] is False
    assert env.step(0)[3] is True
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="Call `reset"):
            env.step(0)
    assert inner.num_steps == 2


def test_step_after_truncation_passes_without_the_wrapper():
    env = TimeLimit(Endless(), max_episode_steps=2)
    env.reset()
    assert [env.step(0)[3] for _ in range(3)] == [False, True, True]


def test_step_after_termination_raises_until_the_next_reset():
    env = EndEnforcing(Endless())
    env.reset()
    env.step(1)
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset()
    assert env.step(0)[1] == 1.0


def test_reset_hands_seed_and_options_through():
    env = EndEnforcing(Endless())
    env.reset(seed=3, options={"key": 1})
    assert env.unwrapped.options == {"key": 1}
    assert env.unwrapped.np_random_seed == 3


def test_reset_that_fails_does_not_reopen_the_episode():
    class Failing(Endless):
        def reset(self, *, seed=None, options=None):
            if options:
                raise ValueError("no")
            return super().reset(seed=seed)

    env = EndEnforcing(Failing())
    env.reset()
    env.step(1)
    with pytest.raises(ValueError, match="no"):
        env.reset(options={"x": 1})
    with pytest.raises(ResetNeeded):
        env.step(0)
