"""ODT and ODP (zipped or flat XML): headings, lists, tables, notes, slides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ragd.readers import signatures as types
from ragd.readers.archives import Package
from ragd.readers.assembly import Assembly
from ragd.readers.office.ooxml import attach_object, leaf_texts
from ragd.readers.office.wordstyles import number
from ragd.readers.text import markup
from ragd.readers.text.formulas import MathML, read_mathml
from ragd.readers.text.spans import COLUMNS_MAX, ROWS_MAX, SpanningCell, TableRow, read_span, spanned_blocks
from ragd.readers.text.xmldata import Attributes, elements, stream_xml
from ragd.readers.types import ParseError, Source

SKIPPED = markup.words(
    "tracked-changes forms automatic-styles font-face-decls scripts settings meta binary-data styles"
    " event-listeners ruby-text"
)
MASTER_PARTS = frozenset({"header", "footer", "header-left", "footer-left", "master-page"})
MASTER_SKIPPED = (SKIPPED - {"styles"}) | {"notes", "page-number", "page-count", "date-time", "date", "time"}
REPEAT_LIMIT = 64
FORMULA = re.compile(rb"<(?:\w+:)?math[\s>]")
OBJECT = re.compile(r"Object \d+")
LEVEL_LIMIT = 8


def read(source: Source, assembly: Assembly) -> None:
    """Add the document; slides carry the label "slide N". Raises ParseError."""
    if source.media_type == types.FLAT_ODF:
        _note_properties(source.data, assembly)
        _add_content(source.data, assembly)
        return
    package = Package(source.data, source.limits, source.media_type)
    check_not_encrypted(package)
    read_properties(package, assembly)
    if "content.xml" not in package:
        raise ParseError("broken", "The package holds no content.xml. Open it in its own program and save it again.")
    parts = [name for name in package.names if name.startswith("Object ") and name.endswith("/content.xml")]
    formulas = {
        name.partition("/")[0]: read_mathml(data) for name in parts if FORMULA.search(data := package.read(name))
    }
    _add_content(package.read("content.xml"), assembly, formulas=formulas)
    _add_headers(package, assembly)
    for name in package.names:
        if name in parts:
            _add_content(package.read(name), assembly, labelled=False)
        elif OBJECT.fullmatch(name):
            attach_object(f"{name}.bin", package.read(name), assembly)


def check_not_encrypted(package: Package) -> None:
    if "META-INF/manifest.xml" in package and b":encryption-data" in package.read("META-INF/manifest.xml"):
        raise ParseError(
            "encrypted", "The OpenDocument file is locked by a password. Save a copy without it and upload that."
        )


def read_properties(package: Package, assembly: Assembly) -> None:
    if "meta.xml" in package:
        _note_properties(package.read("meta.xml"), assembly)


def _note_properties(data: bytes, assembly: Assembly) -> None:
    try:
        values = leaf_texts(data)
    except ParseError as error:
        assembly.warn(f"The document's properties could not be read: {error.message}")
        return
    assembly.entitle_by_property(values.get("title"))
    assembly.describe(
        author=values.get("creator") or values.get("initial-creator"),
        created_at=values.get("creation-date"),
        modified_at=values.get("date"),
        subject=values.get("subject"),
        keywords=values.get("keyword"),
        language=values.get("language"),
    )


def _add_content(
    data: bytes, assembly: Assembly, *, labelled: bool = True, formulas: Mapping[str, str] | None = None
) -> None:
    """formulas: those that stand in files of their own, by the names of these objects."""
    content = Content(lists=read_list_styles(data), scripts=read_script_styles(data), formulas=formulas)
    stream_xml(data, content.start, content.end, content.text, doctype_allowed=True)
    for slide, blocks in content.sections():
        assembly.add(markup.join_blocks(blocks), f"slide {slide}" if slide and labelled else "")
    assembly.entitle(content.first_heading)
    if content.has_hidden:
        assembly.warn("The document has hidden sections, which are read.")


def _add_headers(package: Package, assembly: Assembly) -> None:
    """Each different header and footer of the master pages once, at the end."""
    if "styles.xml" not in package:
        return
    content = Content(only=MASTER_PARTS)
    stream_xml(package.read("styles.xml"), content.start, content.end, content.text, doctype_allowed=True)
    texts = [markup.squeeze(block) for _, blocks in content.sections() for block in blocks]
    for text in dict.fromkeys(texts):
        if re.search(r"\w{2}", text):
            assembly.add(f"Header or footer: {text}")


def read_list_styles(data: bytes) -> dict[tuple[str, int], tuple[str, str, int]]:
    """(format, suffix, start) of the numbered levels by list style and level from 1."""
    result: dict[tuple[str, int], tuple[str, str, int]] = {}
    style = ""
    for name, attributes in elements(data, "list-style", "list-level-style-number", doctype_allowed=True):
        if name == "list-style":
            style = attributes.get("name", "")
        elif attributes.get("num-format"):
            form = markup.NUMBER_FORMATS.get(attributes["num-format"], "decimal")
            level, first = number(attributes.get("level", "1")), number(attributes.get("start-value", "1"))
            result[style, level] = (form, attributes.get("num-suffix", "."), first)
    return result


def read_script_styles(data: bytes) -> dict[str, str]:
    """The styles of raised and of lowered text, with the sign that begins it."""
    result: dict[str, str] = {}
    style = ""
    for name, attributes in elements(data, "style", "text-properties", doctype_allowed=True):
        if name == "style":
            style = attributes.get("name", "")
        elif (position := attributes.get("text-position", "0").split(" ")[0]) not in ("0", "0%"):
            result[style] = markup.LOWER if position.startswith(("-", "sub")) else markup.RAISE
    return result


@dataclass(slots=True)
class OpenList:
    """A list that is open. style is inherited from the list around it when it names none."""

    style: str
    count: int = 0
    name: str = ""


@dataclass(slots=True)
class Flow:
    """Blocks of the body, a cell or a note; paragraphs is a stack because notes and frames sit inside paragraphs."""

    kind: str
    blocks: list[str] = field(default_factory=list)
    paragraphs: list[list[str]] = field(default_factory=list)
    tables: list[list[TableRow]] = field(default_factory=list)
    repeated: int = 1  # how many columns a cell fills with its value
    after: list[str] = field(default_factory=list)


class Content:
    """Handlers for stream_xml over content.xml. only: read nothing outside these elements."""

    def __init__(
        self,
        only: frozenset[str] = frozenset(),
        lists: Mapping[tuple[str, int], tuple[str, str, int]] | None = None,
        scripts: Mapping[str, str] | None = None,
        formulas: Mapping[str, str] | None = None,
    ) -> None:
        self.first_heading = ""
        self.has_hidden = False
        self._only = only
        self._only_depth = 0
        self._flows = [Flow("body")]
        self._slides: list[tuple[int, list[str]]] = []
        self._slide = 0
        self._skip_depth = 0
        self._list_styles = lists or {}
        self._scripts = scripts or {}
        self._formulas = formulas or {}
        self._formula = MathML()
        self._has_formula = False  # the frame that is open
        self._spans: list[str] = []
        self._lists: list[OpenList] = []
        self._counts: dict[tuple[str, int], int] = {}  # how far lists have come, by style or name, and level
        self._item_is_new = False
        self._outline = 0
        self._note_number = 0
        self._names: list[str] = []

    def sections(self) -> list[tuple[int, list[str]]]:
        """(slide number, blocks); the number is 0 for what stands outside slides."""
        self._close_section()
        return self._slides

    def start(self, name: str, attributes: Attributes) -> None:
        skip = MASTER_SKIPPED if self._only else SKIPPED
        if self._skip_depth or name in skip:
            self._skip_depth += 1
            return
        if self._formula.is_open or (name == "math" and self._names):
            self._formula.start(attributes)
            return
        self._names.append(name)
        if name in self._only:
            self._only_depth += 1
        flow = self._flows[-1]
        if name in ("p", "h"):
            level = attributes.get("outline-level", "1")
            self._outline = int(level) if name == "h" and level.isdigit() else 0
            flow.paragraphs.append([])
        elif name == "span":
            self._spans.append(self._scripts.get(attributes.get("style-name", ""), ""))
            self._append(self._spans[-1])
        elif name == "page" and not self._only:
            self._close_section()
            self._slide += 1
        elif name == "section":
            self.has_hidden |= attributes.get("display") == "none"
        elif name == "list":
            self._begin_list(attributes)
        elif name in ("list-item", "list-header") and self._lists:
            self._lists[-1].count += name == "list-item"
            if start := number(attributes.get("start-value", "")):
                self._lists[-1].count = start - self._numbering()[2] + 1
            self._item_is_new = name == "list-item"
        elif name == "table":
            flow.tables.append([])
        elif name == "table-row" and flow.tables:
            flow.tables[-1].append(TableRow(is_header="table-header-rows" in self._names))
        elif name == "covered-table-cell":  # a cell that spans more columns or rows is here
            self._flows.append(Flow("covered"))
        elif name == "table-cell":
            columns = read_span(attributes.get("number-columns-spanned"), COLUMNS_MAX)
            rows = read_span(attributes.get("number-rows-spanned"), ROWS_MAX)
            if flow.tables and flow.tables[-1]:
                flow.tables[-1][-1].cells.append(SpanningCell("", columns, rows))
            repeated = read_span(attributes.get("number-columns-repeated"), REPEAT_LIMIT)
            self._flows.append(Flow("cell", repeated=repeated))
        elif name in ("note", "annotation", "notes", "text-box"):
            self._flows.append(Flow(name))
        else:
            self._add_character(name, attributes)

    def end(self, name: str) -> None:
        if self._skip_depth:
            self._skip_depth -= 1
            return
        if self._formula.is_open:
            self._add_formula(self._formula.end(name))
            return
        self._names.pop()
        if name in self._only:
            self._only_depth -= 1
        if name in ("p", "h"):
            self._end_paragraph(name)
        elif name == "span":
            self._append(markup.LEVEL if self._spans.pop() else "")
        elif name == "list":
            ended, level = self._lists.pop(), len(self._lists)
            self._counts[ended.style, level] = self._counts[ended.name, level] = ended.count
        elif name == "table":
            self._end_table()
        elif name == "table-cell":
            self._end_cell()
        elif name == "covered-table-cell":
            self._flows.pop()
        elif name in ("note", "annotation", "notes", "text-box"):
            self._end_inset(name)

    def text(self, piece: str) -> None:
        if self._formula.is_open:
            self._formula.text(piece)
        elif not self._skip_depth:
            self._append(piece)

    def _add_character(self, name: str, attributes: Attributes) -> None:
        if name == "s":
            count = attributes.get("c", "1")
            self._append(" " * (min(REPEAT_LIMIT, int(count)) if count.isdigit() else 1))
        elif name == "tab":
            self._append("\t")
        elif name == "line-break":
            self._append("\n")
        elif name == "frame":
            self._has_formula = False
        elif name == "object":
            self._add_formula(self._formulas.get(attributes.get("href", "").removeprefix("./"), ""))

    def _add_formula(self, text: str) -> None:
        self._has_formula |= bool(text)
        if self._flows[-1].paragraphs:
            self._append(text)
        elif text:
            self._flows[-1].blocks.append(text)

    def _append(self, piece: str) -> None:
        paragraphs = self._flows[-1].paragraphs
        if not paragraphs or (self._only and not self._only_depth) or self._is_silent():
            return
        if not self._is_label():
            paragraphs[-1].append(piece)
        elif not self._has_formula:  # whose description is always "formula"
            self._flows[-1].after.append(markup.squeeze(piece))

    def _is_silent(self) -> bool:
        """Whether the open element tells of a comment or a note what the document does not show."""
        name, outer = self._names[-1], self._names[-2:-1]
        if name in ("creator", "date"):
            return outer == ["annotation"]
        return name == "note-citation"

    def _is_label(self) -> bool:
        """Whether the open element is the title or the description of a picture."""
        return self._names[-1] in ("title", "desc") and self._names[-2:-1] not in (["p"], ["h"], ["span"], ["a"])

    def _end_paragraph(self, name: str) -> None:
        flow = self._flows[-1]
        if not flow.paragraphs:
            return
        text = markup.write_scripts("".join(flow.paragraphs.pop())).strip("\n").rstrip()
        if text.strip():
            flow.blocks.append(self._block(name, text, flow.kind))
        if not flow.paragraphs:
            flow.blocks.extend(flow.after)
            flow.after.clear()

    def _block(self, name: str, text: str, kind: str) -> str:
        if name == "h" and self._outline and kind != "cell":
            self.first_heading = self.first_heading or markup.squeeze(text)
            return markup.heading(text, self._outline)
        if self._lists and kind not in ("cell", "note"):
            is_first, self._item_is_new = self._item_is_new, False
            level = min(LEVEL_LIMIT, len(self._lists) - 1)
            return markup.list_item(text, level, self._marker()) if is_first else "  " * (level + 1) + text.strip()
        return text

    def _begin_list(self, attributes: Attributes) -> None:
        style = attributes.get("style-name", self._lists[-1].style if self._lists else "")
        before = style if attributes.get("continue-numbering") == "true" else attributes.get("continue-list", "")
        count = self._counts.get((before, len(self._lists)), 0) if before else 0
        self._lists.append(OpenList(style, count, attributes.get("id", "")))

    def _numbering(self) -> tuple[str, str, int]:
        """The format, suffix and start of the innermost list's level; no format for bullets."""
        return self._list_styles.get((self._lists[-1].style, len(self._lists)), ("", "", 1))

    def _marker(self) -> str:
        form, suffix, first = self._numbering()
        return f"{markup.show_number(self._lists[-1].count - 1 + first, form)}{suffix}" if form else "-"

    def _end_cell(self) -> None:
        flow = self._flows.pop()
        outer = self._flows[-1]
        if outer.tables and outer.tables[-1] and outer.tables[-1][-1].cells:
            cells = outer.tables[-1][-1].cells
            cells[-1].text = markup.cell(" ".join([*flow.blocks, *flow.after]))
            cells += [replace(cells[-1]) for _ in range(flow.repeated - 1)]

    def _end_table(self) -> None:
        flow = self._flows[-1]
        if flow.tables and any(each.kind == "cell" for each in self._flows):
            flow.blocks.extend(" ".join(each.text for each in row.cells) for row in flow.tables.pop())
        elif flow.tables:
            flow.blocks.extend(spanned_blocks(flow.tables.pop()))

    def _end_inset(self, name: str) -> None:
        """A note or comment follows the paragraph it belongs to; speaker notes end the slide."""
        flow = self._flows.pop()
        outer = self._flows[-1]
        blocks = [*flow.blocks, *flow.after]
        text = markup.squeeze(" ".join(blocks))
        if not text:
            return
        if name == "note":
            self._note_number += 1
            self._append(f"[^{self._note_number}]")
            outer.after.append(f"[^{self._note_number}]: {text}")
        elif name == "annotation":
            outer.after.append(f"Comment: {text}")
        elif name == "notes":
            outer.after.append(f"Notes: {text}")
        elif outer.paragraphs:
            outer.after.extend(blocks)
        else:
            outer.blocks.extend(blocks)

    def _close_section(self) -> None:
        flow = self._flows[0]
        blocks = [*flow.blocks, *flow.after]
        if blocks:
            self._slides.append((self._slide, blocks))
        self._flows[0] = Flow("body")
