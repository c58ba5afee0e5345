"""DOC, PPT, RTF and old Excel by Apache Tika, compiled to native code: its XHTML, rendered as all HTML is.

Tika answers locked documents with empty text and no error, so what is locked is found out before it is asked. It
reserves tens of gigabytes of address space and uses little of it: memory is limited by what is written to
(RLIMIT_DATA).
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from typing import Any

import iscc_tika
import olefile
from selectolax.lexbor import LexborHTMLParser, LexborNode

from ragd.readers import signatures as types
from ragd.readers.assembly import Assembly
from ragd.readers.legacy.rtf import set_notes_apart
from ragd.readers.text.html import close_empty, first_heading, is_too_deep, node_blocks, render_page
from ragd.readers.text.markup import join_blocks
from ragd.readers.types import ParseError, ParseLimits, Source

# Room for the markup around the characters that may come back.
MARKUP_PER_CHARACTER = 3
SPARE_CHARS = 100_000
STREAM_BYTES = 4096
HIGH_PLANES = re.compile("[\\s\ufffd\U00010000-\U0010ffff]+")
# Tika writes the optional hyphen of Word and PowerPoint as a blank without width.
OPTIONAL_HYPHEN = "\u200b"
BULLET = re.compile(r"^[·•▪§][ \t]+")
FIELD = "*"
NOTES = "div.notes"
MASTER = "div.slide-master-content"
EMBEDDED_NAMES = "div.package-entry > h1"
SHEETS = "body > div.sheet, body > div.page"
SLIDES = "div.slideShow > div.slide"
DOC_FLAGS_OFFSET, DOC_ENCRYPTED = 0x0A, 0x0100
PPT_TOKEN_OFFSET, PPT_ENCRYPTED = 12, 0xF3D1C4DF
LOCKED = "The document is locked by a password or by rights management. Save a copy without them and upload that."
# Tika drops the text of an RTF before the first of these words, with which programs end the header.
RTF_ENDS_OF_HEADER = (b"pard", b"plain", b"sectd")
RTF_BODY_WORDS = frozenset(
    b"u b i v f fs s cs ul cf super sub strike caps par line tab page cell row trowd intbl bin lang rtlch ltrch loch"
    b" hich dbch field footnote pict shp object".split()
)
RTF_TOKEN = re.compile(rb"\s+|\\(?P<word>[a-z]+)-?\d* ?|\{(?:\\upr\s*\{)?(?P<starred>\\\*)?(?:\\(?P<group>[a-z]+))?")
RTF_BRACE = re.compile(rb"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Extract:
    """What Tika gives for a document: XHTML, and the values of each name of metadata."""

    markup: str
    metadata: dict[str, list[str]]

    def value(self, name: str) -> str:
        return next(iter(self.metadata.get(name, ())), "")


def read(source: Source, assembly: Assembly) -> None:
    """Add the document; a presentation's slides are labelled "slide N". Raises ParseError "encrypted" or "broken"."""
    if source.media_type == types.OOXML_ENCRYPTED:  # it may be under the password that is built into Excel
        read_instead(source, assembly, ParseError("encrypted", LOCKED))
        return
    if source.media_type in (types.DOC, types.PPT):
        check_open(source.data, source.media_type)
    add_extract(extract(source.data, source.limits), assembly)


def read_instead(source: Source, assembly: Assembly, error: ParseError) -> None:
    """Add what another reader could not read; its error is raised where Tika gives nothing either."""
    try:
        add_extract(extract(source.data, source.limits), assembly)
    except ParseError as failure:
        raise (error if failure.kind == "broken" else failure) from failure
    if not assembly.length:
        raise error


def check_open(data: bytes, media_type: str) -> None:
    """ParseError "encrypted" for a DOC or PPT under a password or rights management."""
    with olefile.OleFileIO(io.BytesIO(data)) as container:
        if media_type == types.DOC:
            flags = _number(container, "WordDocument", DOC_FLAGS_OFFSET, "<H")
            is_locked = bool(flags & DOC_ENCRYPTED) or container.exists("\x09DRMContent")
        else:
            token = _number(container, "Current User", PPT_TOKEN_OFFSET, "<I")
            is_locked = token == PPT_ENCRYPTED or container.exists("EncryptedSummary")
    if is_locked:
        raise ParseError("encrypted", LOCKED)


def _number(container: olefile.OleFileIO[Any], stream: str, offset: int, form: str) -> int:
    """A number in a stream's first bytes; 0 where the stream is missing or shorter."""
    if not container.exists(stream):
        return 0
    with container.openstream(stream) as content:
        head: bytes = content.read(offset + struct.calcsize(form))
    return int(struct.unpack_from(form, head, offset)[0]) if len(head) == offset + struct.calcsize(form) else 0


