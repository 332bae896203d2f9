import numpy as np
import pytest

from ragen_envs.bandit import Arm, BanditEnv


def pull(env, name):
    return env.step(env.action_names.index(name))


def test_bandit_low_arm_always_pays_its_reward_and_is_no_success():
    env = BanditEnv()
    orders = set()
    for seed in range(50):
        env.reset(seed=seed)
        orders.add(env.action_names)
        _, reward, terminated, truncated, info = pull(env, "Phoenix")
        assert reward == 0.15
        assert terminated is True
        assert truncated is False
        assert info == {"success": False, "action_is_effective": True, "arm": "Phoenix"}
    assert orders == {("Dragon", "Phoenix"), ("Phoenix", "Dragon")}


def test_bandit_high_arm_pays_one_in_four_and_is_always_a_success():
    env = BanditEnv()
    env.reset(seed=0)
    rewards = []
    for _ in range(4000):
        env.reset()
        _, reward, _, _, info = pull(env, "Dragon")
        rewards.append(reward)
        assert info["success"] is True
    assert set(rewards) == {0.0, 1.0}
    # Standard error sqrt(0.25 * 0.75 / 4000) = 0.0068; four of them.
    assert np.mean(rewards) == pytest.approx(0.25, abs=0.028)


def test_bandit_roles_follow_the_arguments_not_the_names():
    env = BanditEnv(
        low_arm_name="Dragon",
        high_arm_name="Phoenix",
        low_arm_reward=-2,
        high_arm_reward=7,
        high_arm_probability=1.0,
    )
    for seed in range(10):
        env.reset(seed=seed)
        assert pull(env, "Phoenix")[1] == 7.0
        env.reset(seed=seed)
        _, reward, _, _, info = pull(env, "Dragon")
        assert (reward, info["success"]) == (-2.0, False)


def test_bandit_high_arm_with_probability_zero_never_pays():
    env = BanditEnv(high_arm_probability=0)
    for seed in range(50):
        env.reset(seed=seed)
        assert pull(env, "Dragon")[1] == 0.0


def test_bandit_order_is_drawn_evenly_at_every_reset():
    env = BanditEnv()
    env.reset(seed=3)
    firsts = []
    for _ in range(1000):
        env.reset()
        firsts.append(env.action_names[0] == "Dragon")
    # Standard error 0.0158; four of them.
    assert np.mean(firsts) == pytest.approx(0.5, abs=0.064)


def test_bandit_observation_names_the_arms_in_action_order_and_then_the_pull():
    env = BanditEnv(low_arm_name="Teacher", high_arm_name="Engineer")
    for seed in range(8):
        observation, info = env.reset(seed=seed)
        first, second = env.action_names
        assert {first, second} == {"Teacher", "Engineer"}
        assert observation == f"Arms: {first}, {second}."
        assert info == {"success": False, "action_is_effective": False, "arm": None}
        observation, *_ = env.step(1)
        assert observation == f"Arms: {first}, {second}. Pulled: {second}."


def test_bandit_text_space_holds_exactly_what_can_be_written():
    env = BanditEnv(low_arm_name="Zoé", high_arm_name="№ 7")
    texts = set()
    for seed in range(20):
        for action in range(2):
            texts.add(env.reset(seed=seed)[0])
            texts.add(env.step(action)[0])
    assert len(texts) == 6  # two orders, each before and after the pull of either arm
    assert env.observation_space.character_set == set().union(*texts)
    assert env.observation_space.min_length == min(map(len, texts))
    assert env.observation_space.max_length == max(map(len, texts))


def test_bandit_task_description_tells_neither_order_nor_role():
    env = BanditEnv()
    swapped = BanditEnv(low_arm_name="Dragon", high_arm_name="Phoenix")
    before = env.task_description
    for seed in range(5):
        env.reset(seed=seed)
        assert env.task_description == before == swapped.task_description
    assert before.index("Dragon") < before.index("Phoenix")


