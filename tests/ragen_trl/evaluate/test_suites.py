import gymnasium as gym
import pytest

import ragen_envs  # noqa: F401  # registers the ids
from ragen_trl.evaluate.suites import GENERALISATION, SUITES


def make(name):
    spec = GENERALISATION[name]
    return gym.make(spec.id_or_factory, **spec.kwargs).unwrapped


def test_the_generalisation_suite_is_that_of_the_paper():
    assert SUITES["generalisation"] is GENERALISATION
    assert len(GENERALISATION) == 7
    assert (make("Sokoban").size, make("Sokoban").num_boxes) == ((6, 6), 1)
    large = make("Sokoban, 8x8 with two boxes")
    assert (large.size, large.num_boxes) == ((8, 8), 2)


def test_new_symbols_share_no_letter_with_the_usual_ones():
    usual, _ = make("Sokoban").reset(seed=3)
    renamed, _ = make("Sokoban, new symbols").reset(seed=3)
    assert not set(usual.replace("\n", "")) & set(renamed.replace("\n", ""))


@pytest.mark.parametrize(
    ("name", "high"),
    [
        ("Bandit, Engineer over Teacher", "Engineer"),
        ("Bandit, Trader over Librarian", "Trader"),
        ("Bandit, Librarian over Trader", "Librarian"),
    ],
)
def test_the_named_profession_is_the_better_arm(name, high):
    env = make(name)
    env.reset(seed=0)
    assert high in env.action_names
    *_, info = env.step(env.action_names.index(high))
    assert info["success"]
