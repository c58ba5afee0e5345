"""Outlook messages (MSG): an OLE2 container with a stream for each property."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import olefile

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.charsets import decode
from collections_app.parsing.html import render_page
from collections_app.parsing.mail import message_text
from collections_app.parsing.rtf import render_rtf
from collections_app.parsing.types import ParseError, Source

SUBJECT, BODY, HTML_BODY, RTF_BODY = "0037", "1000", "1013", "1009"
SENDER_NAME, SENDER_ADDRESS, SENDER_SMTP = "0C1A", "0C1F", "5D01"
DISPLAY_TO, DISPLAY_CC, DISPLAY_BCC = "0E04", "0E03", "0E02"
ATTACH_LONG_NAME, ATTACH_NAME, ATTACH_DATA, ATTACH_MIME = "3707", "3704", "3701", "370E"
MESSAGE_CLASS = "001A"
DATES = ((0x0039, 0x0040), (0x0E06, 0x0040), (0x3007, 0x0040))
# More named properties of contacts and appointments that hold text for people.
CONTACT_PROPERTIES = (
    ("3001", "Name"),
    ("3A16", "Company"),
    ("3A17", "Title"),
    ("3A08", "Business phone"),
    ("3A1C", "Mobile phone"),
    ("3A15", "Address"),
)
EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
LZFU_COMPRESSED, LZFU_STORED = 0x75465A4C, 0x414C454D
LZFU_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor"
    b" MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n"
    b"\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
RTF_LIMIT_BYTES = 100 * 1024 * 1024


def read(source: Source, assembly: Assembly) -> None:
    """Add the message; its attachments are named. Raises ParseError "encrypted" for a protected one."""
    with olefile.OleFileIO(io.BytesIO(source.data)) as container:
        message = _Message(container)
        kind = message.text("", MESSAGE_CLASS)
        subject = message.text("", SUBJECT)
        body = _body(message)
        if not body.strip() and ("rpmsg" in kind.lower() or "smime" in kind.lower() or _holds_protected(message)):
            raise ParseError(
                "encrypted", "The message is encrypted or rights-protected. Save it without protection and upload that."
            )
        sender = message.text("", SENDER_NAME)
        address = message.text("", SENDER_SMTP) or message.text("", SENDER_ADDRESS)
        author = f"{sender} <{address}>" if "@" in address and address != sender else sender or address
        sent = message.date()
        headers = [
            ("From", author),
            ("To", message.text("", DISPLAY_TO).rstrip("\x00")),
            ("Cc", message.text("", DISPLAY_CC).rstrip("\x00")),
            ("Bcc", message.text("", DISPLAY_BCC).rstrip("\x00")),
            ("Date", sent),
        ]
        if kind.startswith("IPM.Contact"):
            headers.extend((label, message.text("", number)) for number, label in CONTACT_PROPERTIES)
        assembly.entitle(subject)
        assembly.describe(author=author, created_at=sent, message_class=kind)
        _attach_files(message, assembly)
        assembly.add(message_text(subject, headers, body, 1))


def _body(message: _Message) -> str:
    """The plain body; without one the HTML body, then the compressed RTF body."""
    plain = message.text("", BODY)
    if plain.strip():
        return plain
    page = message.binary("", HTML_BODY)
    if page:
        return render_page(decode(page).text).text
    if rtf := message.binary("", RTF_BODY):
        return render_rtf(decompress_rtf(rtf)).text
    return ""


def _holds_protected(message: _Message) -> bool:
    return any(
        message.text(storage, ATTACH_LONG_NAME).lower().endswith((".rpmsg", ".p7m", ".pgp-encrypted"))
        for storage in message.attachments()
    )


def _attach_files(message: _Message, assembly: Assembly) -> None:
    for storage in message.attachments():
        name = message.text(storage, ATTACH_LONG_NAME) or message.text(storage, ATTACH_NAME)
        data = message.binary(storage, ATTACH_DATA)
        if data:
            assembly.attach(name, data, message.text(storage, ATTACH_MIME))
        elif name or message.has_storage(storage, ATTACH_DATA):
            assembly.attach(name or "message.msg", b"")
            assembly.warn("A message or object embedded in this message is named but its content was not read.")


class _Message:
    """Property streams by storage ("" for the message itself) and number."""

    def __init__(self, container: olefile.OleFileIO[Any]) -> None:
        self._container = container
        self._charset = self._find_charset()

    def text(self, storage: str, number: str) -> str:
        if wide := self._read(storage, number, "001F"):
            return wide.decode("utf-16-le", "replace").rstrip("\x00")
        narrow = self._read(storage, number, "001E")
        return decode(narrow, self._charset).text.rstrip("\x00") if narrow else ""

    def binary(self, storage: str, number: str) -> bytes:
        return self._read(storage, number, "0102") or self._read(storage, number, "001E")

    def has_storage(self, storage: str, number: str) -> bool:
        return bool(self._container.exists([storage, f"__substg1.0_{number}000D"]))

    def attachments(self) -> list[str]:
        names = {entry[0] for entry in self._container.listdir(streams=True) if entry[0].lower().startswith("__attach")}
        return sorted(names)

    def date(self) -> str:
        """When it was sent, received or made, in ISO form; "" when the message does not say."""
        for number, kind in DATES:
            ticks = self._fixed(number, kind)
            if ticks:
                try:
                    return (EPOCH + timedelta(microseconds=ticks // 10)).isoformat(timespec="seconds")
                except OverflowError:
                    continue
        return ""

    def _read(self, storage: str, number: str, kind: str) -> bytes:
        path = [part for part in (storage, f"__substg1.0_{number}{kind}") if part]
        if not self._container.exists(path):
            return b""
        with self._container.openstream(path) as stream:
            content: bytes = stream.read()
        return content

    def _fixed(self, number: int, kind: int) -> int:
        """A property of fixed size from the property table (32 bytes of header, 16 per entry)."""
        if not self._container.exists("__properties_version1.0"):
            return 0
        with self._container.openstream("__properties_version1.0") as stream:
            content = stream.read()
        for place in range(32, len(content) - 15, 16):
            tag, _, value = struct.unpack_from("<IIQ", content, place)
            if tag == number << 16 | kind:
                return int(value)
        return 0

    def _find_charset(self) -> str:
        for number in (0x3FFD, 0x3FDE):
            page = self._fixed(number, 0x0003) & 0xFFFFFFFF
            if page:
                return "utf-8" if page == 65001 else f"cp{page}"
        return ""


def decompress_rtf(data: bytes) -> bytes:
    """The RTF inside a compressed RTF property (MS-OXRTFCP). ParseError "broken" when it is none."""
    if len(data) < 16:
        raise ParseError("broken", "The message's RTF body is cut off. Save the message again.")
    _, raw_size, magic, _ = struct.unpack_from("<IIII", data)
    if magic == LZFU_STORED:
        return data[16 : 16 + raw_size]
    if magic != LZFU_COMPRESSED or raw_size > RTF_LIMIT_BYTES:
        raise ParseError("broken", "The message's RTF body is damaged. Save the message again.")
    ring = bytearray(LZFU_DICTIONARY.ljust(4096, b"\x00"))
    write, place = len(LZFU_DICTIONARY), 16
    output = bytearray()
    while place < len(data) and len(output) < raw_size:
        flags = data[place]
        place += 1
        for bit in range(8):
            if flags >> bit & 1:
                if place + 1 >= len(data):
                    return bytes(output[:raw_size])
                reference = data[place] << 8 | data[place + 1]
                place += 2
                offset, length = reference >> 4, (reference & 0xF) + 2
                if offset == write:
                    return bytes(output[:raw_size])
                for step in range(length):
                    byte = ring[(offset + step) % 4096]
                    output.append(byte)
                    ring[write] = byte
                    write = (write + 1) % 4096
            else:
                if place >= len(data):
                    return bytes(output[:raw_size])
                byte = data[place]
                place += 1
                output.append(byte)
                ring[write] = byte
                write = (write + 1) % 4096
    return bytes(output[:raw_size])
