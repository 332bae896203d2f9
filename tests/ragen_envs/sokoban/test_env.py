import inspect
import os
import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.sokoban.dynamics import STEP_REWARD, list_cells
from ragen_envs.sokoban.env import CELL_KINDS, VOCABULARIES
from ragen_envs.sokoban.solver import shortest_solution

CUSTOM = dict(zip(CELL_KINDS, "MTUVXYZ", strict=True))
CONFIGURATIONS = [
    {},
    {"size": (8, 8), "num_boxes": 2},
    {"symbols": "letters"},
    {"symbols": "ascii", "size": (5, 9), "num_boxes": 3},
    {"symbols": CUSTOM, "size": (7, 5), "num_boxes": 2},
]

WIDE = "#######\n#@ $ .#\n#######"  # 3 moves
HIGH = "#####\n#@  #\n# $ #\n#  ##\n#. #\n####"
LEVELS = [WIDE, HIGH]

PRINT_LEVELS = """
from ragen_envs.sokoban import SokobanEnv
for request in ({}, {"size": (8, 8), "num_boxes": 2}, {"size": (6, 6), "num_boxes": 3}):
    env = SokobanEnv(**request)
    for seed in range(10):
        print(ascii(env.reset(seed=seed)[0]), env.solution_length)
"""


def _read_grid(text, symbols):
    """Read the masks of walls, targets and boxes and the player's cell out of a grid."""
    kinds = {symbol: kind for kind, symbol in symbols.items()}
    board = [kinds[symbol] for symbol in text.replace("\n", "")]

    def mask(*wanted):
        return sum(1 << cell for cell, kind in enumerate(board) if kind in wanted)

    players = list(list_cells(mask("player", "player_on_target")))
    assert len(players) == 1
    targets = mask("target", "box_on_target", "player_on_target")
    return mask("wall"), targets, mask("box", "box_on_target"), players[0]


def _read_coordinates(text, size):
    """Read the same out of lines of coordinates and the known outer ring."""
    rows, columns = size
    ring = [
        (row, column)
        for row in range(rows)
        for column in range(columns)
        if row in (0, rows - 1) or column in (0, columns - 1)
    ]
    masks = {"wall": sum(1 << row * columns + column for row, column in ring)}
    for line in text.split("\n"):
        name, row, column = re.fullmatch(r"(\w+): row (\d+), column (\d+)\.", line).groups()
        bit = 1 << int(row) * columns + int(column)
        assert not masks.get(name, 0) & bit
        masks[name] = masks.get(name, 0) | bit
    assert masks["player"].bit_count() == 1
    return masks["wall"], masks["target"], masks["box"], masks["player"].bit_length() - 1


def _masks(env):
    return env.layout.walls, env.layout.targets, env.state.boxes, env.state.player


def _walk(env, num_actions, seed=0):
    """Play at random, start anew when solved or after 40 actions; yield every observation."""
    rng = np.random.default_rng(seed)
    yield env.reset(seed=seed)[0]
    for count, action in enumerate(rng.integers(4, size=num_actions).tolist(), start=1):
        observation, _, terminated, _, _ = env.step(action)
        yield observation
        if terminated or count % 40 == 0:  # boxes get stuck, and nothing would change any more
            yield env.reset()[0]


def _symbols_of(request):
    symbols = request.get("symbols", "standard")
    return VOCABULARIES[symbols] if isinstance(symbols, str) else symbols


def test_arguments_and_defaults_are_the_documented_ones():
    parameters = inspect.signature(SokobanEnv).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "size": (6, 6),
        "num_boxes": 1,
        "symbols": "standard",
        "observation_format": "grid",
        "min_solution_length": 1,
        "max_solution_length": None,
        "levels": None,
        "render_mode": None,
    }
    assert set(parameters) == set(re.findall(r"`(\w+)`[,:]", SokobanEnv.__doc__)) & set(parameters)


