"""Short reasons for planned actions, in plain words."""

from collections.abc import Sequence
from itertools import groupby

from ragen_envs.agent_turns import AgentTurns
from ragen_envs.bandit import BanditEnv
from ragen_envs.frozen_lake import FrozenLakeEnv
from ragen_envs.frozen_lake.dynamics import State as LakeState
from ragen_envs.frozen_lake.dynamics import slip_outcomes
from ragen_envs.frozen_lake.dynamics import step as step_on_ice
from ragen_envs.grid import Cell
from ragen_envs.sokoban import SokobanEnv
from ragen_envs.sokoban.dynamics import step


def write_thought(env: AgentTurns, plan: Sequence[int], num_actions: int) -> str:
    """Say where things are and what the next actions do; true of the present state.

    Args:
        env: Environment of this package at the start of a turn.
        plan: Action ids from now on, legal in order; Sokoban: at least one push among them.
        num_actions: How many of them are played in this turn.

    Raises:
        TypeError: If the environment is not of this package.
    """
    names: Sequence[str] = env.get_wrapper_attr("action_names")
    bare = env.unwrapped
    if isinstance(bare, SokobanEnv):
        return _explain_pushes(bare, plan, num_actions, names)
    if isinstance(bare, FrozenLakeEnv):
        return _explain_walk(bare, plan[:num_actions], names)
    if isinstance(bare, BanditEnv):
        return f"I expect {names[plan[0]]} to pay more on average."
    raise TypeError(
        "`env` must be a Bandit, FrozenLake or Sokoban environment of this package, got "
        f"{type(bare).__name__}."
    )


def describe_offset(origin: Cell, destination: Cell) -> str:
    """Write where one cell lies as seen from another one: `2 down and 1 left`."""
    down, right = destination[0] - origin[0], destination[1] - origin[1]
    parts = []
    if down:
        parts.append(f"{abs(down)} {'down' if down > 0 else 'up'}")
    if right:
        parts.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
    return " and ".join(parts) or "right here"


def _explain_walk(env: FrozenLakeEnv, actions: Sequence[int], names: Sequence[str]) -> str:
    layout, player = env.layout, env.state.player
    goal = min(
        (layout.goal, *sorted(layout.other_goals)),
        key=lambda cell: abs(cell[0] - player[0]) + abs(cell[1] - player[1]),
    )
    holes = [
        name.lower()
        for direction, name in enumerate(names)
        if step_on_ice(layout, LakeState(player), direction).player in layout.holes
    ]
    sentences = [f"The goal is {describe_offset(player, goal)} of me."]
    if holes:
        sentences.append(f"A hole is next to me: {', '.join(holes)}.")
    sentences.append(f"I go {', '.join(names[action] for action in actions)}.")
    if env.is_slippery:
        _, *slips = slip_outcomes(actions[0], env.success_rate)
        sides = " or ".join(names[direction].lower() for direction, _ in slips)
        sentences.append(f"A slip would first take me {sides}.")
    return " ".join(sentences)


def _explain_pushes(
    env: SokobanEnv, plan: Sequence[int], num_actions: int, names: Sequence[str]
) -> str:
    """Name the box that is pushed first and the cell where the plan leaves it."""
    layout, state = env.layout, env.state
    is_push: list[bool] = []
    route: list[int] = []  # cells of that box
    for action in plan:
        following = step(layout, state, action).state
        is_push.append(following.boxes != state.boxes)
        if is_push[-1]:
            route = route or [following.player]
            if route[-1] == following.player:
                route.append(following.player + layout.offsets[action])
        state = following
    player, box, target = (
        divmod(cell, layout.columns) for cell in (env.state.player, route[0], route[-1])
    )
    stretches = [
        f"{'push' if pushes else 'walk'} {', '.join(names[plan[i]] for i in indices)}"
        for pushes, indices in groupby(range(num_actions), key=is_push.__getitem__)
    ]
    return (
        f"A box is {describe_offset(player, box)} of me, and its target is "
        f"{describe_offset(box, target)} of it. I {', then '.join(stretches)}."
    )
