"""Lines drawn on a PDF page: the straight parts of its paths, as the page is shown."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from collections_app.parsing.arrangement.shapes import Rule
from collections_app.parsing.pdf.glyphs import Shown
from collections_app.parsing.pdf.objects import Matrix, matrix_of, multiply, walk

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
