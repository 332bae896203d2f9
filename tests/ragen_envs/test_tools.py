import inspect

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from ragen_envs import FrozenLakeEnv, solve
from ragen_envs.tools import BanditTools, FrozenLakeTools, SokobanTools, environment_success
from tests.fakes import CountedEnvs

ALL = [(SokobanTools, "move"), (FrozenLakeTools, "move"), (BanditTools, "pull")]
each_class = pytest.mark.parametrize(("tools", "name"), ALL, ids=[t.__name__ for t, _ in ALL])


def name_first_action(game):
    return game.env.get_wrapper_attr("action_names")[0]


@each_class
def test_tools_have_one_public_method_besides_the_protocol(tools, name):
    # TRL offers every public function of the class to the model.
    public = {n for n, _ in inspect.getmembers(tools, inspect.isfunction) if not n.startswith("_")}
    assert public == {"reset", "get_reward", name}


@each_class
def test_tools_play_the_episode_of_the_environment(tools, name):
    game = tools()
    bare = gym.make(game.env.spec.id, max_episode_steps=10)
    rng = np.random.default_rng(0)
    for seed in range(10):
        text = game.reset(seed=seed, dynamics_seed=seed + 5)
        state, _ = bare.reset(seed=seed, options={"dynamics_seed": seed + 5})
        task = bare.get_wrapper_attr("task_description")
        assert text.startswith(f"{task}\nCall the tool `{name}`")
        assert text.endswith(f"\nState:\n{state}")
        total, over = 0.0, False
        while not over:
            action = int(rng.integers(bare.action_space.n))
            answer = getattr(game, name)(bare.get_wrapper_attr("action_names")[action])
            state, reward, terminated, truncated, info = bare.step(action)
            total += reward
            over = terminated or truncated
            end = "\nThe episode is over." if over else ""
            assert answer == f"Reward: {reward:.2f}\nState:\n{state}{end}"
            assert (game.done, game.success) == (over, info["success"])
            assert game.get_reward() == game.reward == total


def test_tools_solve_sokoban_by_the_solver():
    game = SokobanTools(size=(7, 7), num_boxes=2, max_actions=40)
    game.reset(seed=3)
    names = game.env.get_wrapper_attr("action_names")
    plan = solve(game.env)
    for action in plan:
        game.move(f" {names[action].upper()} ")
    assert game.success
    assert game.done
    assert game.num_actions == len(plan)
    # Two pushes onto a target more than off one, and 10 for the end.
    assert game.get_reward() == pytest.approx(10 + 2 - 0.1 * len(plan))


@pytest.mark.parametrize("limit", [1, 4])
def test_tools_end_after_the_allowed_actions(limit):
    lake = FrozenLakeTools(is_slippery=False, max_actions=limit, desc=["FFS", "FFF", "FFG"])
    text = lake.reset(seed=0)
    assert f"You have {limit} moves." in text
    for i in range(limit):
        assert not lake.done
        answer = lake.move("Up")
        assert ("The episode is over." in answer) == (i == limit - 1)
    assert (lake.done, lake.success) == (True, False)


@each_class
def test_tools_refuse_to_act_before_the_start_and_after_the_end(tools, name):
    game = tools(max_actions=1)
    act = getattr(game, name)
    with pytest.raises(ResetNeeded, match="Reply without calling a tool"):
        act("Up")
    game.reset(seed=0)
    act(name_first_action(game))
    reward = game.get_reward()
    with pytest.raises(ResetNeeded, match="The episode is over"):
        act(name_first_action(game))
    assert game.get_reward() == reward
    game.reset(seed=0)
    assert (game.done, game.reward, game.num_actions) == (False, 0.0, 0)


@pytest.mark.parametrize("direction", ["North", "", "Up || Down", None, 3])
def test_tools_unknown_action_raises_with_the_legal_ones_and_costs_nothing(direction):
    game = SokobanTools()
    game.reset(seed=0)
    with pytest.raises(ValueError, match="`direction` must be one of Up, Down, Left, Right, got"):
        game.move(direction)
    assert (game.num_actions, game.reward, game.done) == (0, 0.0, False)
    game.move("Up")


def test_tools_unknown_arm_is_told_this_episodes_arms():
    game = BanditTools(low_arm_name="Oak", high_arm_name="Elm")
    game.reset(seed=0)
    with pytest.raises(ValueError, match=r"`arm` must be one of (Oak, Elm|Elm, Oak), got 'Dragon'"):
        game.pull("Dragon")


