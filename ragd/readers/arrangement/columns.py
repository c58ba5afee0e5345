"""Columns of text: a page is divided along the gutters between them, and again within each part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import pairwise
from typing import NamedTuple

from ragd.readers.arrangement.shapes import Segment, bounds, rows_of

GUTTER = 0.8  # of the middle height of lines: the narrowest gutter
LINES_MIN = 3  # that each column must have
CHARS_PER_LINE = 18  # that a line of running text has at least, in the mean
FULL_LINE = 0.7  # of the column's width, that half of the lines of running text reach
SAME_HEIGHT = 0.3  # of a line's height, by which the middles of aligned lines differ at most
ALIGNED = 0.6  # of the lines of the shorter column: more of them level with the other's lines make a table
LEVEL = 0.8  # of them: text columns may be level too, but then their lines are long, or full and many
WIDE_CHARS = 38
PIECED = 0.35  # of the lines of running text are short pieces with wide gaps, at most
CLOSER = 1.3
UNBROKEN, UNBROKEN_SOLID, SOLID = 5, 8, 0.8  # lines without a gap between them; the share of full ones
HEAD_LINES, HEAD_GAP = 2, 1.2  # lines of a head or foot; heights of a line between it and the columns
LINES_IN_TURN = 6  # that columns of short lines have, which their source gave one after the other
LEVEL_CELLS, NUMBERED = 0.9, 0.6  # of the lines of a table that came column by column: level; numbers in a column
DEPTH = 6
CHUNKS_MAX = 60
COLUMNS_MAX = 6


class Measures(NamedTuple):
    """What is asked of a segment's words. chars: how many characters they have; is_number: whether they are one."""

    chars: Callable[[Segment], int]
    is_number: Callable[[Segment], bool]


def divide(segments: Sequence[Segment], measures: Measures, depth: int = DEPTH) -> list[list[Segment]]:
    """The parts of a page in reading order: what spans the columns above them, each column, what stands below.

    Segments keep the order they came in within a part.
    """
    if depth == DEPTH and (columns := _given_columns(segments, measures)):
        return [each for column in columns for each in divide(column, measures, depth - 1)]
    if depth and len(segments) >= 2 * LINES_MIN:
        for gutter in _gutters(segments):
            parts = _divide_at(gutter, segments, measures)
            if parts is not None:
                return [each for part in parts for each in divide(part, measures, depth - 1)]
    return [list(segments)] if segments else []


def _given_columns(segments: Sequence[Segment], measures: Measures) -> list[list[Segment]]:
    """The columns of a page that its source gave one after the other, each down the page and right of the one before;
    they may reach into each other by the height of a line, so that no gutter is left. [] where it is not so."""
    runs: list[list[Segment]] = []
    for segment in segments:
        if runs and segment.y1 > runs[-1][-1].y0:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    if not 2 <= len(runs) <= COLUMNS_MAX or any(len(rows_of(run)) < LINES_IN_TURN for run in runs):
        return []
    reach = max(run[0].y1 - run[0].y0 for run in runs)
    if any(_is_table(one, other, measures) for one, other in pairwise([rows_of(run) for run in runs])):
        return []
    is_right = all(bounds(after).x0 > bounds(before).x1 - reach for before, after in pairwise(runs))
    return runs if is_right else []


