"""The objects of a PDF page, those inside forms too, with the matrix that leads from each to the page.

Lines drawn on a PDF page: the straight parts of its paths, as the page is shown.

Text of a PDF page that nobody sees: in the colour of what lies behind it, not painted, or on a layer that is off.

A page is drawn with and without the text in question where a look at its objects leaves a doubt. Text stays where the
doubt stays, as recognized text does that lies over, or under, the picture of a page.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.arrangement.shapes import Box, Rule
from ragd.readers.pdf.glyphs import Shown

FORM_OBJECTS_MAX, DEPTH = 6000, 4

Matrix = tuple[float, float, float, float, float, float]
UNIT: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def walk(page: pdfium.PdfPage) -> Iterator[tuple[int, raw.FPDF_PAGEOBJECT, Matrix]]:
    """Kind, object and matrix of its form, in the order of painting. A form itself comes before what it holds."""
    objects = (raw.FPDFPage_GetObject(page, index) for index in range(raw.FPDFPage_CountObjects(page)))
    yield from _walk(objects, UNIT, DEPTH)


def _walk(
    objects: Iterator[raw.FPDF_PAGEOBJECT], matrix: Matrix, depth: int
) -> Iterator[tuple[int, raw.FPDF_PAGEOBJECT, Matrix]]:
    for item in objects:
        kind = raw.FPDFPageObj_GetType(item)
        yield kind, item, matrix
        if kind == raw.FPDF_PAGEOBJ_FORM and depth:
            count = raw.FPDFFormObj_CountObjects(item)
            inner = (raw.FPDFFormObj_GetObject(item, index) for index in range(min(count, FORM_OBJECTS_MAX)))
            yield from _walk(inner, multiply(matrix_of(item), matrix), depth - 1)


def matrix_of(item: raw.FPDF_PAGEOBJECT) -> Matrix:
    found = raw.FS_MATRIX()
    if not raw.FPDFPageObj_GetMatrix(item, found):
        return UNIT
    return found.a, found.b, found.c, found.d, found.e, found.f


def multiply(first: Matrix, then: Matrix) -> Matrix:
    a, b, c, d, e, f = first
    g, h, i, j, k, m = then
    return (a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m)


OBJECTS_MAX, PARTS_MAX = 6000, 12_000
LEVEL = 1.0  # points by which a line may lean
SHORT = 3.0


def read_rules(page: pdfium.PdfPage, shown: Shown) -> list[Rule]:
    """Lines along the axes, of filled and of drawn paths. A page with more objects than 6,000 gives none."""
    if raw.FPDFPage_CountObjects(page) > OBJECTS_MAX:
        return []
    result: list[Rule] = []
    for kind, path, matrix in walk(page):
        if kind == raw.FPDF_PAGEOBJ_PATH:
            result.extend(_straight(path, matrix, shown))
        if len(result) > PARTS_MAX:
            return []
    return result


def _straight(path: raw.FPDF_PAGEOBJECT, outer: Matrix, shown: Shown) -> Iterator[Rule]:
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not raw.FPDFPath_GetDrawMode(path, fill, stroke) or not (fill.value or stroke.value):
        return
    count = raw.FPDFPath_CountSegments(path)
    if not 2 <= count <= PARTS_MAX:
        return
    a, b, c, d, e, f = multiply(matrix_of(path), outer)
    x, y = ctypes.c_float(), ctypes.c_float()
    begin = before = (0.0, 0.0)
    for index in range(count):
        segment = raw.FPDFPath_GetPathSegment(path, index)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        place = shown.point(a * x.value + c * y.value + e, b * x.value + d * y.value + f)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_MOVETO:
            begin = place
        elif kind == raw.FPDF_SEGMENT_LINETO and (rule := _rule(before, place)):
            yield rule
        if raw.FPDFPathSegment_GetClose(segment) and (rule := _rule(place, begin)):
            yield rule
        before = place


def _rule(start: tuple[float, float], end: tuple[float, float]) -> Rule | None:
    wide, high = abs(end[0] - start[0]), abs(end[1] - start[1])
    if min(wide, high) > LEVEL or max(wide, high) < SHORT:
        return None
    return Rule(min(start[0], end[0]), min(start[1], end[1]), max(start[0], end[0]), max(start[1], end[1]))


Colour = tuple[int, int, int]
# Text, path or picture with its number in the order of painting, and the matrix from its form to the page.
_Object = tuple[int, raw.FPDF_PAGEOBJECT, Matrix]
Pixels = npt.NDArray[np.int16]

WHITE: Colour = (255, 255, 255)
NEAR = 16  # of 255: colours that differ less in red, green and blue look the same
FAINT = 26  # of 255: the opacity below which text may not show
INK = 48  # of 255: how far a drawing stands out from what is around it
INKED = 0.05  # of the box of unpainted text: a drawing that fills more of it shows what the text says
RECTANGLE_SEGMENTS = 6
PATCH = 4.0  # points: the least width and height of what text can stand on
PIXELS_MAX = 4_000_000
PAGES_DRAWN = 300  # of one document: all text of further pages stays
UNPAINTED = frozenset({raw.FPDF_TEXTRENDERMODE_INVISIBLE, raw.FPDF_TEXTRENDERMODE_CLIP})
STROKED = frozenset({raw.FPDF_TEXTRENDERMODE_STROKE, raw.FPDF_TEXTRENDERMODE_STROKE_CLIP})
# A form on a layer says so in its dictionary, which is never compressed. Layers themselves may be.
LAYERED_FORM, LAYERS = re.compile(rb"/OC\s*(?:\d+\s+\d+\s+R|<<)"), re.compile(rb"/OCG\b|/ObjStm\b")
LAYER_MARK = "OC\0".encode("utf-16-le")


class _Suspect(NamedTuple):
    """Text that may not show. box: in points, as the page is shown."""

    text: _Object
    box: Box
    is_layered: bool

    @property
    def centre(self) -> tuple[float, float]:
        return (self.box.x0 + self.box.x1) / 2, (self.box.y0 + self.box.y1) / 2


class _Area(NamedTuple):
    """What text can stand on: a filled path, or a picture, which has no colour."""

    order: int
    box: Box
    colour: Colour | None
    is_rectangle: bool

    def holds(self, x: float, y: float) -> bool:
        return self.box.x0 <= x <= self.box.x1 and self.box.y0 <= y <= self.box.y1


@dataclass(slots=True)
class _Content:
    """texts: painted ones by their colour. unpainted, layered: text that needs a look whatever its colour."""

    texts: dict[Colour, list[_Object]] = field(default_factory=dict)
    unpainted: list[_Object] = field(default_factory=list)
    layered: list[_Object] = field(default_factory=list)
    paths: list[_Object] = field(default_factory=list)
    pictures: list[_Object] = field(default_factory=list)

    def all_texts(self) -> list[_Object]:
        return [*self.unpainted, *self.layered, *(text for same in self.texts.values() for text in same)]


class HiddenText:
    """Takes the hidden text out of the pages of one document."""

    def __init__(self, data: bytes) -> None:
        self._reader = _Reader(data)
        self._pages_left = PAGES_DRAWN

    def take_out(self, page: pdfium.PdfPage) -> int:
        """Switch off the text of the page that does not show; return its number of characters."""
        content = self._reader.read(page)
        shown = Shown(page)
        suspects = list(_suspects(content, shown))
        if not suspects or not self._pages_left:
            return 0
        self._pages_left -= 1
        hidden = _unseen(page, shown, suspects, content)
        if not hidden:
            return 0
        text_page = page.get_textpage()
        count: int = sum(max(0, raw.FPDFTextObj_GetText(item, text_page, None, 0) // 2 - 1) for _, item, _ in hidden)
        text_page.close()
        _switch(hidden, is_on=False)
        return count


class _Reader:
    """Sorts the objects of a page by what they mean for hidden text."""

    def __init__(self, data: bytes) -> None:
        self._has_layers = LAYERS.search(data) is not None
        self._has_layered_forms = LAYERED_FORM.search(data) is not None
        self._name, self._size = (ctypes.c_ushort * 4)(), ctypes.c_ulong()

    def read(self, page: pdfium.PdfPage) -> _Content:
        result = _Content()
        values, places = _colour_places()
        read_mode, read_fill = raw.FPDFTextObj_GetTextRenderMode, raw.FPDFPageObj_GetFillColor
        for order, (kind, item, matrix) in enumerate(walk(page)):
            each = order, item, matrix
            if kind == raw.FPDF_PAGEOBJ_TEXT:
                mode = read_mode(item)
                (raw.FPDFPageObj_GetStrokeColor if mode in STROKED else read_fill)(item, *places)
                red, green, blue, opacity = values
                colour = red, green, blue
                if opacity < FAINT or mode in UNPAINTED:
                    result.unpainted.append(each)
                elif self._has_layers and self._is_layered(item, matrix):
                    result.layered.append(each)
                elif (same := result.texts.get(colour)) is not None:
                    same.append(each)
                else:
                    result.texts[colour] = [each]
            elif kind == raw.FPDF_PAGEOBJ_IMAGE:
                result.pictures.append(each)
            elif kind == raw.FPDF_PAGEOBJ_PATH:
                result.paths.append(each)
        return result

    def _is_layered(self, item: raw.FPDF_PAGEOBJECT, matrix: Matrix) -> bool:
        if self._has_layered_forms and matrix is not UNIT:
            return True
        for index in range(raw.FPDFPageObj_CountMarks(item)):
            mark = raw.FPDFPageObj_GetMark(item, index)
            read = raw.FPDFPageObjMark_GetName(mark, self._name, len(self._name) * 2, self._size)
            if read and bytes(self._name)[: self._size.value] == LAYER_MARK:
                return True
        return False


def _colour_places() -> tuple[ctypes.Array[ctypes.c_uint], list[ctypes.c_uint]]:
    """Red, green, blue and opacity, and the places where pdfium writes them."""
    values = (ctypes.c_uint * 4)()
    return values, [ctypes.c_uint.from_buffer(values, 4 * index) for index in range(4)]


def _suspects(content: _Content, shown: Shown) -> Iterator[_Suspect]:
    """Text that may not show, without that which surely does and that which says what a picture shows."""
    areas = _areas(content, shown)
    for text in content.layered:
        yield _Suspect(text, _box(text, shown), is_layered=True)
    for text in content.unpainted:
        suspect = _Suspect(text, _box(text, shown), is_layered=False)
        if not any(area.colour is None and area.holds(*suspect.centre) for area in areas):
            yield suspect
    for colour, texts in content.texts.items():
        is_white = _is_near(colour, WHITE)
        alike = [area for area in areas if area.colour is not None and _is_near(colour, area.colour)]
        for text in texts if is_white or alike else ():
            suspect = _Suspect(text, _box(text, shown), is_layered=False)
            is_doubted = is_white or any(area.holds(*suspect.centre) for area in alike)
            if is_doubted and not _stands_out(suspect, colour, areas):
                yield suspect


def _areas(content: _Content, shown: Shown) -> list[_Area]:
    """Pictures, and filled paths whose colour can matter, in the order of painting."""
    if not (content.texts or content.unpainted):
        return []
    has_white = any(_is_near(colour, WHITE) for colour in content.texts)
    result = [_Area(each[0], _box(each, shown), None, is_rectangle=True) for each in content.pictures]
    values, places = _colour_places()
    matters: dict[Colour, bool] = {}
    for path in content.paths:
        order, item, _ = path
        if not _is_filled(item):
            continue
        raw.FPDFPageObj_GetFillColor(item, *places)
        red, green, blue, opacity = values
        colour = red, green, blue
        if colour not in matters:
            matters[colour] = has_white or any(_is_near(colour, other) for other in content.texts)
        if not matters[colour] or opacity < FAINT:
            continue
        box = _box(path, shown)
        if min(box.x1 - box.x0, box.y1 - box.y0) >= PATCH:
            is_rectangle = opacity == 255 and raw.FPDFPath_CountSegments(item) <= RECTANGLE_SEGMENTS
            result.append(_Area(order, box, colour, is_rectangle))
    return sorted(result, key=lambda area: area.order)


def _is_filled(path: raw.FPDF_PAGEOBJECT) -> bool:
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    return bool(raw.FPDFPath_GetDrawMode(path, fill, stroke)) and fill.value != raw.FPDF_FILLMODE_NONE


def _stands_out(suspect: _Suspect, colour: Colour, areas: Sequence[_Area]) -> bool:
    """Whether the last area below the text is a rectangle of another colour around it."""
    below = [area for area in areas if area.order < suspect.text[0] and area.holds(*suspect.centre)]
    if not below or below[-1].colour is None or not below[-1].is_rectangle:
        return False
    box, around = suspect.box, below[-1].box
    is_inside = around.x0 <= box.x0 and around.y0 <= box.y0 and around.x1 >= box.x1 and around.y1 >= box.y1
    return is_inside and not _is_near(colour, below[-1].colour)


def _is_near(colour: Colour, other: Colour) -> bool:
    return all(abs(one - two) <= NEAR for one, two in zip(colour, other, strict=True))


def _box(each: _Object, shown: Shown) -> Box:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    _, item, (a, b, c, d, e, f) = each
    raw.FPDFPageObj_GetBounds(item, left, bottom, right, top)
    corners = [
        shown.point(a * x.value + c * y.value + e, b * x.value + d * y.value + f)
        for x in (left, right)
        for y in (bottom, top)
    ]
    xs, ys = zip(*corners, strict=True)
    return Box(min(xs), min(ys), max(xs), max(ys))


def _unseen(page: pdfium.PdfPage, shown: Shown, suspects: Sequence[_Suspect], content: _Content) -> list[_Object]:
    """The texts whose absence changes nothing on the page, and that no drawing shows in their place."""
    drawing = _Drawing(page, shown)
    whole = drawing.draw()
    _switch([suspect.text for suspect in suspects], is_on=False)
    rest = drawing.draw()
    _switch([suspect.text for suspect in suspects], is_on=True)
    unseen = [suspect for suspect in suspects if drawing.is_alike(whole, rest, suspect.box)]
    if not unseen:
        return []
    texts = content.all_texts()
    _switch(texts, is_on=False)
    bare = drawing.draw()
    _switch(texts, is_on=True)
    return [each.text for each in unseen if each.is_layered or not drawing.is_inked(bare, each.box)]


class _Drawing:
    """The page as pixels, and its parts by boxes in points."""

    def __init__(self, page: pdfium.PdfPage, shown: Shown) -> None:
        self._page = page
        self._scale = min(1.0, math.sqrt(PIXELS_MAX / max(1.0, shown.width * shown.height)))

    def draw(self) -> Pixels:
        """[height, width, 3]"""
        bitmap = self._page.render(scale=self._scale, may_draw_forms=False)
        pixels: Pixels = bitmap.to_numpy()[:, :, :3].astype(np.int16)
        bitmap.close()
        return pixels

    def is_alike(self, pixels: Pixels, others: Pixels, box: Box) -> bool:
        """Whether both look the same in the box, a part of which lies on the page."""
        part, other = self._part(pixels, box), self._part(others, box)
        return part.size > 0 and int(np.abs(part - other).max()) <= NEAR

    def is_inked(self, pixels: Pixels, box: Box) -> bool:
        part = self._part(pixels, box)
        return float((np.abs(part - np.median(part, axis=(0, 1))).max(axis=2) > INK).mean()) > INKED

    def _part(self, pixels: Pixels, box: Box) -> Pixels:
        x0, y0, x1, y1 = (value * self._scale for value in box)
        rows = slice(max(0, math.floor(y0) - 1), max(0, math.ceil(y1) + 1))
        return pixels[rows, max(0, math.floor(x0) - 1) : max(0, math.ceil(x1) + 1)]


def _switch(texts: Sequence[_Object], *, is_on: bool) -> None:
    for _, item, _ in texts:
        raw.FPDFPageObj_SetIsActive(item, is_on)
