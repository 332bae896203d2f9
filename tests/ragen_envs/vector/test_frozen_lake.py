import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from tests.vectors import make_pair, play_pair, reset_pair

LAKE = "ragen/FrozenLake-v0"
DESC = ["SFFHF", "FHFFG", "FFGFF"]
ARGUMENTS = [
    {},
    {"is_slippery": False},
    {"success_rate": 0.9, "size": (2, 2)},
    {"success_rate": 0.0},
    {"size": (3, 11), "frozen_probability": 0.7, "observation_format": "grid_coordinates"},
    {"size": (12, 3), "observation_format": "coordinates", "symbols": "letters"},
    {"frozen_probability": 0.3, "symbols": "ascii"},
    {"desc": DESC},
    {"desc": DESC, "observation_format": "grid_coordinates", "is_slippery": False},
    {"symbols": dict(zip(["player", "frozen", "hole", "goal"], "🧍·●★", strict=True))
     | {"player_in_hole": "☠", "player_on_goal": "☺"}},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("limit", "num_steps"), [(None, 110), (4, 30)])
def test_batch_equals_single_environments_step_by_step(arguments, mode, limit, num_steps):
    native, sync = make_pair(LAKE, num_envs=5, mode=mode, limit=limit, **arguments)
    reset_pair(native, sync, seed=5)
    assert play_pair(native, sync, num_steps=num_steps) > 20


def test_batch_on_a_large_lake_equals_single_environments():
    # A map takes more numbers than the smallest block holds.
    native, sync = make_pair(LAKE, num_envs=3, limit=5, size=(17, 20), frozen_probability=0.9)
    reset_pair(native, sync, seed=5)
    assert play_pair(native, sync, num_steps=40) > 10


def test_options_of_reset_equal_those_of_single_environments():
    native, sync = make_pair(LAKE, size=(5, 6), observation_format="grid_coordinates")
    reset_pair(native, sync, seed=1, options={"desc": ["SFG", "FFF"]})
    play_pair(native, sync, num_steps=30)
    reset_pair(native, sync, options={"desc": ["SF", "HF", "FG"], "dynamics_seed": 4})
    play_pair(native, sync, num_steps=30)
    reset_pair(native, sync, options={"desc": None})
    play_pair(native, sync, num_steps=30)
    mask = np.arange(6) % 2 == 0
    reset_pair(native, sync, seed=9, options={"reset_mask": mask, "desc": ["SFG"]})
    play_pair(native, sync, num_steps=30)


def test_group_of_one_level_seed_starts_equal_and_slips_differently():
    native = gym.make_vec(LAKE, num_envs=16, max_episode_steps=-1)
    starts, _ = native.reset(seed=[7] * 16)
    assert len(set(starts)) == 1
    assert len(set(native.step(np.full(16, 1))[0])) == 1
    # A second reset of each lake alone gives each another luck.
    for index in range(16):
        mask = np.arange(16) == index
        native.reset(seed=[7] * 16, options={"reset_mask": mask, "dynamics_seed": index})
    # 16 draws of three outcomes, of which at least two are different cells.
    assert len(set(native.step(np.full(16, 1))[0])) > 1
