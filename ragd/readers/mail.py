"""E-mail and mailboxes: headers, the body as text, attachments by name."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.message import Message
from email.policy import compat32
from email.utils import parsedate_to_datetime

from ragd.readers import signatures as types
from ragd.readers.assembly import Assembly
from ragd.readers.text.charsets import WIDE, decode
from ragd.readers.text.html import render_page
from ragd.readers.text.markup import squeeze
from ragd.readers.text.plain import take_text, unfold
from ragd.readers.types import ParseError, Source

SHOWN_HEADERS = ("From", "To", "Cc", "Bcc", "Date")
ADDRESSES_CHARS = 1000
PART_LIMIT = 1000
PLAIN_SHARE = 0.3
ENCODED_WORD = re.compile(r"=\?([^?*\s]*)(?:\*[^?\s]*)?\?([bq])\?(.*?)\?=", re.IGNORECASE)
NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
STRAY_CHARS_SHARE = 0.05  # of a line of base64 that a program on the way has touched
QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
MBOX_FROM = re.compile(rb"^From \S.*?\d\d:\d\d.*$", re.MULTILINE)
SIGNATURE = "-- "  # the line above it
# They prove who sent the message and say nothing.
SIGNATURE_TYPES = frozenset(
    {"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"}
)
ENCRYPTED_TYPES = frozenset({"multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"})


def read(source: Source, assembly: Assembly) -> None:
    """Add a message, or every message of a mailbox with its label "message N". Raises ParseError."""
    data = _single_bytes(source.data)
    if source.media_type == types.MBOX:
        _read_mailbox(data, assembly)
        return
    message = parse_message(data)
    subject = header_text(message, "Subject")
    assembly.entitle(subject)
    assembly.describe(
        author=header_text(message, "From"), created_at=iso_date(message), message_id=header_text(message, "Message-ID")
    )
    body = MessageBody(assembly)
    text = body.text(message)
    for warning in body.hidden:
        assembly.warn(warning)
    if body.encrypted and not text.strip():
        raise ParseError(
            "encrypted", "The message is encrypted. Decrypt it in the mail program, save it, and upload that."
        )
    assembly.add(message_text(subject, _shown_headers(message), text, 1))


def parse_message(data: bytes) -> Message:
    """The message. Headers in raw bytes become text, by the charset that the message names or shows."""
    message = message_from_bytes(data.lstrip(b"\r\n\t \x00"), policy=compat32)
    parts = [part for part in message.walk() if not all(_is_plain(value) for _, value in part.raw_items())]
    if parts:
        charset = _header_charset(message, parts)
        for part in parts:
            _decode_headers(part, charset)
    return message


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and "\x1b" not in value


def _raw(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogateescape")


def _header_charset(message: Message, parts: list[Message]) -> str:
    """The charset of headers in raw bytes: with them the body is looked at, if it is not UTF-8 by itself."""
    sample = [_raw(value) for part in parts for _, value in part.raw_items() if not _is_plain(value)]
    body = message.get_payload(decode=True)
    if isinstance(body, bytes) and message.get_content_maintype() == "text" and not _is_utf8(body):
        sample.append(body)
    declared = next((charset for part in message.walk() if (charset := part.get_content_charset())), "")
    return decode(b"\n".join(sample), declared).charset


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode_headers(part: Message, charset: str) -> None:
    headers = list(part.raw_items())
    for name in {name for name, _ in headers}:
        del part[name]
    for name, value in headers:
        data = _raw(value)
        text = data.decode("utf-8" if _is_utf8(data) and b"\x1b" not in data else charset, "replace")
        part.set_raw(name, text)


def message_text(subject: str, headers: list[tuple[str, str]], body: str, level: int) -> str:
    """A message as Markdown: the subject as heading, one line per header, the body."""
    lines = [f"{name}: {squeeze(value)[:ADDRESSES_CHARS]}" for name, value in headers if value.strip()]
    head = f"{'#' * level} {squeeze(subject)}" if subject.strip() else ""
    return "\n\n".join(part for part in (head, "\n".join(lines), body.strip("\r\n")) if part)


def header_text(message: Message, name: str) -> str:
    """A header with its encoded words decoded; "" when it is missing."""
    value = str(message.get(name, ""))
    return squeeze(decode_words(re.sub(r"\r?\n(?=[ \t])", "", value)))


def decode_words(text: str) -> str:
    """The text with encoded words (RFC 2047) decoded. Words of one charset may part a character between them."""
    result: list[str] = []
    pending: tuple[str, bytes] | None = None
    end = 0
    for match in ENCODED_WORD.finditer(text):
        charset, encoding, content = match.groups()
        between = text[end : match.start()]
        end = match.end()
        data = decode_base64(content) if encoding in "bB" else _decode_q(content)
        if pending and not between.strip() and pending[0] == charset.lower():
            pending = charset.lower(), pending[1] + data
            continue
        if pending:
            result.append(decode(pending[1], pending[0]).text)
        if between.strip() or not pending:
            result.append(between)
        pending = charset.lower(), data
    if pending:
        result.append(decode(pending[1], pending[0]).text)
    return "".join([*result, text[end:]])


def _decode_q(content: str) -> bytes:
    return binascii.a2b_qp(content.encode("utf-8", "replace"), header=True)


def iso_date(message: Message) -> str:
    value = header_text(message, "Date")
    try:
        return parsedate_to_datetime(value).isoformat() if value else ""
    except (ValueError, TypeError, IndexError, OverflowError):
        return value


def _shown_headers(message: Message) -> list[tuple[str, str]]:
    return [(name, header_text(message, name)) for name in SHOWN_HEADERS]


def _single_bytes(data: bytes) -> bytes:
    """Mail saved as UTF-16 becomes UTF-8; all other mail stays as it is, for its parts name their own charsets."""
    decoded = decode(data) if data[:2] in (b"\xff\xfe", b"\xfe\xff") or 0 in data[:64] else None
    if decoded is not None and decoded.charset.startswith(WIDE):
        return decoded.text.encode("utf-8", "replace")
    return data.lstrip(b"\x00").removeprefix(b"\xef\xbb\xbf")


def _read_mailbox(data: bytes, assembly: Assembly) -> None:
    for number, content in enumerate(split_mailbox(data), 1):
        message = parse_message(QUOTED_FROM.sub(rb"\1", content))
        body = MessageBody(assembly)
        text = body.text(message)
        for warning in body.hidden:
            assembly.warn(warning)
        if body.encrypted and not text.strip():
            assembly.leave_out(f"Message {number} is encrypted; only its headers were read.")
        subject = header_text(message, "Subject")
        assembly.add(message_text(subject, _shown_headers(message), text, 2), f"message {number}")


def split_mailbox(data: bytes) -> Iterator[bytes]:
    """The messages of a mailbox. A "From " line starts one at the top of the file or after an empty line."""
    start: int | None = None
    for match in MBOX_FROM.finditer(data):
        position = match.start()
        if position > 0 and data[max(0, position - 2) : position] not in (b"\n\n", b"\r\n") and start is not None:
            continue
        if (
            position > 1
            and data[position - 2 : position] == b"\r\n"
            and data[max(0, position - 4) : position] != b"\r\n\r\n"
        ):
            continue
        if start is not None:
            yield data[start:position]
        start = match.end()
    if start is not None:
        yield data[start:]


def _is_base64(message: Message) -> bool:
    return str(message.get("Content-Transfer-Encoding", "")).strip().lower() == "base64"


def _split_base64(payload: str) -> tuple[bytes, str]:
    """The bytes of a base64 payload, and the plain text around it, such as the lines that a mailing list appends."""
    packed: list[str] = []
    plain: list[str] = []
    for line in payload.splitlines():
        # Padding, and a line shorter than the one before it, end what was packed.
        is_ended = bool(plain) or "=" in "".join(packed[-1:]) or len("".join(packed[-1:])) < len("".join(packed[-2:-1]))
        if _is_base64_line(line.strip(), is_ended):
            packed.append(re.sub(r"[^A-Za-z0-9+/=]", "", line))
        elif line.strip() or plain:
            plain.append(line)
    return b"".join(map(decode_base64, _packed_runs(packed))), "\n".join(plain).strip()


def _is_base64_line(line: str, is_ended: bool) -> bool:
    """Whether a line is packed. is_ended: after the end only what gives text is, for words look like base64 too."""
    letters = line.rstrip("=")
    strays = len(NOT_BASE64.findall(letters))
    if not is_ended:
        return bool(letters) and not re.search(r"\s", line) and strays <= max(1, STRAY_CHARS_SHARE * len(letters))
    if strays or not letters or len(line) % 4:
        return False
    content = decode_base64(line).decode("utf-8", "replace")
    return all(character.isprintable() or character in "\r\n\t" for character in content if character != "\ufffd") and (
        3 * content.count("\ufffd") < len(content)
    )


def _packed_runs(lines: list[str]) -> Iterator[str]:
    """Lines joined up to each that ends in padding."""
    run: list[str] = []
    for line in lines:
        run.append(line)
        if line.endswith("="):
            yield "".join(run)
            run = []
    yield "".join(run)


def decode_base64(text: str) -> bytes:
    """The bytes, as far as the text goes; what is missing at the end is made up for."""
    packed = NOT_BASE64.sub("", text)
    return base64.b64decode(packed[: len(packed) - (len(packed) % 4 == 1)] + "=" * (-len(packed) % 4))


def unflow(text: str, *, keeps_blank: bool) -> str:
    """The text with the lines joined that a program broke to fit (RFC 3676): those that end in a blank.

    Quoted lines stay as they are. keeps_blank: the blank stands between the two lines too.
    """
    lines: list[str] = []
    is_open = False
    for line in text.splitlines():
        content = line.removeprefix(" ")
        is_fixed = line.startswith(">") or content in ("", SIGNATURE)
        if is_open and not is_fixed:
            lines[-1] += content
        else:
            lines.append(content)
        is_open = content.endswith(" ") and not is_fixed
        if is_open and not keeps_blank:
            lines[-1] = lines[-1][:-1]
    return "\n".join(lines)


class MessageBody:
    """Goes through the parts of a message: text is returned, files are named to the assembly."""

    def __init__(self, assembly: Assembly) -> None:
        self.encrypted = False
        self.hidden: list[str] = []  # warnings of what pages hide
        self._assembly = assembly
        self._parts = 0

    def text(self, message: Message, depth: int = 0) -> str:
        self._parts += 1
        if self._parts > PART_LIMIT or depth > 20:
            self._assembly.leave_out(
                f"The message has more than {PART_LIMIT} parts or 20 levels; the rest was left out."
            )
            return ""
        kind = message.get_content_type()
        if kind in ENCRYPTED_TYPES:
            self.encrypted = True
        if kind == "message/rfc822" and depth:
            return self._forwarded(message, depth)
        if message.is_multipart():
            children = [part for part in message.get_payload() if isinstance(part, Message)]
            if kind == "multipart/alternative":
                return self._best(children, depth)
            return "\n\n".join(text for part in children if (text := self.text(part, depth + 1)).strip())
        return self._leaf(message, kind)

    def _forwarded(self, message: Message, depth: int) -> str:
        payload = message.get_payload()
        texts: list[str] = []
        for inner in payload if isinstance(payload, list) else []:
            if isinstance(inner, Message) and _is_base64(message) and isinstance(inner.get_payload(), str):
                inner = parse_message(_split_base64(str(inner.get_payload()))[0])
            if isinstance(inner, Message):
                body = self.text(inner, depth + 1)
                texts.append(message_text(header_text(inner, "Subject"), _shown_headers(inner), body, 2))
        return "\n\n".join(texts)

    def _best(self, children: list[Message], depth: int) -> str:
        """The plain version of an alternative, unless it is empty or only says that there is a better one; and the
        appointment that comes with it."""
        plain, rich, appointment = "", "", ""
        told = len(self.hidden)
        for part in children:
            text = self.text(part, depth + 1)
            if part.get_content_type() == "text/plain":
                plain = plain or text
            elif part.get_content_type() == "text/calendar":
                appointment = appointment or text
            elif len(text) > len(rich):
                rich = text
        if plain.strip() and len(plain) >= PLAIN_SHARE * len(rich):
            del self.hidden[told:]
            rich = plain
        return "\n\n".join(text for text in (rich or plain, appointment) if text.strip())

    def _leaf(self, message: Message, kind: str) -> str:
        content = message.get_payload(decode=True)
        data = content if isinstance(content, bytes) else b""
        name = self._file_name(message)
        is_file = message.get_content_disposition() == "attachment" or (bool(name) and kind != "text/plain")
        if kind.startswith("text/") and not is_file:
            appended = ""
            if _is_base64(message):
                data, appended = _split_base64(str(message.get_payload()))
            text = take_text(decode(data, message.get_content_charset() or ""), self._assembly)
            if kind == "text/html":
                page = render_page(text)
                text = page.text
                self.hidden += [page.warning] if page.warning else []
            elif kind != "text/plain":
                text = unfold(text)
            elif str(message.get_param("format", "")).lower() == "flowed":
                text = unflow(text, keeps_blank=str(message.get_param("delsp", "")).lower() != "yes")
            return f"{text}\n\n{appended}" if appended else text
        if data and kind not in SIGNATURE_TYPES:
            self._assembly.attach(name or kind.replace("/", "."), data, kind)
        return ""

    def _file_name(self, message: Message) -> str:
        try:
            name = message.get_filename() or ""
        except (ValueError, TypeError, LookupError, HeaderParseError):
            return ""
        return squeeze(decode_words(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")))
