"""Tables by alignment: rows of short pieces with the same white strips between them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from ragd.readers.arrangement.shapes import Box, Cell, PlacedWord, Segment, Table, bounds, join_segments, rows_of

CELL_GAP, NARROW_GAP = 0.75, 0.55  # of the height of a line, between the cells of a row; where blanks are narrow
STRIP = 0.4  # the narrowest white strip between columns
SPLIT_GAP = 0.35  # at a strip, between words that are no piece of one spanning cell
ROW_GAP = 2.6  # between rows of a table
CLOSER = 1.25  # lines within a row are at most this much farther apart than the closest lines
ROWS_MIN, ROWS_MIN_OF_TWO = 3, 4
REACH = 0.3  # of the height of a line, by which rows reach into each other
FLUSH = 1.0  # points, by which the ends of full lines differ at most
PARTING = 0.5  # of the height of a line: a gap that parts blocks of close lines
FILLED = 0.6  # of the rows that have several cells
COUNTED, LED = 0.9, 0.2  # of the cells of a column that count; of the rows that dots lead through
APART = 1.6  # times the gaps within pieces, the gaps between them
SMALLEST = 0.1  # points: the height of a line
EQUAL, SPREAD = 1.1, 3.0  # times the narrowest gap of a justified line, times its height: its widest gap
WORDS_OF_TEXT = 7  # in the cells of a column of running text
NUMBER = re.compile(r"[^\w]*\d[\d\W]*(?:[^\W\d]{1,3})?[^\w]*")
PLAIN_NUMBER = re.compile(r"[0-9]{1,4}")
MARKER = re.compile(r"[^\w\s]|\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)]|[-\u2022\u25cf\u25aa\u2013o]")

LINES_OF_ROW, LINES_OF_HEAD = 16, 3
SECTIONS_OF_ROWS = 3  # between drawn lines, at least
PARTIAL, PARTIAL_OF_TWO = 0.35, 0.7  # of the further lines of rows leave places empty

Rows = list[list[Segment]]
Line = list[list[int]]  # the words of a line by column


def find_tables(words: Sequence[PlacedWord], segments: Sequence[Segment]) -> list[tuple[list[Segment], Table]]:
    """The tables among the segments of a part without columns, each with the segments that it takes in."""
    rows = rows_of(segments)
    result: list[tuple[list[Segment], Table]] = []
    index = 0
    while index < len(rows):
        end = _run_end(rows, index)
        found = None
        if _is_in_text(rows, index, end):
            index = end
            continue
        lead = _letterhead(words, rows[index:end]) if end - index > ROWS_MIN else 0
        spans = [(index + lead, end), (index, end), (index + 1, end), (index, end - 1), (index + 1, end - 1)]
        for first, last in dict.fromkeys(spans):
            while last - first >= ROWS_MIN and (found := _as_table(words, rows[first:last])):
                if sum(1 for cell in found.rows[0] if cell.lines) > 1:
                    break
                first, found = first + 1, None  # a heading above the table
            if found is not None:
                result.append(([segment for row in rows[first:last] for segment in row], found))
                index = last
                break
        if found is None:
            index = max(index + 1, end)
    return result


def _is_in_text(rows: Rows, start: int, end: int) -> bool:
    """Whether a line as wide as the rows stands close above or below them, as in a justified paragraph."""
    extent = bounds([segment for row in rows[start:end] for segment in row])
    for line in (row[0] for row in (*rows[max(0, start - 1) : start], *rows[end : end + 1]) if len(row) == 1):
        gap = max(line.y0 - extent.y1, extent.y0 - line.y1)
        is_as_wide = abs(line.x0 - extent.x0) < FLUSH and abs(line.x1 - extent.x1) < FLUSH
        if is_as_wide and len(line.words) > 2 and gap < PARTING * (line.y1 - line.y0):
            return True
    return False


def _run_end(rows: Rows, start: int) -> int:
    """Behind the last row that may belong to a table that begins with row start."""
    if any(segment.table for segment in rows[start]) or (len(rows[start]) < 2 and not _reaches(rows, start)):
        return start + 1
    extent = bounds(rows[start])
    end = start + 1
    while end < len(rows):
        row = rows[end]
        height = row[0].y1 - row[0].y0
        if any(segment.table for segment in row) or bounds(row).y0 - bounds(rows[end - 1]).y1 > ROW_GAP * height:
            break
        if len(row) == 1:
            wide = row[0].x1 - row[0].x0 > 0.55 * (extent.x1 - extent.x0) and not _reaches(rows, end)
            outside = row[0].x1 < extent.x0 or row[0].x0 > extent.x1 or row[0].x0 < extent.x0 - height
            if wide or outside:
                break
        extent = bounds([extent, *row])
        end += 1
    while end > start + 1 and len(rows[end - 1]) == 1 and not _ends_row(rows, end - 1):
        end -= 1
    return end


def _reaches(rows: Rows, index: int) -> bool:
    """Whether a row reaches into the next one, as the upper line of a cell does that stands beside a lower one."""
    one, other = (bounds(row) for row in (rows[index], rows[min(index + 1, len(rows) - 1)]))
    return other.y0 > one.y0 and one.y1 - other.y0 > REACH * (one.y1 - one.y0)


def _letterhead(words: Sequence[PlacedWord], rows: Rows) -> int:
    """How many rows stand above a table without being part of it, as the sender and the date of a letter do.

    They are lines of few pieces, close together, with a gap below, which reach across the strips between the columns
    of the rows that have most pieces, and headings that do so too.
    """
    fine = _pieces(words, rows)
    fullest = max(map(len, fine))
    top = next(index for index, row in enumerate(fine) if len(row) == fullest)
    strips = find_strips(fine[top:])
    across = [any(each.x0 + 1 < strip < each.x1 - 1 for each in row for strip in strips) for row in fine[:top]]
    boxes = [bounds(row) for row in rows]
    gaps = [after.y0 - before.y1 > PARTING * (before.y1 - before.y0) for before, after in pairwise(boxes)]
    end = next((index + 1 for index, is_wide in enumerate(gaps[:top]) if is_wide), 0)
    if sum(across[:end]) < 2 or max(map(len, fine[:end])) > max(2, fullest // 2):
        return 0
    while end < top and across[end] and len(rows[end]) == 1:
        end += 1
    return end


def _ends_row(rows: Rows, index: int) -> bool:
    """Whether a single piece below a row goes on in a cell: as close as lines are, and not under the first."""
    above, line = rows[index - 1], rows[index][0]
    close = line.y0 - bounds(above).y1 < 0.5 * (line.y1 - line.y0)
    return close and any(abs(line.x0 - each.x0) < 2 or abs(line.x1 - each.x1) < 2 for each in above[1:])


def _as_table(words: Sequence[PlacedWord], rows: Rows) -> Table | None:
    fine = _pieces(words, rows)
    strips = find_strips(fine)
    if not strips or not _stands_apart(words, fine) or _is_spread(words, rows):
        return None
    table = make_table(words, [fine], strips)
    return table if table is not None and is_tabular(words, table) else None


def _pieces(words: Sequence[PlacedWord], rows: Rows) -> Rows:
    """Rows divided at gaps that are wider than the narrowest blank."""
    numbers = [[word for segment in row for word in segment.words] for row in rows]
    heights = [words[number].y1 - words[number].y0 for row in numbers for number in row]
    gaps = [words[after].x0 - words[before].x1 for row in numbers for before, after in pairwise(row)]
    height = max(SMALLEST, sorted(heights)[len(heights) // 2])
    blank = min((gap for gap in gaps if gap > 0.1 * height), default=height)
    wide = min(CELL_GAP, max(NARROW_GAP, APART * blank / height))
    return [join_segments(words, row, wide) for row in numbers]


def _stands_apart(words: Sequence[PlacedWord], rows: Rows) -> bool:
    """Whether the gaps between pieces are wider than those within them, which the gaps of spread lines are not."""
    ratios = []
    for row in rows:
        between = [after.x0 - before.x1 for before, after in pairwise(row)]
        within = [words[after].x0 - words[before].x1 for segment in row for before, after in pairwise(segment.words)]
        if between and within:
            ratios.append(min(between) / max(0.1, *within))
    ratios.sort()
    return not ratios or ratios[len(ratios) // 2] >= APART


def _is_spread(words: Sequence[PlacedWord], rows: Rows) -> bool:
    """Whether the gaps are equal within lines but differ from line to line, as in justified text."""
    lines = []
    for row in rows:
        numbers = [word for segment in row for word in segment.words]
        lines.append([words[after].x0 - words[before].x1 for before, after in pairwise(numbers)])
    lines = [gaps for gaps in lines if len(gaps) > 1]
    widest = SPREAD * (rows[0][0].y1 - rows[0][0].y0)
    equal = [gaps[0] for gaps in lines if max(gaps) <= min(widest, EQUAL * min(gaps))]
    return 2 * len(equal) > len(lines) and len(equal) > 1 and max(equal) > EQUAL * min(equal)


def find_strips(rows: Rows) -> list[float]:
    """The middles of the white strips that part the columns of rows; [] where there is one column.

    A few rows may cross a strip, as headings over several columns do, where rows have more pieces than columns.
    """
    counts = sorted(len(row) for row in rows)
    usual = counts[len(counts) // 2]
    strips = _strips(rows, 0)
    if len(strips) + 1 < usual and len(rows) >= 3:
        looser = _strips(rows, max(1, len(rows) // 6))
        strips = looser if len(looser) > len(strips) else strips
    return strips


def _strips(rows: Rows, crossings: int) -> list[float]:
    heights = sorted(segment.y1 - segment.y0 for row in rows for segment in row)
    narrowest = STRIP * heights[len(heights) // 2]
    edges = sorted(
        [(segment.x0, 1) for row in rows for segment in row] + [(segment.x1, -1) for row in rows for segment in row]
    )
    found: list[tuple[float, float]] = []
    count = seen = 0
    start, least, place = 0.0, -1, 0.0
    ended = len(edges) // 2
    for (x, step), (following, _) in pairwise(edges):
        count += step
        seen += step < 0
        inside = count <= crossings and seen > crossings and ended - seen - count > crossings
        if inside:
            if least < 0:
                start, least = x, crossings + 1
            if count < least:
                least, place = count, (x + following) / 2
        elif least >= 0:
            found.append((x - start, place))
            least = -1
    return [place for width, place in found if width >= narrowest]


def is_tabular(words: Sequence[PlacedWord], table: Table, rows_min: int = 0) -> bool:
    """Whether rows read as a table, not as columns of text or a list.

    rows_min: of rows with several cells; 0: three, and four where there are two columns.
    """
    columns = len(table.rows[0])
    several = sum(1 for row in table.rows if sum(1 for cell in row if cell.lines) > 1)
    least = rows_min or (ROWS_MIN_OF_TWO if columns == 2 else ROWS_MIN)
    if several < least or several < FILLED * len(table.rows):
        return False
    filled = [[row[index] for row in table.rows if row[index].lines] for index in range(columns)]
    if not rows_min and any(len(cells) < 2 for cells in filled):
        return False
    first = [" ".join(words[number].text for line in cell.lines for number in line) for cell in filled[0]]
    if sum(1 for text in first if MARKER.fullmatch(text)) > 0.6 * len(first):
        return columns > 2  # a list
    if not rows_min and (_counts(words, filled[0]) or (columns <= 3 and _counts(words, filled[-1]))):
        return False  # numbered lines, or a list of contents
    leaders = sum(1 for row in table.rows if any(_is_led(words, cell) for cell in row))
    if leaders > LED * len(table.rows):
        return False
    long = 0
    for cells in filled:
        lengths = sorted(len(line) for cell in cells for line in cell.lines)
        long += lengths[len(lengths) // 2] >= WORDS_OF_TEXT
    return long < columns and (columns > 2 or long == 0 or several >= 0.9 * len(table.rows))


def _counts(words: Sequence[PlacedWord], cells: Sequence[Cell]) -> bool:
    """Whether cells, the first included, count upwards as the numbers of lines or pages do."""
    texts = ["".join(words[number].text for line in cell.lines for number in line) for cell in cells]
    numbers = [int(text) for text in texts if PLAIN_NUMBER.fullmatch(text)]
    if len(numbers) < max(3, COUNTED * len(texts)) or not PLAIN_NUMBER.fullmatch(texts[0]):
        return False
    return sum(one > other for one, other in pairwise(numbers)) <= (1 - COUNTED) * len(numbers)


def _is_led(words: Sequence[PlacedWord], cell: Cell) -> bool:
    """Whether dots lead from an entry to its number."""
    texts = [words[number].text for line in cell.lines for number in line]
    return "...." in "".join(texts) and any(set(text) <= {"."} or "...." in text for text in texts)


def make_table(
    words: Sequence[PlacedWord], sections: Sequence[Rows], strips: Sequence[float], *, ruled: bool = False
) -> Table | None:
    """A table of lines with known strips between columns. No row goes beyond a section.

    ruled: drawn lines part the sections; each is a row if its lines read as one. Else lines are joined to rows by their
    distances. None where fewer than two columns or rows hold words.
    """
    parts = [[_split(words, row, strips) for row in section] for section in sections]
    grid: list[list[Cell]] = []
    is_grouped = ruled and len(parts) >= SECTIONS_OF_ROWS and are_rows(words, parts)
    for number, part in enumerate(parts):
        is_head = ruled and number == 0 and len(parts) > 1 and _is_head(words, part, strips)
        for group in [part] if is_grouped or is_head else _group(words, part):
            cells = []
            for column in range(len(strips) + 1):
                found = [line[column] for line in group if line[column]]
                cells.append(Cell(found, _box(words, [word for line in found for word in line])))
            grid.append(cells)
    used = [index for index in range(len(strips) + 1) if any(row[index].lines for row in grid)]
    if len(used) < 2 or len(grid) < 2:
        return None
    grid = [[row[index] for index in used] for row in grid]
    return Table(grid, bounds([segment for section in sections for row in section for segment in row]))


def _box(words: Sequence[PlacedWord], numbers: list[int]) -> Box:
    return bounds([words[number] for number in numbers]) if numbers else Box(0.0, 0.0, 0.0, 0.0)


def _split(words: Sequence[PlacedWord], row: Sequence[Segment], strips: Sequence[float]) -> Line:
    """The words of a line by column. A piece across a strip is divided there if it has a gap, else it stays whole."""
    result: Line = [[] for _ in range(len(strips) + 1)]
    for segment in row:
        column = sum(1 for strip in strips if strip <= segment.x0 + 0.1)
        before: PlacedWord | None = None
        for number in segment.words:
            word = words[number]
            if before is not None and word.gap != "":
                place = sum(1 for strip in strips if strip <= (before.x1 + word.x0) / 2)
                crossed = any(before.x1 - 0.5 <= strip <= word.x0 + 0.5 for strip in strips)
                if crossed and word.x0 - before.x1 >= SPLIT_GAP * (word.y1 - word.y0):
                    column = max(column, sum(1 for strip in strips if strip <= word.x0 + 0.5), place)
            result[column].append(number)
            before = word
    return result


def _group(words: Sequence[PlacedWord], lines: list[Line]) -> list[list[Line]]:
    """Lines that make up a row: by their distances where rows stand apart, else by what they hold."""
    heights = [_height(words, line) for line in lines]
    pitches = [after - before for before, after in pairwise(heights)]
    closest = _leading(lines, heights)
    groups = [[lines[0]]]
    for line, pitch in zip(lines[1:], pitches, strict=True):
        if pitch <= CLOSER * closest:
            groups[-1].append(line)
        else:
            groups.append([line])
    if are_rows(words, groups):
        return groups
    groups = [[lines[0]]]
    for line, pitch, (before, after) in zip(lines[1:], pitches, pairwise(lines), strict=True):
        is_close = pitch <= CLOSER * closest
        if is_close and (_goes_on(words, line) or (len(groups) == 1 and _leads(words, before, after))):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def are_rows(words: Sequence[PlacedWord], groups: Sequence[Sequence[Line]]) -> bool:
    """Whether each group of lines is one row: many of its lines beside a first or full one leave places empty, and no
    two numbers of a column stand in one group."""
    further = sum(len(group) - 1 for group in groups)
    if len(groups) < 2 or not further:
        return len(groups) >= 2
    partial = sum(min(len(group) - 1, sum(1 for line in group if not all(line))) for group in groups)
    if partial < further * (PARTIAL if len(groups) > 2 else PARTIAL_OF_TWO) or max(map(len, groups)) > LINES_OF_ROW:
        return False
    for group in groups:
        for column in range(len(group[0])):
            texts = [" ".join(words[number].text for number in line[column]) for line in group if line[column]]
            if sum(1 for text in texts if NUMBER.fullmatch(text)) > 1:
                return False
    return True


def _is_head(words: Sequence[PlacedWord], lines: list[Line], strips: Sequence[float]) -> bool:
    """Whether lines are headings that break within their columns: few, without numbers, none over several columns."""
    if not 1 < len(lines) <= LINES_OF_HEAD:
        return False
    for cell in (cell for line in lines for cell in line if cell):
        if NUMBER.fullmatch(" ".join(words[number].text for number in cell)):
            return False
        if any(words[cell[0]].x0 < strip < words[cell[-1]].x1 for strip in strips):
            return False
    return True


def _goes_on(words: Sequence[PlacedWord], line: Line) -> bool:
    """Whether a line only continues cells of the row before: nothing in the first column, and no number alone."""
    texts = [" ".join(words[number].text for number in cell) for cell in line if cell]
    return not line[0] and not any(NUMBER.fullmatch(text) for text in texts)


def _leads(words: Sequence[PlacedWord], before: Line, after: Line) -> bool:
    """Whether the first line of a table is the upper half of headings whose lower half is the next line."""
    numbers = [" ".join(words[number].text for number in cell) for line in (before, after) for cell in line if cell]
    if all(before) or any(NUMBER.fullmatch(text) for text in numbers):
        return False
    for index, cell in enumerate(before):
        if not cell:
            continue
        below = after[index]
        if not below or words[cell[-1]].x1 > max(words[number].x1 for number in below) + 20:
            return False
    return True


def _leading(lines: Sequence[Line], heights: Sequence[float]) -> float:
    """The least distance of two lines in one column."""
    least = math.inf
    for column in range(len(lines[0])):
        levels = [height for line, height in zip(lines, heights, strict=True) if line[column]]
        least = min([least, *(after - before for before, after in pairwise(levels))])
    return least


def _height(words: Sequence[PlacedWord], line: Line) -> float:
    """The middle of a line."""
    numbers = [number for cell in line for number in cell]
    return sum(words[number].y0 + words[number].y1 for number in numbers) / (2 * len(numbers))
