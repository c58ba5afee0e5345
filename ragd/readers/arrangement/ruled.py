"""Tables by the lines drawn around their cells."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ragd.readers.arrangement.aligned import CELL_GAP, FILLED, WORDS_OF_TEXT, find_strips, is_tabular, make_table
from ragd.readers.arrangement.shapes import Box, Cell, PlacedWord, Rule, Segment, Table, join_segments, rows_of

THIN = 3.0  # points: a box as thin is a line
NEAR = 3.0  # points, between lines that meet
SAME = 2.5  # points, between lines that are one
RULES_MAX = 4000
CELL_CHARS = 700  # more of them in a cell, and the grid is no table
GRID_MAX = 20_000  # places of a grid
ROW_REACH = 3.0  # heights of a line, in which the row beside the outermost line stands
TEXT_WORDS = 8  # in a line of running text, at least
OVERHANG = 8.0  # points by which lines without a border stand out


@dataclass(slots=True)
class Line:
    """A drawn line: its place across, and from where to where it runs. group: of lines that meet."""

    at: float
    start: float
    end: float
    group: int = -1


def find_ruled(words: Sequence[PlacedWord], rules: Sequence[Rule], width: float, height: float) -> list[Table]:
    """The tables whose cells are parted by drawn lines, from top to bottom; words that none holds stay outside."""
    if len(rules) > RULES_MAX:
        return []
    level, upright = _lines(rules, width, height)
    result: list[Table] = []
    centers = sorted(((word.y0 + word.y1) / 2, number) for number, word in enumerate(words))
    taken: set[int] = set()
    groups = [
        (band, columns) for rows, columns in _groups(level, upright) for band in _bands(words, centers, rows, columns)
    ]
    for rows, columns in groups:
        inside = _inside(words, centers, rows, columns)
        if inside and not columns:
            inside = _with_next(words, centers, rows, inside)
        if not inside or taken.intersection(inside):
            continue
        table = (
            _grid(words, inside, rows, columns)
            if columns
            else _striped(words, inside, _places([line.at for line in rows]))
        )
        if table is not None:
            result.append(table)
            taken.update(inside)
    return result


def _lines(rules: Sequence[Rule], width: float, height: float) -> tuple[list[Line], list[Line]]:
    """Level and upright lines, those that continue each other joined. A box gives its four sides."""
    level: list[tuple[float, float, float]] = []
    upright: list[tuple[float, float, float]] = []
    for x0, y0, x1, y1 in rules:
        wide, high = x1 - x0, y1 - y0
        if wide > 0.97 * width and high > 0.9 * height:
            continue
        if high <= THIN and wide > THIN:
            level.append(((y0 + y1) / 2, x0, x1))
        elif wide <= THIN and high > THIN:
            upright.append(((x0 + x1) / 2, y0, y1))
        elif high > THIN and wide > THIN:
            level += [(y0, x0, x1), (y1, x0, x1)]
            upright += [(x0, y0, y1), (x1, y0, y1)]
    return _join(level), _join(upright)


def _join(lines: list[tuple[float, float, float]]) -> list[Line]:
    result: list[Line] = []
    lines.sort()
    index = 0
    while index < len(lines):
        end = index
        while end < len(lines) and lines[end][0] - lines[index][0] <= SAME:
            end += 1
        at = sum(line[0] for line in lines[index:end]) / (end - index)
        current: Line | None = None
        for _, start, stop in sorted(lines[index:end], key=lambda line: line[1:]):
            if current is not None and start <= current.end + NEAR:
                current.end = max(current.end, stop)
            else:
                current = Line(at, start, stop)
                result.append(current)
        index = end
    return result


def _groups(level: list[Line], upright: list[Line]) -> Iterable[tuple[list[Line], list[Line]]]:
    """Lines that meet, group by group from the top; then level lines of one width that meet no upright one."""
    parent = list(range(len(level) + len(upright)))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    places = [line.at for line in level]
    for number, line in enumerate(upright, len(level)):
        first = bisect_left(places, line.start - NEAR)
        for index in range(first, len(level)):
            other = level[index]
            if other.at > line.end + NEAR:
                break
            if other.start - NEAR <= line.at <= other.end + NEAR:
                parent[find(index)] = find(number)
    members: dict[int, tuple[list[Line], list[Line]]] = {}
    for index in range(len(parent)):
        rows, columns = members.setdefault(find(index), ([], []))
        if index < len(level):
            rows.append(level[index])
        else:
            columns.append(upright[index - len(level)])
    met = [(rows, columns) for rows, columns in members.values() if len(rows) >= 1 and columns]
    yield from sorted(met, key=lambda pair: min((line.at for line in pair[0]), default=0.0))
    alone = [rows[0] for rows, columns in members.values() if not columns]
    banded: list[list[Line]] = []
    for line in alone:
        for band in banded:
            if abs(band[0].start - line.start) <= NEAR and abs(band[0].end - line.end) <= NEAR:
                band.append(line)
                break
        else:
            banded.append([line])
    yield from ((band, []) for band in banded if len(band) >= 2)


def _bands(
    words: Sequence[PlacedWord], centers: list[tuple[float, int]], rows: list[Line], columns: list[Line]
) -> list[list[Line]]:
    """Level lines that belong together: running text between two of them parts them. Those that meet others stay."""
    if columns:
        return [rows]
    result: list[list[Line]] = []
    for line in sorted(rows, key=lambda each: each.at):
        if result:
            width = line.end - line.start
            between = rows_of(join_segments(words, _inside(words, centers, [result[-1][-1], line], [])))
            if not any(
                len(r) == 1 and len(r[0].words) >= TEXT_WORDS and r[0].x1 - r[0].x0 > 0.6 * width for r in between
            ):
                result[-1].append(line)
                continue
        result.append([line])
    return [band for band in result if len(band) > 1]


def _inside(
    words: Sequence[PlacedWord], centers: list[tuple[float, int]], rows: list[Line], columns: list[Line]
) -> list[int]:
    """The words whose middle lies within the lines, in their order."""
    tops = [line.at for line in rows] + [line.start for line in columns]
    bottoms = [line.at for line in rows] + [line.end for line in columns]
    sides = [line.start for line in rows] + [line.at for line in columns]
    others = [line.end for line in rows] + [line.at for line in columns]
    left, right, top, bottom = min(sides), max(others), min(tops), max(bottoms)
    found = []
    for center, number in centers[bisect_left(centers, (top, -1)) :]:
        if center > bottom:
            break
        word = words[number]
        if left <= (word.x0 + word.x1) / 2 <= right:
            found.append(number)
    return sorted(found)


def _with_next(
    words: Sequence[PlacedWord], centers: list[tuple[float, int]], rows: list[Line], inside: list[int]
) -> list[int]:
    """What level lines enclose, with the row above the first and below the last if those only part rows."""
    ys = sorted(line.at for line in rows)
    heights = sorted(words[number].y1 - words[number].y0 for number in inside)
    reach = min(ys[1] - ys[0], ROW_REACH * heights[len(heights) // 2])
    found = list(inside)
    for top, bottom, last in ((ys[0] - reach, ys[0], -1), (ys[-1], ys[-1] + reach, 0)):
        ends = [Line(at, rows[0].start, rows[0].end) for at in (top, bottom)]
        segments = rows_of(join_segments(words, _inside(words, centers, ends, []), CELL_GAP))
        pieces = segments[last] if segments else []
        if len(pieces) > 1:
            both = rows_of(join_segments(words, found, CELL_GAP))
            if len(find_strips([*both, pieces])) >= max(1, len(find_strips(both))):
                found += [number for piece in pieces for number in piece.words]
    return sorted(found)


def _grid(words: Sequence[PlacedWord], inside: list[int], rows: list[Line], columns: list[Line]) -> Table | None:
    """The table of a grid: places without a line between them are one cell."""
    xs = _places([line.at for line in columns])
    ys = _places([line.at for line in rows])
    _add_open_sides(xs, [(line.start, line.end) for line in rows])
    _add_open_sides(ys, [(line.start, line.end) for line in columns])
    across, down = len(xs) - 1, len(ys) - 1
    if across < 1 or down < 1 or across * down > GRID_MAX:
        return None
    if across == 1:
        return _striped(words, inside, ys) if down > 1 else None
    strips = [strip for left, right in pairwise(xs) for strip in _strips_within(words, inside, left, right)]
    if strips:
        columns = [*columns, *(Line(strip, ys[0], ys[-1]) for strip in strips)]
        xs, across = sorted([*xs, *strips]), across + len(strips)
    owner = _owners(xs, ys, rows, columns)
    held: dict[int, list[int]] = {}
    for number in inside:
        word = words[number]
        column = min(across - 1, max(0, bisect_left(xs, (word.x0 + word.x1) / 2) - 1))
        row = min(down - 1, max(0, bisect_left(ys, (word.y0 + word.y1) / 2) - 1))
        held.setdefault(owner[row * across + column], []).append(number)
    extents: dict[int, Box] = {}
    for place, root in enumerate(owner):
        row, column = divmod(place, across)
        box = Box(xs[column], ys[row], xs[column + 1], ys[row + 1])
        known = extents.get(root, box)
        extents[root] = Box(min(known.x0, box.x0), min(known.y0, box.y0), max(known.x1, box.x1), max(known.y1, box.y1))
    empty = Box(0.0, 0.0, 0.0, 0.0)
    grid: list[list[Cell]] = []
    for row in range(down):
        cells = []
        for column in range(across):
            place = row * across + column
            is_first = owner[place] == place
            lines = [[n for each in line for n in each.words] for line in _lines_of(words, held.get(place, []))]
            cells.append(Cell(lines if is_first else [], extents[place] if is_first else empty))
        grid.append(cells)
    grid = _divide_rows(words, grid, xs)
    grid = [row for row in grid if any(cell.lines for cell in row)]
    title: list[list[int]] = []
    while len(grid) > 2 and (over := _over_all(grid[0], xs)) is not None:
        title += over.lines
        grid = grid[1:]
    used = [index for index in range(across) if any(row[index].lines for row in grid)]
    if len(used) < 2 or len(grid) < 2 or any(_is_text(words, cell) for row in grid for cell in row):
        return None
    return Table([[row[index] for index in used] for row in grid], Box(xs[0], ys[0], xs[-1], ys[-1]), title)


def _over_all(row: Sequence[Cell], xs: Sequence[float]) -> Cell | None:
    """The one cell of a row that spans all columns."""
    filled = [cell for cell in row if cell.lines]
    if len(filled) == 1 and filled[0].box.x1 - filled[0].box.x0 >= 0.98 * (xs[-1] - xs[0]):
        return filled[0]
    return None


def _strips_within(words: Sequence[PlacedWord], inside: list[int], left: float, right: float) -> list[float]:
    """White strips that part a ruled column into several, in most of its lines."""
    numbers = [number for number in inside if left <= (words[number].x0 + words[number].x1) / 2 <= right]
    lines = rows_of(join_segments(words, numbers, CELL_GAP))
    several = sum(1 for line in lines if len(line) > 1)
    if several < max(3, FILLED * len(lines)):
        return []
    return [strip for strip in find_strips(lines) if left + SAME < strip < right - SAME]


def _places(values: list[float]) -> list[float]:
    result: list[float] = []
    for value in sorted(values):
        if not result or value - result[-1] > SAME:
            result.append(value)
    return result


def _add_open_sides(places: list[float], spans: list[tuple[float, float]]) -> None:
    """Lines that stand out beyond the outermost crossing ones close a cell without a border."""
    if not spans:
        return
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    if not places or first < places[0] - OVERHANG:
        places.insert(0, first)
    if last > places[-1] + OVERHANG:
        places.append(last)


def _owners(xs: list[float], ys: list[float], rows: list[Line], columns: list[Line]) -> list[int]:
    """For each place of the grid, row by row, the first place of its cell."""
    across, down = len(xs) - 1, len(ys) - 1
    owner = list(range(across * down))

    def find(place: int) -> int:
        while owner[place] != place:
            place = owner[place]
        return place

    def unite(one: int, other: int) -> None:
        first, second = sorted((find(one), find(other)))
        owner[second] = first

    uprights = [[line for line in columns if abs(line.at - x) <= NEAR] for x in xs]
    levels = [[line for line in rows if abs(line.at - y) <= NEAR] for y in ys]
    for row in range(down):
        middle = (ys[row] + ys[row + 1]) / 2
        for column in range(across):
            place = row * across + column
            center = (xs[column] + xs[column + 1]) / 2
            if column + 1 < across and not _covered(uprights[column + 1], middle):
                unite(place, place + 1)
            if row + 1 < down and not _covered(levels[row + 1], center):
                unite(place, place + across)
    return [find(place) for place in range(across * down)]


def _covered(lines: list[Line], place: float) -> bool:
    return any(line.start <= place <= line.end for line in lines)


def _lines_of(words: Sequence[PlacedWord], numbers: list[int]) -> list[list[Segment]]:
    return rows_of(join_segments(words, numbers)) if numbers else []


def _is_text(words: Sequence[PlacedWord], cell: Cell) -> bool:
    """Whether a cell holds so much that the lines only place text on the page."""
    return sum(len(words[number].text) + 1 for line in cell.lines for number in line) > CELL_CHARS


def _divide_rows(words: Sequence[PlacedWord], grid: list[list[Cell]], xs: list[float]) -> list[list[Cell]]:
    """A tall row that holds many lines level with each other is divided into them: only its columns were ruled."""
    if any(_is_text(words, cell) for cells in grid for cell in cells):
        lengths = sorted(len(line) for cells in grid for cell in cells for line in cell.lines)
        if lengths[len(lengths) // 2] >= WORDS_OF_TEXT:
            return grid
    result: list[list[Cell]] = []
    for cells in grid:
        numbers = sorted(number for cell in cells for line in cell.lines for number in line)
        filled = [len(cell.lines) for cell in cells if cell.lines]
        many = len(filled) >= 2 and min(filled) >= (3 if len(filled) == 2 else 2)
        if many and len(grid) <= 3 and max(filled) <= 1.5 * min(filled):
            table = make_table(words, [rows_of(join_segments(words, numbers))], xs[1:-1])
            if table is not None and len(table.rows[0]) == len(cells):
                result.extend(table.rows)
                continue
        result.append(cells)
    return result


def _striped(words: Sequence[PlacedWord], inside: list[int], ys: list[float]) -> Table | None:
    """Level lines alone part the rows, or only the headings from them; white strips part the columns."""
    rows = rows_of(join_segments(words, inside, CELL_GAP))
    strips = find_strips(rows)
    if not strips:
        return None
    sections: dict[int, list[list[Segment]]] = {}
    for row in rows:
        sections.setdefault(bisect_left(ys, row[0].middle), []).append(row)
    parts = [sections[place] for place in sorted(sections)]
    title: list[list[int]] = []
    if len(parts) > 2 and len(parts[0]) == 1 and len(parts[0][0]) == 1:
        title, parts = [parts[0][0][0].words], parts[1:]
    table = make_table(words, parts, strips, ruled=True)
    if table is None or not is_tabular(words, table, rows_min=2):
        return None
    table.title = title
    return table
