"""The Gymnasium shell around the rules and the map generator of the lake."""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

from ragen_envs.argument_checks import check_flag, check_number
from ragen_envs.frozen_lake.desc import Desc, parse_desc
from ragen_envs.frozen_lake.dynamics import (
    ACTION_NAMES,
    Layout,
    State,
    draw_direction,
    initial_state,
    is_lost,
    is_solved,
    step,
)
from ragen_envs.frozen_lake.layout import generate_layout
from ragen_envs.grid import (
    Board,
    Cell,
    ObservationFormat,
    board_charset,
    board_max_length,
    check_observation_format,
    check_size,
    render_board,
    resolve_symbols,
)
from ragen_envs.rendering import Picture, draw_board
from ragen_envs.text_env import DYNAMICS_SEED, TextEnv, Transition
from ragen_envs.text_space import SharedText
from ragen_envs.tiles import lake_tiles

GOAL_REWARD = 1.0
MIN_SIZE = 2
DESC = "desc"

VOCABULARIES: dict[str, dict[str, str]] = {
    "standard": {
        "player": "P",
        "frozen": "_",
        "hole": "O",
        "goal": "G",
        "player_in_hole": "X",
        "player_on_goal": "√",
    },
    "letters": {
        "player": "A",
        "frozen": "F",
        "hole": "H",
        "goal": "T",
        "player_in_hole": "D",
        "player_on_goal": "W",
    },
    "ascii": {
        "player": "@",
        "frozen": ".",
        "hole": "o",
        "goal": "*",
        "player_in_hole": "x",
        "player_on_goal": "+",
    },
}

_PLAYER_ON = {"frozen": "player", "hole": "player_in_hole", "goal": "player_on_goal"}
_OBJECT_NAMES = ("hole", "goal", "player")


