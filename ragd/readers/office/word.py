"""DOCX, its flat form and Word 2003 XML: headings, lists, tables, notes, text boxes, comments, headers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ragd.readers import signatures as types
from ragd.readers.archives import Package
from ragd.readers.assembly import Assembly, read_into
from ragd.readers.office import ooxml
from ragd.readers.office.embedded import attach_embedded
from ragd.readers.office.wordbody import Body, Comment
from ragd.readers.office.wordstyles import Numbering, Styles, read_numbering, read_styles
from ragd.readers.text.markup import flatten, join_blocks, squeeze
from ragd.readers.text.xmlstream import Attributes, collect_text, stream_xml
from ragd.readers.types import ParseError, Source

MAIN = "word/document.xml"
DRAWN_TEXT = frozenset({"t"})
DRAWN_LINE = frozenset({"p"})
ALT_CHUNK_DEPTH = 2
PKG = "{http://schemas.microsoft.com/office/2006/xmlPackage}"


def read(source: Source, assembly: Assembly) -> None:
    """Add the document's text; see the module. Raises ParseError."""
    if source.media_type == types.WORDML:
        _read_wordml(source, assembly)
        return
    package: ooxml.Parts = (
        FlatPackage(source.data)
        if source.media_type == types.FLAT_OPC
        else Package(source.data, source.limits, source.media_type)
    )
    part = ooxml.main_part(package, MAIN)
    ooxml.read_core_properties(package, assembly)
    body = _body(package, part)
    stream_xml(package.read(part), body.start, body.end, body.text)
    assembly.add(join_blocks(body.finish()))
    _add_alternative_chunks(package, part, body, source, assembly)
    _add_drawn(package, part, assembly)
    _add_notes(package, part, body, assembly)
    _add_headers(package, part, assembly)
    assembly.entitle(body.first_title)
    if body.hidden_chars:
        assembly.warn(f"The document holds hidden text ({body.hidden_chars:,} characters), which is read.")
    attach_embedded(package, assembly)


class FlatPackage:
    """A package written as one XML file: each part is an element with its name."""

    def __init__(self, data: bytes) -> None:
        stream_xml(data, lambda *_: None)
        self._parts: dict[str, bytes] = {}
        for part in ElementTree.fromstring(data).iter(f"{PKG}part"):  # noqa: S314 - entities were refused above
            name = part.get(f"{PKG}name", "").lstrip("/")
            content = part.find(f"{PKG}xmlData")
            if name and content is not None and len(content):
                self._parts[name] = ElementTree.tostring(content[0])

    @property
    def names(self) -> list[str]:
        return list(self._parts)

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def read(self, name: str) -> bytes:
        return self._parts[name]


def _body(package: ooxml.Parts, part: str) -> Body:
    styles, numbering = Styles(), Numbering()
    for name in ooxml.related(package, part, "styles"):
        styles = read_styles(package.read(name))
    for name in ooxml.related(package, part, "numbering"):
        numbering = read_numbering(package.read(name))
    return Body(styles, numbering)


def _read_wordml(source: Source, assembly: Assembly) -> None:
    styles = read_styles(source.data)
    values = ooxml.leaf_texts(source.data)
    assembly.entitle_by_property(values.get("Title"))
    assembly.describe(author=values.get("Author"), created_at=values.get("Created"))
    body = Body(styles, read_numbering(source.data), root="body")
    stream_xml(source.data, body.start, body.end, body.text)
    assembly.add(join_blocks(body.finish()))
    assembly.entitle(body.first_title)


def _add_alternative_chunks(package: ooxml.Parts, part: str, body: Body, source: Source, assembly: Assembly) -> None:
    """Whole documents of other formats that Word shows in place: HTML, RTF, MHT, DOCX."""
    if source.depth >= ALT_CHUNK_DEPTH:
        return
    relations = ooxml.relationships(package, part)
    for number in body.alternative_chunks:
        relation = relations.get(number)
        if relation is None or relation.external or relation.target not in package:
            continue
        inner = Source(package.read(relation.target), "", "", source.limits, source.depth + 1)
        try:
            read_into(inner, assembly)
        except ParseError as error:
            assembly.leave_out(f"An embedded part ({relation.target}) was left out: {error.message}")


def _add_drawn(package: ooxml.Parts, part: str, assembly: Assembly) -> None:
    """The words of diagrams and charts, which live in parts of their own."""
    for name in ooxml.related(package, part, "diagramData"):
        assembly.add("\n".join(drawn_lines(package.read(name))))
    for name in ooxml.related(package, part, "chart"):
        assembly.add("\n\n".join(ooxml.chart_blocks(package.read(name))))


def drawn_lines(data: bytes) -> list[str]:
    """The paragraphs and the cached categories and values' names of a diagram or chart part, without doubles."""
    lines = collect_text(data, DRAWN_TEXT, DRAWN_LINE)
    labels: list[str] = []
    inside: list[str] = []

    def start(name: str, _: Attributes) -> None:
        inside.append(name)

    def end(_: str) -> None:
        inside.pop()

    def text(piece: str) -> None:
        if inside[-1:] == ["v"] and "strCache" in inside:
            labels.append(squeeze(piece))

    stream_xml(data, start, end, text)
    return list(dict.fromkeys(line for line in [*lines, *labels] if line))


def _add_notes(package: ooxml.Parts, part: str, body: Body, assembly: Assembly) -> None:
    for kind, container in (("footnotes", "footnote"), ("endnotes", "endnote"), ("comments", "comment")):
        for name in ooxml.related(package, part, kind):
            notes = Body(body.styles, body.numbering, collect=container)
            notes.note_numbers = body.note_numbers
            stream_xml(package.read(name), notes.start, notes.end, notes.text)
            lines = [line for note in notes.collected if (line := _note_line(note, container))]
            assembly.add("\n".join(lines))


def _note_line(note: Comment, container: str) -> str:
    text = squeeze(note.text)
    if not text or note.kind in ("separator", "continuationSeparator", "continuationNotice"):
        return ""
    if container == "comment":
        return f"Comment by {note.author}: {text}" if note.author else f"Comment: {text}"
    return f"{note.mark}: {text}"


def _add_headers(package: ooxml.Parts, part: str, assembly: Assembly) -> None:
    """Each different header and footer once, at the end, so that it does not break up the text."""
    texts: set[str] = set()
    for kind, word in (("header", "Header"), ("footer", "Footer")):
        for name in ooxml.related(package, part, kind):
            block = Body(Styles(), Numbering())
            stream_xml(package.read(name), block.start, block.end, block.text)
            text = flatten(join_blocks(block.finish()))
            if text not in texts and re.search(r"\w{2}", text):
                texts.add(text)
                assembly.add(f"{word}: {text}")
