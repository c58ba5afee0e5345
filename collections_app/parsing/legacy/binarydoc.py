"""The text of a Word 6 to 2003 document, straight from its piece table. No structure but paragraphs and cells."""

from __future__ import annotations

import re
import struct
from typing import Any

import olefile

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.types import ParseError

MAGIC_97, MAGIC_95 = 0xA5EC, 0xA5DC
FIRST_97_VERSION = 0xC1
FLAG_ENCRYPTED, FLAG_TABLE_1 = 0x0100, 0x0200
COUNTS_OFFSET = 0x4C
CLX_OFFSET = 0x1A2
PIECE_LIMIT = 1_000_000
FIELD_CODE = re.compile("\x13[^\x13\x14\x15]*(?:\x14([^\x13\x14\x15]*))?\x15")
CHARACTERS = str.maketrans(
    {"\r": "\n", "\x0b": "\n", "\x0c": "\n", "\x0e": "\n", "\x1e": "\u2011", "\x1f": ""}
    | dict.fromkeys("\x01\x02\x03\x04\x05\x08\x13\x14\x15", "")
)


def check_readable(container: olefile.OleFileIO[Any]) -> None:
    """ParseError "encrypted" or "broken" when the text cannot be reached."""
    header = _stream(container, "WordDocument")
    if len(header) < 0x60 or struct.unpack_from("<H", header)[0] not in (MAGIC_97, MAGIC_95):
        raise ParseError("broken", "The Word document's header is damaged. Open it in Word, save it again as DOCX.")
    if struct.unpack_from("<H", header, 0x0A)[0] & FLAG_ENCRYPTED or container.exists("\x09DRMContent"):
        raise ParseError(
            "encrypted", "The Word document is locked by a password or by rights management. Save it without."
        )


def read_text(container: olefile.OleFileIO[Any], assembly: Assembly) -> None:
    """Add the body, then notes, headers, comments and text boxes in the order of the file."""
    header = _stream(container, "WordDocument")
    version = struct.unpack_from("<H", header, 2)[0]
    text = _text_97(container, header) if version >= FIRST_97_VERSION else _text_95(header)
    assembly.add(clean(text))


def clean(text: str) -> str:
    """Plain paragraphs: fields replaced by their results, cells set apart by bars."""
    for _ in range(10):
        text, count = FIELD_CODE.subn(lambda match: match.group(1) or "", text)
        if not count:
            break
    # The end of a row is a cell mark of its own, so two in a row mean a new line.
    text = text.replace("\x07\x07", "\n").replace("\x07", " | ")
    lines = (
        line.strip(" |") if " | " in line and not line.strip(" |") else line.rstrip()
        for line in text.translate(CHARACTERS).split("\n")
    )
    return "\n\n".join(line for line in lines if line.strip())


def _text_97(container: olefile.OleFileIO[Any], header: bytes) -> str:
    flags = struct.unpack_from("<H", header, 0x0A)[0]
    table = _stream(container, "1Table" if flags & FLAG_TABLE_1 else "0Table")
    start, size = struct.unpack_from("<II", header, CLX_OFFSET)
    wanted = sum(struct.unpack_from("<8i", header, COUNTS_OFFSET))
    pieces: list[str] = []
    length = 0
    for count, offset, is_narrow in _pieces(table[start : start + size]):
        count = min(count, max(0, wanted + 1 - length))
        raw = header[offset : offset + count * (1 if is_narrow else 2)]
        pieces.append(raw.decode("cp1252" if is_narrow else "utf-16-le", "replace"))
        length += count
    return "".join(pieces)


def _pieces(clx: bytes) -> list[tuple[int, int, bool]]:
    """(characters, offset in the main stream, one byte per character) of every piece."""
    place = 0
    while place + 3 <= len(clx) and clx[place] == 1:
        place += 3 + struct.unpack_from("<H", clx, place + 1)[0]
    if place + 5 > len(clx) or clx[place] != 2:
        raise ParseError(
            "broken", "The Word document's piece table is damaged. Open it in Word, save it again as DOCX."
        )
    size = min(struct.unpack_from("<I", clx, place + 1)[0], len(clx) - place - 5)
    count = min((size - 4) // 12, PIECE_LIMIT)
    bounds = struct.unpack_from(f"<{count + 1}i", clx, place + 5)
    descriptors = place + 5 + 4 * (count + 1)
    pieces = []
    for number in range(count):
        located = struct.unpack_from("<I", clx, descriptors + 8 * number + 2)[0]
        is_narrow = bool(located & 0x40000000)
        offset = (located & 0x3FFFFFFF) // 2 if is_narrow else located & 0x3FFFFFFF
        pieces.append((max(0, bounds[number + 1] - bounds[number]), offset, is_narrow))
    return pieces


def _text_95(header: bytes) -> str:
    start, end = struct.unpack_from("<II", header, 0x18)
    return header[start:end].decode("cp1252", "replace")


def _stream(container: olefile.OleFileIO[Any], name: str) -> bytes:
    if not container.exists(name):
        raise ParseError("broken", f"The Word document has no {name!r} stream. Open it in Word, save it again as DOCX.")
    with container.openstream(name) as stream:
        content: bytes = stream.read()
    return content
