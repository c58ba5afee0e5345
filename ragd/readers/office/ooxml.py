"""What all Open XML packages share: relationships between parts, and the core properties.

A chart of Word or PowerPoint as its titles and the table that it draws, from the values kept in the document.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Protocol

from ragd.readers.assembly import Assembly
from ragd.readers.text.markup import squeeze, table
from ragd.readers.text.xmlstream import Attributes, elements, stream_xml
from ragd.readers.types import ParseError

CORE_PROPERTIES = {
    "title": "title", "creator": "author", "subject": "subject", "keywords": "keywords", "description": "description",
    "created": "created_at", "modified": "modified_at", "language": "language",
}  # fmt: skip


class Parts(Protocol):
    """A package, zipped or flat."""

    @property
    def names(self) -> list[str]: ...

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Relationship:
    """kind is the last part of the type URI, such as "slide"; target is a part's name, or a URL when external."""

    kind: str
    target: str
    external: bool


def relationships(package: Parts, part: str) -> dict[str, Relationship]:
    """The relationships of a part by id, in file order; of the package itself for "". Empty when there are none."""
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in package:
        return {}
    result: dict[str, Relationship] = {}
    for _, attributes in elements(package.read(path), "Relationship"):
        if "Id" not in attributes:
            continue
        external = attributes.get("TargetMode") == "External"
        target = attributes.get("Target", "")
        if not external:
            target = posixpath.normpath(posixpath.join("/" + folder, target.replace("\\", "/"))).lstrip("/")
        kind = attributes.get("Type", "").rpartition("/")[2]
        result[attributes["Id"]] = Relationship(kind, target, external)
    return result


def related(package: Parts, part: str, kind: str) -> list[str]:
    """The names of the parts that `part` points to with relationships of a kind, in file order, without doubles."""
    targets = [
        relation.target
        for relation in relationships(package, part).values()
        if relation.kind == kind and not relation.external and relation.target in package
    ]
    return list(dict.fromkeys(targets))


def main_part(package: Parts, usual: str) -> str:
    """The name of the main part. ParseError "broken" when the package has none."""
    result = related(package, "", "officeDocument")
    if result:
        return result[0]
    if usual in package:
        return usual
    raise ParseError(
        "broken", f"The package has no main part ({usual} was expected). Open it in its own program and save it again."
    )


def read_core_properties(package: Parts, assembly: Assembly) -> None:
    """Title, author and dates into the assembly. Damaged properties never spoil a document."""
    for part in [*related(package, "", "core-properties"), "docProps/core.xml"]:
        if part not in package:
            continue
        try:
            values = leaf_texts(package.read(part))
        except ParseError as error:
            assembly.warn(f"The document's properties could not be read: {error.message}")
            return
        assembly.entitle_by_property(values.get("title"))
        assembly.describe(**{key: values.get(name) for name, key in CORE_PROPERTIES.items() if key != "title"})
        return


def leaf_texts(data: bytes) -> dict[str, str]:
    """The text of every element by its local name; of several with one name, the first that is not empty."""
    values: dict[str, str] = {}
    pieces: list[str] = []

    def start(_: str, __: Attributes) -> None:
        pieces.clear()

    def end(name: str) -> None:
        text = "".join(pieces).strip()
        pieces.clear()
        if text:
            values.setdefault(name, text)

    stream_xml(data, start, end, pieces.append)
    return values


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
