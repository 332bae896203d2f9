import copy

import numpy as np
import pytest

from ragen_envs.frozen_lake.dynamics import find_path
from ragen_envs.frozen_lake.env import VOCABULARIES, FrozenLakeEnv
from ragen_envs.solvers import optimal_success

SYMBOLS = {"frozen": "_", "hole": "O", "goal": "G"}
LEFT, DOWN, RIGHT, UP = range(4)


def draw_by_hand(env, player):
    layout = env.layout
    text = ""
    for row in range(layout.size[0]):
        for column in range(layout.size[1]):
            cell = (row, column)
            mark = "O" if cell in layout.holes else "G" if cell == layout.goal else "_"
            if cell == player:
                mark = {"O": "X", "G": "√", "_": "P"}[mark]
            text += mark
        text += "\n"
    return text.rstrip("\n")


def list_by_hand(env, player):
    lines = [f"hole: row {row}, column {column}." for row, column in sorted(env.layout.holes)]
    lines.append("goal: row {}, column {}.".format(*env.layout.goal))
    lines.append("player: row {}, column {}.".format(*player))
    return "\n".join(lines)


def play(env, seeds, num_actions=60):
    """Yield (observation, reward, terminated, info) of random play, resets included."""
    rng = np.random.default_rng(0)
    for seed in seeds:
        observation, info = env.reset(seed=seed)
        yield observation, 0.0, False, info
        for action in rng.integers(4, size=num_actions).tolist():
            observation, reward, terminated, _, info = env.step(action)
            yield observation, reward, terminated, info
            if terminated:
                break


@pytest.mark.parametrize("size", [(4, 4), (3, 6), (6, 2)])
def test_observation_grid_shows_every_cell_in_every_state(size):
    env = FrozenLakeEnv(size=size, frozen_probability=0.7)
    seen = set()
    for observation, _, _, info in play(env, range(40)):
        assert observation == draw_by_hand(env, info["position"])
        assert env.observation_space.contains(observation)
        seen |= set(observation)
    assert seen == set("P_OGX√\n")
    assert env.observation_space.character_set == seen


def test_observation_coordinates_list_holes_goal_and_player():
    env = FrozenLakeEnv(observation_format="coordinates")
    for observation, _, _, info in play(env, range(20)):
        assert observation == list_by_hand(env, info["position"])
        assert env.observation_space.contains(observation)


def test_observation_grid_coordinates_is_the_grid_and_then_the_list():
    env = FrozenLakeEnv(observation_format="grid_coordinates", size=(3, 5))
    for observation, _, _, info in play(env, range(20)):
        player = info["position"]
        assert observation == draw_by_hand(env, player) + "\n" + list_by_hand(env, player)
        assert env.observation_space.contains(observation)


@pytest.mark.parametrize(
    "symbols",
    ["letters", "ascii", dict(zip(VOCABULARIES["standard"], "🧍·●★☠☺", strict=True))],
)
def test_observation_in_another_vocabulary_is_a_translation(symbols):
    env = FrozenLakeEnv(symbols=symbols)
    standard = FrozenLakeEnv()
    mapping = VOCABULARIES[symbols] if isinstance(symbols, str) else symbols
    table = {ord(VOCABULARIES["standard"][kind]): mapping[kind] for kind in mapping}
    pairs = zip(play(env, range(20)), play(standard, range(20)), strict=True)
    for (observation, *_), (expected, *_) in pairs:
        assert observation == expected.translate(table)
        assert env.observation_space.contains(observation)


def test_vocabularies_give_every_kind_its_own_character():
    for vocabulary in VOCABULARIES.values():
        assert list(vocabulary) == list(VOCABULARIES["standard"])
        assert len(set(vocabulary.values())) == 6


def test_step_without_slipping_goes_where_it_should_and_draws_nothing():
    env = FrozenLakeEnv(is_slippery=False, size=(5, 5))
    deltas = {LEFT: (0, -1), DOWN: (1, 0), RIGHT: (0, 1), UP: (-1, 0)}
    moved = 0
    for seed in range(30):
        _, info = env.reset(seed=seed)
        state = copy.deepcopy(env.np_random.bit_generator.state)
        for action in [0, 1, 2, 3, 1, 1, 2, 2, 0, 3]:
            row, column = info["position"]
            target = (row + deltas[action][0], column + deltas[action][1])
            if not all(0 <= n < 5 for n in target):
                target = (row, column)
            _, _, terminated, _, info = env.step(action)
            assert info["position"] == target
            assert info["action_is_effective"] is (target != (row, column))
            moved += info["action_is_effective"]
            if terminated:
                break
        assert env.np_random.bit_generator.state == state
    assert moved > 50


