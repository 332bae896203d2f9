import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import InvalidAction

from ragen_envs import AgentTurns, from_gym
from ragen_envs.text_side import strip_colours
from tests.fakes import ScriptedTextEnv, Step

TOYS = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"render_mode": "ansi"}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {"render_mode": "ansi"}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"render_mode": "ansi"}),
    ("Blackjack-v1", {}),
]
each_toy = pytest.mark.parametrize(
    ("env_id", "arguments"), TOYS, ids=[f"{i}{'-ansi' * bool(a)}" for i, a in TOYS]
)


class Lights(gym.Env):
    """Two lights that the two actions switch; nothing about it is text."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    action_space = spaces.Discrete(2)

    def __init__(self, kind="array", render_mode=None):
        self.kind = kind
        self.render_mode = render_mode
        self.observation_space = spaces.MultiBinary(2)

    def observe(self):
        array = np.array(self.lights)
        forms = {
            "array": array,
            "tuple": (np.int64(self.lights[0]), self.lights[1]),
            "dict": {"lights": array},
        }
        return forms[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options = options
        self.lights = [0, 0]
        return self.observe(), {"luck": self.np_random.random()}

    def step(self, action):
        self.lights[action] = 1
        done = sum(self.lights) == 2
        info = {"luck": self.np_random.random()}
        return self.observe(), 1 if done and action == 1 else 0, done, False, info

    def render(self):
        return "".join(f"\x1b[43m{i}\x1b[0m" if on else str(i) for i, on in enumerate(self.lights))


# --- Colours ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ntext", "plain\ntext"),
        ("a\x1b[41mS\x1b[0mb", "a[S]b"),
        ("a\x1b[41mS\x1b[mb", "a[S]b"),
        ("a\x1b[41mS\x1b[49mb", "a[S]b"),
        ("a\x1b[35mY\x1b[0mb", "a(Y)b"),
        ("a\x1b[34;1mY\x1b[39mb", "a(Y)b"),
        ("\x1b[34;1m\x1b[43mR\x1b[0m\x1b[0m:", "([R]):"),
        ("\x1b[31;43mR\x1b[0m", "[R]"),
        ("\x1b[107mR\x1b[0m\x1b[92mG\x1b[0m", "[R](G)"),
        ("\x1b[38;5;41mR\x1b[0m\x1b[48;2;1;2;3mG\x1b[0m", "(R)[G]"),
        ("\x1b[1mbold\x1b[0m \x1b[2Jcleared\x1b[3;4H", "bold cleared"),
        ("\x1b[41mto the end", "[to the end]"),
    ],
)
def test_strip_colours_turns_colours_into_brackets(text, expected):
    assert strip_colours(text) == expected


# --- The four of Gymnasium --------------------------------------------------------------------


@each_toy
def test_from_gym_texts_are_in_the_space_and_the_numbers_are_those_of_the_env(env_id, arguments):
    env, bare = from_gym(gym.make(env_id, **arguments)), gym.make(env_id, **arguments)
    rng = np.random.default_rng(0)
    texts = {}
    endings = 0
    for seed in range(30):
        text, info = env.reset(seed=seed)
        number, _ = bare.reset(seed=seed)
        assert (info["success"], info["action_is_effective"]) == (False, False)
        for action in rng.integers(env.action_space.n, size=60).tolist():
            assert env.observation_space.contains(text)
            assert "\x1b" not in text
            texts.setdefault(number, set()).add(text)
            before = number
            text, reward, terminated, truncated, info = env.step(action)
            number, *expected, _ = bare.step(action)
            assert [reward, terminated, truncated] == expected
            assert type(reward) is float
            assert info["action_is_effective"] == (number != before or terminated)
            assert terminated or not info["success"]
            if terminated or truncated:
                endings += 1
                break
    # Random play hardly ever reaches the end of the other two.
    if "Lake" in env_id or "Blackjack" in env_id:
        assert endings >= 20
    # One number has one text, but for the name of the last action in a picture; none share one.
    assert all(len(same) <= 1 + 6 * bool(arguments) for same in texts.values())
    assert sum(map(len, texts.values())) == len(set.union(*texts.values()))


@each_toy
def test_from_gym_environments_are_taken_by_agent_turns(env_id, arguments):
    env = AgentTurns(from_gym(gym.make(env_id, **arguments)), think=False, max_turns=3)
    message, _ = env.reset(seed=3)
    names = env.get_wrapper_attr("action_names")
    assert len(names) == env.unwrapped.action_space.n
    assert message.startswith("You ")
    assert f"Actions: {', '.join(names)}" in message
    assert env.observation_space.contains(message)
    message, _, _, _, info = env.step(f"<answer>{names[-1].upper()}</answer>")
    assert info["executed_actions"] == (names[-1],)
    assert env.observation_space.contains(message)
    assert env.spec.id == env_id


@pytest.mark.parametrize(
    ("env_id", "arguments", "seed", "plan", "reward"),
    [
        ("FrozenLake-v1", {"is_slippery": False}, 0, "Down Down Right Right Down Right", 1),
        (
            "FrozenLake-v1",
            {"is_slippery": False, "reward_schedule": (-2, 5, 0)},
            0,
            "Down Down Right Right Down Right",
            -2,
        ),
        ("CliffWalking-v1", {}, 0, "Up " + "Right " * 11 + "Down", -1),
    ],
)
def test_from_gym_success_is_the_goal_whatever_it_pays(env_id, arguments, seed, plan, reward):
    env = from_gym(gym.make(env_id, **arguments))
    env.reset(seed=seed)
    for name in plan.split():
        _, paid, terminated, _, info = env.step(env.action_names.index(name))
        assert info["success"] is terminated
    assert (paid, terminated) == (reward, True)


def test_from_gym_failure_is_no_success_even_if_it_pays():
    env = from_gym(gym.make("FrozenLake-v1", is_slippery=False, reward_schedule=(1, 5, 0)))
    env.reset(seed=0)
    env.step(env.action_names.index("Right"))
    text, reward, terminated, _, info = env.step(env.action_names.index("Down"))
    assert (reward, terminated, info["success"]) == (5.0, True, False)
    assert text.split("\n")[1] == "FXFH"


def test_from_gym_blackjack_success_is_a_win():
    env = from_gym(gym.make("Blackjack-v1"))
    seen = set()
    for seed in range(60):
        env.reset(seed=seed)
        _, reward, terminated, _, info = env.step(env.action_names.index("Stick"))
        assert terminated
        assert info["success"] is (reward > 0)
        seen.add(reward)
    assert seen == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_from_gym_taxi_can_be_driven_by_its_text_alone(render_mode):
    # Where the letters of the map stand is printed in it; everything else is read from the text.
    env = from_gym(gym.make("Taxi-v4", render_mode=render_mode))
    text, _ = env.reset(seed=5)
    assert ("[" in text) == (render_mode == "ansi")
    places = {"R": (0, 0), "G": (0, 4), "Y": (4, 0), "B": (4, 3)}
    words = text.split("Passenger: at ")[1]
    for place, action in ((words[0], "Pick up"), (words.rstrip(".")[-1], "Drop off")):
        # Along the middle row there is no wall.
        for row, column in ((2, None), (2, places[place][1]), places[place]):
            for _ in range(6):  # no way is longer than five cells
                line = text.split("Taxi: row ")[1]
                at = (int(line[0]), int(line.split("column ")[1][0]))
                target = (row, at[1] if column is None else column)
                if at == target:
                    break
                vertical = "South" if at[0] < target[0] else "North"
                horizontal = "East" if at[1] < target[1] else "West"
                name = vertical if at[0] != target[0] else horizontal
                text, reward, _, _, _ = env.step(env.action_names.index(name))
                assert reward == -1
        text, reward, terminated, _, info = env.step(env.action_names.index(action))
        assert ("in the taxi" in text) == (action == "Pick up")
    assert (reward, terminated, info["success"]) == (20.0, True, True)


def test_from_gym_pictures_mark_what_gymnasium_shows_by_colour_alone():
    lake = from_gym(gym.make("FrozenLake-v1", render_mode="ansi", is_slippery=False))
    assert lake.reset(seed=0)[0] == "[S]FFF\nFHFH\nFFFH\nHFFG"
    assert lake.step(1)[0] == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
    assert "[brackets]" in lake.task_description
    described = from_gym(gym.make("FrozenLake-v1", is_slippery=False))
    assert described.reset(seed=0)[0] == "PFFF\nFHFH\nFFFH\nHFFG"
    assert "[brackets]" not in described.task_description


def test_from_gym_descriptions_tell_about_luck_where_there_is_some():
    def describe(env_id, **arguments):
        return from_gym(gym.make(env_id, **arguments)).task_description

    assert "slippery" in describe("FrozenLake-v1")
    assert "slippery" not in describe("FrozenLake-v1", is_slippery=False)
    assert "slippery" in describe("CliffWalkingSlippery-v1")
    assert "slippery" not in describe("CliffWalking-v1")
    assert "rains" in describe("Taxi-v4", is_rainy=True)
    assert "rains" not in describe("Taxi-v4")
    assert "change the destination" in describe("Taxi-v4", fickle_passenger=True)
    assert "earns 1.5" in describe("Blackjack-v1", natural=True, sab=False)
    assert "earns 1.5" not in describe("Blackjack-v1")


def test_from_gym_does_not_need_pygame():
    code = """
