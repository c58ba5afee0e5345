"""The one text form that everything downstream sees: offsets, hashes, chunks and queries refer to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import regex
import unicodedata2

UNICODE_VERSION: str = unicodedata2.unidata_version  # of normal forms and categories, on every Python
PIECE_CHARS = 1 << 20
NONSTARTERS_MAX = 30
GRAPHEME_JOINER = "\u034f"

# Every line boundary that str.splitlines knows, besides CRLF.
_LINE_BREAK = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")
_WANTED_BYTES = bytes((0x09, 0x0A, *range(0x20, 0x7F)))
# No marks, nothing that composes with what stands before it or is written otherwise in NFC: common scripts and signs.
# A text with any other character takes the slow way, which knows them all.
_PLAIN = re.compile(
    "[\xa0-\u02ff\u0388-\u0482\u048a-\u052f\u1e00-\u1eff\u2002-\u2027\u202a-\u205f\u20a0-\u20bf\u212c-\u218b"
    "\u2190-\u2328\u232b-\u2adb\u3000-\u3029\u3041-\u3096\u30a1-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uff01-\uff9d\U0001f300-\U0001faff]*+"
)
# Capitals that came after Unicode 14, which the oldest supported Python knows: a newer Python would fold them.
_YOUNG_CAPITALS = (
    "\u1c89\ua7cb\ua7cc\ua7ce\ua7d2\ua7d4\ua7da\ua7dc\ua7dd\ua7e2\uab6c\uab6d"
    "\U00010d50-\U00010d65\U00016ea0-\U00016eb8\U0001df40-\U0001df7e"
)
_FOLDED = re.compile(f"[^{_YOUNG_CAPITALS}]+")
_VISIBLE = regex.compile(r"[^\s\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def normalize(text: str) -> str:
    """The same text in one stable form, whatever the platform or locale. Idempotent; clean text comes back as it is.

    - Unicode NFC. A run of more than 30 combining marks is split by U+034F, as Unicode's stream-safe format does.
    - CRLF, CR, VT, FF, FS, GS, RS, NEL, U+2028 and U+2029 become "\\n"; space inside and around lines stays.
    - NUL and every other control character except tab is removed, and so is U+FEFF (byte order mark) anywhere.
    - A pair of surrogates becomes its character, a lone one U+FFFD.
    """
    if len(text) <= PIECE_CHARS:
        return _normalize_piece(text)
    if all(_normalize_piece(piece) is piece for piece in _pieces(text)):
        return text
    return "".join(map(_normalize_piece, _pieces(text)))


def has_visible(text: str) -> bool:
    """Return True if a character of the text shows: it is neither space, control, format nor default ignorable."""
    return _VISIBLE.search(text) is not None


def fold_case(text: str) -> str:
    """Unicode's full case folding, the same on every Python: capitals younger than Unicode 14 stay."""
    return _FOLDED.sub(lambda match: match[0].casefold(), text)


def _pieces(text: str) -> Iterator[str]:
    """Cut after line feeds: neither a CRLF nor a combining sequence spans one, so pieces normalize independently."""
    start = 0
    while start < len(text):
        feed = text.find("\n", start + PIECE_CHARS)
        end = len(text) if feed < 0 else feed + 1
        yield text[start:end]
        start = end


def _normalize_piece(text: str) -> str:
    uncommon = text.encode("utf-8", "surrogatepass").translate(None, _WANTED_BYTES)
    if not uncommon or _PLAIN.fullmatch(uncommon.decode("utf-8", "surrogatepass")):
        return text
    if text.isascii():
        return _replace_unwanted(text)
    if _UNWANTED.search(text):
        text = _replace_unwanted(text)
    bounded = _split_long_runs(text)
    composed = unicodedata2.normalize("NFC", bounded)
    return composed if composed is bounded else _split_long_runs(composed)


def _replace_unwanted(text: str) -> str:
    if _SURROGATE.search(text):
        text = _SURROGATE.sub("\ufffd", _SURROGATE_PAIR.sub(_join_surrogates, text))
    return _CONTROL.sub("", _LINE_BREAK.sub("\n", text.replace("\r\n", "\n")))


def _join_surrogates(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _split_long_runs(text: str) -> str:
    """Bounded runs keep NFC linear: canonical ordering of one run costs the square of its length."""
    suspects, run = _nonstarter_runs()
    return run.sub(rf"\g<0>{GRAPHEME_JOINER}", text) if suspects.search(text) else text


@cache
def _nonstarter_runs() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A quick pattern that finds every run that is too long (and some others), and the exact one that splits them.

    Marks beyond the first plane make a slow character class, so the quick pattern takes that plane whole.
    """
    codes = [code for code in range(0x300, 0x20000) if unicodedata2.combining(chr(code))]
    basic = "".join(chr(code) for code in codes if code < 0x10000)
    marks = "".join(map(chr, codes))
    suspects = re.compile(f"[{basic}\U00010000-\U0001ffff]{{{NONSTARTERS_MAX + 1}}}")
    return suspects, re.compile(f"[{marks}]{{{NONSTARTERS_MAX}}}(?=[{marks}])")