def test_vocabularies_are_the_documented_ones():
    kinds = ("wall", "empty", "target", "box_on_target", "box", "player", "player_on_target")
    for name, characters in (("standard", "#_O√XPS"), ("letters", "W.GCBA@"), ("ascii", "#-.*$@+")):
        assert VOCABULARIES[name] == dict(zip(kinds, characters, strict=True))
    rows = re.findall(r"\| (\w+) \| (\S) \| (\S) \| (\S) \|", SokobanEnv.__doc__)
    names = ("standard", "letters", "ascii")
    assert rows == [(kind, *(VOCABULARIES[name][kind] for name in names)) for kind in kinds]


def test_reset_golden_level_is_what_version_0_draws():
    # A change here changes the levels of every published seed and needs a new version of the id.
    observation, info = gym.make("ragen_envs:ragen/Sokoban-v0").reset(seed=0)
    assert observation == "######\n#_PO_#\n#____#\n#__X_#\n#___##\n######"
    assert info == {"success": False, "action_is_effective": False, "boxes_on_target": 0}


@pytest.mark.parametrize("request_", CONFIGURATIONS)
def test_grid_reads_back_as_the_state(request_):
    env = SokobanEnv(**request_)
    symbols = _symbols_of(request_)
    for observation in _walk(env, 400):
        assert [len(row) for row in observation.split("\n")] == [env.size[1]] * env.size[0]
        assert _read_grid(observation, symbols) == _masks(env)


@pytest.mark.parametrize("request_", CONFIGURATIONS)
def test_coordinates_read_back_as_the_state(request_):
    env = SokobanEnv(observation_format="coordinates", **request_)
    for observation in _walk(env, 400):
        assert _read_coordinates(observation, env.size) == _masks(env)


def test_grid_coordinates_is_the_grid_then_the_coordinates():
    env = SokobanEnv(observation_format="grid_coordinates", size=(6, 8))
    for observation in _walk(env, 100):
        lines = observation.split("\n")
        grid, coordinates = "\n".join(lines[:6]), "\n".join(lines[6:])
        assert _read_grid(grid, VOCABULARIES["standard"]) == _masks(env)
        assert _read_coordinates(coordinates, env.size) == _masks(env)


@pytest.mark.parametrize("observation_format", ["grid", "coordinates", "grid_coordinates"])
@pytest.mark.parametrize("request_", [*CONFIGURATIONS, {"size": (14, 14), "num_boxes": 6}])
def test_observations_lie_in_the_space(request_, observation_format):
    env = SokobanEnv(observation_format=observation_format, **request_)
    assert all(env.observation_space.contains(text) for text in _walk(env, 200))
    assert "~" not in env.observation_space.character_set  # negative control


def test_long_random_play_shows_one_player_and_all_boxes():
    env = SokobanEnv(size=(7, 7), num_boxes=2)
    seen_on_target = 0
    for observation in _walk(env, 10_000):
        assert observation.count("P") + observation.count("S") == 1
        assert observation.count("X") + observation.count("√") == 2
        seen_on_target += observation.count("S")
    assert seen_on_target > 0


def test_rewards_follow_the_table_in_random_play():
    # The expected rewards come from the texts before and after alone.
    env = SokobanEnv(size=(6, 6), num_boxes=2)
    rng = np.random.default_rng(0)
    before, _ = env.reset(seed=0)
    seen = set()
    for count, action in enumerate(rng.integers(4, size=5000).tolist(), start=1):
        after, reward, terminated, truncated, info = env.step(action)
        on_target = after.count("√")
        expected = -0.1 + (on_target - before.count("√")) + 10 * (on_target == 2)
        assert reward == pytest.approx(expected)
        assert (terminated, truncated) == (on_target == 2, False)
        assert info == {
            "success": on_target == 2,
            "action_is_effective": after != before,
            "boxes_on_target": on_target,
        }
        seen.add(round(reward, 1))
        before = env.reset()[0] if terminated or count % 40 == 0 else after
    assert seen == {-1.1, -0.1, 0.9, 10.9}


