"""What all Open XML packages share: relationships between parts, and the core properties.

A chart of Word or PowerPoint as its titles and the table that it draws, from the values kept in the document.

Files inside office documents: attachments, taken out of the containers in which programs embed them.
"""

from __future__ import annotations

import io
import posixpath
import re
import struct
from dataclasses import dataclass, field
from typing import Any, Protocol

import olefile

from ragd.readers import signatures as types
from ragd.readers.assembly import READER_MODULES, Assembly
from ragd.readers.office.formats import EPOCH, EPOCH_1904, show_point
from ragd.readers.sniffing import ARCHIVE_TYPES, sniff
from ragd.readers.text.markup import squeeze, table
from ragd.readers.text.xmldata import Attributes, elements, stream_xml
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
        [header, *([categories.get(at, ""), *(each.values.get(at, "") for each in series)] for at in positions)]
    )


class _Reading:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.series: list[Series] = []
        self._in_series = 0
        self._slot: dict[int, str] | None = None
        self._index = 0
        self._format = ""
        self._epoch = EPOCH
        self._inside = ""

    def start(self, name: str, attributes: Attributes) -> None:
        self._inside = name
        if name == "ser":
            self._in_series += 1
            self.series.append(Series())
        elif self._in_series and name in SLOTS:
            self._slot, self._format = getattr(self.series[-1], SLOTS[name]), ""
        elif name == "date1904":
            self._epoch = EPOCH if attributes.get("val") in ("0", "false") else EPOCH_1904
        elif name == "pt":
            index = attributes.get("idx", "0")
            self._index = int(index) if index.isascii() and index.isdigit() and len(index) < 9 else 0
        elif name == "p" and not self._in_series:
            self.titles.append("")

    def end(self, name: str) -> None:
        self._inside = ""
        if name == "ser":
            self._in_series -= 1
        elif name == "v" and self._slot:
            self._slot[self._index] = self._shown(self._slot.get(self._index, ""))
        elif name in SLOTS:
            self._slot = None

    def _shown(self, value: str) -> str:
        is_number = self._format or self._slot is self.series[-1].values
        return show_point(value, self._format or "General", self._epoch) if is_number else value

    def text(self, piece: str) -> None:
        if self._inside == "v" and self._slot is not None:
            self._slot[self._index] = self._slot.get(self._index, "") + piece
        elif self._inside == "formatCode" and self._slot is not None:
            self._format += piece
        elif self._inside == "t" and not self._in_series and self.titles:
            self.titles[-1] += piece


EMBEDDED = re.compile(r"(?:.*/)?embeddings/[^/]+")
CHART = re.compile(r"(?:.*/)?charts/[^/]+\.xml")
WORKBOOK, SERIES_TEXT = "Workbook", 0x100D
NATIVE, EQUATION = "\x01Ole10Native", "Equation Native"
WHOLE_FILES = ("Package", "CONTENTS", "EmbeddedOdf")
SUFFIXES = {
    types.PDF: ".pdf", types.DOC: ".doc", types.XLS: ".xls", types.PPT: ".ppt", types.DOCX: ".docx",
    types.PPTX: ".pptx", types.XLSX: ".xlsx", types.XLSB: ".xlsb", types.ODT: ".odt", types.ODS: ".ods",
    types.ODP: ".odp", types.RTF: ".rtf", types.MSG: ".msg", types.EML: ".eml", types.HTML: ".html",
    types.TEXT: ".txt",
}  # fmt: skip


def attach_embedded(package: Parts, assembly: Assembly) -> None:
    """Attach the files that an Open XML package embeds, but for the workbooks from which its charts are drawn."""
    drawn = {name for chart in package.names if CHART.fullmatch(chart) for name in related(package, chart, "package")}
    embedded = [name for name in package.names if EMBEDDED.fullmatch(name) and name not in drawn]
    for name in sorted(embedded, key=lambda each: (len(each), each)):
        try:
            attach_object(name.rpartition("/")[2], package.read(name), assembly)
        except ParseError as error:
            if error.kind in ("bomb", "memory"):
                raise
            assembly.leave_out(f"The file {name!r} inside could not be taken out: {error.message}")


