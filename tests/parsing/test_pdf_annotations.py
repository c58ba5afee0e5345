"""What stands on a PDF page beside its text: form fields, files, addresses of links."""

from __future__ import annotations

import pytest

from ragd.readers.assembly import read_document
from ragd.readers.types import ParsedDocument, ParseLimits, Source
from tests.parsing.builders import _Pdf

BOX = b"/Type /Annot /Subtype /Widget /F 4 /Rect [%d 600 %d 620]"


def make_annotated(content: bytes = b"BT /F 12 Tf 50 720 Td (Form) Tj ET") -> bytes:
    pdf = _Pdf(None)
    font = pdf.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    off = pdf.add_stream(b"<< /Type /XObject /Subtype /Form /BBox [0 0 20 20]", b"")
    states = b"/AP << /N << /Yes %d 0 R /Off %d 0 R >> >>" % (off, off)
    held = pdf.add_stream(b"<< /Type /EmbeddedFile", b"Words of the file inside.")
    spec = pdf.add(b"<< /Type /Filespec /F (notes.txt) /UF (notes.txt) /EF << /F %d 0 R >> >>" % held)
    fields = [
        pdf.add(b"<< %s /FT /Btn /T (Smoker) /V /Yes /AS /Yes %s >>" % (BOX % (10, 30), states)),
        pdf.add(b"<< %s /FT /Btn /T (Married) /V /Off /AS /Off %s >>" % (BOX % (40, 60), states)),
        pdf.add(b"<< %s /FT /Ch /Ff 131072 /T (Colour) /Opt [(Red) (Blue)] /V (Blue) >>" % (BOX % (70, 130))),
        pdf.add(b"<< %s /FT /Tx /T (n1) /TU (Your name) /V (Ada Lovelace) >>" % (BOX % (140, 200))),
        pdf.add(b"<< %s /FT /Tx /Ff 8192 /T (Secret) /V (hunter2) >>" % (BOX % (210, 260))),
    ]
    others = [
        pdf.add(b"<< /Type /Annot /Subtype /FileAttachment /Rect [10 500 30 520] /FS %d 0 R >>" % spec),
        pdf.add(
            b"<< /Type /Annot /Subtype /Link /Rect [10 400 30 420] /A << /S /URI /URI (https://example.org/a) >> >>"
        ),
    ]
    stream = pdf.add_stream(b"<<", content)
    tree = pdf.reserve()
    page = pdf.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Annots [%s]"
        b" /Resources << /Font << /F %d 0 R >> >> >>"
        % (tree, stream, b" ".join(b"%d 0 R" % each for each in [*fields, *others]), font)
    )
    pdf.set(tree, b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    form = pdf.add(b"<< /Fields [%s] >>" % b" ".join(b"%d 0 R" % each for each in fields))
    root = pdf.add(b"<< /Type /Catalog /Pages %d 0 R /AcroForm %d 0 R >>" % (tree, form))
    return pdf.finish(root, pdf.add(b"<< >>"))


def read(data: bytes, *, keep: bool = True) -> ParsedDocument:
    return read_document(Source(data, "a.pdf", "", ParseLimits(keep_attachments=keep)))


@pytest.mark.fault("N-18")
def test_values_of_form_fields_are_read_whether_drawn_or_not() -> None:
    text = read(make_annotated()).text
    assert "☒ Smoker" in text and "☐ Married" in text
    assert "Blue" in text and "Ada Lovelace" in text
    assert "Red" not in text and "hunter2" not in text


@pytest.mark.fault("N-19")
def test_a_file_in_an_annotation_is_attached() -> None:
    (file,) = read(make_annotated()).attachments
    assert (file.name, file.data) == ("notes.txt", b"Words of the file inside.")


def test_addresses_of_links_are_read_once() -> None:
    shown = b"BT /F 12 Tf 50 720 Td (Form at https://example.org/a) Tj ET"
    assert "Links: https://example.org/a" in read(make_annotated()).text
    assert read(make_annotated(shown)).text.count("https://example.org/a") == 1
