"""PPTX: each slide with its title, text, tables, diagrams, comments and notes, in the order of the show.

The order in which the shapes of a slide are read: from top to bottom, column by column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from ragd.readers.archives import Package
from ragd.readers.assembly import Assembly
from ragd.readers.office.ooxml import (
    attach_embedded,
    chart_blocks,
    main_part,
    read_core_properties,
    related,
    relationships,
)
from ragd.readers.office.symbols import read_symbols
from ragd.readers.office.word import drawn_lines
from ragd.readers.text.markup import (
    LEVEL,
    LOWER,
    RAISE,
    cell,
    heading,
    join_blocks,
    list_item,
    show_number,
    squeeze,
    write_scripts,
)
from ragd.readers.text.spans import COLUMNS_MAX, ROWS_MAX, SpanningCell, TableRow, read_span, spanned_blocks
from ragd.readers.text.xmldata import Attributes, collect_text, elements, stream_xml
from ragd.readers.types import ParseError, Source

NUMBERED = re.compile(r"(alphaLc|alphaUc|romanLc|romanUc)?\w*?(ParenBoth|ParenR|)$")
NUMBER_FORMS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman"}
# How much of its size two shapes may overlap and still count as apart.
OVERLAP = 0.1
CUTS_DEEP, BOXES_MAX = 50, 300


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, its lengths in any unit, y downwards."""

    x: float
    y: float
    width: float
    height: float

    def span(self, *, upright: bool) -> tuple[float, float]:
        """From where to where it reaches, down (upright) or across, without the part that may overlap."""
        start, size = (self.y, self.height) if upright else (self.x, self.width)
        return start + OVERLAP * size, start + (1 - OVERLAP) * size


@dataclass(frozen=True, slots=True)
class Frame:
    """How the inside of a group of shapes maps to what is around it."""

    inner: Box
    outer: Box

    def place(self, box: Box) -> Box:
        wide = self.outer.width / self.inner.width if self.inner.width else 1.0
        high = self.outer.height / self.inner.height if self.inner.height else 1.0
        return Box(
            self.outer.x + (box.x - self.inner.x) * wide,
            self.outer.y + (box.y - self.inner.y) * high,
            box.width * wide,
            box.height * high,
        )


def reading_order(boxes: Sequence[Box | None]) -> list[int]:
    """The numbers of the boxes in reading order; one without a place follows the one before it."""
    if len(boxes) > BOXES_MAX:
        return list(range(len(boxes)))
    placed = [number for number, box in enumerate(boxes) if box is not None]
    followers: dict[int, list[int]] = {}
    last = -1
    for number, box in enumerate(boxes):
        last = number if box is not None else last
        if box is None:
            followers.setdefault(last, []).append(number)
    known = {number: box for number, box in enumerate(boxes) if box is not None}
    order = _cut(placed, known, CUTS_DEEP)
    return followers.get(-1, []) + [each for number in order for each in (number, *followers.get(number, ()))]


