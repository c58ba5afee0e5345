"""Text of a PDF that nobody sees is left out with a warning; text that shows, or that a scan needs, stays."""

from __future__ import annotations

import re
import zlib

import pytest

from ragd.readers.assembly import read_document
from ragd.readers.types import ParsedDocument, ParseError, ParseLimits, Source
from tests.parsing.builders import _Pdf

SHOWN = b"BT /F 12 Tf 0 g 50 720 Td (plainly shown) Tj ET "
PICTURE = b"q %d 0 0 %d %d %d cm /Im Do Q "


def make(content: bytes, *, grey: int = 0x80, off: bool = True) -> bytes:
    """A page with a font F, a picture Im of one grey pixel, a layer L that is off, and a form X on that layer."""
    pdf = _Pdf(None)
    font = pdf.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    image = pdf.add_stream(
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8",
        bytes([grey]),
    )
    layer = pdf.add(b"<< /Type /OCG /Name (Notes) >>")
    fonts = b"/Font << /F %d 0 R >>" % font
    form = pdf.add_stream(
        b"<< /Type /XObject /Subtype /Form /OC %d 0 R /BBox [0 0 612 792] /Resources << %s >>" % (layer, fonts),
        b"BT /F 12 Tf 50 500 Td (secret) Tj ET",
    )
    plain = pdf.add_stream(
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 300 300] /Resources << %s >>" % fonts,
        b"BT /F 12 Tf 1 g 10 10 Td (secret) Tj ET",
    )
    stream = pdf.add_stream(b"<< /Filter /FlateDecode", zlib.compress(content))
    tree = pdf.reserve()
    page = pdf.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources << %s"
        b" /XObject << /Im %d 0 R /X %d 0 R /P %d 0 R >> /Properties << /L %d 0 R >>"
        b" /ExtGState << /Clear << /ca 0 >> /Faint << /ca 0.5 >> >> >> >>"
        % (tree, stream, fonts, image, form, plain, layer)
    )
    pdf.set(tree, b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    state = b"/OFF [%d 0 R]" % layer if off else b"/ON [%d 0 R]" % layer
    root = pdf.add(
        b"<< /Type /Catalog /Pages %d 0 R /OCProperties << /OCGs [%d 0 R] /D << %s >> >> >>" % (tree, layer, state)
    )
    return pdf.finish(root, pdf.add(b"<< >>"))


def read(data: bytes) -> ParsedDocument:
    return read_document(Source(data, "a.pdf", "", ParseLimits()))


def text(setup: bytes, *, at: bytes = b"60 400", word: bytes = b"secret") -> bytes:
    return b"q BT /F 12 Tf %s %s Td (%s) Tj ET Q " % (setup, at, word)


def hidden_chars(document: ParsedDocument) -> int:
    """As the warning counts them."""
    counts = [int(found.group(1)) for each in document.warnings if (found := re.search(r"\((\d+) characters", each))]
    return sum(counts)


HIDDEN = {
    "white on white": text(b"1 g"),
    "nearly white": text(b"0.98 0.99 0.97 rg"),
    "white in a form moved over the page": b"q 1 0 0 1 50 300 cm /P Do Q ",
    "white on a white box on a dark one": b"0 g 0 300 612 200 re f 1 g 40 380 200 60 re f " + text(b"1 g"),
    "red on a red box": b"0.9 0.1 0.1 rg 40 380 200 60 re f " + text(b"0.91 0.1 0.12 rg"),
    "dark on a dark page": b"0.1 g 0 0 612 792 re f " + text(b"0.1 g") + text(b"1 g", at=b"60 200", word=b"light"),
    "white on a white picture": PICTURE % (400, 400, 50, 200) + text(b"1 g"),
    "not painted": text(b"3 Tr"),
    "not painted on a coloured box": b"0.8 0.9 1 rg 40 380 200 60 re f " + text(b"0 g 3 Tr"),
    "not painted beside a picture": PICTURE % (100, 100, 300, 100) + text(b"3 Tr"),
    "clipping nothing": text(b"7 Tr"),
    "white outline": text(b"1 Tr 1 G"),
    "transparent": text(b"/Clear gs"),
    "on a layer that is off": b"/OC /L BDC " + text(b"0 g") + b"EMC ",
    "in a form on a layer that is off": b"/X Do ",
    "on a layer over a picture": PICTURE % (400, 400, 50, 350) + b"/OC /L BDC " + text(b"0 g") + b"EMC ",
    "beyond the page": text(b"0 g", at=b"2000 400"),
    "without a size": text(b"0 g 0.01 0 0 0.01 60 400 cm", at=b"0 0"),
}
SEEN = {
    "recognized text over a scan": PICTURE % (612, 792, 0, 0) + text(b"3 Tr"),
    "recognized text over a strip of a scan": PICTURE % (400, 30, 50, 390) + text(b"3 Tr"),
    "recognized text under a scan": text(b"3 Tr") + PICTURE % (612, 792, 0, 0),
    "plain text under a scan": text(b"0 g") + PICTURE % (612, 792, 0, 0),
    "transparent text over a scan": PICTURE % (612, 792, 0, 0) + text(b"/Clear gs"),
    "unpainted over letters drawn as paths": b"0 g 60 400 8 9 re 72 400 6 9 re 82 400 8 9 re f " + text(b"3 Tr"),
    "white on a dark box": b"0 0 0.4 rg 40 380 200 60 re f " + text(b"1 g"),
    "white on a dark shape": b"0 0 0.4 rg 40 380 m 240 380 l 260 410 l 240 440 l 40 440 l 20 410 l f " + text(b"1 g"),
    "white on a header bar of another colour": b"0.9 0.5 0.1 rg 0 380 612 40 re f " + text(b"1 g"),
    "white on a thick line": b"0 G 30 w 40 404 m 240 404 l S " + text(b"1 g"),
    "white on a dark picture": PICTURE % (612, 792, 0, 0) + text(b"1 g"),
    "light on a dark page": b"0.1 g 0 0 612 792 re f " + text(b"1 g"),
    "black on a white box on a black one": b"0 g 0 300 612 200 re f 1 g 40 380 200 60 re f " + text(b"0 g"),
    "black beside a black box": b"0 g 300 380 200 60 re f " + text(b"0 g"),
    "light grey": text(b"0.85 g"),
    "half transparent": text(b"/Faint gs"),
    "clip of a picture": b"q BT /F 12 Tf 7 Tr 60 400 Td (secret) Tj ET " + PICTURE % (612, 792, 0, 0) + b"Q ",
    "white with a black outline": text(b"2 Tr 1 g 0 G"),
    "outline alone": text(b"1 Tr 1 g 0 G"),
    "small": text(b"0 g 0.2 0 0 0.2 60 400 cm", at=b"0 0"),
}  # fmt: skip


@pytest.mark.fault("N-09")
@pytest.mark.parametrize("kind", HIDDEN)
def test_what_nobody_sees_is_left_out_with_a_warning(kind: str) -> None:
    grey = 255 if kind == "white on a white picture" else 128
    document = read(make(SHOWN + HIDDEN[kind], grey=grey))
    assert "secret" not in document.text
    assert "plainly shown" in document.text or kind.startswith("dark on")
    assert "light" in document.text or not kind.startswith("dark on")
    assert hidden_chars(document) == 6
    assert not document.is_partial


@pytest.mark.parametrize("kind", SEEN)
def test_what_shows_or_stands_for_a_picture_stays(kind: str) -> None:
    grey = 0 if kind == "white on a dark picture" else 128
    content = SEEN[kind]
    document = read(make(content if kind == "light on a dark page" else SHOWN + content, grey=grey))
    assert "secret" in document.text
    assert hidden_chars(document) == 0


@pytest.mark.parametrize("content", [b"/OC /L BDC " + text(b"0 g") + b"EMC ", b"/X Do "])
def test_text_on_a_layer_that_is_on_stays(content: bytes) -> None:
    document = read(make(SHOWN + content, off=False))
    assert "secret" in document.text
    assert hidden_chars(document) == 0


def test_a_page_of_nothing_but_hidden_text_is_empty() -> None:
    with pytest.raises(ParseError) as caught:
        read(make(text(b"1 g")))
    assert caught.value.kind == "empty"