import sys
sys.modules["pygame"] = None  # an import of it fails
import gymnasium as gym
from ragen_envs import from_gym
for env_id in ("FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1"):
    env = from_gym(gym.make(env_id))
    env.reset(seed=0)
    env.step(0)
    env.close()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


# --- Seeds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalkingSlippery-v1", "Blackjack-v1"])
def test_from_gym_dynamics_seed_keeps_the_start_and_changes_the_luck(env_id):
    env = from_gym(gym.make(env_id))
    starts, futures = set(), []
    for luck in [*range(20), *range(20)]:
        start, _ = env.reset(seed=4, options={"dynamics_seed": luck})
        starts.add(start)
        futures.append(env.step(1)[:2])
    assert starts == {env.reset(seed=4)[0]}
    assert futures[:20] == futures[20:]
    assert len(set(futures)) >= 2


def test_from_gym_dynamics_seed_that_is_no_integer_raises():
    env = from_gym(gym.make("Taxi-v4"))
    with pytest.raises(TypeError, match=r"`options\['dynamics_seed'\]` must be an integer"):
        env.reset(seed=4, options={"dynamics_seed": "7"})


def test_from_gym_seed_without_dynamics_seed_fixes_everything():
    env = from_gym(Lights(), ("Left", "Right"))
    lucks = []
    for seed in (1, 1, 2):
        _, first = env.reset(seed=seed)
        lucks.append((first["luck"], env.step(0)[4]["luck"]))
    assert lucks[0] == lucks[1] != lucks[2]
    _, first = env.reset(seed=1, options={"dynamics_seed": 9})
    assert first["luck"] == lucks[0][0]
    assert env.step(0)[4]["luck"] != lucks[0][1]