def _gutters(segments: Sequence[Segment]) -> list[float]:
    """Where a gutter may be, the most likely first: places that lie between most pairs of neighbours in a line."""
    heights = sorted(each.y1 - each.y0 for each in segments)
    narrowest = GUTTER * heights[len(heights) // 2]
    gaps: list[tuple[float, float]] = []
    ordered = sorted(segments, key=lambda each: each.y0)
    active: list[Segment] = []
    for segment in ordered:
        active = [each for each in active if each.y1 > segment.y0]
        for other in active:
            if segment.shares_line(other):
                left, right = (other, segment) if other.x0 <= segment.x0 else (segment, other)
                if right.x0 - left.x1 >= narrowest:
                    gaps.append((left.x1, right.x0))
        active.append(segment)
    if len(gaps) < LINES_MIN:
        return []
    edges = sorted([(start, 0, 1) for start, _ in gaps] + [(end, 1, -1) for _, end in gaps])
    count, found = 0, []
    for (x, _, step), (following, _, _) in pairwise(edges):
        count += step
        if following > x and count >= LINES_MIN:
            found.append((-count, -(following - x), (x + following) / 2))
    found.sort()
    result: list[float] = []
    for _, _, x in found:
        if all(abs(x - other) > narrowest for other in result):
            result.append(x)
        if len(result) == 4:
            break
    return result


def _divide_at(x: float, segments: Sequence[Segment], measures: Measures) -> list[list[Segment]] | None:
    """Parts in order where columns stand on both sides of x somewhere; None where none do."""
    crossing = sorted((each for each in segments if each.x0 < x < each.x1), key=lambda each: each.middle)
    levels = [each.middle for each in crossing]
    bands: list[list[Segment]] = [[] for _ in range(len(levels) + 1)]
    for segment in segments:
        if not segment.x0 < x < segment.x1:
            bands[sum(1 for level in levels if level < segment.middle)].append(segment)
    parts: list[list[Segment]] = [[]]
    is_divided = False
    for index, band in enumerate(bands):
        left, right = [each for each in band if each.x1 <= x], [each for each in band if each.x0 >= x]
        if _are_columns(left, right, measures):
            above, below = _apart(left, right)
            parts[-1].extend(above)
            outside = {id(each) for each in (*above, *below)}
            parts += [[each for each in side if id(each) not in outside] for side in (left, right)]
            parts.append(below)
            is_divided = True
        else:
            parts[-1].extend(band)
        if index < len(crossing):
            parts[-1].append(crossing[index])
    if not is_divided:
        return None
    place = {id(segment): position for position, segment in enumerate(segments)}
    return [sorted(part, key=lambda each: place[id(each)]) for part in parts if part]


def _apart(left: list[Segment], right: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """The lines that stand above both columns, and below both, with a wide gap: heads and feet of the page."""
    rows = rows_of([*left, *right])
    above: list[Segment] = []
    below: list[Segment] = []
    for ends, taken in ((rows, above), (rows[::-1], below)):
        for index in range(min(HEAD_LINES, len(ends) - LINES_MIN)):
            near, far = bounds(ends[index]), bounds(ends[index + 1])
            if max(far.y0 - near.y1, near.y0 - far.y1) > HEAD_GAP * (near.y1 - near.y0):
                taken.extend(segment for row in ends[: index + 1] for segment in row)
                break
    return above, below


def _in_turn(left: list[Segment], right: list[Segment]) -> bool:
    """Whether the source gave all of one side before all of the other, as no table is given that goes row by row."""
    first = [segment.words[0] for segment in left if segment.words]
    then = [segment.words[0] for segment in right if segment.words]
    return bool(first) and bool(then) and max(first) < min(then)


def _is_table(one: list[list[Segment]], other: list[list[Segment]], measures: Measures) -> bool:
    """Whether two columns that the source gave one after the other are those of a table: level, and one of numbers."""
    if len(one) != len(other) or _level_share(one, other) < LEVEL_CELLS:
        return False
    return any(sum(all(map(measures.is_number, row)) for row in rows) >= NUMBERED * len(rows) for rows in (one, other))


def _are_columns(left: list[Segment], right: list[Segment], measures: Measures) -> bool:
    """Running text on both sides, or on one where lines are not level; or what its source gave side after side."""
    if not left or not right:
        return False
    one, other = rows_of(left), rows_of(right)
    if min(len(one), len(other)) < LINES_MIN:
        return False
    above, below = bounds(left), bounds(right)
    shared = min(above.y1, below.y1) - max(above.y0, below.y0)
    if shared < 0.3 * min(above.y1 - above.y0, below.y1 - below.y0):
        return False
    if min(len(one), len(other)) >= LINES_IN_TURN and _in_turn(left, right):
        return not _is_table(one, other, measures)
    running = [each for each in (_running(one, measures), _running(other, measures)) if each is not None]
    level = _level_share(one, other)
    if len(running) < 2:
        return len(running) == 1 and level < ALIGNED
    return level < LEVEL or all(each.is_wide or each.is_solid for each in running)


@dataclass(frozen=True, slots=True)
class _Running:
    """How sure lines are running text. is_wide: too long for cells; is_solid: full lines, many without a break."""

    is_wide: bool
    is_solid: bool


def _running(rows: list[list[Segment]], measures: Measures) -> _Running | None:
    """None where the lines are no running text: too short, or too few that are full."""
    if any(segment.table for row in rows for segment in row):
        rows = [row for row in rows if not any(segment.table for segment in row)]
        if len(rows) < LINES_MIN:
            return _Running(True, True)  # a table of its own is a column's content
    pieced = [row for row in rows if len(row) > 1 and sum(map(measures.chars, row)) < CHARS_PER_LINE * len(row)]
    if len(pieced) > PIECED * len(rows):
        return None
    spans = [(min(each.x0 for each in row), max(each.x1 for each in row)) for row in rows]
    width = max(end for _, end in spans) - min(start for start, _ in spans)
    full = sum(1 for start, end in spans if end - start >= FULL_LINE * width) / len(rows)
    mean = sum(measures.chars(segment) for row in rows for segment in row) / len(rows)
    pitches = [after[0].middle - before[0].middle for before, after in pairwise(rows)]
    closest = min(pitches)
    longest = run = 1
    for pitch in pitches:
        run = run + 1 if pitch <= CLOSER * closest else 1
        longest = max(longest, run)
    if mean < CHARS_PER_LINE or full < 0.5 or (longest < UNBROKEN and mean < WIDE_CHARS):
        return None
    return _Running(mean >= WIDE_CHARS, full >= SOLID and longest >= UNBROKEN_SOLID)


def _level_share(one: list[list[Segment]], other: list[list[Segment]]) -> float:
    """The share of the shorter column's lines that are level with a line of the other."""
    few, many = sorted((one, other), key=len)
    middles = [row[0].middle for row in many]
    level = 0
    for row in few:
        reach = SAME_HEIGHT * (row[0].y1 - row[0].y0)
        level += any(abs(middle - row[0].middle) <= reach for middle in middles)
    return level / len(few)


def order_lines(segments: Sequence[Segment]) -> list[list[Segment]]:
    """The lines of a part without columns, each with its segments.

    The order given is kept as far as it runs down the page. Where it jumps up, the runs are ordered: from top to
    bottom, side by side ones from left to right, and what lies among each other line by line.
    """
    runs: list[list[Segment]] = []
    for segment in segments:
        last = runs[-1][-1] if runs else None
        if last is not None and (segment.middle >= last.middle or segment.shares_line(last)):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    if len(runs) > CHUNKS_MAX:
        return rows_of(segments)
    if len(runs) > 1:
        runs = _untangle(runs)
        runs.sort(key=cmp_to_key(_compare))
    lines: list[list[Segment]] = []
    for run in runs:
        fresh = True
        for segment in run:
            if not fresh and segment.shares_line(lines[-1][-1]) and segment.x0 >= lines[-1][-1].x0:
                lines[-1].append(segment)
            else:
                lines.append([segment])
            fresh = False
    return lines


def _untangle(runs: list[list[Segment]]) -> list[list[Segment]]:
    """Runs whose boxes overlap become one, sorted by lines."""
    result: list[list[Segment]] = []
    for run in runs:
        while tangled := next((other for other in result if _overlap(run, other)), None):
            result.remove(tangled)
            run = [segment for row in rows_of([*tangled, *run]) for segment in row]
        result.append(run)
    return result


def _overlap(one: list[Segment], other: list[Segment]) -> bool:
    first, second = bounds(one), bounds(other)
    height = min(one[0].y1 - one[0].y0, other[0].y1 - other[0].y0)
    return (
        min(first.x1, second.x1) - max(first.x0, second.x0) > 0
        and min(first.y1, second.y1) - max(first.y0, second.y0) > 0.4 * height
    )


def _compare(one: list[Segment], other: list[Segment]) -> int:
    first, second = bounds(one), bounds(other)
    shared = min(first.y1, second.y1) - max(first.y0, second.y0)
    if shared > 0.5 * min(first.y1 - first.y0, second.y1 - second.y0):
        return -1 if first.x0 < second.x0 else 1
    return -1 if first.y0 < second.y0 else 1
