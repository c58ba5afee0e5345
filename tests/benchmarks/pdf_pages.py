"""Pages with known tables and a known reading order, drawn with reportlab: `python -m pip install reportlab==5.1.0`.

Every draw comes from the seed, so a seed names the same pages for ever.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.utils import simpleSplit
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, Table

WORDS = [
    "river",
    "harbour",
    "signal",
    "copper",
    "quarter",
    "ledger",
    "window",
    "carbon",
    "margin",
    "reactor",
    "meadow",
    "bridge",
    "voltage",
    "sample",
    "archive",
    "northern",
    "annual",
    "average",
    "revised",
    "public",
    "capital",
    "storage",
    "coastal",
    "primary",
    "urban",
    "central",
    "export",
    "mineral",
    "kinetic",
    "budget",
    "fiscal",
    "notice",
    "turbine",
    "sediment",
    "parcel",
    "orchard",
    "fabric",
    "cellar",
    "timber",
    "glacier",
    "census",
    "tariff",
    "module",
    "vessel",
]
HEADS = [
    "Region",
    "Item",
    "Code",
    "Name",
    "Total",
    "Share",
    "Price",
    "Units",
    "Year",
    "Class",
    "Area",
    "Rate",
    "Status",
    "Owner",
    "Stock",
    "Weight",
    "Length",
]
FONTS = ("Helvetica", "Times-Roman", "Courier")


@dataclass(frozen=True, slots=True)
class Page:
    """kind: of its table or columns. tables: rows of cells, the text of a cell over several places in the first.

    order: the words of running text in the order in which they are read; [] where only the table counts.
    """

    kind: str
    data: bytes
    tables: list[list[list[str]]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)


class Draw:
    """One page being drawn, with its own random numbers."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.random = random.Random(f"{kind} {seed}")
        self.size = self.random.choice((A4, LETTER))
        self.out = io.BytesIO()
        self.canvas = Canvas(self.out, pagesize=self.size, invariant=1)
        self.font = self.random.choice(FONTS[:2])
        self.points = self.random.choice((8, 9, 10, 11))
        self.words = [f"{word}{number}" for number in range(40) for word in WORDS]
        self.random.shuffle(self.words)

    def phrase(self, low: int, high: int) -> str:
        return " ".join(self.words.pop() for _ in range(self.random.randint(low, high)))

    def number(self) -> str:
        value = self.random.choice((1, 10, 1000, 100000)) * self.random.random()
        return self.random.choice((f"{value:,.2f}", f"{value:,.0f}", f"{value:.1f} %", f"({value:,.1f})"))

    def rows(self, rows: int, columns: int, *, words: tuple[int, int] = (0, 0)) -> list[list[str]]:
        words = words if words[1] else (1, 2 if columns < 5 else 1)
        heads = self.random.sample(HEADS, columns)
        numeric = [column > 0 and self.random.random() < 0.6 for column in range(columns)]
        body = [[self.number() if each else self.phrase(*words) for each in numeric] for _ in range(rows)]
        return [heads, *body]

    def text(self, x: float, y: float, width: float, lines: int, words: int = 60) -> list[tuple[float, float, str]]:
        """Lines of running text from y downwards: each with its place."""
        pieces = simpleSplit(self.phrase(words, words), self.font, self.points, width)[:lines]
        return [(x, y - index * self.points * 1.25, piece) for index, piece in enumerate(pieces)]

    def put(self, lines: Sequence[tuple[float, float, str]]) -> None:
        self.canvas.setFont(self.font, self.points)
        for x, y, piece in lines:
            self.canvas.drawString(x, y, piece)

    def table(
        self,
        rows: Sequence[Sequence[str]],
        x: float,
        y: float,
        *,
        width: float | None = None,
        style: Sequence[tuple[object, ...]] = (),
        wrap: float | None = None,
        padding: float = 4,
    ) -> float:
        """Draw a table with its upper left corner at x, y; its lower edge. wrap: the width at which cells break."""
        look = ParagraphStyle("cell", fontName=self.font, fontSize=self.points, leading=self.points * 1.2)
        cells = [[Paragraph(value, look) if wrap and value else value for value in row] for row in rows]
        columns = len(rows[0])
        widths = [wrap] * columns if wrap else [width / columns] * columns if width else None
        base: list[tuple[object, ...]] = [
            ("FONT", (0, 0), (-1, -1), self.font, self.points),
            ("LEADING", (0, 0), (-1, -1), self.points * 1.2),
            ("TOPPADDING", (0, 0), (-1, -1), padding),
            ("BOTTOMPADDING", (0, 0), (-1, -1), padding),
            ("VALIGN", (0, 0), (-1, -1), self.random.choice(("TOP", "MIDDLE"))),
        ]
        base += [
            ("ALIGN", (column, 0), (column, -1), "RIGHT")
            for column in range(1, columns)
            if all(row[column][:1] in "(0123456789" for row in rows[1:] if row[column])
        ]
        drawn = Table(cells, colWidths=widths, style=[*base, *style])
        _, height = drawn.wrap(self.size[0], self.size[1])
        drawn.drawOn(self.canvas, x, y - height)
        return float(y - height)

    def finish(self, tables: Sequence[list[list[str]]] = (), order: Sequence[str] = ()) -> Page:
        self.canvas.showPage()
        self.canvas.save()
        return Page(self.kind, self.out.getvalue(), [list(table) for table in tables], list(order))


