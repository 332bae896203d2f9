import contextlib

import gymnasium as gym
import numpy as np
import pytest

from ragen_envs import AgentTurns, FrozenLakeEnv, optimal_turn_success, solve
from ragen_envs.baselines.episodes import play_random
from ragen_envs.baselines.report import Baseline, Share, format_baselines, measure_baseline
from ragen_envs.splits import canonical_form
from ragen_envs.statistics import wilson_interval
from tests.fakes import CountedEnvs, ScriptedTextEnv

SEEDS = range(40)


def test_measure_baseline_holds_what_the_parts_say():
    baseline = measure_baseline("ragen/Sokoban-v0", seeds=SEEDS)
    env = AgentTurns(gym.make("ragen/Sokoban-v0"))
    plans, optima, forms, texts = [], [], set(), set()
    for seed in SEEDS:
        env.reset(seed=seed)
        plans.append(len(solve(env)))
        optima.append(optimal_turn_success(env))
        forms.add(canonical_form(env))
        texts.add(env.unwrapped._observe())
    successes = sum(result.success for result in play_random(env, seeds=SEEDS))
    assert baseline.num_episodes == 40
    assert baseline.random == (successes / 40, *wilson_interval(successes, 40))
    assert baseline.optimum == np.mean(optima) == np.mean([length <= 10 for length in plans])
    assert baseline.solver.rate == baseline.optimum
    assert baseline.solution_lengths == (min(plans), sorted(plans)[19], max(plans))
    assert baseline.num_levels == len(texts)
    assert baseline.num_levels_up_to_symmetry == len(forms)


def test_measure_baseline_takes_arguments_of_the_env_and_of_the_turns():
    firm = {"is_slippery": False, "size": (3, 3)}
    baseline = measure_baseline("ragen/FrozenLake-v0", seeds=SEEDS, env_kwargs=firm)
    assert baseline.optimum == baseline.solver.rate == baseline.greedy.rate == 1.0
    assert baseline.solution_lengths[2] > 1
    short = measure_baseline(
        "ragen/FrozenLake-v0", seeds=SEEDS, env_kwargs=firm, max_actions_per_episode=1
    )
    assert 0 < short.optimum == short.solver.rate < 1
    assert short.solution_lengths == baseline.solution_lengths


def test_measure_baseline_of_slippery_ice_counts_the_shortest_path():
    baselines = [
        measure_baseline("ragen/FrozenLake-v0", seeds=SEEDS, env_kwargs={"is_slippery": slippery})
        for slippery in (True, False)
    ]
    assert baselines[0].solution_lengths == baselines[1].solution_lengths
    assert baselines[0].optimum < baselines[1].optimum


def test_measure_baseline_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`seeds` must hold at least one"):
        measure_baseline("ragen/Bandit-v0", seeds=[])
    gym.register("test/Scripted-v0", ScriptedTextEnv)
    try:
        with pytest.raises(TypeError, match="got ScriptedTextEnv"):
            measure_baseline("test/Scripted-v0", seeds=[0])
    finally:
        del gym.registry["test/Scripted-v0"]


BASELINE = Baseline(
    env_id="ragen/X-v0",
    num_episodes=200,
    random=Share(0.125, 0.0861, 0.1781),
    greedy=Share(0.5, 0.4314, 0.5686),
    solver=Share(1.0, 0.9812, 1.0),
    optimum=0.995,
    solution_lengths=(1, 4, 17),
    num_levels=180,
    num_levels_up_to_symmetry=150,
)


def test_format_baselines_writes_a_markdown_table():
    title, rule, row = format_baselines([BASELINE]).splitlines()
    assert title.count("|") == rule.count("|") == row.count("|")
    assert set(rule) <= set("| -")
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "`ragen/X-v0`",
        "12.5% (8.6 to 17.8)",
        "50.0% (43.1 to 56.9)",
        "100.0% (98.1 to 100.0)",
        "99.5%",
        "1 / 4 / 17",
        "150 (180) of 200",
    ]


def test_to_dict_names_every_number():
    record = BASELINE.to_dict()
    assert set(record) == set(Baseline._fields)
    assert record["random"] == {"rate": 0.125, "low": 0.0861, "high": 0.1781}
    assert record["solution_lengths"] == {"min": 1, "median": 4, "max": 17}
    assert record["num_levels"] == 180


def test_lakes_are_as_hard_as_those_of_ragen():
    # Exact on RAGEN's own 4x4 maps: 22.0 % by random play with 10 actions and 49.4 % at best in
    # 5 turns, blind within a turn. Standard error over 300 maps: 0.010 and 0.015.
    env = AgentTurns(gym.make("ragen/FrozenLake-v0"))
    by_chance, at_best = [], []
    for seed in range(300):
        env.reset(seed=seed)
        by_chance.append(play_by_chance(env.unwrapped.layout, 10))
        at_best.append(optimal_turn_success(env))
    assert np.mean(by_chance) == pytest.approx(0.220, abs=0.04)
    assert np.mean(at_best) == pytest.approx(0.494, abs=0.06)


def play_by_chance(layout, num_actions):
    """Success of uniformly random moves; slips do not change where those go on average."""
    weights, won = {layout.start: 1.0}, 0.0
    for _ in range(num_actions):
        following = {}
        for (row, column), weight in weights.items():
            for down, right in ((0, -1), (1, 0), (0, 1), (-1, 0)):
                cell = (row + down, column + right)
                if not (0 <= cell[0] < layout.size[0] and 0 <= cell[1] < layout.size[1]):
                    cell = (row, column)
                if cell == layout.goal:
                    won += weight / 4
                elif cell not in layout.holes:
                    following[cell] = following.get(cell, 0.0) + weight / 4
        weights = following
    return won


@pytest.mark.parametrize("limits", [{}, {"max_turns": 0}])
def test_measure_baseline_closes_the_environment(limits):
    lakes = CountedEnvs(FrozenLakeEnv)
    with lakes.registered() as env_id, contextlib.suppress(ValueError):
        measure_baseline(env_id, seeds=[0], **limits)
    assert (lakes.num_made, lakes.num_open) == (1, 0)
