"""The drawings: one picture per kind of cell, made when first asked for."""

from collections.abc import Mapping
from functools import cache

from ragen_envs.rendering import Canvas, Colour, Picture

_WHITE: Colour = (255, 255, 255)
_INK: Colour = (38, 40, 52)

_FLOOR: Colour = (228, 220, 202)
_BRICK: Colour = (108, 112, 130)
_MORTAR: Colour = (70, 73, 90)
_TARGET: Colour = (208, 84, 72)
_WOOD: Colour = (196, 140, 78)
_GREEN: Colour = (112, 176, 98)

_ICE: Colour = (204, 230, 243)
_WATER: Colour = (38, 72, 110)

_COAT: Colour = (58, 104, 190)
_SKIN: Colour = (246, 214, 180)

_WALLPAPER: Colour = (58, 46, 74)
_CABINETS: tuple[Colour, Colour] = ((52, 138, 148), (178, 92, 128))
_METAL: Colour = (206, 208, 216)
_LAMP: Colour = (255, 216, 92)


@cache
def sokoban_tiles() -> Mapping[str, Picture]:
    """Return the tiles of a room by cell kind, shape (32, 32, 3) each."""
    floor = _draw_floor()
    target = _draw_target(floor)
    return {
        "wall": _draw_wall(),
        "empty": floor,
        "target": target,
        "box": _draw_crate(floor, _WOOD),
        "box_on_target": _draw_crate(target, _GREEN),
        "player": _draw_player(floor),
        "player_on_target": _draw_player(target),
    }


@cache
def lake_tiles() -> Mapping[str, Picture]:
    """Return the tiles of a lake by cell kind, shape (32, 32, 3) each."""
    ice = _draw_ice()
    hole = _draw_hole(ice)
    goal = _draw_flag(ice, x=0.36)
    return {
        "frozen": ice,
        "hole": hole,
        "goal": goal,
        "player": _draw_player(ice),
        "player_in_hole": _draw_swimmer(hole),
        "player_on_goal": _draw_player(_draw_flag(ice, x=0.14)),
    }


@cache
def arm_tiles() -> Mapping[str, Picture]:
    """Return a slot machine by "first" or "second" and whether pulled, shape (96, 64, 3) each.

    The colours say where an arm stands, never what it pays.
    """
    return {
        f"{place}_pulled" if is_pulled else place: _draw_machine(colour, is_pulled=is_pulled)
        for place, colour in zip(("first", "second"), _CABINETS, strict=True)
        for is_pulled in (False, True)
    }


def _shade(colour: Colour, factor: float) -> Colour:
    """Darken a colour, or lighten it with a factor above 1."""
    red, green, blue = (min(255, round(part * factor)) for part in colour)
    return red, green, blue


def _draw_floor() -> Picture:
    canvas = Canvas(_shade(_FLOOR, 0.93))
    canvas.box((0.02, 0.02), (0.98, 0.98), _FLOOR, corner=0.05)
    for x, y in ((0.24, 0.3), (0.7, 0.22), (0.56, 0.68), (0.2, 0.78), (0.86, 0.84)):
        canvas.disc((x, y), 0.025, _shade(_FLOOR, 0.94))
    return canvas.picture()


def _draw_wall() -> Picture:
    canvas = Canvas(_MORTAR)
    # Two courses of bricks, the lower one shifted by half a brick; the halves meet those next door.
    rows = (((-0.02, 0.48), (0.52, 1.02)), ((-0.5, 0.23), (0.27, 0.73), (0.77, 1.5)))
    for row, bricks in enumerate(rows):
        top, bottom = 0.5 * row + 0.02, 0.5 * row + 0.47
        for left, right in bricks:
            canvas.box((left, top), (right, bottom), _shade(_BRICK, 0.76), corner=0.05)
            canvas.box((left, top), (right, bottom - 0.05), _BRICK, corner=0.05)
            canvas.box((left, top), (right, top + 0.05), _shade(_BRICK, 1.25), corner=0.025)
    return canvas.picture()


def _draw_target(below: Picture) -> Picture:
    canvas = Canvas.on(below)
    canvas.disc((0.5, 0.5), 0.36, _WHITE, opacity=0.5)
    canvas.ring((0.5, 0.5), 0.31, 0.09, _TARGET)
    return canvas.disc((0.5, 0.5), 0.12, _TARGET).picture()