GRID = ("GRID", (0, 0), (-1, -1), 0.5, colors.black)
TOP, UNDER_HEAD = ("LINEABOVE", (0, 0), (-1, 0), 1, colors.black), ("LINEBELOW", (0, 0), (-1, 0), 0.5, colors.black)
BOTTOM = ("LINEBELOW", (0, -1), (-1, -1), 1, colors.black)


def _framed(draw: Draw, rows: list[list[str]], **how: object) -> Page:
    """A table between two paragraphs over the whole width."""
    width, height = draw.size
    draw.put(draw.text(60, height - 70, width - 120, 4))
    end = draw.table(rows, 60, height - 70 - 6 * draw.points * 1.25, **how)  # type: ignore[arg-type]
    draw.put(draw.text(60, end - 3 * draw.points, width - 120, 5))
    return draw.finish([rows])


def _ruled(draw: Draw) -> Page:
    return _framed(draw, draw.rows(draw.random.randint(3, 12), draw.random.randint(3, 6)), style=[GRID])


def _ruled_wrapped(draw: Draw) -> Page:
    rows = draw.rows(draw.random.randint(3, 6), 4, words=(3, 9))
    return _framed(draw, rows, style=[GRID], wrap=110)


def _ruled_spanning_head(draw: Draw) -> Page:
    rows = draw.rows(draw.random.randint(3, 8), 5)
    top = ["", draw.phrase(1, 1), "", draw.phrase(1, 1), ""]
    spans = [("SPAN", (1, 0), (2, 0)), ("SPAN", (3, 0), (4, 0)), ("ALIGN", (0, 0), (-1, 0), "CENTER")]
    return _framed(draw, [top, *rows], style=[GRID, *spans])


def _ruled_spanning_rows(draw: Draw) -> Page:
    rows = draw.rows(6, 4)
    for index in (2, 4, 6):
        rows[index][0] = ""
    spans = [("SPAN", (0, index), (0, index + 1)) for index in (1, 3, 5)]
    return _framed(draw, rows, style=[GRID, *spans])


def _ruled_with_empty_cells(draw: Draw) -> Page:
    rows = draw.rows(8, 5)
    for _ in range(9):
        rows[draw.random.randint(1, 8)][draw.random.randint(1, 4)] = ""
    return _framed(draw, rows, style=[GRID])