@pytest.mark.parametrize(("success_rate", "side_rate"), [(1 / 3, 1 / 3), (0.8, 0.1)])
def test_step_on_slippery_ice_has_the_asked_slip_rates(success_rate, side_rate):
    env = FrozenLakeEnv(size=(9, 9), frozen_probability=1.0, success_rate=success_rate)
    _, info = env.reset(seed=0)
    counts = {"intended": 0, "left side": 0, "right side": 0, "back": 0}
    total = 0
    while total < 5000:
        row, column = info["position"]
        _, _, terminated, _, info = env.step(DOWN)
        if 0 < row < 8 and 0 < column < 8:
            total += 1
            shift = (info["position"][0] - row, info["position"][1] - column)
            kinds = {(1, 0): "intended", (0, 1): "left side", (0, -1): "right side"}
            counts[kinds.get(shift, "back")] += 1
        if terminated or row >= 7:
            _, info = env.reset()
    # Largest standard error sqrt(2/9 / 5000) = 0.0067; four of them.
    assert counts["intended"] / total == pytest.approx(success_rate, abs=0.027)
    assert counts["left side"] / total == pytest.approx(side_rate, abs=0.027)
    assert counts["right side"] / total == pytest.approx(side_rate, abs=0.027)
    assert counts["back"] == 0


def test_episode_ends_exactly_at_goal_and_holes_and_pays_only_at_the_goal():
    env = FrozenLakeEnv()
    endings = {"goal": 0, "hole": 0}
    for observation, reward, terminated, info in play(env, range(200)):
        at_goal = info["position"] == env.layout.goal
        in_hole = info["position"] in env.layout.holes
        assert info["success"] is at_goal
        assert reward == (1.0 if at_goal else 0.0)
        assert terminated is (at_goal or in_hole)
        assert ("√" in observation, "X" in observation) == (at_goal, in_hole)
        endings["goal"] += at_goal
        endings["hole"] += in_hole
    assert min(endings.values()) > 20


def test_info_position_is_a_pair_of_python_ints_from_the_start_on():
    env = FrozenLakeEnv()
    _, info = env.reset(seed=1)
    assert info["position"] == env.layout.start
    assert info["action_is_effective"] is False
    _, _, _, _, info = env.step(np.int64(1))
    assert [type(n) for n in info["position"]] == [int, int]


def test_dynamics_seed_keeps_the_map_and_changes_the_slips():
    env = FrozenLakeEnv(size=(8, 8), frozen_probability=1.0)
    starts, paths = set(), set()
    for luck in range(30):
        observation, _ = env.reset(seed=2, options={"dynamics_seed": luck})
        starts.add(observation)
        path = []
        for _ in range(6):
            *_, terminated, _, info = env.step(RIGHT)
            path.append(info["position"])
            if terminated:
                break
        paths.add(tuple(path))
    assert len(starts) == 1
    assert len(paths) > 15


def test_dynamics_seed_without_slipping_changes_nothing():
    env = FrozenLakeEnv(is_slippery=False)
    outcomes = set()
    for luck in range(10):
        env.reset(seed=2, options={"dynamics_seed": luck})
        outcomes.add(env.step(RIGHT)[0])
    assert len(outcomes) == 1


def test_random_play_and_optimum_agree_with_the_published_environment():
    # Exact values of RAGEN's 4x4 lakes for 10 actions: random 22 %, optimum 50 %. Standard
    # errors here: 0.008 and about 0.02.
    env = FrozenLakeEnv()
    rng = np.random.default_rng(0)
    wins, bounds = 0, []
    env.reset(seed=0)
    for episode in range(3000):
        env.reset()
        if episode < 300:
            bounds.append(optimal_success(env, 10))
        for action in rng.integers(4, size=10).tolist():
            _, _, terminated, _, info = env.step(action)
            if terminated:
                break
        wins += info["success"]
    assert wins / 3000 == pytest.approx(0.22, abs=0.03)
    assert np.mean(bounds) == pytest.approx(0.50, abs=0.06)


def test_task_description_names_actions_symbols_and_slips_where_they_apply():
    text = FrozenLakeEnv(success_rate=0.8).task_description
    assert "0.80" in text
    assert "√ player on goal" in text
    assert "Rows are counted" not in text
    text = FrozenLakeEnv(is_slippery=False, observation_format="coordinates").task_description
    assert "slippery" not in text
    assert "√" not in text
    assert "Rows are counted from the top" in text


def test_picture_has_one_tile_per_cell_and_changes_with_the_player():
    env = FrozenLakeEnv(size=(2, 5), is_slippery=False, render_mode="rgb_array")
    _, info = env.reset(seed=0)
    before = env.render()
    assert before.shape == (2 * 32, 5 * 32, 3)
    assert before.dtype == np.uint8
    row, column = info["position"]
    env.step(LEFT if column > 0 else RIGHT)
    changed = np.argwhere((env.render() != before).any(axis=2))
    neighbour = column - 1 if column > 0 else 1
    assert {tuple(cell) for cell in (changed // 32).tolist()} == {(row, column), (row, neighbour)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"desc": ["SF", "FFG"]}, "`desc` must have rows of equal length"),
        ({"size": (1, 4)}, "`size` must be .* at least 2"),
        ({"size": (4, 4, 4)}, "`size` must be"),
        ({"frozen_probability": 1.2}, r"`frozen_probability` must be in \[0, 1\]"),
        ({"success_rate": -0.1}, r"`success_rate` must be in \[0, 1\]"),
        ({"symbols": "klingon"}, "`symbols` must be one of"),
        ({"observation_format": "json"}, "`observation_format` must be one of"),
    ],
)
def test_lake_with_a_bad_argument_raises_value_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        FrozenLakeEnv(**arguments)