def _draw_crate(below: Picture, wood: Colour) -> Picture:
    canvas = Canvas.on(below)
    canvas.box((0.12, 0.16), (0.96, 0.97), _INK, corner=0.1, opacity=0.22)
    canvas.box((0.07, 0.07), (0.93, 0.93), _shade(wood, 0.5), corner=0.08)
    canvas.box((0.1, 0.1), (0.9, 0.9), wood, corner=0.06)
    canvas.box((0.22, 0.22), (0.78, 0.78), _shade(wood, 0.62))
    for top in (0.25, 0.44, 0.63):
        canvas.box((0.22, top), (0.78, top + 0.15), _shade(wood, 0.84))
    canvas.line((0.26, 0.74), (0.74, 0.26), 0.15, _shade(wood, 0.6))
    canvas.line((0.26, 0.74), (0.74, 0.26), 0.1, _shade(wood, 1.05))
    canvas.box((0.1, 0.1), (0.9, 0.14), _shade(wood, 1.25), corner=0.02)
    for x in (0.16, 0.84):
        for y in (0.17, 0.83):
            canvas.disc((x, y), 0.028, _shade(wood, 0.5))
    return canvas.picture()


def _draw_player(below: Picture) -> Picture:
    canvas = Canvas.on(below)
    canvas.ellipse((0.5, 0.9), (0.28, 0.07), _INK, opacity=0.25)
    canvas.box((0.36, 0.74), (0.47, 0.92), _INK, corner=0.04)
    canvas.box((0.53, 0.74), (0.64, 0.92), _INK, corner=0.04)
    canvas.line((0.33, 0.58), (0.25, 0.72), 0.12, _shade(_COAT, 0.8))
    canvas.line((0.67, 0.58), (0.75, 0.72), 0.12, _shade(_COAT, 0.8))
    canvas.box((0.3, 0.48), (0.7, 0.84), _shade(_COAT, 0.72), corner=0.12)
    canvas.box((0.32, 0.48), (0.68, 0.81), _COAT, corner=0.11)
    _draw_head(canvas, y=0.33)
    return canvas.picture()


def _draw_head(canvas: Canvas, *, y: float) -> None:
    canvas.disc((0.5, y), 0.215, _shade(_SKIN, 0.55))
    canvas.disc((0.5, y), 0.19, _SKIN)
    for x in (0.43, 0.57):
        canvas.disc((x, y + 0.04), 0.032, _INK)
    canvas.box((0.3, y - 0.2), (0.7, y - 0.05), _shade(_TARGET, 0.9), corner=0.07)
    canvas.disc((0.5, y - 0.2), 0.07, _WHITE)


def _draw_ice() -> Picture:
    canvas = Canvas(_shade(_ICE, 0.88))
    canvas.box((0.02, 0.02), (0.98, 0.98), _ICE, corner=0.06)
    for start, end, width in (
        ((0.14, 0.4), (0.4, 0.14), 0.06),
        ((0.14, 0.56), (0.24, 0.46), 0.04),
        ((0.66, 0.86), (0.86, 0.66), 0.04),
    ):
        canvas.line(start, end, width, _WHITE, opacity=0.75)
    return canvas.picture()


def _draw_hole(below: Picture) -> Picture:
    canvas = Canvas.on(below)
    canvas.ellipse((0.5, 0.52), (0.42, 0.38), _shade(_ICE, 0.72))
    canvas.ellipse((0.5, 0.55), (0.38, 0.33), _WATER)
    canvas.ellipse((0.5, 0.62), (0.3, 0.22), _shade(_WATER, 0.75))
    canvas.line((0.34, 0.66), (0.46, 0.66), 0.035, (120, 160, 196), opacity=0.8)
    return canvas.line((0.54, 0.76), (0.64, 0.76), 0.035, (120, 160, 196), opacity=0.8).picture()


def _draw_flag(below: Picture, *, x: float) -> Picture:
    canvas = Canvas.on(below)
    canvas.ellipse((x + 0.03, 0.9), (0.17, 0.05), _INK, opacity=0.22)
    canvas.ellipse((x, 0.88), (0.12, 0.05), _shade(_METAL, 0.6))
    canvas.line((x, 0.14), (x, 0.87), 0.07, _shade(_WOOD, 0.55))
    canvas.polygon([(x + 0.03, 0.12), (x + 0.52, 0.3), (x + 0.03, 0.5)], _shade(_GREEN, 0.62))
    canvas.polygon([(x + 0.03, 0.15), (x + 0.44, 0.3), (x + 0.03, 0.46)], _shade(_GREEN, 0.95))
    return canvas.disc((x, 0.12), 0.055, _LAMP).picture()


