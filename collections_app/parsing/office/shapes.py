"""The order in which the shapes of a slide are read: from top to bottom, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

# How much of its size two shapes may overlap and still count as apart.
OVERLAP = 0.1
CUTS_DEEP, BOXES_MAX = 50, 300


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, its lengths in any unit, y downwards."""

    x: float
    y: float
    width: float
    height: float

    def span(self, *, upright: bool) -> tuple[float, float]:
        """From where to where it reaches, down (upright) or across, without the part that may overlap."""
        start, size = (self.y, self.height) if upright else (self.x, self.width)
        return start + OVERLAP * size, start + (1 - OVERLAP) * size


@dataclass(frozen=True, slots=True)
class Frame:
    """How the inside of a group of shapes maps to what is around it."""

    inner: Box
    outer: Box

    def place(self, box: Box) -> Box:
        wide = self.outer.width / self.inner.width if self.inner.width else 1.0
        high = self.outer.height / self.inner.height if self.inner.height else 1.0
        return Box(
            self.outer.x + (box.x - self.inner.x) * wide,
            self.outer.y + (box.y - self.inner.y) * high,
            box.width * wide,
            box.height * high,
        )


def reading_order(boxes: Sequence[Box | None]) -> list[int]:
    """The numbers of the boxes in reading order; one without a place follows the one before it."""
    if len(boxes) > BOXES_MAX:
        return list(range(len(boxes)))
    placed = [number for number, box in enumerate(boxes) if box is not None]
    followers: dict[int, list[int]] = {}
    last = -1
    for number, box in enumerate(boxes):
        last = number if box is not None else last
        if box is None:
            followers.setdefault(last, []).append(number)
    known = {number: box for number, box in enumerate(boxes) if box is not None}
    order = _cut(placed, known, CUTS_DEEP)
    return followers.get(-1, []) + [each for number in order for each in (number, *followers.get(number, ()))]


def _cut(numbers: list[int], boxes: dict[int, Box], depth: int) -> list[int]:
    """By columns or by rows, whichever is nearer to the order of the file; what spans the columns divides them."""
    if len(numbers) < 2:
        return numbers
    columns, bands = (_parts(numbers, boxes, upright=upright) for upright in (False, True))
    if not depth or max(len(columns), len(bands)) < 2:
        return sorted(numbers, key=lambda number: (boxes[number].y, boxes[number].x))
    if len(columns) < 2:
        widest = max(range(len(bands)), key=lambda at: max(boxes[number].width for number in bands[at]))
        parts = [[*chain(*bands[:widest])], bands[widest], [*chain(*bands[widest + 1 :])]]
        return [number for part in parts for number in _cut(part, boxes, depth - 1)]
    orders = [
        [number for part in parts for number in _cut(part, boxes, depth // 2)]
        for parts in (columns, bands)
        if len(parts) > 1
    ]
    return min(orders, key=_moved)


def _moved(order: Sequence[int]) -> int:
    """How many pairs stand otherwise than in the file."""
    return sum(one > two for at, one in enumerate(order) for two in order[at + 1 :])


def _parts(numbers: Sequence[int], boxes: dict[int, Box], *, upright: bool) -> list[list[int]]:
    """The groups between which a straight line runs through no box."""
    spans = {number: boxes[number].span(upright=upright) for number in numbers}
    ordered = sorted(numbers, key=lambda number: spans[number])
    reach, cuts = spans[ordered[0]][1], [0]
    for at, number in enumerate(ordered[1:], 1):
        if spans[number][0] >= reach:
            cuts.append(at)
        reach = max(reach, spans[number][1])
    return [ordered[first:stop] for first, stop in pairwise([*cuts, len(ordered)])]
