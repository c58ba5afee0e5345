"""The objects of a PDF page, those inside forms too, with the matrix that leads from each to the page."""

from __future__ import annotations

from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as raw

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
