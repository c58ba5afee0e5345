"""DOCX, its flat form and Word 2003 XML: headings, lists, tables, notes, text boxes, comments, headers.

The stream of a Word part turned into Markdown blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree

from ragd.readers import signatures as types
from ragd.readers.archives import Package
from ragd.readers.assembly import Assembly, read_into
from ragd.readers.office import ooxml
from ragd.readers.office.ooxml import attach_embedded
from ragd.readers.office.symbols import read_symbol, read_symbols
from ragd.readers.office.wordstyles import Numbering, Styles, number, read_numbering, read_styles
from ragd.readers.text.formulas import Formula
from ragd.readers.text.markup import (
    LEVEL,
    LOWER,
    RAISE,
    cell,
    flatten,
    heading,
    join_blocks,
    list_item,
    squeeze,
    words,
    write_scripts,
)
from ragd.readers.text.spans import COLUMNS_MAX, SpanningCell, TableRow, read_span, spanned_blocks
from ragd.readers.text.xmldata import Attributes, collect_text, stream_xml
from ragd.readers.types import ParseError, Source

# Property and deleted content, and the second version of a drawing for old readers.
SKIPPED = words(
    "Fallback moveFrom instrText delText delInstrText fldData pPrChange rPrChange sectPr tblPr tcPrChange trPrChange"
    " tblGrid"
    " binData docProps docOleData fonts lists styles shapeDefaults docPr hpr"
)
CHARACTERS = {"noBreakHyphen": "\u2011", "softHyphen": "", "cr": "\n", "ptab": "\t", "separator": ""}
CELL_PROPERTIES = words("gridSpan vMerge vmerge gridBefore tblHeader")
LEVEL_LIMIT = 8
HEADING_CHARS = 500
SCRIPTS = {"superscript": RAISE, "subscript": LOWER}
CHECKED, UNCHECKED = "\u2612", "\u2610"
FORM_FIELD = words("checkBox ddList default checked result listEntry")


@dataclass(slots=True)
class Paragraph:
    pieces: list[str] = field(default_factory=list)
    style: str = ""
    outline: int | None = None
    number_id: str | None = None
    number_level: int | None = None


@dataclass(slots=True)
class Flow:
    """A sequence of blocks: the body, a table cell, a text box. table and row are those being built in it."""

    kind: str
    blocks: list[str] = field(default_factory=list)
    paragraphs: list[Paragraph] = field(default_factory=list)
    tables: list[list[TableRow]] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Comment:
    """A note or comment that was collected."""

    mark: str
    kind: str
    author: str
    text: str


@dataclass(slots=True)
class FormField:
    """A form field of Word before 2007: a check box, or a list with its entries."""

    kind: str = ""
    is_checked: bool = False
    result: int = 0
    entries: list[str] = field(default_factory=list)

    def read(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name in ("checkBox", "ddList"):
            self.kind = name
        elif (name == "default" and self.kind == "checkBox") or name == "checked":
            self.is_checked = value not in ("0", "false", "off")
        elif name in ("default", "result"):
            self.result = number(value)
        elif name == "listEntry":
            self.entries.append(value)

    @property
    def shown(self) -> str:
        """The box, checked or not, or the entry that is selected; "" for a field of text, whose text follows it."""
        if self.kind == "checkBox":
            return CHECKED if self.is_checked else UNCHECKED
        return self.entries[self.result] if self.kind and self.result < len(self.entries) else ""


class Body:
    """Handlers for stream_xml. finish() gives the blocks.

    collect: the name of an element ("footnote", "comment") each of which becomes one Comment in `collected` instead.
    root: read only inside this element (Word 2003 XML keeps its styles in the same file).
    """

    def __init__(self, styles: Styles, numbering: Numbering, *, collect: str = "", root: str = "") -> None:
        self.styles = styles
        self.numbering = numbering
        self.alternative_chunks: list[str] = []
        self.collected: list[Comment] = []
        self.first_title = ""
        self.note_numbers: dict[str, dict[str, int]] = {}
        self._ruby_start = 0
        self._ruby = ""
        self._collect = collect
        self._root = root
        self._in_root = not root
        self._noted: Attributes = {}
        self._flows = [Flow("body")]
        self._skip_depth = 0
        self._text_depth = 0
        self._in_properties = 0
        self._run_depth = 0
        self._formula = Formula()
        self._form = FormField()
        self._fields: list[bool] = []  # those that are open; whether their result has begun
        self._run_is_hidden = False
        self._script = self._font = ""
        self.hidden_chars = 0

    def finish(self) -> list[str]:
        while len(self._flows) > 1:
            self._close_flow()
        flow = self._flows[0]
        return [*flow.blocks, *flow.after]

    def start(self, name: str, attributes: Attributes) -> None:
        if self._skip_depth or name in SKIPPED:
            self._skip_depth += 1
            return
        if not self._in_root:
            self._in_root = name == self._root
            return
        if (self._formula.depth or name == "oMath") and self._flows[-1].paragraphs:
            self._formula.start(name, attributes.get("val", ""), self._flows[-1].paragraphs[-1].pieces)
        if name == "t":
            self._text_depth += 1
        elif name == "r":
            self._run_depth += 1
            self._run_is_hidden, self._script, self._font = False, "", ""
        elif name == "vanish" and self._run_depth:
            self._run_is_hidden = attributes.get("val") not in ("0", "false", "off")
        elif name == "rFonts" and self._run_depth:
            self._font = attributes.get("ascii", "")
        elif name == "vertAlign" and self._run_depth:
            self._script = SCRIPTS.get(attributes.get("val", ""), "")
        elif name == "p":
            self._flows[-1].paragraphs.append(Paragraph())
        elif name == "pPr":
            self._in_properties += 1
        elif self._in_properties:
            self._note_property(name, attributes)
        elif name == "fldChar":
            self._note_field(attributes.get("fldCharType", ""))
        elif name == "ffData":
            self._form = FormField()
        elif name in FORM_FIELD:
            self._form.read(name, attributes)
        elif name in CELL_PROPERTIES:
            self._note_cell(name, attributes.get("val", ""))
        elif name in ("tbl", "tr", "tc", "txbxContent"):
            self._open(name)
        elif name == self._collect:
            self._noted = attributes
            self._flows.append(Flow("note"))
        else:
            self._note_inline(name, attributes)

    def end(self, name: str) -> None:
        if self._skip_depth:
            self._skip_depth -= 1
            return
        if not self._in_root:
            return
        if self._formula.depth and self._flows[-1].paragraphs:
            self._formula.end(name, self._flows[-1].paragraphs[-1].pieces)
        if name == "t":
            self._text_depth -= 1
        elif name == "r":
            self._run_depth -= 1
            self._run_is_hidden = False
        elif name == "ffData":
            self._append(self._form.shown)
        elif name == "pPr":
            self._in_properties -= 1
        elif name == "p":
            self._end_paragraph()
        elif name in ("tc", "txbxContent") or (name == self._collect and self._collect):
            self._close_flow()
        elif name == "tbl":
            self._end_table()
        elif name == "rt" and self._flows[-1].paragraphs:
            pieces = self._flows[-1].paragraphs[-1].pieces
            self._ruby = "".join(pieces[self._ruby_start :])
            del pieces[self._ruby_start :]
        elif name == "ruby" and self._ruby:
            self._append(f"({self._ruby})")
            self._ruby = ""
        elif name == self._root:
            self._in_root = False

    def text(self, piece: str) -> None:
        if self._text_depth and not self._skip_depth and self._in_root and all(self._fields[:-1]):
            self.hidden_chars += len(piece) * self._run_is_hidden
            piece = read_symbols(self._font, piece)
            self._append(f"{self._script}{piece}{LEVEL}" if self._script else piece)

    def _open(self, name: str) -> None:
        flow = self._flows[-1]
        if name == "tbl":
            flow.tables.append([])
        elif name == "tr" and flow.tables:
            flow.tables[-1].append(TableRow())
        elif name in ("tc", "txbxContent"):
            if name == "tc" and flow.tables and flow.tables[-1]:
                flow.tables[-1][-1].cells.append(SpanningCell())
            self._flows.append(Flow(name))

    def _note_cell(self, name: str, value: str) -> None:
        """A property of the open row or cell. A table in a cell has rows of its own."""
        is_cell = self._flows[-1].kind == "tc" and not self._flows[-1].tables
        outer = self._flows[-2] if is_cell else self._flows[-1]
        if not outer.tables or not outer.tables[-1]:
            return
        row = outer.tables[-1][-1]
        if name == "gridBefore":
            row.cells.append(SpanningCell(columns=read_span(value, COLUMNS_MAX)))
        elif name == "tblHeader":
            row.is_header = value not in ("0", "false", "off")
        elif row.cells and name == "gridSpan":
            row.cells[-1].columns = read_span(value, COLUMNS_MAX)
        elif row.cells and name in ("vMerge", "vmerge"):
            row.cells[-1].continues = value != "restart"

    def _note_property(self, name: str, attributes: Attributes) -> None:
        paragraphs = self._flows[-1].paragraphs
        if not paragraphs:
            return
        paragraph, value = paragraphs[-1], attributes.get("val", "")
        if name == "pStyle":
            paragraph.style = value
        elif name == "outlineLvl":
            paragraph.outline = number(value)
        elif name in ("numId", "ilfo"):
            paragraph.number_id = value
        elif name == "ilvl":
            paragraph.number_level = min(LEVEL_LIMIT, number(value))

    def _note_inline(self, name: str, attributes: Attributes) -> None:
        if name in CHARACTERS:
            self._append(CHARACTERS[name])
        elif name == "sym" and self._run_depth:
            self._append(read_symbol(attributes.get("font", ""), attributes.get("char", "")))
        elif name == "tab" and self._run_depth:
            self._append("\t")
        elif name == "br":
            self._append("\n")
        elif name == "rt" and self._flows[-1].paragraphs:
            self._ruby_start = len(self._flows[-1].paragraphs[-1].pieces)
        elif name in ("footnoteReference", "endnoteReference"):
            self._append(self._note_mark(name, attributes.get("id", "")))
        elif name == "altChunk":
            self.alternative_chunks.append(attributes.get("r:id", ""))

    def _note_field(self, kind: str) -> None:
        """Keep track of fields: one inside of the code of another is not shown."""
        if kind == "begin":
            self._fields.append(False)
        elif self._fields and kind == "separate":
            self._fields[-1] = True
        elif self._fields and kind == "end":
            self._fields.pop()

    def _note_mark(self, name: str, identifier: str) -> str:
        """ "[^1]" for a footnote, "[^e1]" for an endnote, counted as they are referred to."""
        numbers = self.note_numbers.setdefault(name, {})
        return f"[^{'e' if name.startswith('endnote') else ''}{numbers.setdefault(identifier, len(numbers) + 1)}]"

    def _append(self, piece: str) -> None:
        paragraphs = self._flows[-1].paragraphs
        if paragraphs:
            paragraphs[-1].pieces.append(piece)

    def _end_paragraph(self) -> None:
        flow = self._flows[-1]
        if not flow.paragraphs:
            return
        paragraph = flow.paragraphs.pop()
        if not all(self._fields):  # of which the code ends with the paragraph at the latest
            self._fields.clear()
        block = self._block(
            paragraph, write_scripts("".join(paragraph.pieces)), plain=any(each.kind == "tc" for each in self._flows)
        )
        if block:
            flow.blocks.append(block)
        if not flow.paragraphs:
            flow.blocks.extend(flow.after)
            flow.after.clear()

    def _block(self, paragraph: Paragraph, text: str, *, plain: bool) -> str:
        text = text.strip("\n").rstrip()
        if not text.strip():
            return ""
        style_number, style_level = self.styles.numbering(paragraph.style)
        number_id = style_number if paragraph.number_id is None else paragraph.number_id
        at = style_level if paragraph.number_level is None else paragraph.number_level
        marker = self.numbering.marker(number_id, at)
        level = self.styles.heading_level(paragraph.style, paragraph.outline)
        if level and not plain and len(text) < HEADING_CHARS:
            if not self.first_title and (level == 1 or self.styles.is_title(paragraph.style)):
                self.first_title = squeeze(text)
            return heading(f"{marker} {text}" if marker not in ("", "-") else text, level)
        return list_item(text, at, marker) if marker else text

    def _close_flow(self) -> None:
        flow = self._flows.pop()
        while flow.paragraphs:
            paragraph = flow.paragraphs.pop()
            flow.blocks.append(write_scripts("".join(paragraph.pieces)))
        outer = self._flows[-1]
        blocks = [*flow.blocks, *flow.after]
        if flow.kind == "tc":
            if outer.tables and outer.tables[-1] and outer.tables[-1][-1].cells:
                outer.tables[-1][-1].cells[-1].text = cell(" ".join(blocks))
        elif flow.kind == "note":
            noted = self._noted
            text = join_blocks(blocks)
            mark = self._note_mark(f"{self._collect}Reference", noted.get("id", ""))
            self.collected.append(Comment(mark, noted.get("type", ""), noted.get("author", ""), text))
        else:
            # A text box is anchored in the middle of a paragraph; its text follows that paragraph.
            outer.after.extend(blocks)

    def _end_table(self) -> None:
        flow = self._flows[-1]
        if flow.tables and any(each.kind == "tc" for each in self._flows):
            flow.blocks.extend(" ".join(cell.text for cell in row.cells) for row in flow.tables.pop())
        elif flow.tables:
            flow.blocks.extend(spanned_blocks(flow.tables.pop()))


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
    for chunk in body.alternative_chunks:
        relation = relations.get(chunk)
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
