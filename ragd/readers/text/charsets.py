"""Bytes to text: byte order mark, strict UTF-8, a declared charset that the bytes bear out, else what chardet finds."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
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
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
DEFAULT = "cp1252"
WIDE = ("utf-16", "utf-32")
# A blank between words of six letters is one zero in fourteen bytes of UTF-16.
WIDE_PAIRS_PER_ZERO = 10
SEVEN_BIT = ("utf-7", "hz", "iso2022_kr")  # ASCII in bytes
KOREAN = b"\x1b$)C"
NOTATIONS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})  # of Python
# Labels of browsers and mail programs that Python does not know.
LABELS = {
    "x-sjis": "cp932", "windows-31j": "cp932", "x-gbk": "gb18030", "windows-949": "cp949", "windows-936": "gb18030",
    "x-euc-jp": "euc_jp", "x-big5": "big5", "big5-eten": "big5", "iso-8859-8-i": "iso8859-8",
    "iso-8859-8-e": "iso8859-8", "iso-8859-6-i": "iso8859-6", "x-mac-roman": "mac_roman", "macintosh": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic", "cp-850": "cp850", "utf8mb4": "utf-8", "unicode": "utf-16",
}  # fmt: skip
CONTROLS = re.compile(rb"[\x00-\x08\x0b\x10-\x1a\x1c-\x1f\x7f]")  # not the shifts of ISO 2022
# Sets of the DOS and Macintosh time, but for Russian's, are too rare to be worth what they win on short texts.
ERAS = (EncodingEra.MODERN_WEB, EncodingEra.LEGACY_ISO, EncodingEra.MAINFRAME)
CANDIDATES = (*(info.name for info in REGISTRY.values() if info.era in ERAS), "cp866")
BYTE_CANDIDATES = tuple(name for name in CANDIDATES if not name.startswith(WIDE))
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
        if not data.startswith(mark):
            continue
        content = data[len(mark) :]
        # The mark of UTF-32 is also that of UTF-16 and a NUL.
        if charset != "utf-32-le" or _strict(content[: len(content) // 4 * 4], charset):
            return _strict(content, charset) or _replaced(content, charset)
    written = DECLARED.search(data[:DECLARATION_BYTES])
    charset = known_charset(declared or (written.group(1).decode("ascii") if written else ""))
    # Bytes that spell a declaration in ASCII are no UTF-16; those that a transport declares otherwise need more zeros.
    wide = "" if written else _wide_charset(data, charset)
    if wide:
        return _strict(data, wide) or _replaced(data, wide)
    if KOREAN in data[:DECLARATION_BYTES]:
        charset = "iso2022_kr"
    if charset in SEVEN_BIT and (decoded := _strict(data, charset)):
        return decoded
    if ESCAPE not in data[:SAMPLE_BYTES] and (decoded := _strict(data, "utf-8")):
        return decoded
    return _declared(data, charset) or _nearly_utf8(data) or _detected(data)


def _wide_charset(data: bytes, declared: str) -> str:
    """UTF-16 or UTF-32 without a mark, "" for a text in bytes with a NUL here and there.

    declared: a known charset or "".
    """
    sample = data[: min(SAMPLE_BYTES, len(data) // 4 * 4)]
    for charset, highest, high in (("utf-32-le", 3, 2), ("utf-32-be", 0, 1)):
        if sample and not any(sample[highest::4]) and max(sample[high::4]) <= 0x10 and _is_wide_text(sample, charset):
            return charset
    sample = data[: min(SAMPLE_BYTES, len(data) // 2 * 2)]
    # The byte that names the block of a script varies less than the one that names the character in it.
    is_little = len(set(sample[1::2])) <= len(set(sample[::2]))
    if declared.startswith("utf-16"):
        charset = declared if declared != "utf-16" else "utf-16-le" if is_little else "utf-16-be"
        return charset if _is_wide_text(sample, charset) else ""
    pairs = [pair for pair in zip(sample[::2], sample[1::2], strict=True) if any(pair)] if 0 in sample else []
    first, second = sum(not a and b > 0 for a, b in pairs), sum(not b and a > 0 for a, b in pairs)
    zeros, stray = max(first, second), min(first, second)
    least = 2 if declared and declared != "utf-8" else WIDE_PAIRS_PER_ZERO
    if zeros < 2 or zeros * least <= len(pairs) or 10 * stray > zeros:
        return ""
    charset = "utf-16-le" if second > first else "utf-16-be"
    return charset if _is_wide_text(sample, charset) else ""


def _is_wide_text(sample: bytes, charset: str) -> bool:
    """Whether bytes that are read as UTF-16 or UTF-32 give one script, and are not single-byte text taken by twos."""
    text = sample.decode(charset, "replace")
    pairs = [pair for pair in zip(sample[::2], sample[1::2], strict=False) if any(pair)]
    if 2 * sum(0x20 <= a <= 0x7E and 0x20 <= b <= 0x7E for a, b in pairs) > len(pairs):
        return False
    counts = Counter(_script(ord(character)) for character in text)
    shared, foreign, controls = counts.pop("", 0), counts.pop("?", 0), counts.pop("\x00", 0)
    most = max(counts.values(), default=0)
    if 20 * foreign > len(text) or 10 * most < 9 * counts.total() or controls > 2 * (shared + most):
        return False
    ideographs = [character for character in text if "\u4e00" <= character <= "\u9fff"]
    full = [pair for pair in pairs if all(pair)]
    is_doubled = counts["hangul"] and 5 * sum(min(pair) >= 0x80 for pair in full) > 4 * len(full)
    return not is_doubled and 4 * sum(character < "\u8000" for character in ideographs) >= len(ideographs)


def _script(code: int) -> str:
    """A group of blocks; "" for signs that all scripts use, "\x00" for controls, "?" for what texts do not hold."""
    if code < 0x20:
        return "" if code in (9, 10, 13) else "\x00"
    if code < 0x250 or 0x2000 <= code < 0x2300:
        return ""
    if code < 0x2000:
        return f"{code // 0x100:x}"
    if 0x2E80 <= code < 0xA000 or 0xF900 <= code < 0xFB00 or 0xFF00 <= code < 0xFFF0:
        return "han"
    if 0xAC00 <= code < 0xD7A4:
        return "hangul"
    return "?" if 0xA000 <= code < 0x10000 else ""


def known_charset(label: str) -> str:
    """The Python codec for a charset label, "" when it is unknown or not a text encoding."""
    label = label.strip().strip("\"'")
    try:
        info = codecs.lookup(LABELS.get(label.lower(), label))
        "".encode(info.name)
        b"".decode(info.name)
    except (LookupError, UnicodeError, ValueError, TypeError):
        return ""
    is_text = getattr(info, "_is_text_encoding", True) and info.name not in NOTATIONS
    return SUPERSETS.get(info.name, info.name) if is_text else ""


def detect(data: bytes) -> Detection:
    """What chardet takes the first SAMPLE_BYTES for. Control characters, to it a sign of binary data, do not count."""
    sample = data[:SAMPLE_BYTES]
    found = _chardet(sample)
    if found.charset and (not found.charset.startswith(WIDE) or _is_wide_text(sample, found.charset)):
        return found
    return _chardet(CONTROLS.sub(b"", sample), BYTE_CANDIDATES)


def _chardet(sample: bytes, candidates: Sequence[str] = CANDIDATES) -> Detection:
    result = chardet.detect(sample, include_encodings=candidates, compat_names=False)
    return Detection(codecs.lookup(result["encoding"]).name if result["encoding"] else "", result["confidence"])


def _without_markup(data: bytes) -> bytes:
    """The sample without tags and declarations, of which chardet would believe the one and count the other as text."""
    sample = data[:SAMPLE_BYTES]
    return sample if ESCAPE in sample else DECLARED.sub(b"", MARKUP.sub(b" ", sample))


def _declared(data: bytes, charset: str) -> Decoded | None:
    """The text in its declared charset; None where there is none, it does not fit, or the bytes show another."""
    # Whoever declares UTF-16 in single bytes, or UTF-8 for what is not, has not declared the charset.
    if not charset or charset.startswith((*WIDE, "utf-8", "utf_8", "utf-7")):
        return None
    text = _lenient(data, charset)
    lost = text.count("\ufffd")
    if lost > max(2, len(text) // 1000):
        return None
    detection = detect(CONTROLS.sub(b"", _without_markup(data)))
    is_sure = detection.charset and detection.confidence >= OVERRULING_CONFIDENCE
    if is_sure and _is_other_text(data, charset, detection.charset):
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
