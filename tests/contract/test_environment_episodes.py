"""10,000 random episodes of each family against simulators that know nothing but the text."""

import hashlib
import random
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest

import ragen_envs  # noqa: F401  # registers the ids

IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("ragen/"))
NUM_EPISODES = 10_000
NUM_ENVS = 500
WITHOUT_PLAYER = str.maketrans("@+", "-.")


def play_episodes(env_id, seed, num_episodes, **arguments):
    """Play at random; yield per step of each environment its text before, action, text after,
    reward, two kinds of end, success, and whether the action was effective.

    Membership in the space is checked here, and that a reset pays nothing and ends nothing.
    """
    envs = gym.make_vec(env_id, num_envs=NUM_ENVS, **arguments)
    texts, _ = envs.reset(seed=seed)
    assert envs.observation_space.contains(texts)
    rng = np.random.default_rng(seed)
    ended = np.zeros(NUM_ENVS, bool)
    num_ended = 0
    while num_ended < num_episodes:
        actions = rng.integers(envs.single_action_space.n, size=NUM_ENVS)
        before = texts
        texts, rewards, terminated, truncated, infos = envs.step(actions)
        assert envs.observation_space.contains(texts)
        assert not rewards[ended].any()
        assert not (terminated | truncated)[ended].any()
        assert not infos["success"][ended].any()
        columns = [before, actions.tolist(), texts, rewards.tolist(), terminated.tolist()]
        columns += [truncated.tolist(), infos["success"].tolist()]
        columns += [infos["action_is_effective"].tolist()]
        for index, row in enumerate(zip(*columns, strict=True)):
            if not ended[index]:
                yield row
        ended = terminated | truncated
        num_ended += int(ended.sum())
    assert num_ended >= num_episodes


class Room:
    """Sokoban on a text: an action looks at the three characters from the player on."""

    # The player's cell, the next, the one after; "." is a target, "*" a box on one, "+" the player.
    WALKS = {  # noqa: RUF012
        player + ahead: left + arrived
        for player, left in ("@-", "+.")
        for ahead, arrived in ("-@", ".+")
    }
    PUSHES = {  # noqa: RUF012
        player + box + free: (left + arrived + rest, on - off)
        for player, left in ("@-", "+.")
        for box, arrived, off in (("$", "@", 0), ("*", "+", 1))
        for free, rest, on in (("-", "$", 0), (".", "*", 1))
    }

    def step(self, text, action):
        """Return (text, reward, whether solved)."""
        width = text.index("\n") + 1
        offset = (-width, width, -1, 1)[action]
        player = max(text.find("@"), text.find("+"))
        cells = [player, player + offset]
        line = "".join(text[cell] for cell in cells)
        gain = 0
        if line in self.WALKS:
            line = self.WALKS[line]
        elif line[1] in "$*":
            cells.append(player + 2 * offset)
            line, gain = self.PUSHES.get(line + text[cells[2]], (line + text[cells[2]], 0))
        characters = list(text)
        for cell, character in zip(cells, line, strict=True):
            characters[cell] = character
        after = "".join(characters)
        is_solved = "$" not in after
        return after, -0.1 + gain + 10 * (is_solved and gain > 0), is_solved


@pytest.mark.parametrize(
    ("num_episodes", "arguments"),
    [
        (NUM_EPISODES, {"max_episode_steps": 12}),
        (600, {"size": (5, 8), "num_boxes": 3, "max_episode_steps": 12}),
    ],
    ids=str,
)
def test_sokoban_episodes_follow_the_rules_written_down_for_text(num_episodes, arguments):
    room = Room()
    ends = {"solved": 0, "truncated": 0}
    num_pushes = 0
    episodes = play_episodes("ragen/Sokoban-v0", 1, num_episodes, symbols="ascii", **arguments)
    for before, action, after, reward, terminated, truncated, success, is_effective in episodes:
        expected, expected_reward, is_solved = room.step(before, action)
        assert after == expected
        assert abs(reward - expected_reward) < 1e-12
        assert terminated == success == is_solved
        assert is_effective == (after != before)
        # No box is lost or made, and as many targets stay.
        for symbols in ("$*", ".*+", "@+"):
            assert sum(map(after.count, symbols)) == sum(map(before.count, symbols))
        num_pushes += before.translate(WITHOUT_PLAYER) != after.translate(WITHOUT_PLAYER)
        ends["solved"] += terminated
        ends["truncated"] += truncated
    assert min(*ends.values(), num_pushes) > num_episodes / 20