def _columns_ruled(draw: Draw) -> Page:
    inner = ("INNERGRID", (0, 0), (-1, 0), 0.5, colors.black)
    lines = [("LINEBEFORE", (column, 0), (column, -1), 0.5, colors.black) for column in range(1, 4)]
    return _framed(
        draw, draw.rows(7, 4), style=[inner, *lines, ("BOX", (0, 0), (-1, -1), 0.5, colors.black), UNDER_HEAD]
    )


def _rows_ruled(draw: Draw) -> Page:
    lines = ("LINEBELOW", (0, 0), (-1, -1), 0.4, colors.grey)
    return _framed(draw, draw.rows(8, draw.random.randint(3, 5)), style=[lines], width=draw.size[0] - 120)


def _rows_ruled_wrapped(draw: Draw) -> Page:
    lines = ("LINEBELOW", (0, 0), (-1, -1), 0.4, colors.grey)
    return _framed(draw, draw.rows(5, 4, words=(3, 8)), style=[lines], wrap=110)


def _shaded(draw: Draw) -> Page:
    bands = ("ROWBACKGROUNDS", (0, 0), (-1, -1), [colors.lightgrey, colors.white])
    return _framed(draw, draw.rows(9, draw.random.randint(3, 5)), style=[bands], width=draw.size[0] - 140)


def _shaded_head(draw: Draw) -> Page:
    band = ("BACKGROUND", (0, 0), (-1, 0), colors.lightblue)
    return _framed(draw, draw.rows(7, draw.random.randint(3, 5)), style=[band], width=draw.size[0] - 140)


def _head_ruled(draw: Draw) -> Page:
    return _framed(draw, draw.rows(8, draw.random.randint(3, 6)), style=[TOP, UNDER_HEAD, BOTTOM], padding=2)


def _head_ruled_wrapped(draw: Draw) -> Page:
    return _framed(draw, draw.rows(5, 4, words=(3, 7)), style=[TOP, UNDER_HEAD, BOTTOM], wrap=115, padding=6)


def _unruled(draw: Draw) -> Page:
    return _framed(draw, draw.rows(draw.random.randint(4, 10), draw.random.randint(3, 5)), width=draw.size[0] - 140)


def _unruled_close(draw: Draw) -> Page:
    return _framed(draw, draw.rows(draw.random.randint(5, 10), 4), padding=1)


def _unruled_two(draw: Draw) -> Page:
    return _framed(draw, draw.rows(7, 2), width=260, padding=3)


def _unruled_wrapped(draw: Draw) -> Page:
    return _framed(draw, draw.rows(5, 4, words=(3, 8)), wrap=115, padding=8)


def _unruled_with_empty_cells(draw: Draw) -> Page:
    rows = draw.rows(9, 5)
    for _ in range(9):
        rows[draw.random.randint(1, 9)][draw.random.randint(1, 4)] = ""
    return _framed(draw, rows, width=draw.size[0] - 140)


def _in_a_column(draw: Draw) -> Page:
    """Two columns of text; a table with a line under its headings stands in the left one."""
    width, height = draw.size
    column = (width - 150) / 2
    draw.points = 9
    rows = draw.rows(6, 3, words=(1, 1))
    left = draw.text(60, height - 80, column, 12, 90)
    end_of_text = left[-1][1] - 20
    end = draw.table(rows, 60, end_of_text, width=column, style=[TOP, UNDER_HEAD, BOTTOM], padding=2)
    below = draw.text(60, end - 25, column, 14, 100)
    right = draw.text(90 + column, height - 80, column, 40, 260)
    draw.put([*left, *below, *right])
    return draw.finish([rows])


def _over_columns(draw: Draw) -> Page:
    """A ruled table over the whole width, above two columns of text."""
    width, height = draw.size
    column = (width - 150) / 2
    rows = draw.rows(5, 4)
    end = draw.table(rows, 60, height - 80, width=width - 120, style=[GRID])
    left = draw.text(60, end - 30, column, 25, 160)
    right = draw.text(90 + column, end - 30, column, 25, 160)
    draw.put([*left, *right])
    return draw.finish([rows], [word for _, _, piece in [*left, *right] for word in piece.split()])