def test_documented_reward_table_holds_for_an_optimal_episode():
    table = re.findall(r"\| (-?\d+\.\d) \|", SokobanEnv.__doc__)
    step_reward, on, off, solved = map(float, table)
    assert (step_reward, on, off, solved) == (-0.1, 1.0, -1.0, 10.0)
    env = SokobanEnv(size=(8, 8), num_boxes=2)
    for seed in range(20):
        _, info = env.reset(seed=seed)
        missing = 2 - info["boxes_on_target"]
        plan = shortest_solution(env.layout, env.state)
        assert len(plan) == env.solution_length
        steps = [env.step(action) for action in plan]
        total = sum(reward for _, reward, *_ in steps)
        assert total == pytest.approx(len(plan) * step_reward + missing * on + solved)
        assert [terminated for _, _, terminated, _, _ in steps] == [False] * (len(plan) - 1) + [
            True
        ]
        assert steps[-1][4]["success"]


def test_documented_info_is_the_info():
    section = SokobanEnv.__doc__.split("## Info")[1].split("##")[0]
    documented = dict(re.findall(r"\| `(\w+)` \| `(\w+)` \|", section))
    env = SokobanEnv()
    for info in (env.reset(seed=0)[1], env.step(0)[4]):
        assert {key: type(value).__name__ for key, value in info.items()} == documented


def test_step_after_the_solution_raises():
    env = SokobanEnv()
    env.reset(seed=0)
    for action in shortest_solution(env.layout, env.state):
        env.step(action)
    with pytest.raises(ResetNeeded):
        env.step(0)


@pytest.mark.parametrize(
    "request_",
    [
        {"min_solution_length": 5, "max_solution_length": 7},
        {"size": (8, 8), "num_boxes": 2, "max_solution_length": 3},
        {"min_solution_length": 12},
    ],
)
def test_solution_length_lies_in_the_asked_range(request_):
    env = SokobanEnv(**request_)
    for seed in range(20):
        env.reset(seed=seed)
        assert env.solution_length >= request_.get("min_solution_length", 1)
        assert env.solution_length <= request_.get("max_solution_length", 1000)


def test_reset_seed_fixes_the_level_and_bare_resets_go_on():
    env = SokobanEnv()
    first = [env.reset(seed=7)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=7)[0], env.reset()[0], env.reset()[0]]
    assert first == again
    assert len(set(first)) == 3
    assert env.reset(seed=8)[0] != first[0]


def test_reset_dynamics_seed_leaves_the_level_alone():
    env = SokobanEnv()
    plain, _ = env.reset(seed=7)
    assert env.reset(seed=7, options={"dynamics_seed": 1})[0] == plain