def test_from_gym_other_options_go_on_to_the_environment():
    env = from_gym(Lights(), ("Left", "Right"))
    given = {"dynamics_seed": 9, "mine": 1}
    env.reset(options=given)
    assert env.unwrapped.options == {"mine": 1}
    assert given == {"dynamics_seed": 9, "mine": 1}
    env.reset(options={"dynamics_seed": 9})
    assert env.unwrapped.options is None


# --- Any other environment --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("array", "[0, 1]"), ("tuple", "(0, 1)"), ("dict", "{'lights': [0, 1]}")],
)
def test_from_gym_other_observations_are_written_as_python_does(kind, expected):
    env = from_gym(Lights(kind), ("Left", "Right"), task_description="Switch on both.")
    env.reset(seed=0)
    text, reward, terminated, _, info = env.step(1)
    assert (text, reward, terminated) == (expected, 0.0, False)
    assert (info["success"], info["action_is_effective"]) == (False, True)
    assert env.step(1)[4]["action_is_effective"] is False
    assert env.task_description == "Switch on both."


@pytest.mark.parametrize(("order", "success"), [((0, 1), True), ((1, 0), False)])
def test_from_gym_success_elsewhere_is_a_rewarded_end(order, success):
    env = from_gym(Lights(), ("Left", "Right"))
    env.reset(seed=0)
    env.step(order[0])
    _, _, terminated, _, info = env.step(order[1])
    assert terminated
    assert info["success"] is success


def test_from_gym_what_the_environment_says_about_success_wins():
    script = [Step(reward=1.0, terminated=True, info={"success": False})]
    env = from_gym(ScriptedTextEnv(script), ("Up", "Down"))
    env.reset()
    assert env.step(0)[4]["success"] is False


