"""PDF through pdfium: text by page, form fields and comments, properties, and which pages are only pictures."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.assembly import Assembly
from ragd.readers.pdf.annotations import read_annotations
from ragd.readers.pdf.hidden import HiddenText
from ragd.readers.pdf.layout import lay_out
from ragd.readers.scans.words import describe
from ragd.readers.types import COPYING_RESTRICTED, ParseError, RecognizedPage, Source

PAGES_NAMED = 20
THIN_CHARS = 100
PICTURED_SHARE = 0.7
PERMISSION_COPY = 1 << 4


@dataclass(slots=True)
class PageNotes:
    """Pages by number: only pictures and no text; a picture of the page with hardly any text; not readable.

    files: of the pages' annotations. hidden_text takes out what nobody sees, of so many characters.
    """

    hidden_text: HiddenText
    pictures: list[int] = field(default_factory=list)
    thin: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    files: list[pdfium.PdfAttachment] = field(default_factory=list)
    hidden_chars: int = 0


def read(source: Source, assembly: Assembly) -> None:
    """Add every page with its label "page N". Raises ParseError: "encrypted", "broken", "scanned", "empty"."""
    document = _open(source.data)
    try:
        _read_properties(document, assembly)
        if document.get_formtype() != raw.FORMTYPE_NONE:
            document.init_forms()
        result = PageNotes(HiddenText(source.data))
        for number in range(1, len(document) + 1):
            try:
                _add_page(document, number, assembly, result, source.recognized.get(number))
            except pdfium.PdfiumError:
                result.unread.append(number)
        _attach_files(document, result.files, assembly)
        describe(source.recognized, assembly)
        _judge(len(document), result, assembly)
    finally:
        document.close()


def _open(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY) or "assword" in str(
            error
        ):
            raise ParseError(
                "encrypted", "The PDF is locked by a password. Save it without one and upload that."
            ) from error
        raise ParseError(
            "broken",
            f"The PDF cannot be opened: {str(error).rstrip('.')}. It is cut off or damaged; upload a whole copy.",
        ) from error


def _read_properties(document: pdfium.PdfDocument, assembly: Assembly) -> None:
    values = document.get_metadata_dict(skip_empty=True)
    assembly.entitle_by_property(values.get("Title"))
    assembly.describe(
        author=values.get("Author"),
        subject=values.get("Subject"),
        keywords=values.get("Keywords"),
        producer=values.get("Producer"),
        created_at=_iso_date(values.get("CreationDate", "")),
        modified_at=_iso_date(values.get("ModDate", "")),
        pages=len(document),
    )
    permissions = raw.FPDF_GetDocPermissions(document)
    if not permissions & PERMISSION_COPY:
        assembly.warn(COPYING_RESTRICTED)


def _iso_date(value: str) -> str:
    match = re.match(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?", value)
    if match is None:
        return ""
    year, month, day, hour, minute, second = match.groups()
    date = "-".join(part for part in (year, month, day) if part)
    return f"{date}T{hour}:{minute}:{second or '00'}" if day and hour and minute else date


def _add_page(
    document: pdfium.PdfDocument, number: int, assembly: Assembly, notes: PageNotes, recognized: RecognizedPage | None
) -> None:
    page = document[number - 1]
    try:
        annotations = read_annotations(document, page)
        notes.files.extend(annotations.files)
        # Flattening draws form fields and annotations into the page, where their text is found like any other.
        if raw.FPDFPage_GetAnnotCount(page) > 0:
            raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
            page.close()
            page = document[number - 1]
        hidden_chars = notes.hidden_text.take_out(page)
        text_page = page.get_textpage()
        text, layout, unseen_chars = lay_out(page, text_page, number)
        text_page.close()
        notes.hidden_chars += hidden_chars + unseen_chars
        if recognized is not None:
            text, layout = recognized.text, recognized.layout
        elif not text.strip() and _has_picture(page):
            notes.pictures.append(number)
        elif text and len(text) < THIN_CHARS and _is_pictured(page):
            notes.thin.append(number)
        extra = annotations.lines(text)
        assembly.add("\n\n".join([text, *extra]) if extra else text, _label(document, number), page=layout)
    finally:
        page.close()


def _label(document: pdfium.PdfDocument, number: int) -> str:
    """ "page N" counts from the front of the file; the number printed on the page stands behind it when it differs."""
    printed = (document.get_page_label(number - 1) or "").strip()
    return f"page {number}" if printed in ("", str(number)) or len(printed) > 20 else f"page {number} ({printed})"


def _has_picture(page: pdfium.PdfPage) -> bool:
    return next(iter(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)), None) is not None


def _is_pictured(page: pdfium.PdfPage) -> bool:
    """Whether one picture covers most of the page, as a scanner makes it."""
    width, height = page.get_size()
    for picture in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = picture.get_bounds()
        if (right - left) * (top - bottom) > PICTURED_SHARE * width * height:
            return True
    return False


def _attach_files(document: pdfium.PdfDocument, files: list[pdfium.PdfAttachment], assembly: Assembly) -> None:
    """Attach the files of the document and those of its annotations; one that is both comes once."""
    count = document.count_attachments()
    named = [document.get_attachment(index) for index in range(min(count, 2 * assembly.limits.max_attachments))]
    known: set[tuple[str, bytes]] = set()
    for attachment in [*named, *files]:
        try:
            name, data = attachment.get_name(), bytes(attachment.get_data())
        except pdfium.PdfiumError:
            assembly.leave_out("A file attached to the PDF could not be read and was left out.")
            continue
        key = name, hashlib.sha256(data).digest()
        if key not in known:
            known.add(key)
            assembly.attach(name, data)


def _judge(count: int, notes: PageNotes, assembly: Assembly) -> None:
    """Say what was not read; refuse when nothing was."""
    if assembly.length == 0 and not assembly.has_kept_files:
        if notes.pictures:
            raise ParseError(
                "scanned",
                f"The PDF holds only pictures of text ({len(notes.pictures)} of {count} pages) and no text itself.",
                pages=notes.pictures,
            )
        if notes.unread:
            raise ParseError("broken", f"None of the {count} pages could be read. Save the PDF again and upload that.")
        shown = "text that shows" if notes.hidden_chars else "text"
        raise ParseError(
            "empty", f"The PDF has {count} {'page' if count == 1 else 'pages'} and no {shown} on any of them."
        )
    if notes.hidden_chars:
        assembly.warn(f"The PDF hides a part of its text ({notes.hidden_chars:,} characters), which was left out.")
    if notes.pictures:
        assembly.describe(scanned_pages=notes.pictures)
        assembly.leave_out(
            f"{_pages(notes.pictures)} of {count} {_one(notes.pictures, 'holds', 'hold')} only pictures and gave no"
            " text. Text recognition (OCR) would add it."
        )
    if notes.thin:
        assembly.describe(pictured_pages=notes.thin)
        assembly.leave_out(
            f"{_pages(notes.thin)} of {count} {_one(notes.thin, 'is a picture', 'are pictures')} with hardly any text"
            " beside it. What the picture shows was not read; text recognition (OCR) would add it."
        )
    if notes.unread:
        were = _one(notes.unread, "was", "were")
        assembly.leave_out(f"{_pages(notes.unread)} of {count} could not be read and {were} left out.")


def _one(numbers: list[int], singular: str, plural: str) -> str:
    return singular if len(numbers) == 1 else plural


def _pages(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:PAGES_NAMED]))
    more = f" and {len(numbers) - PAGES_NAMED} more" if len(numbers) > PAGES_NAMED else ""
    return f"{'Page' if len(numbers) == 1 else 'Pages'} {shown}{more}"
