"""What stands on a PDF page beside its text: comments, form fields, files, addresses of links."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

import pypdfium2 as pdfium
import pypdfium2.raw as raw

COMMENTS = frozenset(
    {
        raw.FPDF_ANNOT_TEXT,
        raw.FPDF_ANNOT_FREETEXT,
        raw.FPDF_ANNOT_HIGHLIGHT,
        raw.FPDF_ANNOT_UNDERLINE,
        raw.FPDF_ANNOT_STRIKEOUT,
        raw.FPDF_ANNOT_SQUARE,
        raw.FPDF_ANNOT_STAMP,
        raw.FPDF_ANNOT_POPUP,
    }
)
MARKED = {raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON}
VALUED = {raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX}
PER_PAGE, LINKS_PER_PAGE = 1000, 20
PASSWORD = 1 << 13  # a text field that shows no letters
WEB = ("http://", "https://", "mailto:")


@dataclass(slots=True)
class Annotations:
    """fields: (label, value) of a field with a value. marks: lines of check boxes and radio buttons, on or off."""

    comments: list[str] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    files: list[pdfium.PdfAttachment] = field(default_factory=list)

    def lines(self, text: str) -> list[str]:
        """Blocks that add to the page's text what it does not show."""
        shown = " ".join(text.split())
        result = [f"Comment: {each}" for each in dict.fromkeys(self.comments) if " ".join(each.split()) not in shown]
        values = [f"{label}: {value}" for label, value in self.fields if " ".join(value.split()) not in shown]
        if values or self.marks:
            result.append("\n".join([*values, *self.marks]))
        links = [link for link in dict.fromkeys(self.links) if link.removeprefix("mailto:") not in shown]
        if links:
            result.append("Links: " + " ".join(links[:LINKS_PER_PAGE]))
        return result


def read_annotations(document: pdfium.PdfDocument, page: pdfium.PdfPage) -> Annotations:
    """The first 1,000 annotations of a page."""
    result = Annotations()
    for index in range(min(PER_PAGE, raw.FPDFPage_GetAnnotCount(page))):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        if kind in COMMENTS and (said := _string(annotation, b"Contents")).strip():
            result.comments.append(said)
        elif kind == raw.FPDF_ANNOT_WIDGET and document.formenv is not None:
            _read_field(document.formenv.raw, annotation, result)
        elif kind == raw.FPDF_ANNOT_FILEATTACHMENT and (held := raw.FPDFAnnot_GetFileAttachment(annotation)):
            result.files.append(pdfium.PdfAttachment(held, document))
        elif kind == raw.FPDF_ANNOT_LINK and (address := _address(document, annotation)).startswith(WEB):
            result.links.append(address)
        raw.FPDFPage_CloseAnnot(annotation)
    return result


def _read_field(form: raw.FPDF_FORMHANDLE, annotation: raw.FPDF_ANNOTATION, result: Annotations) -> None:
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    label = _text(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation) or _text(
        raw.FPDFAnnot_GetFormFieldName, form, annotation
    )
    if kind in MARKED:
        option = _text(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation)
        named = f"{label}: {option}" if kind == raw.FPDF_FORMFIELD_RADIOBUTTON and option else label
        result.marks.append(f"{'☒' if raw.FPDFAnnot_IsChecked(form, annotation) else '☐'} {named}".strip())
    elif kind in VALUED and not raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & PASSWORD:
        count = raw.FPDFAnnot_GetOptionCount(form, annotation)
        chosen = [
            _text(raw.FPDFAnnot_GetOptionLabel, form, annotation, index)
            for index in range(min(count, PER_PAGE))
            if raw.FPDFAnnot_IsOptionSelected(form, annotation, index)
        ]
        value = ", ".join(chosen) or _text(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
        if value.strip():
            result.fields.append((label, value))


def _address(document: pdfium.PdfDocument, annotation: raw.FPDF_ANNOTATION) -> str:
    link = raw.FPDFAnnot_GetLink(annotation)
    action = raw.FPDFLink_GetAction(link) if link else None
    size = raw.FPDFAction_GetURIPath(document, action, None, 0) if action else 0
    if size <= 1:
        return ""
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFAction_GetURIPath(document, action, buffer, size)
    return buffer.raw[: size - 1].decode("utf-8", "replace").strip()


def _text(read: Callable[..., int], *arguments: object) -> str:
    """A string in UTF-16 from a function of pdfium that first tells its size in bytes."""
    size = read(*arguments, None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    read(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace")


def _string(annotation: raw.FPDF_ANNOTATION, key: bytes) -> str:
    return _text(raw.FPDFAnnot_GetStringValue, annotation, key)
