import gymnasium as gym
import pytest
from gymnasium.envs.toy_text import FrozenLakeEnv

from ragen_envs.toy_text import find_toy_text


class OwnLake(FrozenLakeEnv):
    """A subclass keeps the words of its base."""


TAXI_MAP = """\
+---------+
|R: | : :G|
| : | : : |
| : : : : |
| | : | :T|
|Y| : |B: |
+---------+
"""


@pytest.mark.parametrize(
    ("env_id", "observation", "expected"),
    [
        ("FrozenLake-v1", 0, "PFFF\nFHFH\nFFFH\nHFFG"),
        ("FrozenLake-v1", 6, "SFFF\nFHPH\nFFFH\nHFFG"),
        ("FrozenLake-v1", 12, "SFFF\nFHFH\nFFFH\nXFFG"),
        ("FrozenLake-v1", 15, "SFFF\nFHFH\nFFFH\nHFFW"),
        ("CliffWalking-v1", 36, f"{'.' * 12}\n{'.' * 12}\n{'.' * 12}\nP{'C' * 10}G"),
        ("CliffWalking-v1", 47, f"{'.' * 12}\n{'.' * 12}\n{'.' * 12}\n.{'C' * 10}P"),
        ("CliffWalking-v1", 13, f"{'.' * 12}\n.P{'.' * 10}\n{'.' * 12}\n.{'C' * 10}G"),
        # ((row * 5 + column) * 5 + passenger) * 4 + destination, as Gymnasium documents it.
        (
            "Taxi-v4",
            ((3 * 5 + 4) * 5 + 2) * 4 + 1,
            f"{TAXI_MAP}Taxi: row 3, column 4. Passenger: at Y. Destination: G.",
        ),
        (
            "Taxi-v4",
            ((3 * 5 + 4) * 5 + 4) * 4 + 3,
            f"{TAXI_MAP}Taxi: row 3, column 4. Passenger: in the taxi. Destination: B.",
        ),
        ("Blackjack-v1", (14, 10, 0), "Your cards: 14. The dealer shows 10."),
        (
            "Blackjack-v1",
            (17, 1, 1),
            "Your cards: 17, with an ace that counts 11. The dealer shows an ace.",
        ),
    ],
)
def test_toy_text_describes_an_observation(env_id, observation, expected):
    env = gym.make(env_id).unwrapped
    assert find_toy_text(env).describe(env, observation) == expected


@pytest.mark.parametrize(
    ("env_id", "start", "moves"),
    [
        # From a cell with room on all sides; the positions are rows and columns.
        ("FrozenLake-v1", 9, {"Left": 8, "Down": 13, "Right": 10, "Up": 5}),
        ("CliffWalking-v1", 14, {"Up": 2, "Right": 15, "Down": 26, "Left": 13}),
        ("Taxi-v4", 252, {"South": 352, "North": 152, "East": 272, "West": 232}),
    ],
)
def test_toy_text_action_names_are_what_the_actions_do(env_id, start, moves):
    arguments = {"is_slippery": False} if "Lake" in env_id else {}
    env = gym.make(env_id, **arguments).unwrapped
    names = find_toy_text(env).action_names
    assert len(names) == env.action_space.n
    for name, end in moves.items():
        env.reset(seed=0)
        env.s = start
        assert env.step(names.index(name))[0] == end


def test_toy_text_blackjack_names_are_what_the_actions_do():
    env = gym.make("Blackjack-v1").unwrapped
    names = find_toy_text(env).action_names
    env.reset(seed=0)
    env.player = [2, 2]
    assert not env.step(names.index("Hit"))[2]
    assert len(env.player) == 3
    assert env.step(names.index("Stick"))[2]
    assert len(env.player) == 3


def test_find_toy_text_knows_subclasses_and_nothing_else():
    assert find_toy_text(OwnLake()) is find_toy_text(FrozenLakeEnv())
    assert find_toy_text(gym.make("CartPole-v1").unwrapped) is None
    # The lake of this package is no relative of Gymnasium's.
    assert find_toy_text(gym.make("ragen_envs:ragen/FrozenLake-v0").unwrapped) is None
