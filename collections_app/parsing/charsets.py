"""Bytes to text: byte order mark, strict UTF-8, declared charset, then what the bytes clearly show, then cp1252."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

SAMPLE_BYTES = 64 * 1024
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
# The WHATWG reading of labels that are declared far more often than they are meant.
RELABELLED = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
CYRILLIC = ("cp1251", "koi8-r", "cp866", "iso8859-5")
CYRILLIC_COMMON = frozenset("оеаинтсрвлкмдпуяы")
CYRILLIC_WANTED = 0.55
EAST_ASIAN = ("shift_jis", "euc_jp", "gb18030", "big5", "euc_kr")
EAST_ASIAN_LEAST = 8
EAST_ASIAN_WANTED = 0.9
EAST_ASIAN_SAMPLE = 4000


@dataclass(frozen=True, slots=True)
class Decoded:
    """text without its byte order mark; charset is a Python codec name; warning is "" when nothing was guessed."""

    text: str
    charset: str
    warning: str = ""


def decode(data: bytes, declared: str = "") -> Decoded:
    """The text of any bytes. declared is what the transport says; a declaration in the content is used without it."""
    for mark, charset in BOMS:
        if data.startswith(mark) and not (charset == "utf-16-le" and data[2:4] == b"\x00\x00" and len(data) % 4 == 0):
            body = data[len(mark) :]
            return _strict(body, charset) or Decoded(
                body.decode(charset, "replace"),
                charset,
                f"The text is marked as {charset} but holds sequences that are not; they show as \ufffd.",
            )
    if wide := _wide_charset(data):
        return _strict(data, wide) or Decoded(
            data.decode(wide, "replace"), wide, f"The text was read as {wide} although some of it is not valid."
        )
    if found := _strict(data, "utf-8"):
        return found
    if found := _declared(data, declared):
        return found
    if almost := _nearly_utf8(data):
        return almost
    if guess := _guess(data):
        text = data.decode(guess, "replace")
        return Decoded(text, guess, f"The text names no charset and is not UTF-8; it was read as {guess}.")
    return Decoded(
        _decode_cp1252(data), "cp1252", "The text names no charset and is not UTF-8; it was read as Windows-1252."
    )


def known_charset(label: str) -> str:
    """The Python codec for a charset label, "" when it is unknown or not a text encoding."""
    try:
        info = codecs.lookup(label.strip().strip("\"'"))
        "".encode(info.name)
        b"".decode(info.name)
    except (LookupError, UnicodeError, ValueError, TypeError):
        return ""
    return RELABELLED.get(info.name, info.name) if getattr(info, "_is_text_encoding", True) else ""


def _declared(data: bytes, declared: str) -> Decoded | None:
    label = declared
    if not label and (match := DECLARED.search(data[:4096])):
        label = match.group(1).decode("ascii", "replace")
    if not label:
        return None
    charset = known_charset(label)
    # Whoever declares UTF-16 in single bytes, or UTF-8 for what is not, has not declared the charset.
    if not charset or charset.startswith(("utf-16", "utf-32", "utf-8", "utf_8", "utf-7")):
        return None
    if charset == "cp1252":
        return Decoded(_decode_cp1252(data), charset)
    text = data.decode(charset, "replace")
    if "\ufffd" not in text:
        return Decoded(text, charset)
    if text.count("\ufffd") <= max(2, len(text) // 1000):
        return Decoded(
            text, charset, f"Parts of the text are not valid {charset}, as it declares; they show as \ufffd."
        )
    return None


def _strict(data: bytes, charset: str) -> Decoded | None:
    try:
        return Decoded(data.decode(charset), charset)
    except UnicodeDecodeError:
        return None


def _nearly_utf8(data: bytes) -> Decoded | None:
    """UTF-8 with a few broken sequences, such as a cut at the end: far more good sequences than bad ones."""
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = sum(1 for character in text[:1_000_000] if character > "\x7f") - bad
    if good < 4 * bad:
        return None
    return Decoded(text, "utf-8", "Parts of the text are not valid UTF-8; they show as \ufffd.")


def _wide_charset(data: bytes) -> str:
    """UTF-16 or UTF-32 without a mark, shown by zero bytes in the places where they stand for ASCII."""
    sample = data[:SAMPLE_BYTES]
    sample = sample[: len(sample) // 4 * 4]
    if len(sample) < 8 or not sample.count(0):
        return ""
    zeros = [sample[place::4].count(0) / (len(sample) // 4) for place in range(4)]
    full, few = 0.95, 0.05
    if zeros[1] > full and zeros[2] > full and zeros[3] > full and zeros[0] < few:
        return "utf-32-le"
    if zeros[0] > full and zeros[1] > full and zeros[2] > full and zeros[3] < few:
        return "utf-32-be"
    # in both places of a group of four: text with a NUL here and there is not two bytes a character
    even, odd = (zeros[0], zeros[2]), (zeros[1], zeros[3])
    if min(odd) > 0.3 and max(even) < few:
        return "utf-16-le"
    if min(even) > 0.3 and max(odd) < few:
        return "utf-16-be"
    return ""


def _guess(data: bytes) -> str:
    sample = data[:SAMPLE_BYTES]
    if _looks_ebcdic(sample):
        return "cp500"
    return _guess_cyrillic(sample) or _guess_east_asian(sample)


def _looks_ebcdic(sample: bytes) -> bool:
    """EBCDIC text has its blanks at 0x40, its small letters between 0x81 and 0xA9, and next to nothing in ASCII's."""
    if len(sample) < 32:
        return False
    blanks = sample.count(0x40)
    small = sum(1 for byte in sample if 0x81 <= byte <= 0x89 or 0x91 <= byte <= 0x99 or 0xA2 <= byte <= 0xA9)
    ascii_small = sum(1 for byte in sample if 0x61 <= byte <= 0x7A)
    printed = len(sample) - blanks
    return blanks > len(sample) * 0.05 and small > printed * 0.4 and ascii_small < printed * 0.1


