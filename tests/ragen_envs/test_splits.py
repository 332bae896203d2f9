import itertools
import os
import subprocess
import sys

import gymnasium as gym
import pytest
from gymnasium.error import ResetNeeded

from ragen_envs import AgentTurns, BanditEnv, FrozenLakeEnv, SokobanEnv
from ragen_envs.splits import Splits, canonical_form, is_held_out, split_seeds
from tests.fakes import CountedEnvs

ROOM = ["########", "###    #", "#.  $ .#", "# $ @###", "#   ####", "########"]
LAKE = ["SFFHG", "FHFFF", "FFFHF"]


def turn(rows):
    return ["".join(row[i] for row in reversed(rows)) for i in range(len(rows[0]))]


def list_pictures(rows):
    """List the eight pictures of a board."""
    pictures = []
    for picture in (rows, [row[::-1] for row in rows]):
        for _ in range(4):
            pictures.append(picture)
            picture = turn(picture)
    return pictures


def form_of_room(rows, **arguments):
    env = SokobanEnv(size=(12, 12), **arguments)
    env.reset(options={"level": "\n".join(rows)})
    return canonical_form(env)


def form_of_lake(rows, **arguments):
    env = FrozenLakeEnv(desc=rows, **arguments)
    env.reset()
    return canonical_form(env)


def collect_forms(env, seeds):
    forms = []
    for seed in seeds:
        env.reset(seed=seed)
        forms.append(canonical_form(env))
    return forms


def test_canonical_form_of_a_room_is_the_same_for_its_eight_pictures():
    assert len({tuple(picture) for picture in list_pictures(ROOM)}) == 8
    forms = {form_of_room(picture) for picture in list_pictures(ROOM)}
    assert len(forms) == 1
    assert sorted(forms.pop().replace("\n", "")) == sorted("##    .  $ . $ @##   ###")


def test_canonical_form_of_a_lake_is_the_same_for_its_eight_pictures():
    assert len({tuple(picture) for picture in list_pictures(LAKE)}) == 8
    assert len({form_of_lake(picture) for picture in list_pictures(LAKE)}) == 1


def test_canonical_form_does_not_depend_on_symbols_format_wrappers_or_outer_walls():
    forms = {
        form_of_room(ROOM),
        form_of_room(ROOM, symbols="letters", observation_format="coordinates"),
        form_of_room(["#" * 11, *(f"##{row}#" for row in ROOM), "#" * 11]),
    }
    env = AgentTurns(gym.make("ragen/Sokoban-v0", levels="\n".join(ROOM)))
    env.reset()
    assert forms == {canonical_form(env)}


@pytest.mark.parametrize(
    "changes",
    [
        {3: "# $@ ###"},  # player elsewhere
        {2: "#. $  .#"},  # box elsewhere
        {2: "# . $ .#"},  # target elsewhere
        {1: "##     #"},  # wall elsewhere
    ],
)
def test_canonical_form_tells_rooms_apart(changes):
    other = [changes.get(i, row) for i, row in enumerate(ROOM)]
    assert form_of_room(other) != form_of_room(ROOM)


@pytest.mark.parametrize(
    "other",
    [
        ["FSFHG", "FHFFF", "FFFHF"],  # start
        ["SFFHF", "FHFFG", "FFFHF"],  # goal
        ["SFFHG", "FFFFF", "FFFHF"],  # hole
        ["GFFHS", "FHFFF", "FFFHF"],  # start and goal exchanged
    ],
)
def test_canonical_form_tells_lakes_apart(other):
    assert form_of_lake(other) != form_of_lake(LAKE)


def test_canonical_form_of_the_bandit_is_the_order_of_its_arms():
    assert set(collect_forms(BanditEnv(), range(20))) == {"Dragon\nPhoenix", "Phoenix\nDragon"}


