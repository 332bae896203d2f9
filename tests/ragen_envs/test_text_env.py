import numpy as np
import pytest
from gymnasium import logger, spaces
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding

from ragen_envs.text_env import TextEnv, Transition


class Counter(TextEnv):
    """Counts from a random start in 0..9 up to 12; action 0 waits, action 1 adds 1 to 3."""

    action_names = ("Wait", "Add")
    task_description = "Count."

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Text(max_length=2, charset="0123456789")

    def _start(self):
        self.count = int(self.np_random.integers(10))

    def _advance(self, action):
        added = action * int(self.np_random.integers(1, 4))
        self.count = min(self.count + added, 12)
        return Transition(float(added), self.count == 12, added > 0)

    def _observe(self):
        return str(self.count)

    def _is_success(self):
        return self.count == 12

    def _details(self):
        return {"count": self.count}

    def _draw(self):
        return np.full((2, 2, 3), self.count, dtype=np.uint8)


def draw_starts(env, seeds):
    return [env.reset(seed=seed)[0] for seed in seeds]


def test_reset_returns_the_observation_and_the_shared_info_keys():
    env = Counter()
    observation, info = env.reset(seed=0)
    assert info == {"success": False, "action_is_effective": False, "count": int(observation)}
    assert list(info) == ["success", "action_is_effective", "count"]


def test_step_returns_what_the_transition_says():
    env = Counter()
    before, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(1)
    assert int(observation) - int(before) == reward > 0
    assert (terminated, truncated) == (False, False)
    assert info == {"success": False, "action_is_effective": True, "count": int(observation)}
    assert env.step(0)[4]["action_is_effective"] is False


def test_step_before_reset_and_after_the_end_raises_reset_needed():
    env = Counter()
    with pytest.raises(ResetNeeded, match="Call `reset"):
        env.step(0)
    env.reset(seed=0)
    while not env.step(1)[2]:
        pass
    assert env.count == 12
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset()
    env.step(0)


@pytest.mark.parametrize("action", [-1, 2, 1.0, "Add", None, 2**70, np.array([0])])
def test_step_with_an_action_outside_the_space_raises_and_changes_nothing(action):
    env = Counter()
    before, _ = env.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"integer in \[0, 2\).*\('Wait', 'Add'\)"):
        env.step(action)
    assert env.step(0)[0] == before


@pytest.mark.parametrize("action", [np.int64(1), np.uint8(1), np.array(1)])
def test_step_takes_integers_of_numpy(action):
    env = Counter()
    env.reset(seed=0)
    assert env.step(action)[4]["action_is_effective"] is True


def test_reset_same_seed_equal_other_seeds_differ_and_bare_resets_advance():
    env = Counter()
    starts = draw_starts(env, range(30))
    assert starts == draw_starts(Counter(), range(30))
    assert len(set(starts)) > 5
    env.reset(seed=0)
    bare = [env.reset()[0] for _ in range(30)]
    assert len(set(bare)) > 5


def test_reset_with_dynamics_seed_reseeds_what_follows_the_start():
    env = Counter()
    gains = {}
    for luck in (0, 1, 2, 3, 0):
        start, _ = env.reset(seed=4, options={"dynamics_seed": luck})
        rewards = (env.step(1)[1], env.step(1)[1])
        assert gains.setdefault(luck, (start, rewards)) == (start, rewards)
    assert len({start for start, _ in gains.values()}) == 1
    assert len({rewards for _, rewards in gains.values()}) > 1


def test_reset_with_dynamics_seed_does_not_depend_on_the_level_seed():
    env = Counter()
    gains = set()
    for seed in range(5):
        env.reset(seed=seed, options={"dynamics_seed": 7})
        gains.add(env.step(1)[1])
    assert len(gains) == 1


def test_the_generator_after_a_dynamics_seed_is_that_of_the_seed():
    env = Counter()
    env.reset(seed=4, options={"dynamics_seed": 7})
    assert env.np_random_seed == -1
    expected = seeding.np_random(7)[0].bit_generator.state
    assert env.np_random.bit_generator.state == expected
    env.reset(seed=4, options={"dynamics_seed": 7})
    env.np_random = seeding.np_random(8)[0]
    assert env.np_random.bit_generator.state == seeding.np_random(8)[0].bit_generator.state


