"""The Gymnasium shell around the rules and the level generator of Sokoban."""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

from ragen_envs.argument_checks import show
from ragen_envs.grid import (
    Board,
    Cell,
    ObservationFormat,
    board_charset,
    board_max_length,
    check_observation_format,
    render_board,
    resolve_symbols,
)
from ragen_envs.rendering import Picture, draw_board
from ragen_envs.sokoban.dynamics import (
    ACTION_NAMES,
    BOX_OFF_TARGET_REWARD,
    BOX_ON_TARGET_REWARD,
    SOLVED_REWARD,
    STEP_REWARD,
    Layout,
    State,
    is_solved,
    list_cells,
    step,
)
from ragen_envs.sokoban.layout import (
    Level,
    check_length_range,
    check_request,
    generate_level,
)
from ragen_envs.sokoban.level_file import Source, parse_levels
from ragen_envs.sokoban.level_set import LevelSet, measure_level
from ragen_envs.text_env import DYNAMICS_SEED, TextEnv, Transition
from ragen_envs.text_space import SharedText
from ragen_envs.tiles import sokoban_tiles

LEVEL = "level"
LENGTH_RANGE = ("min_solution_length", "max_solution_length")

CELL_KINDS = ("wall", "empty", "target", "box_on_target", "box", "player", "player_on_target")

VOCABULARIES: dict[str, dict[str, str]] = {
    "standard": dict(zip(CELL_KINDS, "#_O√XPS", strict=True)),
    "letters": dict(zip(CELL_KINDS, "W.GCBA@", strict=True)),
    "ascii": dict(zip(CELL_KINDS, "#-.*$@+", strict=True)),
}

_OBJECT_NAMES = ("wall", "target", "box", "player")