def test_canonical_form_before_reset_or_of_a_foreign_environment_raises():
    with pytest.raises(ResetNeeded):
        canonical_form(SokobanEnv())
    with pytest.raises(TypeError, match=r"^`env` must be a Bandit, FrozenLake or Sokoban"):
        canonical_form(gym.make("FrozenLake-v1"))


@pytest.mark.parametrize(
    ("env_id", "num_train", "num_validation"),
    [
        ("ragen/FrozenLake-v0", 800, 60),
        ("ragen/Sokoban-v0", 500, 60),
        ("ragen/LargeSokoban-v0", 150, 15),
    ],
)
def test_split_seeds_have_no_level_in_common_up_to_symmetry(env_id, num_train, num_validation):
    split = split_seeds(env_id, num_train=num_train, num_validation=num_validation, first_seed=100)
    assert (len(split.train), len(split.validation)) == (num_train, num_validation)
    for side in split:
        assert list(side) == sorted(set(side))
        assert side[0] >= 100
    env = gym.make(env_id)
    train, validation = (collect_forms(env, seeds) for seeds in split)
    assert not set(train) & set(validation)
    # Negative control: without the rule some levels meet.
    if "Large" not in env_id:
        halves = collect_forms(env, range(600)), collect_forms(env, range(600, 1200))
        assert set(halves[0]) & set(halves[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "env_id", ["ragen/FrozenLake-v0", "ragen/Sokoban-v0", "ragen/LargeSokoban-v0"]
)
def test_split_of_20000_training_seeds_shows_no_picture_of_a_validation_level(env_id):
    env = gym.make(env_id, render_mode="ansi")
    splits = Splits(env)

    def draw(seed):
        return env.reset(seed=seed)[0]

    held_out, others = (splits.validation_seeds(500, first_seed=first) for first in (0, 50_000))
    pictures = {
        "\n".join(picture) for seed in held_out for picture in list_pictures(draw(seed).split("\n"))
    }
    num_seeds = 0
    for num_seeds, seed in enumerate(itertools.islice(splits.train_seeds(), 20_000), start=1):
        text = env.render()  # `Splits` has just reset the environment with this seed
        assert num_seeds % 1000 or text == draw(seed)
        assert text not in pictures, f"seed {seed}"
    assert num_seeds == 20_000
    # Negative control: on the validation side pictures come again, unless rooms are large.
    num_again = sum(draw(seed) in pictures for seed in others)
    assert num_again > 0 or "Large" in env_id


def test_split_holds_across_arguments_of_the_environment():
    train = Splits("ragen/Sokoban-v0", max_solution_length=2).train_seeds()
    validation = Splits("ragen/Sokoban-v0", symbols="letters").validation_seeds(100)
    easy = collect_forms(SokobanEnv(max_solution_length=2), itertools.islice(train, 300))
    held_out = collect_forms(SokobanEnv(symbols="letters"), validation)
    assert not set(easy) & set(held_out)


def test_split_shares_are_the_asked_ones():
    splits = Splits("ragen/Sokoban-v0", validation_share=0.3)
    held_out = [splits.is_validation(seed) for seed in range(1000)]
    # Standard error of a share of 1000 different levels: 0.0145; some occur twice.
    assert sum(held_out) / 1000 == pytest.approx(0.3, abs=0.08)
    assert [seed for seed in range(1000) if held_out[seed]] == list(
        splits.validation_seeds(sum(held_out))
    )
    train = list(itertools.islice(splits.train_seeds(), 1000 - sum(held_out)))
    assert train == [seed for seed in range(1000) if not held_out[seed]]


def test_split_with_a_larger_share_keeps_what_was_held_out():
    small, large = (Splits("ragen/FrozenLake-v0", validation_share=s) for s in (0.1, 0.4))
    assert set(small.validation_seeds(20)) < set(large.validation_seeds(200))


def test_split_with_reset_options_looks_at_the_levels_they_give():
    splits = Splits("ragen/Sokoban-v0")
    options = {"min_solution_length": 6, "max_solution_length": 9}
    env = SokobanEnv()
    for seed in splits.validation_seeds(20, options=options):
        env.reset(seed=seed, options=options)
        assert is_held_out(env)
    assert splits.validation_seeds(20, options=options) != splits.validation_seeds(20)
    for seed in itertools.islice(splits.train_seeds(options=options), 20):
        env.reset(seed=seed, options=options)
        assert not is_held_out(env)


class EasyLevels(gym.Wrapper):
    """Asks for short solutions, whatever its caller does."""

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options={**(options or {}), "max_solution_length": 3})


