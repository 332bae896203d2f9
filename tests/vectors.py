"""Native vector environments side by side with Gymnasium's `SyncVectorEnv` over single ones."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode


def make_pair(env_id, *, num_envs=6, mode=AutoresetMode.NEXT_STEP, limit=None, **arguments):
    """Make (native, sync)."""
    native = gym.make_vec(
        env_id,
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
        max_episode_steps=limit,
        **arguments,
    )
    sync = gym.make_vec(
        env_id,
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        max_episode_steps=limit,
        disable_env_checker=True,
        **arguments,
    )
    return native, sync


def assert_same_infos(infos, expected):
    assert infos.keys() == expected.keys()
    for key, values in expected.items():
        if isinstance(values, dict):
            assert_same_infos(infos[key], values)
            continue
        assert (infos[key].dtype, infos[key].shape) == (values.dtype, values.shape), key
        assert list(map(repr, infos[key].tolist())) == list(map(repr, values.tolist())), key


def assert_same_outcome(outcome, expected):
    """Compare what two calls of `reset` or `step` returned, types included."""
    assert type(outcome[0]) is type(expected[0]) is tuple
    assert outcome[0] == expected[0]
    assert [type(text) for text in outcome[0]] == [str] * len(expected[0])
    for part, expected_part in zip(outcome[1:-1], expected[1:-1], strict=True):
        assert part.dtype == expected_part.dtype
        assert part.tolist() == expected_part.tolist()
    assert_same_infos(outcome[-1], expected[-1])


def play_pair(native, sync, *, num_steps, action_seed=0):
    """Play both at random from where they are and compare everything. Returns the number of ends."""
    num_actions = int(sync.single_action_space.n)
    shape = (num_steps, sync.num_envs)
    num_ends = 0
    for actions in np.random.default_rng(action_seed).integers(num_actions, size=shape):
        outcome, expected = native.step(actions), sync.step(actions)
        assert_same_outcome(outcome, expected)
        assert native.observation_space.contains(outcome[0])
        ended = outcome[2] | outcome[3]
        num_ends += int(ended.sum())
        if sync.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            options = ({"reset_mask": ended.copy()} for _ in range(2))
            assert_same_outcome(
                native.reset(options=next(options)), sync.reset(options=next(options))
            )
    return num_ends


def reset_pair(native, sync, *, seed=None, options=None):
    """Reset both and compare."""
    outcome = native.reset(seed=seed, options=options and dict(options))
    assert_same_outcome(outcome, sync.reset(seed=seed, options=options and dict(options)))
    assert native.observation_space.contains(outcome[0])
