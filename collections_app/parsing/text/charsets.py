"""Bytes to text: byte order mark, strict UTF-8, a declared charset that the bytes bear out, else what chardet finds."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import chardet
from chardet import EncodingEra
from chardet.registry import REGISTRY

# Detection reads this much from the beginning; decoding then covers all of it.
SAMPLE_BYTES = 64 * 1024
DECLARATION_BYTES = 4096
BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DECLARED = re.compile(
    rb"""(?:<\?xml[^>]{0,200}?encoding|<meta[^>]{0,300}?charset|@charset|-\*-\s*(?:en)?coding)\s*[=:]\s*["']?\s*"""
    rb"""([A-Za-z0-9][A-Za-z0-9._:-]{1,40})""",
    re.IGNORECASE,
)
MARKUP = re.compile(rb"<[^<>]{1,2000}>")
ESCAPE = b"\x1b$"  # of the seven-bit charsets, which are ASCII in bytes
# The WHATWG reading of labels: the Windows set that holds the declared one.
SUPERSETS = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
DEFAULT = "cp1252"
# A blank between words of six letters is one zero in fourteen bytes of UTF-16.
WIDE_BYTES_PER_ZERO = 20
# Sets of the DOS and Macintosh time, but for Russian's, are too rare to be worth what they win on short texts.
ERAS = (EncodingEra.MODERN_WEB, EncodingEra.LEGACY_ISO, EncodingEra.MAINFRAME)
CANDIDATES = (*(info.name for info in REGISTRY.values() if info.era in ERAS), "cp866")
# A detection at this confidence outweighs a declaration that reads as another text.
OVERRULING_CONFIDENCE = 0.25
# Below it, a few high bytes among many ASCII letters are the quotation marks and accents of Windows-1252.
SURE_CONFIDENCE = 0.2
ASCII_LETTERS_PER_HIGH_BYTE = 2
ASCII_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True)
class Decoded:
    """text without its byte order mark; charset is a Python codec name; warning is "" when nothing was guessed."""

    text: str
    charset: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """charset: a Python codec name, "" when the bytes are no text. confidence: chardet's, 0 to 1."""

    charset: str
    confidence: float


def decode(data: bytes, declared: str = "") -> Decoded:
    """The text of any bytes. declared is what the transport says; a declaration in the content is used without it."""
    for mark, charset in BOMS:
        if data.startswith(mark) and not (charset == "utf-16-le" and data[2:4] == b"\x00\x00" and len(data) % 4 == 0):
            return _strict(data[len(mark) :], charset) or _replaced(data[len(mark) :], charset)
    if _has_wide_zeros(data) and (wide := detect(data)).charset.startswith(("utf-16", "utf-32")):
        return _strict(data, wide.charset) or _replaced(data, wide.charset)
    if ESCAPE not in data[:SAMPLE_BYTES] and (decoded := _strict(data, "utf-8")):
        return decoded
    return _declared(data, declared) or _nearly_utf8(data) or _detected(data)


def _has_wide_zeros(data: bytes) -> bool:
    """Whether zero bytes are so many that they are halves of characters, and not a NUL here and there."""
    sample = data[:SAMPLE_BYTES]
    zeros = sample.count(0)
    return zeros > 1 and zeros * WIDE_BYTES_PER_ZERO >= len(sample)


def known_charset(label: str) -> str:
    """The Python codec for a charset label, "" when it is unknown or not a text encoding."""
    try:
        info = codecs.lookup(label.strip().strip("\"'"))
        "".encode(info.name)
        b"".decode(info.name)
    except (LookupError, UnicodeError, ValueError, TypeError):
        return ""
    return SUPERSETS.get(info.name, info.name) if getattr(info, "_is_text_encoding", True) else ""


def detect(data: bytes) -> Detection:
    """What chardet takes the first SAMPLE_BYTES for."""
    sample = data[:SAMPLE_BYTES]
    result = chardet.detect(sample, include_encodings=CANDIDATES, compat_names=False)
    return Detection(codecs.lookup(result["encoding"]).name if result["encoding"] else "", result["confidence"])


def _without_markup(data: bytes) -> bytes:
    """The sample without tags and declarations, of which chardet would believe the one and count the other as text."""
    sample = data[:SAMPLE_BYTES]
    return sample if ESCAPE in sample else DECLARED.sub(b"", MARKUP.sub(b" ", sample))