def test_split_looks_at_the_levels_that_wrappers_make():
    env = EasyLevels(gym.make("ragen/Sokoban-v0"))
    split = split_seeds(env, num_train=100, num_validation=30, validation_share=0.3)
    train, validation = (collect_forms(env, seeds) for seeds in split)
    assert not set(train) & set(validation)
    for side, is_validation in zip(split, (False, True), strict=True):
        for seed in side:
            env.reset(seed=seed)
            assert is_held_out(env, 0.3) == is_validation


def test_split_takes_an_environment_in_place_of_an_id():
    by_env = Splits(AgentTurns(gym.make("ragen/LargeSokoban-v0")))
    assert by_env.is_by_level
    assert by_env.validation_seeds(3) == Splits("ragen/LargeSokoban-v0").validation_seeds(3)


@pytest.mark.parametrize(
    ("env", "arguments"),
    [
        ("ragen/Bandit-v0", {}),
        ("ragen/FrozenLake-v0", {"desc": ["SFG"]}),
        ("CartPole-v1", {}),
    ],
)
def test_split_without_levels_deals_out_the_seeds_themselves(env, arguments):
    splits = Splits(env, **arguments)
    assert splits.is_by_level is False
    split = split_seeds(env, num_train=90, num_validation=10, first_seed=5, **arguments)
    assert (len(split.train), len(split.validation)) == (90, 10)
    assert not set(split.train) & set(split.validation)
    assert all(splits.is_validation(seed) for seed in split.validation)
    assert set(Splits("ragen/Sokoban-v0").validation_seeds(10, first_seed=5)) != set(
        split.validation
    )


def test_split_with_too_few_levels_raises_on_the_empty_side_alone():
    splits = Splits("ragen/Sokoban-v0", levels="\n".join(ROOM), validation_share=0.001)
    assert list(itertools.islice(splits.train_seeds(), 3)) == [0, 1, 2]
    splits = Splits("ragen/Sokoban-v0", levels="\n".join(ROOM), validation_share=0.999)
    assert splits.validation_seeds(3) == (0, 1, 2)
    splits = Splits(SokobanEnv(levels="\n".join(ROOM)), validation_share=0.5)
    # Misses have probability 1/2 each, if there are enough levels; 61 in a row say that there are
    # not.
    with pytest.raises(ValueError, match=r"^`validation_share` must leave .* got 0\.5, and 61"):
        next(splits.train_seeds()) if splits.is_validation(0) else splits.validation_seeds(1)


@pytest.mark.parametrize("env_id", ["ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0"])
def test_split_does_not_look_for_a_side_that_hardly_a_level_is_on(env_id):
    message = r"^`validation_share` must be in \[0\.001, 0\.999\] to find seeds of both sides, got "
    small, large = (Splits(env_id, validation_share=share) for share in (1e-9, 1 - 1e-9))
    assert next(small.train_seeds()) == 0
    assert large.validation_seeds(1) == (0,)
    with pytest.raises(ValueError, match=message):
        small.validation_seeds(1)
    with pytest.raises(ValueError, match=message):
        large.train_seeds()
    with pytest.raises(ValueError, match=message):  # at once, not after all training seeds
        split_seeds(env_id, num_train=10**6, num_validation=1, validation_share=1e-9)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
