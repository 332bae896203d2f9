import gymnasium as gym
import pytest

import ragen_envs  # noqa: F401  (registers the ids)
from ragen_envs.agent_turns import AgentTurns
from ragen_envs.sokoban.dynamics import list_cells
from ragen_envs.solvers import solve
from ragen_envs.thoughts import describe_offset, write_thought
from tests.fakes import ScriptedTextEnv

UP, DOWN, LEFT, RIGHT = range(4)


def start(env_id, **kwargs):
    env = AgentTurns(gym.make(env_id, **kwargs))
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    ("origin", "destination", "text"),
    [
        ((1, 1), (3, 1), "2 down"),
        ((3, 1), (1, 1), "2 up"),
        ((1, 1), (1, 4), "3 right"),
        ((2, 4), (1, 3), "1 up and 1 left"),
        ((2, 2), (2, 2), "right here"),
    ],
)
def test_describe_offset_counts_rows_before_columns(origin, destination, text):
    assert describe_offset(origin, destination) == text


def test_thought_in_sokoban_names_the_box_its_target_and_what_is_done():
    env = start("ragen/Sokoban-v0", levels="#######\n###.###\n#  $@ #\n#     #\n#######")
    plan = [DOWN, LEFT, UP]
    assert write_thought(env, plan, 3) == (
        "A box is 1 left of me, and its target is 1 up of it. I walk Down, Left, then push Up."
    )
    assert write_thought(env, plan, 1) == (
        "A box is 1 left of me, and its target is 1 up of it. I walk Down."
    )


def test_thought_in_sokoban_follows_the_box_of_the_first_push_to_the_end_of_the_plan():
    level = "#########\n#.$--@$.#\n#-------#\n#########"
    env = start("ragen/Sokoban-v0", levels=level)
    plan = [RIGHT, LEFT, LEFT, LEFT, LEFT]
    assert write_thought(env, plan, 5) == (
        "A box is 1 right of me, and its target is 1 right of it. "
        "I push Right, then walk Left, Left, Left, then push Left."
    )
    plan = [LEFT, LEFT, LEFT, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT]
    assert write_thought(env, plan, 2) == (
        "A box is 3 left of me, and its target is 1 left of it. I walk Left, Left."
    )


def test_thought_in_sokoban_is_true_of_generated_levels():
    env = AgentTurns(gym.make("ragen/LargeSokoban-v0"))
    for seed in range(20):
        env.reset(seed=seed)
        layout, state = env.unwrapped.layout, env.unwrapped.state
        plan = solve(env)
        text = write_thought(env, plan, min(5, len(plan)))
        boxes, targets = (
            [divmod(cell, layout.columns) for cell in list_cells(mask)]
            for mask in (state.boxes, layout.targets)
        )
        player = divmod(state.player, layout.columns)
        claims = {
            f"A box is {describe_offset(player, box)} of me, and its target is "
            f"{describe_offset(box, target)} of it."
            for box in boxes
            for target in targets
        }
        assert any(text.startswith(claim) for claim in claims)


def test_thought_on_ice_names_goal_holes_moves_and_slips():
    env = start("ragen/FrozenLake-v0", desc=["FHF", "FSF", "FFG"])
    assert write_thought(env, [1, 2], 2) == (
        "The goal is 1 down and 1 right of me. A hole is next to me: up. I go Down, Right. "
        "A slip would first take me left or right."
    )
    env = start("ragen/FrozenLake-v0", desc=["FFF", "FSF", "FFG"], is_slippery=False)
    assert write_thought(env, [1, 2], 1) == "The goal is 1 down and 1 right of me. I go Down."


def test_thought_on_ice_with_several_goals_names_the_nearest():
    env = start("ragen/FrozenLake-v0", desc=["GFFSG"], is_slippery=False)
    assert write_thought(env, [2], 1).startswith("The goal is 1 right of me.")


def test_thought_of_the_bandit_names_the_arm():
    env = start("ragen/Bandit-v0")
    index = env.unwrapped.action_names.index("Phoenix")
    assert write_thought(env, [index], 1) == "I expect Phoenix to pay more on average."


def test_thought_of_a_foreign_environment_raises():
    with pytest.raises(TypeError, match="got ScriptedTextEnv"):
        write_thought(AgentTurns(ScriptedTextEnv()), [0], 1)
