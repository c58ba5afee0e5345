"""Words to segments: what stands side by side in one line without a wide gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collections_app.parsing.arrangement.shapes import SAME_LINE, PlacedWord, Segment

WIDE_GAP = 1.0  # of a word's height: wider gaps part columns and cells
BACK_STEP = 0.6  # of a word's height, by which a word may begin before the end of the one before


def join_segments(words: Sequence[PlacedWord], numbers: Iterable[int], wide: float = WIDE_GAP) -> list[Segment]:
    """Words that follow each other both in the order given and along a line."""
    result: list[Segment] = []
    before = -2
    x0 = y0 = x1 = y1 = 0.0
    for number in numbers:
        _, left, top, right, bottom, gap = words[number]
        joins = False
        if number == before + 1 and (gap is None or "\n" not in gap):
            high, low = bottom - top, y1 - y0
            overlap = (y1 if y1 < bottom else bottom) - (y0 if y0 > top else top)
            if overlap > SAME_LINE * (low if low < high else high):
                size = high if high > low else low
                joins = -BACK_STEP * size <= left - x1 <= wide * size or gap == ""
        if joins:
            last = result[-1]
            last.words.append(number)
            if left < x0:
                last.x0 = x0 = left
            if top < y0:
                last.y0 = y0 = top
            if right > x1:
                last.x1 = x1 = right
            if bottom > y1:
                last.y1 = y1 = bottom
        else:
            x0, y0, x1, y1 = left, top, right, bottom
            result.append(Segment([number], x0, y0, x1, y1))
        before = number
    return result


def rows_of(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Segments that share a line, from top to bottom, each row from left to right.

    A segment joins the row whose first segment it shares a line with, so that rows do not grow without end.
    """
    rows: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda each: (each.middle, each.x0)):
        for row in rows[:-4:-1]:
            if row[0].shares_line(segment):
                row.append(segment)
                break
        else:
            rows.append([segment])
    for row in rows:
        row.sort(key=lambda each: each.x0)
    return rows