def _declared(data: bytes, declared: str) -> Decoded | None:
    """The text in its declared charset; None where there is none, it does not fit, or the bytes show another."""
    label = declared
    if not label and (match := DECLARED.search(data[:DECLARATION_BYTES])):
        label = match.group(1).decode("ascii", "replace")
    charset = known_charset(label) if label else ""
    # Whoever declares UTF-16 in single bytes, or UTF-8 for what is not, has not declared the charset.
    if not charset or charset.startswith(("utf-16", "utf-32", "utf-8", "utf_8", "utf-7")):
        return None
    text = _lenient(data, charset)
    lost = text.count("\ufffd")
    if lost > max(2, len(text) // 1000):
        return None
    detection = detect(_without_markup(data))
    if detection.confidence >= OVERRULING_CONFIDENCE and _is_other_text(data, charset, detection.charset):
        return Decoded(
            _lenient(data, detection.charset),
            detection.charset,
            f"The text declares {charset} but is not; it was read as {detection.charset}.",
        )
    warning = f"Parts of the text are not valid {charset}, as it declares; they show as \ufffd." if lost else ""
    return Decoded(text, charset, warning)


def _is_other_text(data: bytes, declared: str, detected: str) -> bool:
    """Whether two charsets read the sample differently in more than one in ten of its letters outside ASCII."""
    sample = data[:SAMPLE_BYTES]
    one, other = _lenient(sample, declared), _lenient(sample, detected)
    if len(one) != len(other):
        return True
    outside = [(a, b) for a, b in zip(one, other, strict=True) if a > "\x7f" or b > "\x7f"]
    return 10 * sum(a != b for a, b in outside) > len(outside)


def _strict(data: bytes, charset: str) -> Decoded | None:
    try:
        return Decoded(data.decode(charset), charset)
    except UnicodeDecodeError:
        return None


def _replaced(data: bytes, charset: str) -> Decoded:
    return Decoded(
        data.decode(charset, "replace"),
        charset,
        f"The text is {charset} but holds sequences that are not; they show as \ufffd.",
    )


def _lenient(data: bytes, charset: str) -> str:
    return _decode_cp1252(data) if charset == "cp1252" else data.decode(charset, "replace")


def _nearly_utf8(data: bytes) -> Decoded | None:
    """UTF-8 with a few broken sequences, such as a cut at the end: far more good sequences than bad ones."""
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = sum(1 for character in text[:1_000_000] if character > "\x7f") - bad
    if good < 4 * bad or not bad:
        return None
    return Decoded(text, "utf-8", "Parts of the text are not valid UTF-8; they show as \ufffd.")


def _detected(data: bytes) -> Decoded:
    sample = _without_markup(data)
    detection = detect(sample)
    charset = DEFAULT if not detection.charset or _is_typographic(sample, detection) else detection.charset
    charset = SUPERSETS.get(charset, charset)
    if charset == DEFAULT:
        return Decoded(
            _decode_cp1252(data), DEFAULT, "The text names no charset and is not UTF-8; it was read as Windows-1252."
        )
    return Decoded(
        data.decode(charset, "replace"),
        charset,
        f"The text names no charset and is not UTF-8; it was read as {charset}.",
    )


def _is_typographic(sample: bytes, detection: Detection) -> bool:
    """Whether an unsure detection is of text in ASCII letters with a few marks that are letters of other scripts."""
    if detection.confidence >= SURE_CONFIDENCE:
        return False
    letters = sum(byte in ASCII_LETTERS for byte in sample)
    high = [character for character in _lenient(sample, detection.charset) if character > "\x7f"]
    foreign = [character for character in high if character > "\u024f" and not "\u2000" <= character <= "\u22ff"]
    return bool(foreign) and letters >= ASCII_LETTERS_PER_HIGH_BYTE * len(high)


def _decode_cp1252(data: bytes) -> str:
    """Windows-1252 as browsers read it: its five holes become the control characters of the same number."""
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return data.decode("latin-1").translate(_CP1252_MAP)


_CP1252_MAP = {
    byte: bytes([byte]).decode("cp1252") for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