def _cut(numbers: list[int], boxes: dict[int, Box], depth: int) -> list[int]:
    """By columns or by rows, whichever is nearer to the order of the file; what spans the columns divides them."""
    if len(numbers) < 2:
        return numbers
    columns, bands = (_parts(numbers, boxes, upright=upright) for upright in (False, True))
    if not depth or max(len(columns), len(bands)) < 2:
        return sorted(numbers, key=lambda number: (boxes[number].y, boxes[number].x))
    if len(columns) < 2:
        widest = max(range(len(bands)), key=lambda at: max(boxes[number].width for number in bands[at]))
        parts = [[*chain(*bands[:widest])], bands[widest], [*chain(*bands[widest + 1 :])]]
        return [number for part in parts for number in _cut(part, boxes, depth - 1)]
    orders = [
        [number for part in parts for number in _cut(part, boxes, depth // 2)]
        for parts in (columns, bands)
        if len(parts) > 1
    ]
    return min(orders, key=_moved)


def _moved(order: Sequence[int]) -> int:
    """How many pairs stand otherwise than in the file."""
    return sum(one > two for at, one in enumerate(order) for two in order[at + 1 :])


def _parts(numbers: Sequence[int], boxes: dict[int, Box], *, upright: bool) -> list[list[int]]:
    """The groups between which a straight line runs through no box."""
    spans = {number: boxes[number].span(upright=upright) for number in numbers}
    ordered = sorted(numbers, key=lambda number: spans[number])
    reach, cuts = spans[ordered[0]][1], [0]
    for at, number in enumerate(ordered[1:], 1):
        if spans[number][0] >= reach:
            cuts.append(at)
        reach = max(reach, spans[number][1])
    return [ordered[first:stop] for first, stop in pairwise([*cuts, len(ordered)])]


MAIN = "ppt/presentation.xml"
TITLES = frozenset({"title", "ctrTitle"})
SERVICE_PLACEHOLDERS = frozenset({"sldNum", "dt", "ftr", "hdr", "sldImg"})
FOOTERS = frozenset({"ftr", "hdr"})
LISTED_PLACEHOLDERS = frozenset({"body", "obj", ""})
COMMENT_TEXT = frozenset({"text", "t"})
LEVEL_LIMIT = 8
PLACING = frozenset({"grpSp", "grpSpPr", "xfrm", "off", "ext", "chOff", "chExt"})
GROUP_CORNERS = ("off", "ext", "chOff", "chExt")
NO_FRAME = Frame(Box(0, 0, 1, 1), Box(0, 0, 1, 1))
KINDS = {"ctrTitle": "title", "": "body", "obj": "body", "subTitle": "body"}
HIDDEN = "The presentation has hidden slides, which are read."


def read(source: Source, assembly: Assembly) -> None:
    """Add every slide with its label "slide N". Raises ParseError."""
    package = Package(source.data, source.limits, source.media_type)
    part = main_part(package, MAIN)
    read_core_properties(package, assembly)
    unread = 0
    footers: dict[str, None] = {}
    fixed: dict[str, Slide] = {}
    slides = _slide_parts(package, part)
    for number, name in enumerate(slides, 1):
        try:
            blocks = _slide_blocks(package, name, assembly, footers, fixed)
        except ParseError as error:
            if error.kind != "broken":
                raise
            unread += 1
            assembly.leave_out(f"Slide {number} could not be read: {error.message}")
            continue
        assembly.add(join_blocks(blocks), f"slide {number}")
    attach_embedded(package, assembly)
    for text in footers:
        assembly.add(f"Footer: {text}")
    for text in _fixed_texts(package, slides):
        assembly.add(f"On the slide master: {text}")
    if unread and not assembly.length:
        raise ParseError("broken", f"None of the {unread} slides could be read. Save the presentation again.")


def _slide_parts(package: Package, part: str) -> list[str]:
    """The parts of the slides in the order of the show; a slide that is missing from the package is left out."""
    relations = relationships(package, part)
    ids = [attributes.get("r:id") for _, attributes in elements(package.read(part), "sldId")]
    targets = [relations[each].target for each in ids if each in relations]
    return [name for name in targets if name in package]


def _slide_blocks(
    package: Package, part: str, assembly: Assembly, footers: dict[str, None], fixed: dict[str, Slide]
) -> list[str]:
    """The slide's own blocks, then those of its parts.

    footers: gets the slide's, which most slides share. fixed: gets the layouts and masters.
    """
    slide = _read_slide(package, part)
    layouts = related(package, part, "slideLayout")
    masters = [name for layout in layouts for name in related(package, layout, "slideMaster")]
    for name in [*layouts[:1], *masters[:1]]:
        if name not in fixed:
            fixed[name] = _read_slide(package, name)
    slide.order(*(fixed[name] for name in [*layouts[:1], *masters[:1]]))
    if slide.is_hidden:
        assembly.warn(HIDDEN)
    blocks = slide.blocks()
    footers.update(dict.fromkeys(slide.footers()))
    if slide.title:
        assembly.entitle(slide.title)
    for name in related(package, part, "diagramData"):
        blocks.append("\n".join(drawn_lines(package.read(name))))
    for name in related(package, part, "chart"):
        blocks.extend(chart_blocks(package.read(name)))
    for name in related(package, part, "comments"):
        lines = collect_text(package.read(name), COMMENT_TEXT, frozenset({"cm", "p"}))
        blocks.extend(f"Comment: {squeeze(line)}" for line in lines)
    for name in related(package, part, "notesSlide"):
        notes = _read_slide(package, name)
        if text := join_blocks(notes.blocks(listed=False)):
            blocks.append(f"Notes: {text}")
    return blocks


def _fixed_texts(package: Package, slides: list[str]) -> list[str]:
    """What stands on the layouts and masters of the slides outside placeholders, so that every slide shows it; once."""
    layouts = dict.fromkeys(name for slide in slides for name in related(package, slide, "slideLayout"))
    masters = dict.fromkeys(name for layout in layouts for name in related(package, layout, "slideMaster"))
    texts: list[str] = []
    for name in [*layouts, *masters]:
        texts.extend(squeeze(text) for text in _read_slide(package, name).fixed_texts())
    return list(dict.fromkeys(texts))


def _read_slide(package: Package, part: str) -> Slide:
    slide = Slide()
    stream_xml(package.read(part), slide.start, slide.end, slide.text)
    return slide


@dataclass(slots=True)
class Shape:
    """A shape with its paragraphs as (level, number such as "3." or "", text)."""

    placeholder: str | None = None
    number: str = ""  # of the placeholder
    box: Box | None = None
    paragraphs: list[tuple[int, str, str]] = field(default_factory=list)
    rows: list[TableRow] | None = None


class Slide:
    """Handlers for stream_xml over one slide. The shapes of groups are placed as those beside them.

    Numbers of slides in fields are left out.
    """

    def __init__(self) -> None:
        self.title = ""
        self.is_hidden = False
        self._in_dropped = False
        self._shapes: list[Shape] = []
        self._pieces: list[str] = []
        self._level = 0
        self._scheme = ("", 1)  # by which the open paragraph is numbered, and the first number
        self._counts: dict[int, tuple[tuple[str, int], int]] = {}  # by level: the scheme and number of its list
        self._text_depth = 0
        self._script = self._font = ""
        self._in_paragraph = False
        self._in_cell = False
        self._cell: list[str] = []
        self._fallback_depth = 0
        self._groups: list[Frame] = []
        self._corner: dict[str, tuple[float, float]] = {}
        self._in_group_properties = False

    def start(self, name: str, attributes: Attributes) -> None:
        if self._fallback_depth or name == "Fallback":
            self._fallback_depth += 1
        elif name in ("sp", "graphicFrame", "cxnSp", "pic"):
            self._shapes.append(Shape())
        elif name == "sld":
            self.is_hidden = attributes.get("show") in ("0", "false")
        elif name == "ph" and self._shapes:
            self._shapes[-1].placeholder = attributes.get("type", "")
            self._shapes[-1].number = attributes.get("idx", "")
        elif name in PLACING:
            self._place(name, attributes)
        elif name == "p":
            self._pieces.clear()
            self._level, self._scheme, self._in_paragraph = 0, ("", 1), True
        elif name == "pPr" and self._in_paragraph:
            level = attributes.get("lvl", "0")
            self._level = min(LEVEL_LIMIT, int(level)) if level.isdigit() else 0
        elif name == "buAutoNum" and self._in_paragraph:
            self._scheme = (attributes.get("type", ""), read_span(attributes.get("startAt"), ROWS_MAX))
        elif name == "txBody":
            self._counts.clear()
        elif name == "t":
            self._text_depth += 1
        elif name == "fld":
            self._in_dropped = attributes.get("type") == "slidenum"
        elif name == "r":
            self._script = self._font = ""
        elif name == "sym":
            self._font = attributes.get("typeface", "")
        elif name == "rPr" and (baseline := attributes.get("baseline", "0").rstrip("%")) != "0":
            self._script = LOWER if baseline.startswith("-") else RAISE
        elif name == "br" and self._in_paragraph:
            self._pieces.append("\n")
        elif name == "tbl" and self._shapes:
            self._shapes[-1].rows = []
        elif name == "tr" and self._shapes and self._shapes[-1].rows is not None:
            self._shapes[-1].rows.append(TableRow())
        elif name == "tc":
            self._in_cell = True
            self._cell = []
            self._add_cell(attributes)

    def end(self, name: str) -> None:
        if self._fallback_depth:
            self._fallback_depth -= 1
        elif name == "t":
            self._text_depth -= 1
        elif name == "fld":
            self._in_dropped = False
        elif name == "p":
            self._end_paragraph()
        elif name == "tc":
            self._in_cell = False
            rows = self._shapes[-1].rows if self._shapes else None
            if rows and rows[-1].cells and self._cell:
                rows[-1].cells[-1].text = cell(" ".join(self._cell))
        elif name == "grpSpPr":
            self._in_group_properties = False
            if self._groups and len(self._corner) == len(GROUP_CORNERS):
                (x, y), (w, h), (cx, cy), (cw, ch) = (self._corner[each] for each in GROUP_CORNERS)
                self._groups[-1] = Frame(Box(cx, cy, cw, ch), Box(x, y, w, h))
        elif name == "grpSp" and self._groups:
            self._groups.pop()

    def _place(self, name: str, attributes: Attributes) -> None:
        """Note where a shape or a group stands."""
        if name in ("grpSp", "grpSpPr", "xfrm"):
            if name == "grpSp":
                self._groups.append(NO_FRAME)
            self._corner = {}
            self._in_group_properties |= name == "grpSpPr"
            return
        pair = [attributes.get(key, "") for key in (("cx", "cy") if name in ("ext", "chExt") else ("x", "y"))]
        if not all(value.lstrip("-").isdecimal() and len(value) < 16 for value in pair):
            return
        self._corner[name] = (float(pair[0]), float(pair[1]))
        if name == "ext" and "off" in self._corner and not self._in_group_properties and self._shapes:
            box = Box(*self._corner["off"], *self._corner["ext"])
            for frame in reversed(self._groups):
                box = frame.place(box) if frame is not NO_FRAME else box
            self._shapes[-1].box = self._shapes[-1].box or box

    def _add_cell(self, attributes: Attributes) -> None:
        """Open a cell of a table, but for one that a merged cell covers."""
        rows = self._shapes[-1].rows if self._shapes else None
        if rows and not any(attributes.get(name) in ("1", "true") for name in ("hMerge", "vMerge")):
            columns = read_span(attributes.get("gridSpan"), COLUMNS_MAX)
            rows[-1].cells.append(SpanningCell("", columns, read_span(attributes.get("rowSpan"), ROWS_MAX)))

    def order(self, *parts: Slide) -> None:
        """Bring the shapes into reading order. parts: layout and master, which place what the slide does not."""
        for shape in self._shapes:
            if shape.placeholder is not None and shape.box is None:
                shape.box = next(filter(None, (part.box_of(shape) for part in parts)), None)
        shapes = [shape for shape in self._shapes if shape.paragraphs or shape.rows]
        self._shapes = [shapes[number] for number in reading_order([shape.box for shape in shapes])]

    def box_of(self, placeholder: Shape) -> Box | None:
        """Where this layout or master has a placeholder: the one of its number, else of its kind."""
        known = [shape for shape in self._shapes if shape.placeholder is not None and shape.box is not None]
        numbered = (shape.box for shape in known if shape.number and shape.number == placeholder.number)
        kind = KINDS.get(placeholder.placeholder or "", placeholder.placeholder)
        of_kind = (shape.box for shape in known if KINDS.get(shape.placeholder or "", shape.placeholder) == kind)
        return next(numbered, None) or next(of_kind, None)

    def text(self, piece: str) -> None:
        if self._text_depth and not self._fallback_depth and not self._in_dropped:
            piece = read_symbols(self._font, piece)
            self._pieces.append(f"{self._script}{piece}{LEVEL}" if self._script else piece)

    def blocks(self, *, listed: bool = True) -> list[str]:
        """The slide's blocks, its title first. listed: the paragraphs of body placeholders are list items."""
        blocks: list[str] = []
        for shape in self._shapes:
            if shape.placeholder in SERVICE_PLACEHOLDERS:
                continue
            if shape.placeholder in TITLES and not self.title:
                self.title = squeeze(" ".join(text for *_, text in shape.paragraphs))
                blocks.insert(0, heading(self.title, 2))
                continue
            as_list = listed and shape.placeholder in LISTED_PLACEHOLDERS and len(shape.paragraphs) > 1
            for level, marker, text in shape.paragraphs:
                blocks.append(list_item(text, level, marker or "-") if as_list else f"{marker} {text}".strip())
            if shape.rows:
                blocks.extend(spanned_blocks(shape.rows))
        return blocks

    def footers(self) -> list[str]:
        """The paragraphs of the footer and header, each in one line."""
        return [
            squeeze(text) for shape in self._shapes if shape.placeholder in FOOTERS for *_, text in shape.paragraphs
        ]

    def fixed_texts(self) -> list[str]:
        """The paragraphs of shapes that are no placeholders."""
        return [text for shape in self._shapes if shape.placeholder is None for *_, text in shape.paragraphs]

    def _end_paragraph(self) -> None:
        text = write_scripts("".join(self._pieces)).replace("\x0b", "\n").strip()
        self._pieces.clear()
        self._in_paragraph = False
        if not text:
            return
        marker = self._marker()
        if self._in_cell:
            self._cell.append(f"{marker} {text}".strip())
            return
        if not self._shapes:
            self._shapes.append(Shape())
        self._shapes[-1].paragraphs.append((self._level, marker, text))

    def _marker(self) -> str:
        """The number of the open paragraph, one more than the one before it in its list; "" for none."""
        scheme, before = self._counts.get(self._level, (("", 1), 0))
        count = before + 1 if scheme == self._scheme else self._scheme[1]
        self._counts = {level: each for level, each in self._counts.items() if level < self._level}
        match = NUMBERED.match(self._scheme[0])
        if not self._scheme[0] or match is None:
            return ""
        self._counts[self._level] = (self._scheme, count)
        form, behind = match.groups()
        shown = show_number(count, NUMBER_FORMS.get(form, "decimal"))
        return f"({shown})" if behind == "ParenBoth" else f"{shown}{')' if behind == 'ParenR' else '.'}"