def _guess_cyrillic(sample: bytes) -> str:
    """The single-byte Cyrillic charset that reads as small, common letters; "" when unsure."""
    high = sum(1 for byte in sample if byte > 0x7F)
    letters = high + sum(1 for byte in sample if 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A)
    if high < 12 or high < letters * 0.3:
        return ""
    scored = sorted(((_cyrillic_score(sample, charset), charset) for charset in CYRILLIC), reverse=True)
    best, second = scored[0], scored[1]
    return best[1] if best[0] > CYRILLIC_WANTED and best[0] > second[0] * 1.2 else ""


def _cyrillic_score(sample: bytes, charset: str) -> float:
    outside = [character for character in sample.decode(charset, "replace") if character > "\x7f"]
    return sum(1 for character in outside if character in CYRILLIC_COMMON) / max(1, len(outside))


def _guess_east_asian(sample: bytes) -> str:
    """The East Asian charset that decodes strictly into common ideographs, kana or hangul; "" when unsure."""
    best, best_score = "", EAST_ASIAN_WANTED
    for charset in EAST_ASIAN:
        outside = _strict_outside_ascii(sample, charset)
        if len(outside) < EAST_ASIAN_LEAST:
            continue
        score = sum(_east_asian_weight(character, charset) for character in outside) / len(outside)
        if score > best_score:
            best, best_score = charset, score
    return best


def _strict_outside_ascii(sample: bytes, charset: str) -> list[str]:
    for cut in range(4):
        try:
            text = sample[: len(sample) - cut].decode(charset)
        except UnicodeDecodeError:
            continue
        return [character for character in text if character > "\x7f"][:EAST_ASIAN_SAMPLE]
    return []


def _east_asian_weight(character: str, charset: str) -> float:
    """What such a text is made of counts 1 or more. Each charset's own letters decide between those that all fit."""
    point = ord(character)
    is_japanese, is_korean = charset in ("shift_jis", "euc_jp"), charset == "euc_kr"
    if 0x3040 <= point <= 0x30FF:
        return 1.2 if is_japanese else 0.8
    if 0xAC00 <= point <= 0xD7A3:
        return 1.1 if is_korean else 0.0
    if 0x4E00 <= point <= 0x9FA5:
        if charset == "gb18030":
            return 1.0 if _is_encodable(character, "gb2312") else 0.5
        return 0.9 if is_japanese else 0.2 if is_korean else 1.0
    return 1.0 if 0x3000 <= point <= 0x303F or 0xFF00 <= point <= 0xFF60 else 0.0


def _is_encodable(character: str, charset: str) -> bool:
    try:
        character.encode(charset)
    except UnicodeEncodeError:
        return False
    return True


def _decode_cp1252(data: bytes) -> str:
    """Windows-1252 as browsers read it: its five holes become the control characters of the same number."""
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return data.decode("latin-1").translate(_CP1252_MAP)


_CP1252_MAP = {
    byte: bytes([byte]).decode("cp1252") for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