def test_bandit_action_names_before_the_first_reset_are_alphabetical():
    assert BanditEnv().action_names == ("Dragon", "Phoenix")
    reverse = BanditEnv(low_arm_name="Dragon", high_arm_name="Phoenix")
    assert reverse.action_names == ("Dragon", "Phoenix")


def test_bandit_same_seed_gives_the_same_order_whatever_the_roles():
    for seed in range(10):
        env = BanditEnv()
        swapped = BanditEnv(low_arm_name="Dragon", high_arm_name="Phoenix")
        assert env.reset(seed=seed)[0] == swapped.reset(seed=seed)[0]


def test_bandit_dynamics_seed_changes_the_luck_but_not_the_order():
    env = BanditEnv()
    observations, rewards = set(), []
    for luck in range(400):
        observation, _ = env.reset(seed=5, options={"dynamics_seed": luck})
        observations.add(observation)
        rewards.append(pull(env, "Dragon")[1])
    assert len(observations) == 1
    # Standard error 0.0217; four of them.
    assert np.mean(rewards) == pytest.approx(0.25, abs=0.087)


def test_bandit_picture_shows_which_tile_was_pulled():
    env = BanditEnv(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(1)
    after = env.render()
    assert before.shape == (96, 128, 3)
    assert before.dtype == np.uint8
    np.testing.assert_array_equal(before[:, :64], after[:, :64])
    assert (before[:, 64:] != after[:, 64:]).any()


def test_bandit_picture_does_not_tell_the_better_arm():
    pictures = {}
    env = BanditEnv(render_mode="rgb_array")
    for seed in range(10):
        observation, _ = env.reset(seed=seed)
        pictures.setdefault(observation, env.render().tobytes())
    assert len(pictures) == 2
    assert len(set(pictures.values())) == 1


def test_arm_that_always_pays_draws_no_luck():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    assert Arm("a", 0.15, 1.0).draw_reward(rng) == 0.15
    assert rng.bit_generator.state == state
    Arm("a", 1.0, 0.25).draw_reward(rng)
    assert rng.bit_generator.state != state


def test_arm_expected_reward_is_reward_times_probability():
    assert Arm("a", 4.0, 0.25).expected_reward == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low_arm_name": ""}, "`low_arm_name` must be one line"),
        ({"high_arm_name": "two\nlines"}, "`high_arm_name` must be one line"),
        ({"high_arm_name": " Dragon"}, "`high_arm_name` must be one line"),
        ({"high_arm_name": "\x07"}, "`high_arm_name` must be one line"),
        ({"low_arm_name": "dragon"}, "must differ by more than case"),
        ({"low_arm_name": "Red arm", "high_arm_name": "Red  arm"}, "more than case, spaces"),
        ({"low_arm_name": "Red arm", "high_arm_name": "Redarm"}, "more than case, spaces"),
        ({"low_arm_name": "Ren\u00e9", "high_arm_name": "Rene\u0301"}, "composition of characters"),
        ({"low_arm_name": "Dragon\ufe0f"}, "must differ by more than case"),
        ({"low_arm_name": "\u2800"}, "must be one line of visible text"),
        ({"high_arm_name": "\u3164"}, "must be one line of visible text"),
        ({"low_arm_reward": float("nan")}, "`low_arm_reward` must be finite"),
        ({"high_arm_reward": float("inf")}, "`high_arm_reward` must be finite"),
        ({"high_arm_probability": 1.01}, r"`high_arm_probability` must be in \[0, 1\]"),
        ({"high_arm_probability": -0.01}, r"`high_arm_probability` must be in \[0, 1\]"),
        ({"high_arm_probability": float("nan")}, r"`high_arm_probability` must be in \[0, 1\]"),
    ],
)
def test_bandit_with_a_bad_argument_raises_value_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        BanditEnv(**arguments)


def test_bandit_with_a_name_that_is_no_string_raises_type_error():
    with pytest.raises(TypeError, match="`low_arm_name` must be a string"):
        BanditEnv(low_arm_name=7)