class SokobanEnv(TextEnv):
    """Push every box onto a target; boxes cannot be pulled.

    Every reset draws a new level (RAGEN, arXiv:2504.20073, section 3). It is solvable and not yet
    solved, and the length of its shortest solution lies in the asked range.

    `reset(options=...)` takes, for this one reset, `"min_solution_length"` and
    `"max_solution_length"` in place of the arguments, or else `"level"`, the text of a level in the
    format of `levels` that is no larger than `size`.

    ## Observation
    The room as one line of symbols per row, or one line of coordinates per object, or both. The
    coordinates leave out the outer ring, which is always wall; a box on a target gives two lines.

    | cell kind | standard | letters | ascii |
    |---|---|---|---|
    | wall | # | W | # |
    | empty | _ | . | - |
    | target | O | G | . |
    | box_on_target | √ | C | * |
    | box | X | B | $ |
    | player | P | A | @ |
    | player_on_target | S | @ | + |

    ## Actions
    | index | name |
    |---|---|
    | 0 | Up |
    | 1 | Down |
    | 2 | Left |
    | 3 | Right |

    The player moves by one cell. A box in the way is pushed if the cell behind it is free of walls
    and other boxes; otherwise nothing moves.

    ## Reward
    The sum of what applies; the last push of a level usually pays -0.1 + 1.0 + 10.0 = 10.9.

    | reward | when |
    |---|---|
    | -0.1 | every action, also one that moves nothing |
    | 1.0 | a box was pushed onto a target |
    | -1.0 | a box was pushed off a target |
    | 10.0 | all boxes are on targets |

    ## Episode end
    Terminated when all boxes are on targets (success). Truncated by the step limit of the id.

    ## Info
    | key | type | meaning |
    |---|---|---|
    | `success` | `bool` | all boxes are on targets |
    | `action_is_effective` | `bool` | the player moved |
    | `boxes_on_target` | `int` | number of boxes on targets |

    ## Arguments
    `size`: rows and columns, the outer wall counted, both at most 100; with `levels` those of the
    largest level.
    `num_boxes`: number of boxes and of targets; with `levels` the largest number.
    `symbols`: name of a vocabulary, or a mapping from every cell kind to one character.
    `observation_format`: `"grid"`, `"coordinates"` or `"grid_coordinates"`.
    `min_solution_length`, `max_solution_length`: range of the optimal number of actions from the
    start; `None` for no upper limit. A range that hardly any level falls in fails at `reset`.
    `levels`: levels to draw from in place of new ones: the path of a level file, or the text of
    levels, or a list of these. The format is the common one: `#` wall, `@` player, `$` box, `.`
    target, `*` box on target, `+` player on target, and space, `-` or `_` for floor; `;` begins a
    comment. A level has at most 100 rows and columns. The form of all levels is checked at once;
    whether a level can be solved is found out when it is drawn. If that takes too long, the level
    is played only if no range is asked.
    `render_mode`: `"ansi"`, `"rgb_array"` or `None`.

    ## Versions
    v0: first version.

    Attributes:
        layout: Walls and targets of this episode.
        state: Where the player and the boxes are.
        solution_length: Optimal number of actions from the start of this episode. `None` where the
            search for it was given up, which happens to written levels only.
    """

    action_names = ACTION_NAMES
    option_names = (DYNAMICS_SEED, LEVEL, *LENGTH_RANGE)
    layout: Layout
    state: State
    solution_length: int | None

    def __init__(
        self,
        *,
        size: Sequence[int] = (6, 6),
        num_boxes: int = 1,
        symbols: str | Mapping[str, str] = "standard",
        observation_format: str = "grid",
        min_solution_length: int = 1,
        max_solution_length: int | None = None,
        levels: Source | Sequence[Source] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode=render_mode)
        self.min_solution_length = min_solution_length
        self.max_solution_length = max_solution_length
        self._length_range: dict[str, Any] = {
            "min_solution_length": min_solution_length,
            "max_solution_length": max_solution_length,
        }
        self._levels = None if levels is None else LevelSet(levels)
        if self._levels is None:
            self.size = check_request(size=size, num_boxes=num_boxes, **self._length_range)
            self.num_boxes = num_boxes
        else:
            check_length_range(**self._length_range)
            self.size, self.num_boxes = self._levels.size, self._levels.num_boxes
        self._symbols = resolve_symbols(symbols, VOCABULARIES)
        self._format = check_observation_format(observation_format)
        self.action_space = spaces.Discrete(len(self.action_names))
        self.observation_space = SharedText(
            max_length=board_max_length(self.size, _OBJECT_NAMES, self._format),
            charset=board_charset(self._symbols, _OBJECT_NAMES, self._format),
        )
        self.task_description = _describe(self.size, self._symbols, self._format)

    def _read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super()._read_options(options)
        new_range = {name: checked[name] for name in LENGTH_RANGE if name in checked}
        if checked.get(LEVEL) is not None:
            if new_range:
                raise ValueError(
                    "`options` must hold either a level or a range of solution lengths, got "
                    f"{[LEVEL, *new_range]}."
                )
            checked[LEVEL] = self._read_level(checked[LEVEL])
            return checked
        length_range = {**self._length_range, **new_range}
        if new_range:
            self._check_range(length_range)
        return {**checked, **length_range}

    def _check_range(self, length_range: Mapping[str, Any]) -> None:
        if self._levels is None:
            check_request(size=self.size, num_boxes=self.num_boxes, **length_range)
        else:
            check_length_range(**length_range)

    def _read_level(self, text: str) -> Level:
        argument = f"`options[{LEVEL!r}]`"
        if not isinstance(text, str):
            raise TypeError(f"{argument} must be the text of a level, got {show(text)}.")
        written = parse_levels(text, argument)
        if len(written) != 1:
            raise ValueError(f"{argument} must hold one level, found {len(written)}.")
        size = written[0].size
        if size[0] > self.size[0] or size[1] > self.size[1]:
            raise ValueError(
                f"{argument} must fit into {self.size} (rows, columns), got a level of {size}. Make "
                "the environment with a larger `size`."
            )
        return measure_level(written[0])

    def _start_from(self, options: Mapping[str, Any]) -> None:
        level = options.get(LEVEL)
        if level is None:
            level = self._draw_level({name: options[name] for name in LENGTH_RANGE})
        self._set_level(level)

    def _set_level(self, level: Level) -> None:
        self.layout, self.state, self.solution_length = level
        if self._format != "grid":  # the walls that are not listed depend on the size
            size = (self.layout.rows, self.layout.columns)
            self.task_description = _describe(size, self._symbols, self._format)
            self._bare_objects = _list_fixed_objects(self.layout)
        self._board = Board(_lay_out_kinds(self.layout), self._symbols)

    def _draw_level(self, length_range: Mapping[str, Any]) -> Level:
        if self._levels is not None:
            return self._levels.draw(self.np_random, **length_range)
        return generate_level(
            self.np_random, size=self.size, num_boxes=self.num_boxes, **length_range
        )

    def _advance(self, action: int) -> Transition:
        self.state, reward, is_effective = step(self.layout, self.state, action)
        return Transition(reward, self._is_success(), is_effective)

    def _observe(self) -> str:
        rows = self._board.write_rows(self._pieces())
        if self._format == "grid":  # no need to list what nobody reads
            return rows
        return render_board(rows, self._objects(), self._format)

    def _is_success(self) -> bool:
        return is_solved(self.layout, self.state)

    def _details(self) -> dict[str, Any]:
        return {"boxes_on_target": (self.state.boxes & self.layout.targets).bit_count()}

    def _draw(self) -> Picture:
        return draw_board(self._board.list_kinds(self._pieces()), sokoban_tiles())

    def _pieces(self) -> list[tuple[str, Cell]]:
        targets, columns = self.layout.targets, self.layout.columns
        player, boxes = self.state
        pieces = [
            ("box_on_target" if targets >> cell & 1 else "box", divmod(cell, columns))
            for cell in list_cells(boxes)
        ]
        kind = "player_on_target" if targets >> player & 1 else "player"
        return [*pieces, (kind, divmod(player, columns))]

    def _objects(self) -> list[tuple[str, Cell]]:
        columns = self.layout.columns
        boxes = [("box", divmod(cell, columns)) for cell in list_cells(self.state.boxes)]
        return [*self._bare_objects, *boxes, ("player", divmod(self.state.player, columns))]


