"""Words to segments: what stands side by side in one line without a wide gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collections_app.parsing.arrangement.shapes import PlacedWord, Segment

WIDE_GAP = 1.0  # of a word's height: wider gaps part columns and cells
BACK_STEP = 0.6  # of a word's height, by which a word may begin before the end of the one before


def join_segments(words: Sequence[PlacedWord], numbers: Iterable[int], wide: float = WIDE_GAP) -> list[Segment]:
    """Words that follow each other both in the order given and along a line."""
    result: list[Segment] = []
    before = -2
    for number in numbers:
        word = words[number]
        if result and number == before + 1 and _follows(result[-1], word, wide):
            last = result[-1]
            last.words.append(number)
            last.x0, last.y0 = min(last.x0, word.x0), min(last.y0, word.y0)
            last.x1, last.y1 = max(last.x1, word.x1), max(last.y1, word.y1)
        else:
            result.append(Segment([number], word.x0, word.y0, word.x1, word.y1))
        before = number
    return result


def _follows(segment: Segment, word: PlacedWord, wide: float) -> bool:
    if word.gap is not None and "\n" in word.gap:
        return False
    height, lower = word.y1 - word.y0, segment.y1 - segment.y0
    overlap = min(segment.y1, word.y1) - max(segment.y0, word.y0)
    if overlap <= 0.5 * min(height, lower):
        return False
    size = max(height, lower)
    return -BACK_STEP * size <= word.x0 - segment.x1 <= wide * size or word.gap == ""


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
