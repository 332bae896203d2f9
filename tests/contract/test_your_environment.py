"""The page that builds an environment from nothing: what it shows runs, and does what it says."""

import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns
from ragen_envs.baselines import play_random

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "invoice.py"
PAGE = ROOT / "docs" / "your_environment.md"
TURNS = {"think": False, "max_turns": 4, "max_actions_per_turn": 1}
RIGHT = {"Return": ("differs", "arrived"), "Remind": ("agrees", "missing")}


@pytest.fixture(scope="module")
def invoice():
    spec = importlib.util.spec_from_file_location("invoice", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_shows_the_script_as_it_is():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    shown = "\n\n".join(block.strip() for block in blocks if not block.startswith("# Not"))
    code = SCRIPT.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert re.sub(r"\n\n+", "\n\n", code).strip() == re.sub(r"\n\n+", "\n\n", shown).strip()


def test_environment_of_the_page_takes_less_than_sixty_lines():
    code = SCRIPT.read_text(encoding="utf-8")
    environment = code[code.index("import string") : code.index("def clerk")].strip()
    assert len(environment.splitlines()) < 60


def test_environment_of_the_page_passes_the_check_of_gymnasium(invoice):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(invoice.InvoiceEnv(), skip_render_check=True)


def test_environment_of_the_page_pays_what_its_text_says(invoice):
    env = invoice.InvoiceEnv()
    answers = set()
    for seed in range(30):
        text, _ = env.reset(seed=seed)
        assert "Order: not checked.\nGoods: not checked." in text
        for name in ("Check delivery", "Find order"):
            text, reward, terminated, _, info = env.step(env.action_names.index(name))
            assert (reward, terminated, info["success"]) == (0.0, False, False)
            assert env.observation_space.contains(text)
        order, goods = re.findall(r"(?:Order|Goods): (\w+)\.", text)
        answer = {found: name for name, found in RIGHT.items()}.get((order, goods), "Pay")
        decision = invoice.DECISIONS[seed % 3]
        _, reward, terminated, _, info = env.step(env.action_names.index(decision))
        assert terminated
        assert (reward == 1.0) is info["success"] is (decision == answer)
        answers.add(answer)
    assert answers == set(invoice.DECISIONS)


def test_environment_of_the_page_is_not_solved_by_chance(invoice):
    env = AgentTurns(invoice.InvoiceEnv(), **TURNS)
    solved = [result.success for result in play_random(env, seeds=range(1000))]
    # A decision comes within four turns with 1 - 0.4 ** 4 = 0.974 and is right one time in three.
    assert np.mean(solved) == pytest.approx(0.974 / 3, abs=0.05)


def test_clerk_of_the_page_is_right_two_times_in_three(invoice):
    env = AgentTurns(invoice.InvoiceEnv(), **TURNS)
    rng = np.random.default_rng(0)
    solved = []
    for seed in range(600):
        env.reset(seed=seed)
        for turn in range(3):
            *_, terminated, _, info = env.step(invoice.clerk(env, rng))
            assert info["reply"].is_valid
            assert terminated == (turn == 2)
        solved.append(info["success"])
    # 1/2 + 1/2 * 1/3, with a standard error of 0.019.
    assert np.mean(solved) == pytest.approx(2 / 3, abs=0.08)