def test_levels_do_not_depend_on_the_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PRINT_LEVELS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "77")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == 30


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"levels": "no_such_file.txt"}, "levels"),
        ({"levels": []}, "levels"),
        ({"levels": LEVELS, "min_solution_length": 0}, "min_solution_length"),
        (
            {"levels": LEVELS, "max_solution_length": 2, "min_solution_length": 3},
            "max_solution_length",
        ),
        ({"size": (4, 4), "num_boxes": 3}, "size"),
        ({"min_solution_length": 1000}, "min_solution_length"),
        ({"max_solution_length": 2, "min_solution_length": 3}, "max_solution_length"),
        ({"num_boxes": 0}, "num_boxes"),
        ({"symbols": "emoji"}, "symbols"),
        ({"observation_format": "picture"}, "observation_format"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_constructor_impossible_request_raises_naming_the_argument(request_, named):
    with pytest.raises(ValueError, match=f"^`{named}` must be"):
        SokobanEnv(**request_)


@pytest.mark.parametrize("request_", CONFIGURATIONS)
def test_task_description_explains_the_symbols_in_use(request_):
    env = SokobanEnv(**request_)
    for kind, symbol in _symbols_of(request_).items():
        assert re.search(rf"{re.escape(symbol)} {kind.replace('_', ' ')}[,.]", env.task_description)
    assert f"{-STEP_REWARD:g}" in env.task_description
    assert "\n" not in env.task_description


def test_task_description_of_coordinates_tells_the_size_and_no_symbols():
    description = SokobanEnv(size=(6, 9), observation_format="coordinates").task_description
    assert "6 rows and 9 columns" in description
    assert "Symbols" not in description
    both = SokobanEnv(size=(6, 9), observation_format="grid_coordinates").task_description
    assert "6 rows and 9 columns" in both
    assert "Symbols" in both


def test_rgb_array_shows_the_player_on_a_target_apart_from_everything_else():
    env = SokobanEnv(size=(5, 8), num_boxes=2, render_mode="rgb_array")
    tiles = {}
    for observation in _walk(env, 1000):
        picture = env.render()
        assert picture.shape == (5 * 32, 8 * 32, 3)
        assert picture.dtype == np.uint8
        for row, line in enumerate(observation.split("\n")):
            for column, symbol in enumerate(line):
                tile = picture[32 * row : 32 * row + 32, 32 * column : 32 * column + 32]
                tiles.setdefault(symbol, set()).add(tile.tobytes())
    assert set(tiles) == set("#_O√XPS")
    assert all(len(drawn) == 1 for drawn in tiles.values())
    assert len(set.union(*tiles.values())) == 7


def test_ansi_is_the_observation():
    env = SokobanEnv(render_mode="ansi")
    observation, _ = env.reset(seed=0)
    assert env.render() == observation


@pytest.mark.parametrize("observation_format", ["grid", "coordinates", "grid_coordinates"])
def test_levels_are_played_as_written_inside_one_space(observation_format):
    env = SokobanEnv(levels=LEVELS, observation_format=observation_format, symbols="ascii")
    assert (env.size, env.num_boxes) == ((6, 7), 1)
    seen = {}
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        seen[env.layout.columns] = (observation, env.task_description, env.solution_length)
        for action in shortest_solution(env.layout, env.state):
            assert env.observation_space.contains(observation)
            observation, _, terminated, _, info = env.step(action)
        assert env.observation_space.contains(observation)
        assert terminated
        assert info["success"]
    assert seen[7][2] == 3
    if observation_format == "grid":
        assert seen[7][0] == WIDE.replace(" ", "-")
        assert seen[5][0] == "#####\n#@--#\n#-$-#\n#--##\n#.-##\n#####"
    else:
        assert "3 rows and 7 columns" in seen[7][1]
        assert "6 rows and 5 columns" in seen[5][1]


def test_levels_of_different_sizes_play_in_the_view_of_the_agent():
    env = AgentTurns(SokobanEnv(levels=LEVELS, observation_format="coordinates"))
    for seed in range(10):
        message, _ = env.reset(seed=seed)
        rows, columns = env.unwrapped.layout.rows, env.unwrapped.layout.columns
        assert f"{rows} rows and {columns} columns" in message
        assert env.observation_space.contains(message)


def test_levels_come_by_seed_and_within_the_range():
    env = SokobanEnv(levels=LEVELS, min_solution_length=4)
    assert {env.reset(seed=seed)[0].count("\n") for seed in range(20)} == {5}
    env, other = SokobanEnv(levels=LEVELS), SokobanEnv(levels=LEVELS)
    texts = [env.reset(seed=seed)[0] for seed in range(40)]
    assert texts == [other.reset(seed=seed)[0] for seed in range(40)]
    assert 5 < texts.count(texts[0]) < 35  # fair coin: 20 with standard deviation 3.2


def test_levels_from_a_file_play_in_a_registered_environment(tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text("\n\n".join(f"; {i}\n{level}" for i, level in enumerate(LEVELS)))
    env = gym.make("ragen/LargeSokoban-v0", levels=path)
    assert env.get_wrapper_attr("size") == (6, 7)
    expected = gym.make("ragen/Sokoban-v0", levels=LEVELS)
    assert [env.reset(seed=s)[0] for s in range(9)] == [expected.reset(seed=s)[0] for s in range(9)]


def test_reset_option_level_sets_the_start_by_hand_once():
    env = SokobanEnv(size=(6, 7), symbols="ascii")
    drawn, _ = env.reset(seed=3)
    observation, info = env.reset(seed=3, options={"level": WIDE})
    assert observation == WIDE.replace(" ", "-")
    assert info == {"success": False, "action_is_effective": False, "boxes_on_target": 0}
    assert env.solution_length == 3
    assert env.step(3)[0] == "#######\n#-@$-.#\n#######"
    assert env.reset(seed=3, options={"level": None})[0] == env.reset(seed=3)[0] == drawn


def test_reset_option_level_takes_the_observation_of_the_ascii_symbols():
    env, other = SokobanEnv(symbols="ascii", num_boxes=2), SokobanEnv(num_boxes=5, size=(9, 9))
    for observation in _walk(env, 60):
        if observation.count("$") > 0 and shortest_solution(env.layout, env.state) is not None:
            other.reset(options={"level": observation})
            # The other environment's board is cut to the level's own size.
            assert _masks(other) == _masks(env)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"level": "#########\n#@     $.#\n#########"}, ValueError, r"fit into \(6, 6\)"),
        ({"level": "###\n#@#\n#$#\n# #\n#.#\n# #\n###"}, ValueError, r"fit into \(6, 6\)"),
        ({"level": "#####\n#@@.#\n#####"}, ValueError, "line 1: a level must have one player"),
        ({"level": "#####\n#@$ #\n#  .#\n#####"}, ValueError, "line 1: .* cannot be solved"),
        ({"level": "#####\n#@$.#\n#####\n\n" * 2}, ValueError, "must hold one level, found 2"),
        ({"level": "hello"}, ValueError, "must hold a level, found none"),
        ({"level": ["#####", "#@$.#", "#####"]}, TypeError, "must be the text of a level"),
    ],
)
def test_reset_option_level_that_cannot_be_played_raises_and_leaves_the_episode(
    options, error, message
):
    env = SokobanEnv()
    env.reset(seed=0)
    generator = env.np_random.bit_generator.state
    with pytest.raises(error, match=rf"^`options\['level'\]`.*{message}"):
        env.reset(seed=1, options=options)
    assert env.np_random.bit_generator.state == generator
    env.step(0)


