"""XML of any vocabulary: data as "name: value" lines, running text as paragraphs.

XML as events from expat. Entities are refused before they can expand or reach for another file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from xml.parsers import expat

from ragd.readers.assembly import Assembly
from ragd.readers.text.markup import LEVEL, LOWER, RAISE, squeeze, write_scripts
from ragd.readers.text.plain import decode_into
from ragd.readers.types import ParseError, Source

PIECE_BYTES = 256 * 1024
SEPARATOR = " "
RELATIONSHIPS = "/relationships"

Attributes = dict[str, str]


class EntitiesError(ParseError):
    """The document declares entities."""

    def __init__(self) -> None:
        super().__init__(
            "bomb",
            "The XML declares entities in a DTD, which could expand without limit or read other files, so it is"
            " refused. Remove the DTD and upload it again.",
        )


def _ignore(_: str) -> None:
    return


def stream_xml(
    data: bytes,
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] = _ignore,
    text: Callable[[str], None] = _ignore,
    *,
    encoding: str | None = None,
    doctype_allowed: bool = False,
) -> None:
    """Call start(name, attributes), end(name) and text(piece) through a document.

    Names are local names. Attributes too, but those of the relationships namespace keep the prefix "r:" so that r:id
    and id stay apart. Raises ParseError "bomb" for entity declarations (any DTD unless doctype_allowed), "broken" when
    the XML is not well formed.
    """
    parser = expat.ParserCreate(encoding, SEPARATOR)
    parser.buffer_text = True

    @cache
    def local(name: str) -> str:
        return name.rpartition(SEPARATOR)[2]

    @cache
    def key(name: str) -> str:
        uri, _, last = name.rpartition(SEPARATOR)
        return f"r:{last}" if uri.endswith(RELATIONSHIPS) else last

    def on_start(name: str, attributes: Attributes) -> None:
        start(local(name), {key(each): value for each, value in attributes.items()})

    def on_end(name: str) -> None:
        end(local(name))

    def refuse(*_: Any) -> None:
        raise EntitiesError

    parser.StartElementHandler = on_start
    parser.EndElementHandler = on_end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = refuse
    if not doctype_allowed:
        parser.StartDoctypeDeclHandler = refuse
    try:
        for index in range(0, len(data), PIECE_BYTES):
            parser.Parse(data[index : index + PIECE_BYTES], False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise ParseError("broken", f"The XML inside is not well formed ({error}). Save the document again.") from error
    except (LookupError, ValueError) as error:
        raise ParseError("broken", f"The XML inside names an unknown encoding ({error}).") from error


def elements(data: bytes, *names: str, doctype_allowed: bool = False) -> list[tuple[str, Attributes]]:
    """(name, attributes) of the elements of these names, in the order in which they open. Raises as `stream_xml`."""
    result: list[tuple[str, Attributes]] = []

    def start(name: str, attributes: Attributes) -> None:
        if name in names:
            result.append((name, attributes))

    stream_xml(data, start, doctype_allowed=doctype_allowed)
    return result


def collect_text(data: bytes, requested: frozenset[str], breaks: frozenset[str] = frozenset()) -> list[str]:
    """The text of the elements called `requested`, joined within each element of `breaks` (or each by itself)."""
    lines: list[str] = []
    pieces: list[str] = []
    inside = 0

    def flush() -> None:
        line = "".join(pieces).strip()
        pieces.clear()
        if line:
            lines.append(line)

    def start(name: str, _: Attributes) -> None:
        nonlocal inside
        inside += name in requested

    def end(name: str) -> None:
        nonlocal inside
        inside -= name in requested
        if name in breaks or (not breaks and name in requested):
            flush()

    def text(piece: str) -> None:
        if inside:
            pieces.append(piece)

    stream_xml(data, start, end, text)
    flush()
    return lines


UNPRINTABLE = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # which XML does not allow
DEPTH_LIMIT = 500
TITLE_DEPTH = 3
DATA_VALUE_CHARS = 200
SILENT_ATTRIBUTES = frozenset({"schemaLocation", "noNamespaceSchemaLocation", "space", "style", "class"})
LINES_PER_PIECE = 5000
SCRIPTS = {"sup": RAISE, "superscript": RAISE, "sub": LOWER, "subscript": LOWER}
# FictionBook: what stands in the file beside the words.
BOOK, BOOK_SKIPPED = "FictionBook", frozenset({"stylesheet", "binary"})


def read(source: Source, assembly: Assembly) -> None:
    """Add the text of all elements. Raises ParseError "bomb" for entities; text that is not XML stays as is."""
    text = UNPRINTABLE.sub("", decode_into(source.data, assembly))
    reading = _Reading(assembly)
    try:
        stream_xml(
            text.encode("utf-8", "replace"),
            reading.start,
            reading.end,
            reading.text,
            encoding="utf-8",
            doctype_allowed=True,
        )
    except ParseError as error:
        if error.kind != "broken":
            raise
        assembly.leave_out(f"{error.message} What was read up to there was kept.")
        reading.flush()
        if not assembly.length:
            assembly.add(text)
        return
    reading.flush()


@dataclass(slots=True)
class Element:
    """An element that is open. parts holds its own text and that of the inline elements in it."""

    name: str
    parts: list[str] = field(default_factory=list)
    has_children: bool = False
    has_text: bool = False


class _Reading:
    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._open: list[Element] = []
        self._lines: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if len(self._open) >= DEPTH_LIMIT:
            raise ParseError("bomb", f"The XML is nested deeper than {DEPTH_LIMIT} levels. Flatten it.")
        if self._open:
            outer = self._open[-1]
            outer.has_children = True
            outer.has_text = outer.has_text or bool("".join(outer.parts).strip())
            if not outer.has_text:
                outer.parts.clear()
        inline = any(element.has_text for element in self._open)
        values = [
            f"{key}: {squeeze(value)}"
            for key, value in attributes.items()
            if key not in SILENT_ATTRIBUTES and not key.startswith("r:") and value.strip()
        ]
        if values and not inline:
            self._line(f"{name} ({', '.join(values)})")
        self._open.append(Element(name))

    def end(self, _: str) -> None:
        element = self._open.pop()
        text = "".join(element.parts)
        if self._open and self._open[-1].has_text:
            # An inline element of running text: its words belong to the sentence around it.
            sign = SCRIPTS.get(element.name.lower())
            self._open[-1].parts.append(f"{sign}{text}{LEVEL}" if sign else text)
            return
        text = write_scripts(text).strip()
        if not text:
            return
        is_data = not element.has_children and len(text) <= DATA_VALUE_CHARS and "\n" not in text
        if element.name.lower() == "title" and len(self._open) <= TITLE_DEPTH:
            self._assembly.entitle(text)
        self._line(f"{element.name}: {squeeze(text)}" if is_data else text)

    def text(self, piece: str) -> None:
        if self._open and not (self._open[-1].name in BOOK_SKIPPED and self._open[0].name == BOOK):
            self._open[-1].parts.append(piece)

    def flush(self) -> None:
        self._assembly.add("\n".join(self._lines), joint="\n")
        self._lines.clear()

    def _line(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= LINES_PER_PIECE:
            self.flush()
