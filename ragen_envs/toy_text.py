"""Words for Gymnasium's own toy-text environments: descriptions, action names, success."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text import BlackjackEnv, CliffWalkingEnv, FrozenLakeEnv, TaxiEnv


class ToyText(NamedTuple):
    """What `from_gym` has to know about one environment; every function gets its bare `env`.

    Attributes:
        action_names: Names by action index.
        explain: Writes the rules, and the symbols of the pictures that are used (`ansi` or not).
        describe: Writes an observation.
        annotate: Writes the line that an `ansi` picture needs because it tells something by colour
            alone; empty where it needs none.
        is_success: Tells, from the reward of the step that terminated, whether the task was solved.
    """

    action_names: tuple[str, ...]
    explain: Callable[[Any, bool], str]
    describe: Callable[[Any, Any], str]
    annotate: Callable[[Any, Any], str]
    is_success: Callable[[Any, float], bool]


def find_toy_text(env: gym.Env[Any, Any]) -> ToyText | None:
    """Return the words for an environment, `None` if it is not one of the known four."""
    for kind, words in _WORDS.items():
        if isinstance(env, kind):
            return words
    return None


def _is_slippery(env: FrozenLakeEnv | TaxiEnv) -> bool:
    # Neither keeps the argument it was made with.
    return any(len(outcomes) > 1 for moves in env.P.values() for outcomes in moves.values())


def _explain_lake(env: FrozenLakeEnv, is_ansi: bool) -> str:
    player = "your own cell is in [brackets]" if is_ansi else "P you, X you in a hole, W you at G"
    slips = " The ice is slippery: a move may go to either side of its direction instead."
    return (
        "You walk over a frozen lake from the start to the goal. A hole ends the game. Each action "
        "moves you by one cell; a move over the edge leaves you where you are."
        f"{slips if _is_slippery(env) else ''} Symbols: S start, F ice, H hole, G goal, {player}."
    )


def _describe_lake(env: FrozenLakeEnv, observation: int) -> str:
    row, column = divmod(int(observation), env.ncol)
    rows = [[cell.decode() for cell in line] for line in np.asarray(env.desc).tolist()]
    rows[row][column] = {"H": "X", "G": "W"}.get(rows[row][column], "P")
    return "\n".join("".join(line) for line in rows)


def _is_at_goal(env: FrozenLakeEnv, reward: float) -> bool:
    # By the cell: `reward_schedule` may pay for holes or charge for the goal.
    return bool(np.asarray(env.desc).ravel()[int(env.s)] == b"G")


def _explain_cliff(env: CliffWalkingEnv, is_ansi: bool) -> str:
    symbols = "x you, T goal, o floor" if is_ansi else "P you, G goal, . floor"
    slips = " The floor is slippery: a move may go to either side of its direction instead."
    return (
        "You walk along a cliff to the goal in the lower right corner. Each action moves you by one "
        "cell and costs 1; a step into the cliff costs 100 and puts you back to the lower left "
        f"corner.{slips if env.is_slippery else ''} Symbols: {symbols}, C cliff."
    )


def _describe_cliff(env: CliffWalkingEnv, observation: int) -> str:
    cells = np.where(env._cliff, "C", ".")
    cells[-1, -1] = "G"
    cells[np.unravel_index(int(observation), env.shape)] = "P"
    return "\n".join("".join(row) for row in cells)


def _explain_taxi(env: TaxiEnv, is_ansi: bool) -> str:
    taxi = "T is the taxi"
    if is_ansi:
        taxi = "the cell of the taxi is in [brackets], passenger and destination in (brackets)"
    rain = " It rains: a move may go to either side of its direction instead."
    fickle = " The passenger may change the destination once, after the first move."
    return (
        "You drive a taxi. Drive to the passenger, pick up, drive to the destination, drop off. "
        "Each action costs 1, a pick-up or drop-off at a wrong place costs 10, the delivery earns "
        f"20.{rain if _is_slippery(env) else ''}{fickle if env.fickle_passenger else ''} On the "
        "map, | and the frame are walls, : can be passed, R, G, Y and B are the four places where "
        f"passengers wait and go; {taxi}."
    )


def _describe_taxi(env: TaxiEnv, observation: int) -> str:
    row, column, _, _ = env.decode(int(observation))
    rows = [[cell.decode() for cell in line] for line in env.desc.tolist()]
    rows[1 + row][1 + 2 * column] = "T"
    return "\n".join([*("".join(line) for line in rows), _annotate_taxi(env, observation)])


def _annotate_taxi(env: TaxiEnv, observation: int) -> str:
    row, column, passenger, destination = env.decode(int(observation))
    where = "in the taxi" if passenger == len(env.locs) else f"at {'RGYB'[passenger]}"
    return (
        f"Taxi: row {row}, column {column}. Passenger: {where}. Destination: {'RGYB'[destination]}."
    )


def _explain_blackjack(env: BlackjackEnv, is_ansi: bool) -> str:
    ace_and_ten = ""
    if env.sab:
        ace_and_ten = " An ace and a ten at the start beat 21 with more cards."
    elif env.natural:
        ace_and_ten = " A win with an ace and a ten at the start earns 1.5."
    return (
        "You play blackjack against the dealer. Hit takes a card, stick ends your turn; then the "
        "dealer draws up to 17 or more. The higher sum up to 21 wins; above 21 you lose at once. "
        "Court cards count 10, an ace 11 or, where that would be too much, 1. A win earns 1, a "
        f"loss costs 1.{ace_and_ten}"
    )


def _describe_blackjack(env: BlackjackEnv, observation: tuple[int, int, int]) -> str:
    total, shown, has_ace = (int(number) for number in observation)
    ace = ", with an ace that counts 11" if has_ace else ""
    return f"Your cards: {total}{ace}. The dealer shows {'an ace' if shown == 1 else shown}."


def _annotate_nothing(env: gym.Env[Any, Any], observation: Any) -> str:
    return ""


def _is_success_at_every_end(env: gym.Env[Any, Any], reward: float) -> bool:
    return True


def _is_success_if_paid(env: gym.Env[Any, Any], reward: float) -> bool:
    return reward > 0


_WORDS: dict[type[gym.Env[Any, Any]], ToyText] = {
    FrozenLakeEnv: ToyText(
        ("Left", "Down", "Right", "Up"),
        _explain_lake,
        _describe_lake,
        _annotate_nothing,
        _is_at_goal,
    ),
    CliffWalkingEnv: ToyText(
        ("Up", "Right", "Down", "Left"),
        _explain_cliff,
        _describe_cliff,
        _annotate_nothing,
        _is_success_at_every_end,
    ),
    TaxiEnv: ToyText(
        ("South", "North", "East", "West", "Pick up", "Drop off"),
        _explain_taxi,
        _describe_taxi,
        _annotate_taxi,
        _is_success_at_every_end,
    ),
    BlackjackEnv: ToyText(
        ("Stick", "Hit"),
        _explain_blackjack,
        _describe_blackjack,
        _annotate_nothing,
        _is_success_if_paid,
    ),
}
