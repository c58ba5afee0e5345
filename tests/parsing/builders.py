"""Small documents made for the tests: by other libraries where possible, by hand where odd or hostile."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import docx
import pptx
import xlsxwriter

DATA = Path(__file__).with_name("data")
PDF_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def make_zip(members: Mapping[str, bytes | str], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def with_member(archive: bytes, name: str, content: bytes) -> bytes:
    """A ZIP archive with one more file in it."""
    buffer = io.BytesIO(archive)
    with zipfile.ZipFile(buffer, "a") as container:
        container.writestr(name, content)
    return buffer.getvalue()


def make_docx() -> bytes:
    """A title, two headings, lists, a table, a header: made by python-docx."""
    document = docx.Document()
    document.core_properties.title = "Care of garden tools"
    document.core_properties.author = "A. Gardener"
    document.add_heading("Care of garden tools", 0)
    document.add_heading("Blades", 1)
    document.add_paragraph("Clean the blade after use.")
    document.add_paragraph("Sharpen it in spring.", style="List Bullet")
    document.add_paragraph("Oil it in autumn.", style="List Bullet")
    document.add_heading("Prices", 2)
    table = document.add_table(rows=2, cols=2)
    for row, values in enumerate((("Tool", "Price"), ("Spade", "12.50"))):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    document.add_paragraph("First, wash.", style="List Number")
    document.add_paragraph("Then, dry.", style="List Number")
    document.sections[0].header.paragraphs[0].text = "Garden club"
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def make_pptx() -> bytes:
    """Two slides, the second with a table and notes: made by python-pptx."""
    show = pptx.Presentation()
    first = show.slides.add_slide(show.slide_layouts[1])
    first.shapes.title.text = "Soil"
    frame = first.placeholders[1].text_frame
    frame.text = "Sand drains"
    paragraph = frame.add_paragraph()
    paragraph.text, paragraph.level = "but dries out", 1
    second = show.slides.add_slide(show.slide_layouts[5])
    second.shapes.title.text = "Water"
    cells = second.shapes.add_table(2, 2, 0, 0, 1000, 1000).table
    for row, values in enumerate((("Month", "Litres"), ("May", "40"))):
        for column, value in enumerate(values):
            cells.cell(row, column).text = value
    second.notes_slide.notes_text_frame.text = "Mention the rain barrel"
    buffer = io.BytesIO()
    show.save(buffer)
    return buffer.getvalue()


def make_xlsx() -> bytes:
    """Two sheets with text, whole and broken numbers, a date and a comment, and an empty third: made by XlsxWriter."""
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    prices = book.add_worksheet("Prices")
    day = book.add_format({"num_format": "yyyy-mm-dd"})
    prices.write_row(0, 0, ["Tool", "Price", "Since"])
    prices.write_row(1, 0, ["Spade", 12.5])
    prices.write_datetime(1, 2, __import__("datetime").datetime(2024, 3, 1), day)
    prices.write_row(2, 0, ["Rake | wide", 9])
    prices.write_comment(2, 0, "Sold out", {"author": "B"})
    stock = book.add_worksheet("Stock")
    stock.write_column(0, 0, ["Spade", "Rake"])
    book.add_worksheet("Empty")
    book.close()
    return buffer.getvalue()


def make_odt(body: str, *, mimetype: str = "application/vnd.oasis.opendocument.text", manifest: str = "") -> bytes:
    content = (
        '<?xml version="1.0" encoding="UTF-8"?><office:document-content'
        ' xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
        ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
        ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
        ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
        ' xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'
        ' xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0"'
        f' office:version="1.3"><office:body>{body}</office:body></office:document-content>'
    )
    return make_zip({"mimetype": mimetype, "content.xml": content, "META-INF/manifest.xml": manifest or "<manifest/>"})


def make_epub(chapters: Sequence[tuple[str, str]]) -> bytes:
    """chapters: (file name, XHTML body)."""
    items = "".join(
        f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, (name, _) in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        "<dc:title>The Barrel</dc:title><dc:creator>R. Barrel</dc:creator></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    container = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    pages = {f"OEBPS/{name}": f"<html><body>{body}</body></html>" for name, body in chapters}
    return make_zip(
        {"mimetype": "application/epub+zip", "META-INF/container.xml": container, "OEBPS/book.opf": package, **pages}
    )


def make_pdf(
    pages: Sequence[str],
    *,
    title: str = "",
    password: str | None = None,
    image_pages: Sequence[int] = (),
    pictured_pages: Sequence[int] = (),
    content: bytes | None = None,
    reads: Mapping[str, str] | None = None,
) -> bytes:
    """A PDF with one line of Helvetica per line of a page. password: RC4, 40 bits; ""
    locks nothing but the permissions. image_pages: by number, a picture; pictured_pages: one behind the text.

    content: the raw, doubly Flate-coded stream of the first page, for bombs. reads: the letters that some of the drawn
    ones stand for, as the font names them.
    """
    builder = _Pdf(password)
    named = b""
    if reads:
        lines = "".join(f"<{ord(drawn):02x}> <{ord(letter):04x}>\n" for drawn, letter in reads.items())
        head = "begincmap 1 begincodespacerange <00> <ff> endcodespacerange"
        cmap = f"{head} {len(reads)} beginbfchar\n{lines}endbfchar endcmap"
        named = b" /ToUnicode %d 0 R" % builder.add_stream(b"<<", cmap.encode())
    font = builder.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica%s >>" % named)
    image = builder.add_stream(
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8", b"\x80"
    )
    tree = builder.reserve()
    kids = []
    for number, text in enumerate(pages, 1):
        drawn = _drawn(text) if number not in image_pages else b"q 100 0 0 100 50 500 cm /Im Do Q"
        if number in pictured_pages:
            drawn = b"q 600 0 0 780 5 5 cm /Im Do Q " + drawn
        extra = b""
        if content is not None and number == 1:
            drawn, extra = content, b" /Filter [/FlateDecode /FlateDecode]"
        stream = builder.add_stream(b"<<" + extra, drawn)
        kids.append(
            builder.add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
                b" /Resources << /Font << /F %d 0 R >> /XObject << /Im %d 0 R >> >> >>" % (tree, stream, font, image)
            )
        )
    builder.set(
        tree, b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    )
    root = builder.add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    info = builder.add(b"<< /Title (%s) >>" % builder.encrypt(len(builder.objects) + 1, title.encode("latin-1")))
    return builder.finish(root, info)


def _drawn(text: str) -> bytes:
    lines = [b"BT /F 12 Tf 50 720 Td 14 TL"]
    for line in text.split("\n"):
        escaped = line.encode("latin-1").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
        lines.append(b"(%s) Tj T*" % escaped)
    return b"\n".join([*lines, b"ET"])


class _Pdf:
    """Objects by number; strings and streams are encrypted when there is a password (standard handler, revision 2)."""

    def __init__(self, password: str | None) -> None:
        self.objects: list[bytes] = []
        self.identifier = hashlib.md5(b"test").digest()
        self.key = b""
        self.security = b""
        if password is not None:
            user = (password.encode("latin-1") + PDF_PADDING)[:32]
            owner = rc4(hashlib.md5(user).digest()[:5], user)
            self.key = hashlib.md5(user + owner + struct.pack("<i", -4) + self.identifier).digest()[:5]
            check = rc4(self.key, PDF_PADDING)
            self.security = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (
                owner.hex().encode(),
                check.hex().encode(),
            )

    def encrypt(self, number: int, content: bytes) -> bytes:
        if not self.key:
            return content
        salted = self.key + struct.pack("<I", number)[:3] + b"\x00\x00"
        return rc4(hashlib.md5(salted).digest()[:10], content)

    def reserve(self) -> int:
        self.objects.append(b"")
        return len(self.objects)

    def set(self, number: int, content: bytes) -> None:
        self.objects[number - 1] = content

    def add(self, content: bytes) -> int:
        self.objects.append(content)
        return len(self.objects)

    def add_stream(self, start: bytes, content: bytes) -> int:
        content = self.encrypt(len(self.objects) + 1, content)
        return self.add(start + b" /Length %d >>\nstream\n" % len(content) + content + b"\nendstream")

    def finish(self, root: int, info: int) -> bytes:
        security = self.add(self.security) if self.security else 0
        output = bytearray(b"%PDF-1.4\n")
        offsets = []
        for number, content in enumerate(self.objects, 1):
            offsets.append(len(output))
            output += b"%d 0 obj\n" % number + content + b"\nendobj\n"
        start = len(output)
        output += b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1)
        output += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
        identifier = self.identifier.hex().encode()
        locked = b" /Encrypt %d 0 R" % security if security else b""
        output += b"trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R /ID [<%s><%s>]%s >>\nstartxref\n%d\n%%%%EOF\n" % (
            len(offsets) + 1, root, info, identifier, identifier, locked, start,
        )  # fmt: skip
        return bytes(output)


def rc4(key: bytes, content: bytes) -> bytes:
    state = list(range(256))
    other = 0
    for place in range(256):
        other = (other + state[place] + key[place % len(key)]) % 256
        state[place], state[other] = state[other], state[place]
    output = bytearray()
    first = second = 0
    for byte in content:
        first = (first + 1) % 256
        second = (second + state[first]) % 256
        state[first], state[second] = state[second], state[first]
        output.append(byte ^ state[(state[first] + state[second]) % 256])
    return bytes(output)


def deflated_zeros(count: int) -> bytes:
    """`count` zero bytes, deflated twice: a few hundred bytes for hundreds of megabytes."""
    packer = zlib.compressobj(1)
    piece = bytes(1024 * 1024)
    inner = b"".join(packer.compress(piece) for _ in range(count // len(piece))) + packer.flush()
    return zlib.compress(inner, 9)


def make_bomb_docx(size_bytes: int, *, lie: int | None = None) -> bytes:
    """A DOCX whose main part unpacks to `size_bytes` blanks; lie: the size that its directory states instead."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w") as member:
            member.write(b"<w:document xmlns:w='x'>")
            for _ in range(size_bytes // 65536):
                member.write(b" " * 65536)
            member.write(b"</w:document>")
    data = bytearray(buffer.getvalue())
    if lie is not None:
        true_size = struct.pack("<I", archive.getinfo("word/document.xml").file_size)
        data = data.replace(true_size, struct.pack("<I", lie))
    return bytes(data)


def make_ole(streams: Mapping[str, bytes]) -> bytes:
    """An OLE2 container; "/" in a name parts storages. Streams take at least 4096 bytes: no mini stream is needed."""
    sector = 512
    free, end_of_chain, fat_sector = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
    body = bytearray()
    fat: list[int] = []
    # name, kind, first sector, size, first child, next sibling
    records: list[list[Any]] = [["Root Entry", 5, end_of_chain, 0, free, free]]
    places = {"": 0}

    def add(path: str, kind: int, first: int, size: int) -> None:
        folder, _, name = path.rpartition("/")
        if folder not in places:
            add(folder, 1, 0, 0)
        parent = records[places[folder]]
        records.append([name, kind, first, size, free, parent[4]])
        places[path] = parent[4] = len(records) - 1

    for path, content in streams.items():
        padded = content.ljust(max(4096, -(-len(content) // sector) * sector), b"\x00")
        first = len(fat)
        count = len(padded) // sector
        fat.extend([*range(first + 1, first + count), end_of_chain])
        body += padded
        add(path, 2, first, len(padded))
    directory_start = len(fat)
    records += [["", 0, 0, 0, free, free] for _ in range(-len(records) % 4)]
    directory = bytearray()
    for name, kind, first, size, child, sibling in records:
        raw = name.encode("utf-16-le") + b"\x00\x00" if name else b""
        directory += raw.ljust(64, b"\x00") + struct.pack("<HBBIII", len(raw), kind, 1, free, sibling, child)
        directory += bytes(36) + struct.pack("<IQ", first, size)
    directory_sectors = len(directory) // sector
    fat.extend([*range(directory_start + 1, directory_start + directory_sectors), end_of_chain])
    body += directory
    fat_sectors = -(-(len(fat) + 4) // 128)
    fat_start = len(fat)
    fat.extend([fat_sector] * fat_sectors)
    fat.extend([free] * (-len(fat) % 128))
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, fat_sectors, directory_start, 0, 4096, end_of_chain, 0, end_of_chain, 0)
    located = [fat_start + number for number in range(fat_sectors)] + [free] * (109 - fat_sectors)
    header += struct.pack("<109I", *located)
    return bytes(header + body + struct.pack(f"<{len(fat)}I", *fat))


def sample(name: str) -> bytes:
    """A small document that an office program wrote: tests/parsing/data/NAME.gz.

    protected.xlsx is make_xlsx() under the password that is built into Excel.
    """
    return gzip.decompress((DATA / f"{name}.gz").read_bytes())


def make_doc(text: str, *, encrypted: bool = False) -> bytes:
    """The streams by which a Word 97 document is known, of one UTF-16 piece; no program opens it."""
    content = text.encode("utf-16-le")
    start = 1024
    header = bytearray(start)
    struct.pack_into("<HH", header, 0, 0xA5EC, 0xC1)
    struct.pack_into("<H", header, 0x0A, 0x0200 | (0x0100 if encrypted else 0))
    return make_ole({"WordDocument": bytes(header) + content, "1Table": b""})


def make_ppt(*, encrypted: bool = False) -> bytes:
    """The streams by which a PowerPoint 97 presentation is known; no program opens it."""
    user = struct.pack("<HHIII", 0, 4086, 20, 20, 0xF3D1C4DF if encrypted else 0xE391C05F)
    return make_ole({"PowerPoint Document": bytes(64), "Current User": user})


def make_biff4(rows: Sequence[Sequence[str | float]]) -> bytes:
    """A worksheet of Excel 4, a bare stream of records."""

    def record(kind: int, content: bytes) -> bytes:
        return struct.pack("<HH", kind, len(content)) + content

    records = [record(0x0409, struct.pack("<HHH", 0, 0x10, 0))]
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            place = struct.pack("<HHH", row, column, 0)
            if isinstance(value, str):
                records.append(record(0x0204, place + struct.pack("<H", len(value)) + value.encode("cp1252")))
            else:
                records.append(record(0x0203, place + struct.pack("<d", value)))
    return b"".join([*records, record(0x0A, b"")])


def make_msg(properties: Mapping[str, str], files: Mapping[str, bytes | Mapping[str, str]] | None = None) -> bytes:
    """An Outlook message from text properties by their number, such as "0037" for the subject.

    files: attachments by name: the bytes of a file, or the properties of a message inside.
    """
    streams = _msg_properties("", properties)
    for number, (name, content) in enumerate((files or {}).items()):
        storage = f"__attach_version1.0_#{number:08X}/"
        streams[f"{storage}__substg1.0_3707001F"] = name.encode("utf-16-le")
        if isinstance(content, bytes):
            streams[f"{storage}__substg1.0_37010102"] = content
        else:
            streams |= _msg_properties(f"{storage}__substg1.0_3701000D/", content)
    return make_ole(streams)


def _msg_properties(base: str, properties: Mapping[str, str]) -> dict[str, bytes]:
    streams = {f"{base}__substg1.0_{number}001F": text.encode("utf-16-le") for number, text in properties.items()}
    return {f"{base}__properties_version1.0": b"\x00" * 32, **streams}