def extract(data: bytes, limits: ParseLimits) -> Extract:
    """Tika's XHTML of a document. Raises ParseError "broken" for what Tika cannot read, "too_large" for too much."""
    if data[:64].lstrip().startswith(b"{\\rtf"):
        data = set_notes_apart(_with_end_of_header(data))
    office = iscc_tika.OfficeParserConfig().set_include_headers_and_footers(True)
    extractor = iscc_tika.Extractor().set_xml_output(True).set_office_config(office)
    content = bytearray(data)
    limit = MARKUP_PER_CHARACTER * limits.max_chars + SPARE_CHARS
    try:
        markup, metadata = extractor.set_extract_string_max_length(limit).extract_bytes_to_string(content)
        if "\ufffd" in markup:
            markup = _with_high_planes(markup, extractor, content)
    except TypeError as error:  # the wrapper raises it for every exception of Tika's
        raise ParseError(
            "broken",
            f"The document could not be read ({str(error)[:200]}). Open it in its own program, save it again, upload"
            " that.",
        ) from error
    if len(markup) >= limit:
        raise ParseError("too_large", f"The document gives more than {limits.max_chars:,} characters. Split it.")
    markup = markup.replace("<p>\ufffd", "<p>")  # the mark of a note or comment, which XML cannot hold
    return Extract(close_empty(markup).replace(OPTIONAL_HYPHEN, ""), metadata)


def _with_high_planes(markup: str, extractor: iscc_tika.Extractor, content: bytearray) -> str:
    """The markup with its characters above U+FFFF, which the wrapper's strings break and its streams keep.

    A stream that is read in larger pieces gives other text from time to time: it is used only where it says the same.
    """
    stream, _ = extractor.extract_bytes(content)
    pieces = bytearray()
    while piece := stream.read(STREAM_BYTES):
        pieces += piece
    streamed = pieces.decode("utf-8", "replace")
    start, other_start = markup.find("<body"), streamed.find("<body")
    is_same = HIGH_PLANES.sub("", markup[start:]) == HIGH_PLANES.sub("", streamed[other_start:])
    return streamed if is_same and min(start, other_start) >= 0 else markup


def rich_text(data: bytes, limits: ParseLimits) -> str:
    """The text of an RTF, as Markdown."""
    markup = extract(data, limits).markup
    body = None if is_too_deep(markup) else LexborHTMLParser(markup).body
    return render_page(markup).text if body is None else _render(body)


def add_extract(extracted: Extract, assembly: Assembly) -> None:
    """Add slides and sheets, then all other text, then what stands on the slides' masters, each once."""
    assembly.describe(
        author=extracted.value("dc:creator"),
        created_at=extracted.value("dcterms:created"),
        modified_at=extracted.value("dcterms:modified"),
        subject=extracted.value("dc:subject"),
        language=extracted.value("dc:language"),
    )
    assembly.entitle_by_property(extracted.value("dc:title"))
    if is_too_deep(extracted.markup):
        page = render_page(extracted.markup)
        assembly.warn(page.warning)
        assembly.add(page.text)
        return
    body = LexborHTMLParser(extracted.markup).body
    if body is None:
        return
    for heading in body.css(EMBEDDED_NAMES):
        heading.decompose()
    masters = _cut(body, MASTER)
    for number, slide in enumerate(body.css(SLIDES), 1):
        notes = _cut(slide, NOTES)
        assembly.add(join_blocks([_render(slide), *(f"Notes: {paragraph}" for paragraph in notes)]), f"slide {number}")
        slide.decompose()
    for sheet in body.css(SHEETS):
        name = sheet.css_first("h1")
        if len(blocks := _blocks(sheet)) > 1:
            assembly.add(join_blocks(blocks), f"sheet {name.text() if name is not None else ''}".strip())
        sheet.decompose()
    text = _render(body)
    assembly.add(text)
    for paragraph in masters:
        assembly.add(f"On the slide master: {paragraph}")
    assembly.entitle(first_heading(text))


def _cut(node: LexborNode, selector: str) -> list[str]:
    """The blocks inside the elements of a selector, each once, for Tika repeats them; the elements are taken out."""
    blocks: dict[str, None] = {}
    for part in node.css(selector):
        blocks.update(dict.fromkeys(_blocks(part)))
        part.decompose()
    return list(blocks)


def _render(node: LexborNode) -> str:
    return join_blocks(_blocks(node))


def _blocks(node: LexborNode) -> list[str]:
    """Paragraphs that begin with a bullet are list items; a star alone stands for the number of a slide."""
    return [BULLET.sub("- ", block) for block in node_blocks(node) if block.strip() not in ("", FIELD)]


def _with_end_of_header(data: bytes) -> bytes:
    """The RTF with a word that ends the header where its text begins, if no program has written one there."""
    index = data.index(b"{") + 1
    while match := RTF_TOKEN.match(data, index):
        word = match.group("word")
        if word in RTF_ENDS_OF_HEADER:
            return data
        if word in RTF_BODY_WORDS:
            break
        if match.group().startswith(b"{"):
            group = match.group("group")
            if group in RTF_ENDS_OF_HEADER:
                return data
            if not match.group("starred") and (group is None or group in RTF_BODY_WORDS):
                break
            index = _end_of_group(data, index)
        else:
            index = match.end()
    return b"".join((data[:index], rb"\pard ", data[index:]))


def _end_of_group(data: bytes, index: int) -> int:
    """Behind the closing brace of the group that opens at a place; the end of the data when it never closes."""
    depth = 0
    for match in RTF_BRACE.finditer(data, index):
        depth += {b"{": 1, b"}": -1}.get(match.group(), 0)
        if depth == 0:
            return match.end()
    return len(data)
