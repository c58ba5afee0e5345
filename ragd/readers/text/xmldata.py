"""XML of any vocabulary: data as "name: value" lines, running text as paragraphs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ragd.readers.assembly import Assembly
from ragd.readers.text.markup import LEVEL, LOWER, RAISE, squeeze, write_scripts
from ragd.readers.text.plain import decode_into
from ragd.readers.text.xmlstream import Attributes, stream_xml
from ragd.readers.types import ParseError, Source

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
