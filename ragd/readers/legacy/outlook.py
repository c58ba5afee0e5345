"""Outlook messages (MSG): an OLE2 container with a stream for each property."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import olefile

from ragd.readers.assembly import Assembly
from ragd.readers.legacy.tika import rich_text
from ragd.readers.mail import message_text
from ragd.readers.text.charsets import decode
from ragd.readers.text.html import render_page
from ragd.readers.types import ParseError, ParseLimits, Source

SUBJECT, BODY, HTML_BODY, RTF_BODY = "0037", "1000", "1013", "1009"
SENDER_NAME, SENDER_ADDRESS, SENDER_SMTP = "0C1A", "0C1F", "5D01"
DISPLAY_TO, DISPLAY_CC, DISPLAY_BCC = "0E04", "0E03", "0E02"
ATTACH_LONG_NAME, ATTACH_NAME, ATTACH_DATA, ATTACH_MIME = "3707", "3704", "3701", "370E"
MESSAGE_CLASS = "001A"
DATES = ((0x0039, 0x0040), (0x0E06, 0x0040), (0x3007, 0x0040))
# More named properties of contacts and appointments that hold text for people.
CONTACT_PROPERTIES = (
    ("3001", "Name"), ("3A16", "Company"), ("3A17", "Title"), ("3A08", "Business phone"), ("3A1C", "Mobile phone"),
    ("3A15", "Address"),
)  # fmt: skip
PROPERTY_TABLE, OBJECT_STORAGE = "__properties_version1.0", "__substg1.0_3701000D"
HEADER_BYTES, EMBEDDED_HEADER_BYTES = 32, 24
EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
LZFU_COMPRESSED, LZFU_STORED = 0x75465A4C, 0x414C454D
LZFU_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor"
    b" MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n"
    b"\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
RTF_LIMIT_BYTES = 100 * 1024 * 1024


def read(source: Source, assembly: Assembly) -> None:
    """Add the message and the messages inside it, with their files attached. Raises ParseError "encrypted"."""
    with olefile.OleFileIO(io.BytesIO(source.data)) as container:
        message = _Message(container, source.limits)
        kind = message.text("", MESSAGE_CLASS)
        body = _body(message, assembly)
        if not body.strip() and ("rpmsg" in kind.lower() or "smime" in kind.lower() or _holds_protected(message)):
            raise ParseError(
                "encrypted",
                "The message is encrypted or rights-protected. Save a copy without protection and upload that.",
            )
        assembly.entitle(message.text("", SUBJECT))
        assembly.describe(author=_author(message), created_at=message.date(), message_class=kind)
        assembly.add(_rendered(message, body, 1))
        _add_attachments(message, assembly, 1, source.limits.max_depth)


def _rendered(message: _Message, body: str, level: int) -> str:
    headers = [
        ("From", _author(message)),
        ("To", message.text("", DISPLAY_TO).rstrip("\x00")),
        ("Cc", message.text("", DISPLAY_CC).rstrip("\x00")),
        ("Bcc", message.text("", DISPLAY_BCC).rstrip("\x00")),
        ("Date", message.date()),
    ]
    if message.text("", MESSAGE_CLASS).startswith("IPM.Contact"):
        headers.extend((label, message.text("", number)) for number, label in CONTACT_PROPERTIES)
    return message_text(message.text("", SUBJECT), headers, body, level)


def _author(message: _Message) -> str:
    sender = message.text("", SENDER_NAME)
    address = message.text("", SENDER_SMTP) or message.text("", SENDER_ADDRESS)
    return f"{sender} <{address}>" if "@" in address and address != sender else sender or address


def _body(message: _Message, assembly: Assembly) -> str:
    """The plain body; without one the HTML body, then the compressed RTF body."""
    plain = message.text("", BODY)
    if plain.strip():
        return plain
    page = message.binary("", HTML_BODY)
    if page:
        rendered = render_page(decode(page).text)
        if rendered.warning:
            assembly.warn(rendered.warning)
        return rendered.text
    if rtf := message.binary("", RTF_BODY):
        return rich_text(decompress_rtf(rtf), message.limits)
    return ""


def _holds_protected(message: _Message) -> bool:
    return any(
        message.text(storage, ATTACH_LONG_NAME).lower().endswith((".rpmsg", ".p7m", ".pgp-encrypted"))
        for storage in message.attachments()
    )


def _add_attachments(message: _Message, assembly: Assembly, depth: int, max_depth: int) -> None:
    """Attach the files; a message inside is text of this document, and its files are attached to it."""
    for storage in message.attachments():
        name = message.text(storage, ATTACH_LONG_NAME) or message.text(storage, ATTACH_NAME)
        data = message.binary(storage, ATTACH_DATA)
        inner = message.embedded(storage)
        if data:
            assembly.attach(name, data, message.text(storage, ATTACH_MIME))
        elif inner is not None and depth < max_depth:
            assembly.add(_rendered(inner, _body(inner, assembly), 2))
            _add_attachments(inner, assembly, depth + 1, max_depth)
        elif inner is not None:
            assembly.leave_out(f"Messages are nested deeper than {max_depth} levels; those further in were not read.")
        elif name or message.has_storage(storage):
            assembly.leave_out(f"An object embedded in the message ({name or 'without a name'}) was not read.")


class _Message:
    """Property streams by storage ("" for the message itself) and number. base: where the message is, if inside."""

    def __init__(
        self, container: olefile.OleFileIO[Any], limits: ParseLimits, base: tuple[str, ...] = (), charset: str = ""
    ) -> None:
        self.limits = limits
        self._container = container
        self._base = base
        self._header_bytes = EMBEDDED_HEADER_BYTES if base else HEADER_BYTES
        self._charset = self._find_charset() or charset

    def text(self, storage: str, number: str) -> str:
        if wide := self._read(storage, number, "001F"):
            return wide.decode("utf-16-le", "replace").rstrip("\x00")
        narrow = self._read(storage, number, "001E")
        return decode(narrow, self._charset).text.rstrip("\x00") if narrow else ""

    def binary(self, storage: str, number: str) -> bytes:
        return self._read(storage, number, "0102") or self._read(storage, number, "001E")

    def has_storage(self, storage: str) -> bool:
        return bool(self._container.exists([*self._base, storage, OBJECT_STORAGE]))

    def embedded(self, storage: str) -> _Message | None:
        """The message that an attachment is; None when it is a file or another object."""
        base = (*self._base, storage, OBJECT_STORAGE)
        if not self._container.exists([*base, PROPERTY_TABLE]):
            return None
        return _Message(self._container, self.limits, base, self._charset)

    def attachments(self) -> list[str]:
        at = len(self._base)
        folded = [part.lower() for part in self._base]
        paths = self._container.listdir(streams=True)
        inside = (path for path in paths if len(path) > at + 1 and [part.lower() for part in path[:at]] == folded)
        return sorted({path[at] for path in inside if path[at].lower().startswith("__attach")})

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
        path = [*self._base, *filter(None, (storage, f"__substg1.0_{number}{kind}"))]
        if not self._container.exists(path) or self._container.get_type(path) != olefile.STGTY_STREAM:
            return b""
        with self._container.openstream(path) as stream:
            content: bytes = stream.read()
        return content

    def _fixed(self, number: int, kind: int) -> int:
        """A property of fixed size from the property table (its header, then 16 bytes per entry)."""
        path = [*self._base, PROPERTY_TABLE]
        if not self._container.exists(path):
            return 0
        with self._container.openstream(path) as stream:
            content = stream.read()
        for index in range(self._header_bytes, len(content) - 15, 16):
            tag, _, value = struct.unpack_from("<IIQ", content, index)
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
    write, index = len(LZFU_DICTIONARY), 16
    output = bytearray()
    while index < len(data) and len(output) < raw_size:
        flags = data[index]
        index += 1
        for bit in range(8):
            if flags >> bit & 1:
                if index + 1 >= len(data):
                    return bytes(output[:raw_size])
                reference = data[index] << 8 | data[index + 1]
                index += 2
                offset, length = reference >> 4, (reference & 0xF) + 2
                if offset == write:
                    return bytes(output[:raw_size])
                for step in range(length):
                    byte = ring[(offset + step) % 4096]
                    output.append(byte)
                    ring[write] = byte
                    write = (write + 1) % 4096
            else:
                if index >= len(data):
                    return bytes(output[:raw_size])
                byte = data[index]
                index += 1
                output.append(byte)
                ring[write] = byte
                write = (write + 1) % 4096
    return bytes(output[:raw_size])