def test_split_with_a_share_out_of_range_raises(share):
    with pytest.raises(ValueError, match=r"^`validation_share` must be in \(0, 1\)"):
        split_seeds("ragen/Bandit-v0", num_train=1, num_validation=1, validation_share=share)
    env = SokobanEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"^`validation_share` must be in \(0, 1\)"):
        is_held_out(env, share)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_train": -1}, ValueError, "`num_train` must be at least 0, got -1"),
        ({"num_train": None}, TypeError, "`num_train` must be an integer"),
        ({"num_validation": 10**9}, ValueError, "`num_validation` must be at most 1,000,000, got"),
        ({"first_seed": "0"}, TypeError, "`first_seed` must be an integer"),
        ({"validation_share": "0.5"}, TypeError, "`validation_share` must be a number"),
        ({"env": 5}, TypeError, "`env` must be a Gymnasium environment, got 5"),
        ({"env": "a b"}, ValueError, "`env` must be an id such as 'ragen/Sokoban-v0', got 'a b'"),
    ],
)
def test_split_with_odd_arguments_names_them(arguments, error, message):
    usual = {"env": "ragen/Bandit-v0", "num_train": 1, "num_validation": 1}
    with pytest.raises(error, match=f"^{message}"):
        split_seeds(**{**usual, **arguments})


def test_splits_check_seeds_and_counts_at_the_call():
    splits = Splits("ragen/Bandit-v0")
    with pytest.raises(ValueError, match=r"^`first_seed` must be at least 0"):
        splits.train_seeds(-1)
    with pytest.raises(ValueError, match=r"^`num_seeds` must be at least 0"):
        splits.validation_seeds(-1)
    with pytest.raises(TypeError, match=r"^`seed` must be an integer"):
        splits.is_validation("7")


def test_split_with_arguments_for_a_ready_environment_raises():
    with pytest.raises(TypeError, match=r"^`kwargs` must be empty"):
        Splits(SokobanEnv(), size=(7, 7))


def test_split_is_the_same_in_every_process():
    code = """
import ragen_envs
from ragen_envs.splits import split_seeds
for env_id in ("ragen/Sokoban-v0", "ragen/FrozenLake-v0", "ragen/Bandit-v0"):
    print(split_seeds(env_id, num_train=50, num_validation=20))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    here = [
        str(split_seeds(env_id, num_train=50, num_validation=20))
        for env_id in ("ragen/Sokoban-v0", "ragen/FrozenLake-v0", "ragen/Bandit-v0")
    ]
    assert outputs == {"\n".join(here) + "\n"}


def test_split_golden_seeds_are_what_was_published():
    # Training and validation of published runs rest on these; a change mixes them up.
    assert Splits("ragen/Sokoban-v0").validation_seeds(5) == (3, 13, 30, 38, 46)
    assert Splits("ragen/FrozenLake-v0").validation_seeds(5) == (17, 53, 58, 72, 74)
    assert Splits("ragen/Bandit-v0").validation_seeds(5) == (3, 25, 29, 49, 58)


def test_environment_of_an_id_is_closed_and_a_given_one_is_not():
    lakes = CountedEnvs(FrozenLakeEnv)
    with lakes.registered() as env_id:
        split_seeds(env_id, num_train=3, num_validation=1)
        with Splits(env_id) as splits:
            assert lakes.num_open == 1
            splits.validation_seeds(1)
        with pytest.raises(ValueError, match="`validation_share`"):
            split_seeds(env_id, num_train=3, num_validation=1, validation_share=2)
        with pytest.raises(ValueError, match="`validation_share` must leave levels"):
            split_seeds(env_id, num_train=1, num_validation=1, validation_share=0.05, size=(2, 2))
        assert (lakes.num_made, lakes.num_open) == (3, 0)
        env = lakes()
        split_seeds(env, num_train=3, num_validation=1)
        assert lakes.num_open == 1
