import json
import time

import gymnasium as gym
import numpy as np
import pytest

from ragen_envs.curriculum import Curriculum

RANGES = [(1, 2), (3, 4), (5, None)]


def feed(curriculum, outcomes):
    """Report single episodes and return the stage after each."""
    stages = []
    for outcome in outcomes:
        curriculum.update(outcome)
        stages.append(curriculum.stage)
    return stages


def test_update_moves_only_after_a_full_window_of_the_present_range():
    curriculum = Curriculum(RANGES, window=4)
    assert feed(curriculum, [True] * 8) == [0, 0, 0, 1, 1, 1, 1, 2]
    assert feed(curriculum, [False] * 8) == [2, 2, 2, 1, 1, 1, 1, 0]


def test_update_moves_by_the_rate_of_the_last_episodes_alone():
    curriculum = Curriculum(RANGES, raise_above=0.7, lower_below=0.3, window=4)
    # 2 of 4, then 3 of the last 4, which is above 0.7: the early failures have left the window.
    assert feed(curriculum, [False, False, True, True, True]) == [0, 0, 0, 0, 1]


def test_update_between_the_rates_or_on_them_stays():
    curriculum = Curriculum(RANGES, raise_above=0.75, lower_below=0.25, window=4)
    curriculum.stage = 1
    for rate in (0.75, 0.25, 0.5):
        for _ in range(3):
            assert curriculum.update(rate, num_episodes=4) is False
    assert curriculum.update(0.76, num_episodes=4) is True
    assert curriculum.stage == 2
    curriculum.stage = 1
    assert curriculum.update(0.24, num_episodes=4) is True
    assert curriculum.stage == 0


def test_update_stays_inside_the_ranges():
    curriculum = Curriculum(RANGES, window=2)
    assert feed(curriculum, [False] * 6) == [0] * 6
    assert feed(curriculum, [True] * 12)[-1] == 2
    # The long success at the last stage does not outweigh what comes now.
    assert feed(curriculum, [False] * 2) == [2, 1]


def test_update_counts_batches_by_their_episodes():
    curriculum = Curriculum(RANGES, window=100)
    assert curriculum.update(1.0, num_episodes=60) is False
    assert curriculum.success_rate == 1.0
    curriculum.update(0.0, num_episodes=30)
    assert (curriculum.success_rate, curriculum.num_episodes) == (pytest.approx(60 / 90), 90)
    # 140 of 170 is above 0.7; the first batch could go only if 100 were left without it.
    assert curriculum.update(1.0, num_episodes=80) is True
    assert (curriculum.success_rate, curriculum.num_episodes) == (None, 0)


def test_update_lets_old_batches_go_as_soon_as_the_window_is_full_without_them():
    curriculum = Curriculum(RANGES, window=50)
    curriculum.update(0.5, num_episodes=50)
    curriculum.update(0.6, num_episodes=30)
    assert curriculum.num_episodes == 80
    curriculum.update(0.6, num_episodes=20)
    assert curriculum.num_episodes == 50
    assert curriculum.success_rate == pytest.approx(0.6)


def test_player_between_two_stages_does_not_swing():
    # Stage 0 is easy (80 %), stage 1 is hard (50 %): the gap between the rates holds it there.
    curriculum = Curriculum(RANGES, window=10)
    stages = []
    for _ in range(20):
        curriculum.update((0.8, 0.5, 0.2)[curriculum.stage], num_episodes=10)
        stages.append(curriculum.stage)
    assert stages == [1] * 20


def test_kwargs_and_options_set_the_range_of_the_environment():
    curriculum = Curriculum(RANGES, window=1)
    env = gym.make("ragen/Sokoban-v0")
    for shortest, longest in ((1, 2), (3, 4), (5, 10_000)):
        for seed in range(5):
            env.reset(seed=seed, options=curriculum.options)
            assert shortest <= env.unwrapped.solution_length <= longest
            made = gym.make("ragen/Sokoban-v0", **curriculum.kwargs)
            assert made.reset(seed=seed) == env.reset(seed=seed, options=curriculum.options)
        curriculum.update(True)


def test_by_steps_makes_neighbouring_ranges_up_to_the_last_length():
    assert Curriculum.by_steps(first=4, step=4, last=12).ranges == ((1, 4), (5, 8), (9, 12))
    assert Curriculum.by_steps(first=2, step=3, last=6).ranges == ((1, 2), (3, 5), (6, 6))
    curriculum = Curriculum.by_steps(first=3, step=1, last=3, window=7)
    assert (curriculum.ranges, curriculum.window) == (((1, 3),), 7)


def test_state_dict_survives_json_and_goes_on_where_it_was():
    first, resumed = Curriculum(RANGES, window=5), Curriculum(RANGES, window=5)
    outcomes = [True, True, False, True, True, True, True] * 3
    feed(first, outcomes[:8])
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert resumed.success_rate == first.success_rate is not None
    assert feed(resumed, outcomes[8:]) == feed(first, outcomes[8:])
    assert resumed.stage > 0


