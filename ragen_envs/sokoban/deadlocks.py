"""What a box can still reach: bounds on the pushes ahead, and positions that are lost."""

from functools import cached_property

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
        self._layout = layout
        self._is_exact = layout.targets.bit_count() <= MAX_ASSIGNED_TARGETS
        self._costs: dict[int, list[tuple[int, int]]] = {}
        if self._is_exact:
            for index, target in enumerate(list_cells(layout.targets)):
                for cell, distance in count_pushes(layout, target).items():
                    self._costs.setdefault(cell, []).append((1 << index, distance))
        self.live_cells = sum(1 << cell for cell in self._costs or self._nearest)
        self._estimates: dict[int, int | None] = {}

    def estimate(self, boxes: int) -> int | None:
        """Return a lower bound on the pushes that bring all `boxes` (a mask) onto targets.

        Up to `MAX_ASSIGNED_TARGETS` targets: the cheapest assignment of each box to a target of its
        own. Above: each box to its nearest target.

        Returns:
            The bound, 0 exactly if all boxes are on targets; `None` if that is out of reach.
        """
        if not self._is_exact:
            return self._sum_nearest(boxes)
        if boxes not in self._estimates:
            self._estimates[boxes] = self._assign(boxes)
        return self._estimates[boxes]

    def estimate_after(self, before: int, boxes: int, origin: int, destination: int) -> int | None:
        """Return `estimate(boxes)` after a push between live cells; `before` it was this much.

        With many targets only the distance of the one box has changed, so that a push costs the
        same however many boxes there are.
        """
        if self._is_exact:
            return self.estimate(boxes)
        return before - self._nearest[origin] + self._nearest[destination]

    def nearest(self, cell: int) -> int | None:
        """Return the pushes that a box on `cell` needs to its nearest target; `None` if lost."""
        return self._nearest.get(cell)

    @cached_property
    def _nearest(self) -> dict[int, int]:
        return count_pushes(self._layout, *list_cells(self._layout.targets))

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
        return sum(self._nearest[cell] for cell in list_cells(boxes))


def count_pushes(layout: Layout, *targets: int) -> dict[int, int]:
    """Count, for a box alone in the room, the pushes from each cell to the nearest of `targets`.

    Cells that are missing cannot reach one, wherever the player stands. Elsewhere the count is a
    lower bound: that the player can get around the box is not asked.
    """
    layer = list(targets)
    distances = dict.fromkeys(targets, 0)
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
    both neighbours are dead cells. Only the box on `pushed` and the boxes beside it are asked about.
    """
    suspects = 1 << pushed
    for offset in layout.offsets:
        suspects |= boxes & 1 << pushed + offset
    suspects &= ~layout.targets
    # Frozen are the boxes of the largest set that holds itself: from all of them, those that
    # something lets go are taken out again and again.
    frozen, remaining = 0, boxes
    while remaining != frozen and remaining & suspects:
        frozen = remaining
        for distance in (1, layout.columns):
            blocked = layout.walls | frozen
            held = blocked << distance | blocked >> distance
            held |= ~(live_cells << distance | live_cells >> distance)
            remaining &= held
    return bool(remaining & suspects)
