import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ragen_envs
from tests.vectors import make_pair, play_pair, reset_pair

# Of three sizes, with one box and two.
LEVELS = """
########
#@ $ . #
########

######
#    #
# .$@#
######

########
#      #
#@$ .  #
# $ .  #
#      #
########
"""
ARGUMENTS = [
    ("ragen/Sokoban-v0", {}),
    ("ragen/Sokoban-v0", {"size": (6, 9), "observation_format": "coordinates"}),
    ("ragen/Sokoban-v0", {"min_solution_length": 2, "max_solution_length": 4}),
    ("ragen/Sokoban-v0", {"levels": LEVELS}),
    ("ragen/Sokoban-v0", {"levels": LEVELS, "observation_format": "coordinates"}),
    ("ragen/Sokoban-v0", {"levels": LEVELS, "observation_format": "grid_coordinates"}),
    ("ragen/LargeSokoban-v0", {"observation_format": "grid_coordinates"}),
    ("ragen/SokobanNewVocab-v0", {}),
    ("ragen/SokobanNewVocab-v0", {"symbols": "ascii", "num_boxes": 3, "size": (7, 7)}),
]


@pytest.mark.parametrize(("env_id", "arguments"), ARGUMENTS, ids=str)
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("limit", "num_steps"), [(None, 110), (9, 30)])
def test_batch_equals_single_environments_step_by_step(env_id, arguments, mode, limit, num_steps):
    native, sync = make_pair(env_id, num_envs=4, mode=mode, limit=limit, **arguments)
    reset_pair(native, sync, seed=5)
    assert play_pair(native, sync, num_steps=num_steps) >= 4


def test_options_of_reset_equal_those_of_single_environments():
    native, sync = make_pair("ragen/LargeSokoban-v0", observation_format="grid_coordinates")
    first, _, second = LEVELS.strip().split("\n\n")
    reset_pair(native, sync, seed=1, options={"level": first})
    play_pair(native, sync, num_steps=25)
    reset_pair(native, sync, options={"level": second, "dynamics_seed": 3})
    play_pair(native, sync, num_steps=25)
    reset_pair(native, sync, options={"min_solution_length": 3, "max_solution_length": 5})
    play_pair(native, sync, num_steps=25)
    mask = np.arange(6) % 2 == 0
    reset_pair(native, sync, seed=9, options={"reset_mask": mask, "level": first})
    play_pair(native, sync, num_steps=25)


@pytest.mark.parametrize("observation_format", ["grid", "coordinates", "grid_coordinates"])
def test_level_of_the_options_may_hold_more_boxes_than_the_rooms(observation_format):
    native, sync = make_pair("ragen/Sokoban-v0", observation_format=observation_format)
    level = "######\n#@ $.#\n# .$ #\n# $  #\n#   .#\n######"
    reset_pair(native, sync, seed=1)
    mask = np.arange(6) % 2 == 0
    reset_pair(native, sync, options={"reset_mask": mask, "level": level})
    play_pair(native, sync, num_steps=110)


def test_solutions_are_paid_as_in_single_environments_and_end_the_episodes():
    native, sync = make_pair("ragen/LargeSokoban-v0", mode=AutoresetMode.SAME_STEP, num_envs=8)
    reset_pair(native, sync, seed=2)
    plans = [ragen_envs.solve(env) for env in sync.envs]
    totals = np.zeros(8)
    for i in range(max(map(len, plans))):
        # Who is done plays on at random in the next room, but is not counted.
        actions = np.array([plan[i] if i < len(plan) else i % 4 for plan in plans])
        outcome, expected = native.step(actions), sync.step(actions)
        assert outcome[1].tolist() == expected[1].tolist()
        is_counted = np.array([i < len(plan) for plan in plans])
        totals += outcome[1] * is_counted
        is_last = np.array([i == len(plan) - 1 for plan in plans])
        assert outcome[2][is_counted].tolist() == is_last[is_counted].tolist()
    # A room pays -0.1 per action, 1 per box that comes to rest on a target, and 10 at the end. A box
    # that a plan moves from one target on to another pays -1 and 1 more.
    lengths = np.array([len(plan) for plan in plans])
    on_target_at_start = 12.0 - (totals + 0.1 * lengths)
    assert on_target_at_start.round(9).tolist() == [
        float(number) for number in native.reset(seed=2)[1]["boxes_on_target"]
    ]


def test_one_level_set_serves_all_environments():
    native = gym.make_vec("ragen/Sokoban-v0", num_envs=50, levels=LEVELS)
    texts, _ = native.reset(seed=0)
    assert len(set(texts)) == 3
    assert sorted({len(text) for text in texts}) == [26, 27, 53]