def test_frozen_lake_episodes_follow_the_rules_written_down_for_text():
    shares = {"straight": 0, "left": 0, "right": 0}
    ends = {"goal": 0, "hole": 0}
    num_truncated = 0
    episodes = play_episodes(
        "ragen/FrozenLake-v0", 2, NUM_EPISODES, symbols="ascii", max_episode_steps=20
    )
    for before, action, after, reward, terminated, truncated, success, is_effective in episodes:
        outcomes = [slide(before, (action + turn) % 4) for turn in (0, 1, 3)]
        assert after in outcomes
        if len(set(outcomes)) == 3:
            shares[("straight", "left", "right")[outcomes.index(after)]] += 1
        assert reward == float("+" in after)
        assert terminated == ("+" in after or "x" in after)
        assert success == ("+" in after)
        assert is_effective == (after != before)
        ends["goal"] += "+" in after
        ends["hole"] += "x" in after
        num_truncated += truncated
    assert min(*ends.values(), num_truncated) > NUM_EPISODES / 100
    total = sum(shares.values())
    for count in shares.values():
        # Five standard errors of a share of one third.
        assert abs(count / total - 1 / 3) < 5 * (2 / 9 / total) ** 0.5


def slide(text, direction):
    """Move the player of a text by one cell; at the edge nothing changes."""
    width = text.index("\n") + 1
    player = text.index("@")
    column, target = player % width, player + (-1, width, 1, -width)[direction]
    is_off = (direction == 0 and column == 0) or (direction == 2 and column == width - 2)
    if is_off or not 0 <= target < len(text):
        return text
    arrived = {".": "@", "o": "x", "*": "+"}[text[target]]
    characters = list(text)
    characters[player], characters[target] = ".", arrived
    return "".join(characters)


def test_bandit_episodes_follow_the_rules_written_down_for_text():
    pulls = {"Phoenix": [], "Dragon": []}
    starts = []
    for row in play_episodes("ragen/Bandit-v0", 3, NUM_EPISODES):
        before, action, after, reward, terminated, _, success, is_effective = row
        arms = before.removeprefix("Arms: ").removesuffix(".").split(", ")
        assert after == f"{before} Pulled: {arms[action]}."
        assert terminated
        assert is_effective
        assert success == (arms[action] == "Dragon")
        pulls[arms[action]].append(reward)
        starts.append(arms[0])
    assert set(pulls["Phoenix"]) == {0.15}
    assert set(pulls["Dragon"]) == {0.0, 1.0}
    # Five standard errors each.
    assert abs(np.mean(pulls["Dragon"]) - 0.25) < 5 * 0.433 / len(pulls["Dragon"]) ** 0.5
    assert abs(starts.count("Dragon") / len(starts) - 0.5) < 5 * 0.5 / len(starts) ** 0.5


def digest_of_episodes(first_seed):
    """Play every id, alone and as a batch, and return a digest of all that came out."""
    digest = hashlib.sha256()
    for env_id in IDS:
        env, envs = gym.make(env_id), gym.make_vec(env_id, num_envs=2)
        envs.reset(seed=first_seed)
        for seed in range(first_seed, first_seed + 4):
            digest.update(repr(env.reset(seed=seed)).encode())
            digest.update(repr(env.step(seed % 2)).encode())
            digest.update(repr(envs.step([0, 1])).encode())
    return digest.hexdigest()


@pytest.fixture
def hasty_threads():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_eight_threads_at_once_play_the_episodes_that_each_plays_alone():
    expected = [digest_of_episodes(100 * i) for i in range(8)]
    assert len(set(expected)) == 8
    found = [None] * 8
    barrier = threading.Barrier(8)

    def play(i):
        barrier.wait()
        found[i] = digest_of_episodes(100 * i)

    threads = [threading.Thread(target=play, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


@pytest.mark.parametrize("env_id", IDS)
def test_batches_leave_the_global_generators_alone(env_id):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  # the generator that must not be touched
    before = (random.getstate(), repr(np.random.get_state()))  # noqa: NPY002
    envs = gym.make_vec(env_id, num_envs=3)
    for seed in (0, None):
        envs.reset(seed=seed, options={"dynamics_seed": 5})
        for _ in range(100):
            envs.step([0, 1, 1])
    assert (random.getstate(), repr(np.random.get_state())) == before  # noqa: NPY002