@each_class
def test_tools_doing_nothing_is_worth_the_idle_penalty(tools, name):
    for arguments, expected in (({}, -1.0), ({"idle_penalty": -0.25}, -0.25)):
        game = tools(**arguments)
        game.reset(seed=0)
        assert game.get_reward() == expected
        getattr(game, name)(name_first_action(game))
        assert game.get_reward() == game.reward != expected


def test_tools_instances_share_the_start_and_differ_in_luck():
    games = [BanditTools(luck_seed=i) for i in range(40)]
    assert len({game.reset(seed=5) for game in games}) == 1
    for game in games:
        game.pull("Dragon")
    # The risky arm pays one time in four: 0.75 ** 40 + 0.25 ** 40 < 1e-4 for one outcome alone.
    assert {game.reward for game in games} == {0.0, 1.0}
    again = [BanditTools(luck_seed=i) for i in range(40)]
    for game in again:
        game.reset(seed=5)
        game.pull("Dragon")
    assert [game.reward for game in again] == [game.reward for game in games]


def test_tools_without_a_luck_seed_are_independent():
    games = [BanditTools() for _ in range(40)]
    for game in games:
        game.reset(seed=5)
        game.pull("Dragon")
    assert {game.reward for game in games} == {0.0, 1.0}


def test_tools_luck_goes_on_from_one_episode_to_the_next():
    game = BanditTools(luck_seed=0)
    rewards = set()
    for _ in range(40):
        game.reset(seed=5)
        game.pull("Dragon")
        rewards.add(game.reward)
    assert rewards == {0.0, 1.0}


@pytest.mark.parametrize(
    ("prompt", "begin"),
    [
        (None, ""),
        ([], ""),
        ([{"role": "user", "content": ""}], ""),
        ([{"role": "user", "content": "Play well."}], "\n\n"),
        ([{"role": "user", "content": [{"type": "text", "text": "Play well."}]}], "\n\n"),
    ],
)
def test_tools_reset_stands_apart_from_the_prompt_before_it(prompt, begin):
    text = SokobanTools().reset(seed=0, prompt=prompt, difficulty="any", answer=None)
    assert text.startswith(f"{begin}You are the player")


def test_tools_warn_when_a_dataset_has_no_seeds():
    game = SokobanTools()
    with pytest.warns(UserWarning, match="the dataset has no column `seed`"):
        game.reset(prompt=[{"role": "user", "content": ""}])


def test_environment_success_reads_every_environment():
    games = [FrozenLakeTools(is_slippery=False, desc=["SG", "FF"]) for _ in range(3)]
    for game, direction in zip(games, ("Right", "Down", "Right"), strict=True):
        game.reset(seed=0)
        game.move(direction)
    assert environment_success(environments=games, prompts=None, anything=1) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_actions": 0}, ValueError, "`max_actions` must be at least 1"),
        ({"idle_penalty": 1.0}, ValueError, "`idle_penalty` must be finite and at most 0, got 1"),
        ({"size": (2, 2)}, ValueError, "`size` must be"),
        ({"luck_seed": -1}, ValueError, "`luck_seed` must be at least 0, got -1"),
        ({"luck_seed": "1"}, TypeError, "`luck_seed` must be an integer"),
        ({"render_mode": 5}, TypeError, "`render_mode` must be a str or None, got 5"),
    ],
)
def test_tools_unusable_arguments_raise(arguments, error, message):
    with pytest.raises(error, match=message):
        SokobanTools(**arguments)


@pytest.mark.parametrize("prompt", [5, "Play.", [None], [{"role": "user"}], [{"content": 5}]])
def test_tools_prompt_that_is_no_conversation_raises(prompt):
    with pytest.raises(TypeError, match=r"^`prompt` must be a list of messages"):
        BanditTools().reset(seed=0, prompt=prompt)


def test_environment_success_of_something_else_raises():
    for environments in (None, [None], "x"):
        with pytest.raises(TypeError, match=r"^`environments` must be a list of environments"):
            environment_success(environments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_actions": 0}, "`max_actions`"),
        ({"idle_penalty": 1.0}, "`idle_penalty`"),
        ({"luck_seed": -1}, "`luck_seed`"),
    ],
)
def test_tools_make_no_environment_where_arguments_are_wrong(options, message):
    class Tools(FrozenLakeTools):
        _env_id = "test/Counted-v0"

    lakes = CountedEnvs(FrozenLakeEnv)
    with lakes.registered(), pytest.raises(ValueError, match=message):
        Tools(**options)
    assert lakes.num_made == 0