def test_load_state_dict_of_other_ranges_raises():
    state = Curriculum([(1, 2)]).state_dict()
    with pytest.raises(ValueError, match=r"^`state` must come from a curriculum with the ranges"):
        Curriculum(RANGES).load_state_dict(state)


@pytest.mark.parametrize("stage", [7, -1, True, "1", None])
def test_load_state_dict_of_a_stage_that_is_none_raises_and_changes_nothing(stage):
    curriculum = Curriculum(RANGES)
    state = {**curriculum.state_dict(), "stage": stage}
    with pytest.raises((TypeError, ValueError), match=r"^`state\['stage'\]` must be"):
        curriculum.load_state_dict(state)
    assert curriculum.stage == 0


@pytest.mark.parametrize("batches", [[[2, 1]], [[-1, 1]], [["1", 1]], [[1, 0]], [[1]], [1], 5])
def test_load_state_dict_of_batches_that_cannot_be_raises(batches):
    curriculum = Curriculum(RANGES)
    with pytest.raises((TypeError, ValueError), match=r"^`state.* must "):
        curriculum.load_state_dict({**curriculum.state_dict(), "batches": batches})


@pytest.mark.parametrize("success", [True, np.bool_(True), 1])
def test_update_takes_every_kind_of_truth(success):
    curriculum = Curriculum(RANGES, window=1)
    assert curriculum.update(success)


@pytest.mark.parametrize(
    ("ranges", "arguments", "message"),
    [
        ([], {}, "`ranges` must hold at least one"),
        ([(0, 2)], {}, "`ranges` must hold pairs"),
        ([(1, 2), (5, 4)], {}, "`ranges` must hold pairs"),
        ([(1, 2, 3)], {}, "`ranges` must hold pairs"),
        ([1, 2], {}, "`ranges` must hold pairs"),
        ([(1.5, 3)], {}, "`ranges` must hold pairs"),
        ([(1, "3")], {}, "`ranges` must hold pairs"),
        (RANGES, {"raise_above": 0.3}, "`lower_below` and `raise_above` must be"),
        (RANGES, {"raise_above": 1.2}, "`raise_above` must be in"),
        (RANGES, {"lower_below": -0.1}, "`lower_below` must be in"),
        (RANGES, {"window": 0}, "`window` must be at least 1"),
    ],
)
def test_curriculum_with_a_bad_argument_raises(ranges, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Curriculum(ranges, **arguments)


def test_numbers_of_episodes_are_integers():
    with pytest.raises(TypeError, match=r"^`window` must be an integer of at least 1, got 2\.5"):
        Curriculum(RANGES, window=2.5)
    curriculum = Curriculum(RANGES, window=1)
    with pytest.raises(TypeError, match=r"^`num_episodes` must be an integer of .*, got 1\.5"):
        curriculum.update(1.0, num_episodes=1.5)  # would be a rate of 1.5
    with pytest.raises(ValueError, match=r"^`num_episodes` must be at most 1,000,"):
        curriculum.update(0.5, 10**400)  # no float can hold it
    assert curriculum.num_episodes == 0


def test_by_steps_of_more_stages_than_anybody_needs_raises_at_once():
    with pytest.raises(ValueError, match=r"^`step` must leave at most 10,000 stages from 1 to 10"):
        Curriculum.by_steps(first=1, step=1, last=10**12)
    assert len(Curriculum.by_steps(first=1, step=1, last=10_000).ranges) == 10_000


@pytest.mark.parametrize(
    "arguments", [{"first": 0, "step": 1, "last": 3}, {"first": 4, "step": 1, "last": 3}]
)
def test_by_steps_with_a_bad_argument_raises(arguments):
    with pytest.raises(ValueError, match=r"^`first` must be at "):
        Curriculum.by_steps(**arguments)


@pytest.mark.parametrize(
    ("success", "num_episodes", "message"),
    [(1.5, 1, "`success`"), (float("nan"), 1, "`success`"), (0.5, 0, "`num_episodes`")],
)
def test_update_with_a_bad_argument_raises_and_changes_nothing(success, num_episodes, message):
    curriculum = Curriculum(RANGES)
    with pytest.raises(ValueError, match=f"^{message} must be"):
        curriculum.update(success, num_episodes)
    assert curriculum.success_rate is None


def test_update_takes_as_long_in_a_wide_window_as_in_a_narrow_one():
    curriculum = Curriculum(RANGES, window=10**12)
    begin = time.process_time()
    for _ in range(30_000):
        curriculum.update(1.0, 2)
    assert time.process_time() - begin < 5  # about 0.1; with a sum in each update, 25
    assert (curriculum.num_episodes, curriculum.success_rate) == (60_000, 1.0)
    restored = Curriculum(RANGES, window=10**12)
    restored.load_state_dict(curriculum.state_dict())
    assert restored.num_episodes == 60_000
