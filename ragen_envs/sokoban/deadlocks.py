"""What a box can still reach: bounds on the pushes ahead, and positions that are lost."""

from ragen_envs.sokoban.dynamics import Layout, list_cells

# Above this many targets the exact assignment costs more than it saves.
MAX_ASSIGNED_TARGETS = 8


class PushDistances:
    """Pushes that boxes need to targets, each alone in the room.

    Attributes:
        live_cells: Mask of the cells from which a box alone can reach a target. Elsewhere it is
            lost, wherever the player stands.
    """

    def __init__(self, layout: Layout) -> None:
        self._by_target = [count_pushes(layout, t) for t in list_cells(layout.targets)]
        self._costs: dict[int, list[tuple[int, int]]] = {}
        for index, distances in enumerate(self._by_target):
            for cell, distance in distances.items():
                self._costs.setdefault(cell, []).append((1 << index, distance))
        self.live_cells = sum(1 << cell for cell in self._costs)
        self._estimates: dict[int, int | None] = {}

    def estimate(self, boxes: int) -> int | None:
        """Return a lower bound on the pushes that bring all `boxes` (a mask) onto targets.

        Up to `MAX_ASSIGNED_TARGETS` targets: the cheapest assignment of each box to a target of its
        own. Above: each box to its nearest target.

        Returns:
            The bound, 0 exactly if all boxes are on targets; `None` if that is out of reach.
        """
        if boxes not in self._estimates:
            exact = len(self._by_target) <= MAX_ASSIGNED_TARGETS
            self._estimates[boxes] = self._assign(boxes) if exact else self._sum_nearest(boxes)
        return self._estimates[boxes]

    def nearest(self, cell: int) -> int | None:
        """Return the pushes that a box on `cell` needs to its nearest target; `None` if lost."""
        costs = self._costs.get(cell)
        return None if costs is None else min(distance for _, distance in costs)

    def _assign(self, boxes: int) -> int | None:
        totals = {0: 0}  # least pushes of the boxes so far, by the mask of the targets they take
        for cell in list_cells(boxes):
            following: dict[int, int] = {}
            for taken, total in totals.items():
                for target, distance in self._costs.get(cell, ()):
                    if taken & target:
                        continue
                    longer = total + distance
                    if following.get(taken | target, longer) >= longer:
                        following[taken | target] = longer
            totals = following
        return min(totals.values(), default=None)

    def _sum_nearest(self, boxes: int) -> int | None:
        if boxes & ~self.live_cells:
            return None
        return sum(self.nearest(cell) or 0 for cell in list_cells(boxes))


def count_pushes(layout: Layout, target: int) -> dict[int, int]:
    """Count, for a box alone in the room, the pushes from each cell to `target`.

    Cells that are missing cannot reach it, wherever the player stands. Elsewhere the count is a
    lower bound: that the player can get around the box is not asked.
    """
    layer = [target]
    distances = {target: 0}
    while layer:
        next_layer = []
        for cell in layer:
            for offset in layout.offsets:
                # Pulled from `cell` to `origin`; the player stands one cell beyond `origin`.
                origin = cell - offset
                if origin in distances or layout.walls >> origin & 1:
                    continue
                if layout.walls >> origin - offset & 1:
                    continue
                distances[origin] = distances[cell] + 1
                next_layer.append(origin)
        layer = next_layer
    return distances


def has_frozen_box(layout: Layout, live_cells: int, boxes: int, pushed: int) -> bool:
    """Tell whether a push has made a box immovable that is not on a target.

    A box is frozen if neither axis lets it go: there is a wall beside it, or another frozen box, or
    both neighbours are dead cells. Only the box on `pushed` and the boxes beside it are asked about,
    and those on which their case rests.
    """
    blocked = layout.walls
    suspects = 1 << pushed
    for offset in layout.offsets:
        suspects |= boxes & 1 << pushed + offset
    return any(
        _is_frozen(cell, blocked, boxes, live_cells, layout.columns)
        for cell in list_cells(suspects & ~layout.targets)
    )


def _is_frozen(cell: int, blocked: int, boxes: int, live_cells: int, columns: int) -> bool:
    # In what follows this box counts as a wall: boxes that hold each other are frozen together.
    blocked |= 1 << cell
    for distance in (1, columns):
        sides = 1 << cell - distance | 1 << cell + distance
        if sides & blocked or not sides & live_cells:
            continue
        if not any(
            _is_frozen(beside, blocked, boxes, live_cells, columns)
            for beside in list_cells(sides & boxes)
        ):
            return False
    return True