def _lay_out_kinds(layout: Layout) -> list[list[str]]:
    walls, targets, columns = layout.walls, layout.targets, layout.columns
    kinds = [
        "wall" if walls >> cell & 1 else "target" if targets >> cell & 1 else "empty"
        for cell in range(layout.rows * columns)
    ]
    return [kinds[i : i + columns] for i in range(0, len(kinds), columns)]


def _list_fixed_objects(layout: Layout) -> list[tuple[str, Cell]]:
    objects = [
        (name, divmod(cell, layout.columns))
        for name, mask in (("wall", layout.walls), ("target", layout.targets))
        for cell in list_cells(mask)
    ]
    last_row, last_column = layout.rows - 1, layout.columns - 1
    return [
        (name, (row, column))
        for name, (row, column) in objects
        if 0 < row < last_row and 0 < column < last_column
    ]


def _describe(
    size: tuple[int, int], symbols: Mapping[str, str], observation_format: ObservationFormat
) -> str:
    rows, columns = size
    parts = [
        "You are the player in a room with boxes. Push every box onto a target.",
        "Walking into a box pushes it one cell ahead if that cell holds no wall and no other box; "
        "boxes cannot be pulled.",
        f"Each action costs {-STEP_REWARD:g}. A box pushed onto a target earns "
        f"{BOX_ON_TARGET_REWARD:g}, off a target costs {-BOX_OFF_TARGET_REWARD:g}; all boxes on "
        f"targets together earn {SOLVED_REWARD:g} and end the game.",
    ]
    if observation_format != "coordinates":
        legend = ", ".join(f"{symbols[kind]} {kind.replace('_', ' ')}" for kind in CELL_KINDS)
        parts.append(f"Symbols of the room: {legend}.")
    if observation_format != "grid":
        parts.append(
            "Rows are counted from the top and columns from the left, both from 0. The room has "
            f"{rows} rows and {columns} columns; its outer ring is wall and not listed."
        )
    return " ".join(parts)