def test_from_gym_describe_comes_before_the_picture_and_the_picture_before_the_value():
    names = ("Left", "Right")
    picture = from_gym(Lights(render_mode="ansi"), names)
    assert [picture.reset()[0], picture.step(1)[0]] == ["01", "0[1]"]
    own = from_gym(Lights(render_mode="ansi"), names, describe=lambda seen: f"{seen.sum()} on")
    assert [own.reset()[0], own.step(1)[0]] == ["0 on", "1 on"]


def test_from_gym_pickle_keeps_the_episode():
    env = from_gym(gym.make("Taxi-v4"))
    env.reset(seed=2)
    copied = pickle.loads(pickle.dumps(env))
    assert copied.step(1)[:4] == env.step(1)[:4]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: from_gym(Lights()), ValueError, "`action_names` must be given for Lights"),
        (lambda: from_gym(Lights(), ("One",)), ValueError, "tuple of 2 names, one per action"),
        (lambda: from_gym(Lights(), ("On", "on")), ValueError, "differ in more than case"),
        (
            lambda: from_gym(Lights(), ("A", "B"), task_description=3),
            TypeError,
            "`task_description` of Lights must be a str",
        ),
        (lambda: from_gym(Lights(), ("A", "B"), max_length=0), ValueError, "`max_length` must be"),
        (
            lambda: from_gym(gym.make("FrozenLake-v1"), ("Left", "Down")),
            ValueError,
            "of FrozenLake-v1 must be a tuple of 4 names",
        ),
        (
            lambda: from_gym(ScriptedTextEnv(action_space=spaces.MultiBinary(2))),
            TypeError,
            "Discrete action space",
        ),
        (lambda: from_gym("Taxi-v4"), TypeError, "^`env` must be a Gymnasium environment, got 'T"),
        (
            lambda: from_gym(from_gym(gym.make("Taxi-v4"))),
            TypeError,
            "^`env` must not have a text side already, got <TextSide",
        ),
        (
            lambda: from_gym(gym.make("Taxi-v4"), describe=5),
            TypeError,
            "^`describe` must be a function of an observation or None, got 5",
        ),
        (
            lambda: from_gym(gym.make("Taxi-v4"), charset=["ab"]),
            TypeError,
            r"^`charset` must be a str .*, got \['ab'\]",
        ),
        (lambda: from_gym(gym.make("Taxi-v4"), charset=""), ValueError, "^`charset` must hold a"),
    ],
)
def test_from_gym_unusable_arguments_raise(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"describe": lambda seen: seen.sum()}, TypeError, "`describe` must return a str"),
        ({"describe": lambda seen: "caf\u00e9"}, ValueError, r"got 4 characters, 'é' among them"),
        ({"max_length": 5}, ValueError, r"got 6 characters, '' among them .* larger `max_length`"),
    ],
)
def test_from_gym_texts_outside_of_the_space_raise(arguments, error, message):
    env = from_gym(Lights(), ("Left", "Right"), **arguments)
    with pytest.raises(error, match=message):
        env.reset(seed=0)


@pytest.mark.parametrize("picture", [None, b"on", np.zeros((2, 2, 3), np.uint8)])
def test_from_gym_pictures_that_are_no_text_raise(picture):
    class Drawn(Lights):
        def render(self):
            return picture

    env = from_gym(Drawn(render_mode="ansi"), ("A", "B"))
    with pytest.raises(TypeError, match=r"(?s)^`env.render\(\)` must return a str .* for Drawn"):
        env.reset(seed=0)


def test_from_gym_odd_calls_name_the_argument():
    env = from_gym(gym.make("FrozenLake-v1", is_slippery=False))
    with pytest.raises(TypeError, match=r"^`options` must be a dict or None, got 5"):
        env.reset(options=5)
    with pytest.raises(ValueError, match=r"^`seed` must be at least 0, got -1"):
        env.reset(seed=-1)
    env.reset(seed=0)
    for action in (None, True, 4, [1], "Left"):
        with pytest.raises(InvalidAction, match=r"^`action` must be an integer in \[0, 4\)"):
            env.step(action)
    assert env.step(np.array(1))[0] == "SFFF\nPHFH\nFFFH\nHFFG"


def test_from_gym_charset_allows_other_characters():
    env = from_gym(Lights(), ("A", "B"), describe=lambda seen: "café", charset="acféx")
    text, _ = env.reset(seed=0)
    assert env.observation_space.contains(text)
