"""What holds across processes and in vector environments, for every id of this package."""

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ragen_envs  # noqa: F401  # registers the ids

IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("ragen/"))

DIGEST_OF_EPISODES = """
import hashlib, sys
import gymnasium as gym
import ragen_envs
digest = hashlib.sha256()
for env_id in sys.argv[1:]:
    env = gym.make(env_id)
    for seed in range(10):
        digest.update(repr(env.reset(seed=seed)).encode())
        for action in (0, 1, 2, 3):
            outcome = env.step(action % int(env.action_space.n))
            digest.update(repr(outcome).encode())
            if outcome[2] or outcome[3]:
                break
    envs = gym.make_vec(env_id, num_envs=3)
    digest.update(repr(envs.reset(seed=5)).encode())
    for _ in range(20):
        digest.update(repr(envs.step([0, 1, 0])).encode())
print(digest.hexdigest())
"""


def run_python(code, *arguments, **environment):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_levels_do_not_depend_on_the_hash_seed_of_the_process():
    digests = {run_python(DIGEST_OF_EPISODES, *IDS, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(digests) == 1
    assert digests != {run_python(DIGEST_OF_EPISODES, *IDS[:-1], PYTHONHASHSEED="1")}


def test_make_with_the_module_prefix_works_in_a_fresh_process():
    code = """
import gymnasium
env = gymnasium.make("ragen_envs:ragen/Sokoban-v0")
print(env.observation_space.contains(env.reset(seed=0)[0]))
"""
    assert run_python(code) == "True"


def test_import_brings_gymnasium_and_numpy_and_nothing_heavy():
    code = """
import sys
import ragen_envs
heavy = {"torch", "transformers", "trl", "datasets", "pygame", "matplotlib", "cv2", "PIL"}
print("gymnasium" in sys.modules, sorted(heavy & set(sys.modules)))
"""
    assert run_python(code) == "True []"


def step_single(env, action, *, ended, mode):
    """One step of a single environment by the rules of an autoreset mode."""
    if ended and mode is AutoresetMode.NEXT_STEP:
        return env.reset()[0], 0.0, False, False, None
    if ended and mode is AutoresetMode.DISABLED:
        env.reset()
    observation, reward, terminated, truncated, info = env.step(action)
    last_frame = (observation, info["success"])
    if (terminated or truncated) and mode is AutoresetMode.SAME_STEP:
        observation, _ = env.reset()
    return observation, reward, terminated, truncated, last_frame


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_sync_vector_env_equals_single_environments_in_every_autoreset_mode(env_id, mode):
    # On three steps per episode every mode resets often.
    vector = gym.make_vec(
        env_id,
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        max_episode_steps=3,
    )
    singles = [gym.make(env_id, max_episode_steps=3) for _ in range(3)]
    observations, _ = vector.reset(seed=40)
    assert list(observations) == [env.reset(seed=40 + i)[0] for i, env in enumerate(singles)]
    ended = np.zeros(3, dtype=bool)
    num_endings = 0
    for actions in np.random.default_rng(0).integers(vector.single_action_space.n, size=(30, 3)):
        if mode is AutoresetMode.DISABLED and ended.any():
            vector.reset(options={"reset_mask": ended})
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        for i, env in enumerate(singles):
            outcome = step_single(env, int(actions[i]), ended=bool(ended[i]), mode=mode)
            assert (observations[i], rewards[i], terminated[i], truncated[i]) == outcome[:4]
            if mode is AutoresetMode.SAME_STEP and (terminated[i] or truncated[i]):
                last_frame = (infos["final_obs"][i], infos["final_info"]["success"][i])
                assert last_frame == outcome[4]
        ended = terminated | truncated
        num_endings += ended.sum()
    assert num_endings > 10
    vector.close()


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("ragen/Bandit-v0", {}),
        ("ragen/FrozenLake-v0", {"observation_format": "grid_coordinates"}),
        ("ragen/Sokoban-v0", {}),
    ],
)
def test_async_vector_env_equals_the_sync_one(env_id, arguments, shared_memory):
    sync = gym.make_vec(env_id, num_envs=2, vectorization_mode="sync", **arguments)
    concurrent = gym.make_vec(
        env_id,
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": shared_memory},
        **arguments,
    )
    try:
        assert concurrent.reset(seed=6)[0] == sync.reset(seed=6)[0]
        for actions in np.random.default_rng(0).integers(sync.single_action_space.n, size=(20, 2)):
            expected = sync.step(actions)
            outcome = concurrent.step(actions)
            assert outcome[0] == expected[0]
            for part in range(1, 4):
                np.testing.assert_array_equal(outcome[part], expected[part])
    finally:
        concurrent.close()