def attach_object(name: str, data: bytes, assembly: Assembly) -> None:
    """Attach an embedded object: the file in its container, or itself. Formulas of the old editor are none."""
    unpacked = unpack_object(name, data)
    if unpacked is None:
        return
    name, data = unpacked
    media_type = sniff(data, name) if data else types.EMPTY
    if name.endswith(".bin") and media_type in SUFFIXES:
        name = name.removesuffix(".bin") + SUFFIXES[media_type]
    if media_type not in READER_MODULES and media_type not in ARCHIVE_TYPES:
        assembly.leave_out(f"A file inside was left out: {name!r} is {types.speak(media_type)}, which is not read.")
    assembly.attach(name, data)


def read_beside_cells(data: bytes, assembly: Assembly) -> None:
    """Add the words of an old Excel workbook's charts, and attach the files that it embeds, each in its storage."""
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            if container.exists(WORKBOOK):
                with container.openstream(WORKBOOK) as stream:
                    assembly.add("\n".join(f"Chart: {text}" for text in chart_texts(stream.read())))
            storages = sorted({path[0] for path in container.listdir() if len(path) > 1 and path[0].startswith("MBD")})
            for storage in storages:
                held = _stored(container, f"{storage}/")
                if held is not None:
                    attach_object(held[0] or f"{storage}.bin", held[1], assembly)
                elif not container.exists(f"{storage}/{EQUATION}"):
                    assembly.leave_out(f"An object inside ({storage}) was left out: save it as a file and upload that.")
    except OSError:
        return  # no compound file: Excel before 5


def chart_texts(stream: bytes) -> list[str]:
    """The titles, series and axes that the charts of an Excel 97 workbook name, each once."""
    texts: dict[str, None] = {}
    at = 0
    while at + 4 <= len(stream):
        kind, size = struct.unpack_from("<HH", stream, at)
        record = stream[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == SERIES_TEXT and len(record) > 4:
            is_wide = record[3] & 1
            raw = record[4 : 4 + record[2] * (2 if is_wide else 1)]
            texts[squeeze(raw.decode("utf-16-le" if is_wide else "latin-1", "replace"))] = None
    return [text for text in texts if text]


def unpack_object(name: str, data: bytes) -> tuple[str, bytes] | None:
    """The name and bytes of the file in an OLE object, the object itself where it is none; None for a formula."""
    if not olefile.isOleFile(io.BytesIO(data)):
        return name, data
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            if container.exists(EQUATION):
                return None
            held = _stored(container, "")
    except OSError as error:
        raise ParseError("broken", f"it is damaged ({str(error)[:200]})") from error
    return (held[0] or name, held[1]) if held is not None else (name, data)


def _stored(container: olefile.OleFileIO[Any], folder: str) -> tuple[str, bytes] | None:
    """(name, bytes) of the whole file that a storage holds; the name is "" where it states none."""
    if container.exists(folder + NATIVE):
        with container.openstream(folder + NATIVE) as stream:
            return _native_file(stream.read())
    for stream_name in WHOLE_FILES:
        if container.exists(folder + stream_name):
            with container.openstream(folder + stream_name) as stream:
                content: bytes = stream.read()
            if content:
                return "", content
    return None


def _native_file(stream: bytes) -> tuple[str, bytes] | None:
    """The file of an OLE 1 package: its label, path and temporary path, each ended by NUL, then size and bytes."""
    try:
        (size,) = struct.unpack_from("<I", stream)
        label_end = stream.index(b"\0", 6)
        path_end = stream.index(b"\0", label_end + 1)
        (length,) = struct.unpack_from("<I", stream, path_end + 5)
        start = path_end + 9 + length
        (count,) = struct.unpack_from("<I", stream, start)
    except (ValueError, struct.error):
        return None
    if start + 4 + count > len(stream) or length > len(stream):
        return ("", stream[4 : 4 + size]) if size else None
    return stream[6:label_end].decode("cp1252", "replace"), stream[start + 4 : start + 4 + count]
