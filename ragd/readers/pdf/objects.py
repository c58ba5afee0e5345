"""The objects of a PDF page, those inside forms too, with the matrix that leads from each to the page.

Lines drawn on a PDF page: the straight parts of its paths, as the page is shown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.arrangement.shapes import Rule
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
    return (
        a * g + b * i,
        a * h + b * j,
        c * g + d * i,
        c * h + d * j,
        e * g + f * i + k,
        e * h + f * j + m,
    )


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