def _draw_swimmer(hole: Picture) -> Picture:
    canvas = Canvas.on(hole)
    _draw_head(canvas, y=0.5)
    canvas.line((0.24, 0.5), (0.33, 0.63), 0.1, _COAT)
    canvas.line((0.76, 0.5), (0.67, 0.63), 0.1, _COAT)
    canvas.box((0.26, 0.63), (0.74, 0.8), _shade(_WATER, 0.75), corner=0.08)
    for y, half_width in ((0.66, 0.24), (0.76, 0.17)):
        canvas.line((0.5 - half_width, y), (0.5 + half_width, y), 0.045, (150, 190, 220))
    return canvas.picture()


def _draw_machine(cabinet: Colour, *, is_pulled: bool) -> Picture:
    canvas = Canvas(_WALLPAPER, columns=2, rows=3)
    canvas.box((0, 2.62), (2, 3), _shade(_WALLPAPER, 0.7))
    canvas.ellipse((0.9, 2.76), (0.85, 0.12), _INK, opacity=0.5)
    canvas.box((0.16, 0.34), (1.56, 2.78), _shade(cabinet, 0.5), corner=0.2)
    canvas.box((0.2, 0.38), (1.52, 2.72), cabinet, corner=0.17)
    canvas.box((0.27, 0.42), (1.45, 0.5), _shade(cabinet, 1.3), corner=0.04)
    lamp = _LAMP if is_pulled else _shade(_LAMP, 0.5)
    if is_pulled:
        canvas.disc((0.86, 0.3), 0.28, _LAMP, opacity=0.3)
    canvas.disc((0.86, 0.3), 0.15, _shade(lamp, 0.7)).disc((0.86, 0.3), 0.12, lamp)
    _draw_reels(canvas, is_pulled=is_pulled)
    canvas.box((0.42, 1.86), (1.3, 2.06), _shade(cabinet, 0.6), corner=0.06)
    canvas.box((0.48, 1.92), (1.24, 2.0), _shade(_METAL, 0.9), corner=0.04)
    canvas.box((0.36, 2.26), (1.36, 2.58), _shade(cabinet, 0.4), corner=0.1)
    canvas.box((0.44, 2.34), (1.28, 2.5), _INK, corner=0.06)
    _draw_lever(canvas, is_pulled=is_pulled)
    return canvas.picture()


def _draw_reels(canvas: Canvas, *, is_pulled: bool) -> None:
    canvas.box((0.34, 0.78), (1.38, 1.62), _shade(_METAL, 0.6), corner=0.1)
    canvas.box((0.38, 0.82), (1.34, 1.58), _METAL, corner=0.08)
    for left in (0.43, 0.73, 1.03):
        canvas.box((left, 0.88), (left + 0.26, 1.52), (250, 246, 236), corner=0.04)
        if is_pulled:
            # The reels are spinning: what they would show is not known to the picture.
            for y in (0.98, 1.1, 1.22, 1.34, 1.44):
                canvas.line((left + 0.07, y), (left + 0.19, y), 0.05, (172, 166, 160))
        else:
            center = (left + 0.13, 1.2)
            canvas.disc(center, 0.1, _shade(_TARGET, 0.7)).disc(center, 0.08, _TARGET)
        canvas.box((left, 0.88), (left + 0.26, 0.98), _INK, corner=0.04, opacity=0.2)
        canvas.box((left, 1.44), (left + 0.26, 1.52), _INK, corner=0.04, opacity=0.2)


def _draw_lever(canvas: Canvas, *, is_pulled: bool) -> None:
    end = (1.78, 1.98) if is_pulled else (1.78, 0.72)
    canvas.box((1.54, 1.26), (1.68, 1.54), _shade(_METAL, 0.6), corner=0.05)
    canvas.line((1.68, 1.4), end, 0.11, _shade(_METAL, 0.55))
    canvas.line((1.68, 1.4), end, 0.06, _METAL)
    canvas.disc(end, 0.16, _shade(_TARGET, 0.65)).disc(end, 0.135, _TARGET)
    canvas.disc((end[0] - 0.05, end[1] - 0.05), 0.04, _WHITE, opacity=0.7)