def _turned_page(draw: Draw) -> Page:
    """The page says that it is shown turned by a quarter."""
    width, height = draw.size
    draw.canvas.setPageRotation(90)
    draw.canvas.saveState()
    draw.canvas.translate(width, 0)
    draw.canvas.rotate(90)
    rows = draw.rows(6, 5)
    draw.size = (height, width)
    draw.table(rows, 60, width - 90, style=[GRID] if draw.random.random() < 0.5 else [TOP, UNDER_HEAD, BOTTOM])
    draw.canvas.restoreState()
    return draw.finish([rows])


def _turned_text(draw: Draw) -> Page:
    """An upright page with all its text drawn sideways."""
    width, height = draw.size
    draw.canvas.saveState()
    draw.canvas.translate(width, 0)
    draw.canvas.rotate(90)
    rows = draw.rows(6, 5)
    draw.size = (height, width)
    draw.table(rows, 60, width - 90, style=[GRID] if draw.random.random() < 0.5 else [TOP, UNDER_HEAD, BOTTOM])
    draw.canvas.restoreState()
    return draw.finish([rows])


TABLES: tuple[Callable[[Draw], Page], ...] = (
    _ruled, _ruled_wrapped, _ruled_spanning_head, _ruled_spanning_rows, _ruled_with_empty_cells, _columns_ruled,
    _rows_ruled, _rows_ruled_wrapped, _shaded, _shaded_head, _head_ruled, _head_ruled_wrapped, _unruled,
    _unruled_close, _unruled_two, _unruled_wrapped, _unruled_with_empty_cells, _in_a_column, _over_columns,
    _turned_page, _turned_text,
)  # fmt: skip


def _column_page(draw: Draw, count: int, how: str) -> Page:
    """Columns of text under a title, drawn column by column, line by line across, or in any order."""
    width, height = draw.size
    gutter = draw.random.choice((14, 18, 24, 36))
    column = (width - 100 - gutter * (count - 1)) / count
    title = [(50.0, height - 60, draw.phrase(4, 6))]
    lengths = [draw.random.randint(18, 40) for _ in range(count)]
    columns = [
        draw.text(50 + index * (column + gutter), height - 100, column, lines, 9 * lines)
        for index, lines in enumerate(lengths)
    ]
    foot = [(50.0, 40.0, draw.phrase(2, 3))]
    order = [line for part in (title, *columns, foot) for line in part]
    drawn = list(order)
    if how == "across":
        drawn.sort(key=lambda line: (-line[1], line[0]))
    elif how == "shuffled":
        draw.random.shuffle(drawn)
    draw.put(drawn)
    return draw.finish(order=[word for _, _, piece in order for word in piece.split()])


def _one_column(draw: Draw) -> Page:
    width, height = draw.size
    lines = draw.text(60, height - 70, width - 120, 45, 450)
    draw.put(lines)
    return draw.finish(order=[word for _, _, piece in lines for word in piece.split()])


def table_pages(seed: int, each: int = 2) -> list[Page]:
    """Each kind of table so many times."""
    return [make(Draw(make.__name__.strip("_"), seed * 100 + number)) for make in TABLES for number in range(each)]


def column_pages(seed: int, each: int = 2) -> list[Page]:
    """Pages of two and three columns, drawn in three orders, and of one."""
    ways = [(count, how) for count in (2, 3) for how in ("down", "across", "shuffled")]
    return [
        page
        for number in range(seed * 100, seed * 100 + each)
        for page in (
            *(_column_page(Draw(f"{count} columns {how}", number), count, how) for count, how in ways),
            _one_column(Draw("one column", number)),
        )
    ]
