"""A chart of Word or PowerPoint as its titles and the table that it draws, from the values kept in the document."""

from __future__ import annotations

from dataclasses import dataclass, field

from collections_app.parsing.text.markup import squeeze, table
from collections_app.parsing.text.xmlstream import Attributes, stream_xml

POINT_LIMIT = 1000
SLOTS = {"tx": "name", "cat": "categories", "xVal": "categories", "val": "values", "yVal": "values"}


@dataclass(slots=True)
class Series:
    """One line, bar or slice set: its name, and categories and values by their place."""

    name: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)


def chart_blocks(data: bytes) -> list[str]:
    """The chart's titles as lines, then its table: a row for each category, a column for each series."""
    reading = _Reading()
    stream_xml(data, reading.start, reading.end, reading.text)
    titles = "\n".join(dict.fromkeys(line for line in map(squeeze, reading.titles) if line))
    return [block for block in (titles, _table(reading.series)) if block]


def _table(series: list[Series]) -> str:
    if not series:
        return ""
    categories: dict[int, str] = {}
    for each in series:
        categories = {**each.categories, **categories}
    positions = sorted({*categories, *(position for each in series for position in each.values)})[:POINT_LIMIT]
    header = ["", *(" ".join(each.name.values()) for each in series)]
    return table(
        [
            header,
            *(
                [categories.get(at, ""), *(format_number(each.values.get(at, "")) for each in series)]
                for at in positions
            ),
        ]
    )


def format_number(value: str) -> str:
    """A number without the tail that binary fractions have."""
    try:
        return f"{float(value):.15g}"
    except ValueError:
        return value


class _Reading:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.series: list[Series] = []
        self._in_series = 0
        self._slot: dict[int, str] | None = None
        self._index = 0
        self._inside = ""

    def start(self, name: str, attributes: Attributes) -> None:
        self._inside = name
        if name == "ser":
            self._in_series += 1
            self.series.append(Series())
        elif self._in_series and name in SLOTS:
            self._slot = getattr(self.series[-1], SLOTS[name])
        elif name == "pt":
            index = attributes.get("idx", "0")
            self._index = int(index) if index.isascii() and index.isdigit() and len(index) < 9 else 0
        elif name == "p" and not self._in_series:
            self.titles.append("")

    def end(self, name: str) -> None:
        self._inside = ""
        if name == "ser":
            self._in_series -= 1
        elif name in SLOTS:
            self._slot = None

    def text(self, piece: str) -> None:
        if self._inside == "v" and self._slot is not None:
            self._slot[self._index] = self._slot.get(self._index, "") + piece
        elif self._inside == "t" and not self._in_series and self.titles:
            self.titles[-1] += piece