def test_reset_options_of_solution_length_hold_for_one_reset():
    env = SokobanEnv(max_solution_length=3)
    plain = [env.reset(seed=seed)[0] for seed in range(20)]
    options = {"min_solution_length": 6, "max_solution_length": 8}
    for seed in range(20):
        env.reset(seed=seed, options=options)
        assert 6 <= env.solution_length <= 8
    env.reset(seed=0, options={"min_solution_length": 12, "max_solution_length": None})
    assert env.solution_length >= 12
    env.reset(seed=0, options={"max_solution_length": 1})
    assert env.solution_length == 1
    assert [env.reset(seed=seed)[0] for seed in range(20)] == plain
    same = SokobanEnv(**options)
    seeds = range(10)
    texts = [env.reset(seed=seed, options=options)[0] for seed in seeds]
    assert texts == [same.reset(seed=seed)[0] for seed in seeds]


@pytest.mark.parametrize("levels", [None, LEVELS])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"min_solution_length": 5}, ValueError, "`max_solution_length` must be .* got 4 with"),
        ({"max_solution_length": 1}, ValueError, "`max_solution_length` must be .* got 1 with"),
        ({"min_solution_length": 0}, ValueError, "`min_solution_length` must be at least 1"),
        ({"min_solution_length": "2"}, TypeError, "`min_solution_length` must be an integer"),
        ({"level": WIDE, "max_solution_length": 3}, ValueError, "`options` must hold either"),
    ],
)
def test_reset_options_of_solution_length_out_of_range_raise(levels, options, error, message):
    env = SokobanEnv(levels=levels, min_solution_length=2, max_solution_length=4)
    env.reset(seed=0)
    with pytest.raises(error, match=f"^{message}"):
        env.reset(options=options)
    env.step(0)


def test_reset_option_of_a_length_that_cannot_exist_raises_before_the_search():
    env = SokobanEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"^`min_solution_length` must be at most"):
        env.reset(options={"min_solution_length": 10_000})
    env.step(0)