class FrozenLakeEnv(TextEnv):
    """Walk over slippery ice to the goal without falling into a hole.

    Every reset draws a new map, start and goal (RAGEN, arXiv:2504.20073, section 3).
    `reset(options={"desc": ...})` plays, once, a map that is given as in `desc` and no larger than
    `size`.

    ## Observation
    The map as one line of symbols per row, or one line of coordinates per object, or both.

    | cell kind | standard | letters | ascii |
    |---|---|---|---|
    | player | P | A | @ |
    | frozen | _ | F | . |
    | hole | O | H | o |
    | goal | G | T | * |
    | player_in_hole | X | D | x |
    | player_on_goal | √ | W | + |

    ## Actions
    | index | name |
    |---|---|
    | 0 | Left |
    | 1 | Down |
    | 2 | Right |
    | 3 | Up |

    On slippery ice the move takes the intended direction with `success_rate`, and each of the two
    perpendicular directions with half of the rest. A move over the edge leaves the player in place.

    ## Reward
    | reward | when |
    |---|---|
    | 1.0 | the player arrived at the goal |
    | 0.0 | every other action |

    ## Episode end
    Terminated at the goal (success) and in a hole. Truncated by the step limit of the id.

    ## Info
    | key | type | meaning |
    |---|---|---|
    | `success` | `bool` | the player is at the goal |
    | `action_is_effective` | `bool` | the player moved |
    | `position` | `tuple[int, int]` | row and column of the player, counted from 0 |

    ## Arguments
    `size`: rows and columns, both from 2 to 100; with `desc` those of the map.
    `frozen_probability`: probability that a cell other than start and goal is no hole; with `desc`
    without effect.
    `is_slippery`: whether moves can slip; if not, `success_rate` has no effect.
    `success_rate`: probability of the intended direction on slippery ice.
    `desc`: a map to play in every episode: a list of rows, or one string with line breaks, in
    Gymnasium's letters `S` start, `F` frozen, `H` hole, `G` goal; at most 100 rows and columns, one
    start and at least one goal that can be reached. `None`: maps are drawn from the seed.
    `symbols`: name of a vocabulary, or a mapping from every cell kind to one character.
    `observation_format`: `"grid"`, `"coordinates"` or `"grid_coordinates"`.
    `render_mode`: `"ansi"`, `"rgb_array"` or `None`.

    ## Versions
    v0: first version.

    Attributes:
        fixed_layout: The map of every episode where `desc` is given, else `None`.
        layout: The map of this episode.
        state: Where the player is.
        success_rate: Probability of the intended direction; 1.0 without slipping.
    """

    action_names = ACTION_NAMES
    option_names = (DYNAMICS_SEED, DESC)
    layout: Layout
    state: State

    def __init__(
        self,
        *,
        size: Sequence[int] = (4, 4),
        frozen_probability: float = 0.8,
        is_slippery: bool = True,
        success_rate: float = 1 / 3,
        desc: Desc | None = None,
        symbols: str | Mapping[str, str] = "standard",
        observation_format: str = "grid",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode=render_mode)
        self.fixed_layout = None if desc is None else parse_desc(desc)
        if self.fixed_layout is None:
            self.size = check_size(size, minimum=MIN_SIZE)
        else:
            self.size = self.fixed_layout.size
        self.frozen_probability = check_number(
            "frozen_probability", frozen_probability, minimum=0, maximum=1
        )
        self.is_slippery = check_flag("is_slippery", is_slippery)
        success_rate = check_number("success_rate", success_rate, minimum=0, maximum=1)
        self.success_rate = success_rate if self.is_slippery else 1.0
        self._symbols = resolve_symbols(symbols, VOCABULARIES)
        self._format = check_observation_format(observation_format)
        self.action_space = spaces.Discrete(len(self.action_names))
        self.observation_space = SharedText(
            max_length=board_max_length(self.size, _OBJECT_NAMES, self._format),
            charset=board_charset(self._symbols, _OBJECT_NAMES, self._format),
        )
        self.task_description = _describe(
            self._symbols, self._format, success_rate if self.is_slippery else None
        )

    def _read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super()._read_options(options)
        if checked.get(DESC) is not None:
            argument = f"`options[{DESC!r}]`"
            layout = parse_desc(checked[DESC], argument)
            if layout.size[0] > self.size[0] or layout.size[1] > self.size[1]:
                raise ValueError(
                    f"{argument} must fit into {self.size} (rows, columns), got a map of "
                    f"{layout.size}. Make the environment with a larger `size`."
                )
            checked[DESC] = layout
        return checked

    def _start_from(self, options: Mapping[str, Any]) -> None:
        layout = options.get(DESC) or self.fixed_layout
        if layout is None:
            layout = generate_layout(self.size, self.frozen_probability, self.np_random)
        self._set_start(layout)

    def _set_start(self, layout: Layout) -> None:
        self.layout = layout
        self.state = initial_state(layout)
        self._board = Board(lay_out_kinds(layout), self._symbols)

    def _advance(self, action: int) -> Transition:
        before = self.state
        direction = action
        if self.is_slippery:
            direction = draw_direction(action, self.success_rate, self.np_random)
        self.state = step(self.layout, before, direction)
        is_there = is_solved(self.layout, self.state)
        reward = GOAL_REWARD if is_there else 0.0
        terminated = is_there or is_lost(self.layout, self.state)
        return Transition(reward, terminated, self.state != before)

    def _observe(self) -> str:
        rows = self._board.write_rows(self._pieces())
        if self._format == "grid":  # no need to list what nobody reads
            return rows
        return render_board(rows, self._objects(), self._format)

    def _is_success(self) -> bool:
        return is_solved(self.layout, self.state)

    def _details(self) -> dict[str, Any]:
        return {"position": self.state.player}

    def _draw(self) -> Picture:
        return draw_board(self._board.list_kinds(self._pieces()), lake_tiles())

    def _pieces(self) -> list[tuple[str, Cell]]:
        row, column = cell = self.state.player
        return [(_PLAYER_ON[self._board.kinds[row][column]], cell)]

    def _objects(self) -> list[tuple[str, Cell]]:
        holes = [("hole", cell) for cell in sorted(self.layout.holes)]
        goals = [("goal", cell) for cell in (self.layout.goal, *sorted(self.layout.other_goals))]
        return [*holes, *goals, ("player", self.state.player)]


def lay_out_kinds(layout: Layout) -> list[list[str]]:
    """Return the kind of each cell without the player, row by row."""
    rows, columns = layout.size
    kinds = [["frozen"] * columns for _ in range(rows)]
    for row, column in layout.holes:
        kinds[row][column] = "hole"
    for row, column in (layout.goal, *layout.other_goals):
        kinds[row][column] = "goal"
    return kinds


def _describe(
    symbols: Mapping[str, str],
    observation_format: ObservationFormat,
    success_rate: float | None,
) -> str:
    parts = [
        "You are the player on a frozen lake. Walk to the goal; falling into a hole ends the game.",
        "Every action moves you by one cell, and moves over the edge leave you where you are.",
    ]
    if success_rate is not None:
        parts.append(
            f"The ice is slippery: a move goes in the direction you chose with probability "
            f"{success_rate:.2f} and otherwise to one of the two sides of it."
        )
    if observation_format != "coordinates":
        legend = ", ".join(f"{symbols[kind]} {kind.replace('_', ' ')}" for kind in symbols)
        parts.append(f"Symbols of the map: {legend}.")
    if observation_format != "grid":
        parts.append("Rows are counted from the top and columns from the left, both from 0.")
    return " ".join(parts)
