import itertools
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from ragen_envs import AgentTurns, gif, render_gif, solve
from ragen_envs.gif import write_gif

SOKOBAN = "ragen/Sokoban-v0"


def read_gif(path):
    """Return the frames as arrays, their milliseconds, and how often the file repeats."""
    frames, milliseconds = [], []
    with Image.open(path) as image:
        repeats = image.info.get("loop")
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
            milliseconds.append(image.info["duration"])
    return frames, milliseconds, repeats


def make_sokoban(**kwargs):
    return gym.make(SOKOBAN, render_mode="rgb_array", **kwargs)


def test_render_gif_shows_every_state_of_the_episode(tmp_path):
    env = make_sokoban()
    env.reset(seed=4)
    plan = solve(env)
    expected = [env.render()]
    for action in plan:
        env.step(action)
        expected.append(env.render())
    path = render_gif(env, plan, tmp_path / "solved.gif", seed=4, seconds_per_frame=0.2)
    frames, milliseconds, repeats = read_gif(path)
    assert path == tmp_path / "solved.gif"
    assert len(frames) == len(plan) + 1
    for frame, picture in zip(frames, expected, strict=True):
        # A palette of 256 colours changes shades, not shapes.
        assert np.abs(frame.astype(int) - picture).max() < 40
    assert milliseconds == [200] * len(plan) + [1800]
    assert repeats == 0


def test_render_gif_stops_with_the_episode_and_asks_for_no_further_action(tmp_path):
    env = make_sokoban()
    asked = []

    def play():
        while True:
            asked.append(solve(env)[0])
            yield asked[-1]

    render_gif(env, play(), tmp_path / "a.gif", seed=4)
    env.reset(seed=4)
    assert asked == solve(env)


def test_render_gif_takes_the_replies_of_an_agent(tmp_path):
    env = AgentTurns(make_sokoban(), think=False)
    env.reset(seed=4)
    names = env.get_wrapper_attr("action_names")
    replies = [f"<answer>{names[action]}</answer>" for action in solve(env)][:2]
    frames, _, _ = read_gif(render_gif(env, replies, tmp_path / "a.gif", seed=4))
    assert len(frames) == 3


def test_render_gif_without_pictures_raises(tmp_path):
    with pytest.raises(ValueError, match=r"`env` must be made with `render_mode='rgb_array'`"):
        render_gif(gym.make(SOKOBAN, render_mode="ansi"), [0], tmp_path / "a.gif")


@pytest.mark.parametrize("name", ["a", "0.5", "a.png", "gif"])
def test_render_gif_into_another_kind_of_file_raises_before_it_plays(tmp_path, name):
    env = make_sokoban()
    with pytest.raises(ValueError, match=r"^`path` must end in \.gif, got "):
        render_gif(env, [0], tmp_path / name, seed=4)
    assert not env.unwrapped.has_state


def test_write_gif_equal_neighbours_become_one_longer_frame(tmp_path):
    black, white = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
    path = write_gif(
        [black, black, white], tmp_path / "a.gif", seconds_per_frame=0.3, seconds_at_end=0
    )
    frames, milliseconds, _ = read_gif(path)
    assert [frame[0, 0].tolist() for frame in frames] == [[0, 0, 0], [255, 255, 255]]
    assert milliseconds == [600, 300]


@pytest.mark.parametrize(
    ("frames", "arguments", "message"),
    [
        ([], {}, r"`frames` must hold pictures of one shape, got \[\]"),
        ([(4, 4, 3), (4, 5, 3)], {}, r"one shape, got \[\(4, 4, 3\), \(4, 5, 3\)\]"),
        ([(4, 4, 3)], {"seconds_per_frame": 0}, r"`seconds_per_frame` must be in \[0.01, 60\]"),
        ([(4, 4, 3)], {"seconds_at_end": -1}, r"`seconds_at_end` must be in \[0, 60\], got -1"),
    ],
)
def test_write_gif_arguments_out_of_range_raise(tmp_path, frames, arguments, message):
    pictures = [np.zeros(shape, np.uint8) for shape in frames]
    with pytest.raises(ValueError, match=message):
        write_gif(pictures, tmp_path / "a.gif", **arguments)


WITHOUT_PILLOW = """
import sys
sys.modules["PIL"] = None  # an import of it fails
import numpy as np
import ragen_envs
from ragen_envs.gif import write_gif
try:
    write_gif([np.zeros((4, 4, 3), np.uint8)], "never.gif")
except ImportError as error:
    print(error)
"""


def test_gifs_of_more_pixels_than_can_be_written_soon_are_refused(tmp_path, monkeypatch):
    env = gym.make("ragen/Sokoban-v0", render_mode="rgb_array", max_episode_steps=10**9)
    picture = np.zeros((192, 192, 3), np.uint8)
    monkeypatch.setattr(gif, "MAX_PIXELS", 4 * 192 * 192 + 1)
    path = tmp_path / "a.gif"
    render_gif(env, [0, 1, 2], path, seed=0)
    message = r"must give at most 4 frames of 192 x 192 pixels, got more\. Leave some out"
    with pytest.raises(ValueError, match=r"^`actions` " + message):
        render_gif(env, itertools.cycle([0, 1]), path, seed=0)
    with pytest.raises(ValueError, match=r"^`frames` " + message):
        write_gif(5 * [picture], path)


def test_package_imports_without_pillow_and_says_how_to_get_it():
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_PILLOW],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "pip install 'ragen-envs[render]'" in result.stdout