FOUR = ["SFFF", "FHFH", "FFFH", "HFFG"]  # Gymnasium's 4x4 map


def test_desc_is_the_map_of_every_episode():
    env = FrozenLakeEnv(desc=["SFFFG", "FHFHF"], size=(9, 9), is_slippery=False)
    assert env.size == (2, 5)
    for seed in (0, 1, None):
        observation, info = env.reset(seed=seed)
        assert observation == "P___G\n_O_O_"
        assert info["position"] == (0, 0)
    steps = [env.step(RIGHT) for _ in range(4)]
    assert steps[0][0] == "_P__G\n_O_O_"  # ice where the player began
    assert steps[3] == (
        "____√\n_O_O_",
        1.0,
        True,
        False,
        {"success": True, "action_is_effective": True, "position": (0, 4)},
    )


def test_desc_slips_by_seed_on_the_same_map():
    env = FrozenLakeEnv(desc="\n".join(["F" * 9] * 4 + ["FFFFSFFFF"] + ["F" * 9] * 3 + ["G" * 9]))
    ends = set()
    for seed in range(30):
        env.reset(seed=seed)
        ends.add(env.step(RIGHT)[4]["position"])
    assert ends == {(4, 5), (3, 4), (5, 4)}


@pytest.mark.parametrize("observation_format", ["grid", "coordinates", "grid_coordinates"])
def test_desc_with_several_goals_shows_and_pays_each(observation_format):
    env = FrozenLakeEnv(
        desc=["GFSFG"], is_slippery=False, observation_format=observation_format, symbols="letters"
    )
    for direction in (LEFT, RIGHT):
        observation, _ = env.reset()
        assert env.observation_space.contains(observation)
        if observation_format != "grid":
            assert observation.count("goal: row 0") == 2
        if observation_format != "coordinates":
            assert observation.split("\n")[0] == "TFAFT"
        env.step(direction)
        observation, reward, terminated, _, info = env.step(direction)
        assert (reward, terminated, info["success"]) == (1.0, True, True)
        assert env.observation_space.contains(observation)


def test_desc_optimum_is_that_of_the_published_map():
    # Exact values for Gymnasium's map, slip 1/3: 0.74 without a limit in 100 actions, and with many
    # more 0.82 (its well-known optimum).
    env = FrozenLakeEnv(desc=FOUR)
    env.reset(seed=0)
    assert optimal_success(env, 100) == pytest.approx(0.74, abs=0.01)
    assert optimal_success(env, 2000) == pytest.approx(0.8235, abs=0.0005)


def test_reset_option_desc_sets_the_map_once():
    env = FrozenLakeEnv()
    drawn, _ = env.reset(seed=3)
    for desc in (["HFG", "SFF"], "HFG\nSFF"):
        observation, _ = env.reset(seed=3, options={"desc": desc})
        assert observation == "O_G\nP__"
        assert env.observation_space.contains(observation)
    assert env.reset(seed=3, options={"desc": None})[0] == env.reset(seed=3)[0] == drawn


def test_reset_option_desc_takes_the_place_of_a_fixed_map():
    env = FrozenLakeEnv(desc=FOUR)
    assert env.reset(options={"desc": ["SG"]})[0] == "PG"
    assert env.reset()[0] == "P___\n_O_O\n___O\nO__G"


@pytest.mark.parametrize(
    ("desc", "error", "message"),
    [
        (["SFFFG"], ValueError, r"fit into \(4, 4\) .* got a map of \(1, 5\).*larger `size`"),
        (["S", "F", "F", "F", "G"], ValueError, r"fit into \(4, 4\) .* got a map of \(5, 1\)"),
        (["SF", "FFG"], ValueError, "rows of equal length"),
        (["SHG"], ValueError, "leave a way to a goal"),
        (7, TypeError, "a string or a list of strings"),
    ],
)
def test_reset_option_desc_that_cannot_be_played_raises_and_leaves_the_episode(
    desc, error, message
):
    env = FrozenLakeEnv(is_slippery=False)
    env.reset(seed=0)
    generator = env.np_random.bit_generator.state
    with pytest.raises(error, match=rf"^`options\['desc'\]` must .*{message}"):
        env.reset(seed=1, options={"desc": desc})
    assert env.np_random.bit_generator.state == generator
    env.step(0)


@pytest.mark.parametrize("size", [(3, 7), (7, 3), (2, 12)])
def test_rectangular_lakes_have_a_way_to_the_goal_and_use_every_cell(size):
    env = FrozenLakeEnv(size=size, is_slippery=False)
    starts, goals = set(), set()
    for seed in range(600):
        observation, info = env.reset(seed=seed)
        assert [len(row) for row in observation.split("\n")] == [size[1]] * size[0]
        assert find_path(env.layout, env.state)
        starts.add(info["position"])
        goals.add(env.layout.goal)
    cells = {(row, column) for row in range(size[0]) for column in range(size[1])}
    assert starts == goals == cells