def test_a_bare_reset_goes_on_with_the_luck_of_the_dynamics_seed():
    env = Counter()
    starts = []
    for luck in range(10):
        env.reset(seed=4, options={"dynamics_seed": luck})
        starts.append(env.reset()[0])
    assert starts == draw_starts(Counter(), range(10))


def test_a_seed_replaces_the_luck_of_the_last_dynamics_seed():
    env = Counter()
    starts = []
    for seed in range(10):
        env.reset(seed=4, options={"dynamics_seed": 7})
        starts.append(env.reset(seed=seed)[0])
    assert starts == draw_starts(Counter(), range(10))


@pytest.mark.parametrize("seed", [-1, "x"])
def test_a_seed_that_is_refused_leaves_the_luck_of_the_dynamics_seed(seed):
    gains = []
    for is_disturbed in (False, True):
        env = Counter()
        env.reset(seed=1, options={"dynamics_seed": 7})
        if is_disturbed:
            with pytest.raises((TypeError, ValueError), match="`seed` must be"):
                env.reset(seed=seed)
        gains.append([env.step(1)[1] for _ in range(3)])
    assert gains[0] == gains[1]


def test_reset_without_options_or_with_none_as_dynamics_seed_is_a_plain_reset():
    env = Counter()
    expected = (env.reset(seed=4)[0], env.step(1)[1])
    for options in (None, {}, {"dynamics_seed": None}):
        assert (env.reset(seed=4, options=options)[0], env.step(1)[1]) == expected


def test_reset_with_an_unknown_option_raises_and_leaves_the_episode_alone():
    env = Counter()
    env.reset(seed=0)
    state = env.np_random.bit_generator.state
    with pytest.raises(ValueError, match=r"may hold only 'dynamics_seed', got \['map'\]"):
        env.reset(seed=5, options={"map": "x"})
    assert env.np_random.bit_generator.state == state
    env.step(0)


def test_has_state_is_true_from_the_first_reset_on():
    env = Counter()
    assert env.has_state is False
    env.reset(seed=0)
    while not env.step(1)[2]:
        pass
    assert env.has_state is True


def test_render_follows_the_render_mode():
    env = Counter(render_mode="ansi")
    assert env.reset(seed=0)[0] == env.render()
    env = Counter(render_mode="rgb_array")
    env.reset(seed=0)
    assert (env.render() == env.count).all()


def test_render_before_reset_raises_reset_needed():
    with pytest.raises(ResetNeeded, match=r"Call `reset\(\)` before `render"):
        Counter(render_mode="ansi").render()


def test_render_without_a_mode_warns(monkeypatch):
    monkeypatch.setattr(logger, "min_level", logger.WARN)
    env = Counter()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


def test_reset_with_unknown_options_of_any_type_names_them():
    with pytest.raises(ValueError, match=r"may hold only .*, got \['map', 3\]"):
        Counter().reset(options={"map": 1, 3: 2})


@pytest.mark.parametrize("seed", ["7", 1.5, [1]])
def test_reset_with_a_dynamics_seed_that_is_no_integer_raises(seed):
    with pytest.raises(TypeError, match=r"`options\['dynamics_seed'\]` must be an integer"):
        Counter().reset(options={"dynamics_seed": seed})


def test_reset_with_a_negative_dynamics_seed_raises_and_leaves_the_episode_alone():
    env = Counter()
    env.reset(seed=0)
    with pytest.raises(
        ValueError, match=r"`options\['dynamics_seed'\]` must be at least 0, got -1"
    ):
        env.reset(seed=5, options={"dynamics_seed": -1})
    env.step(0)


def test_text_env_with_an_unknown_render_mode_raises():
    with pytest.raises(ValueError, match=r"`render_mode` must be one of .* got 'human'"):
        Counter(render_mode="human")
