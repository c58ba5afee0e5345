"""Texts in disguise: the same text without what hides its words from a reader of words.

Signs that are not seen, letters of other alphabets that look alike, digits for letters, letters set apart, text in
base64, in hexadecimal, in rot13. Each view knows where its characters stand in the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# Zero-width signs, direction marks, soft hyphens, variation selectors; and tags, which spell ASCII unseen.
UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
# Those, tags, and letters in another dress: full width, mathematical, in circles.
DRESSED = re.compile(f"{UNSEEN.pattern[:-1]}\uff01-\uff5e\u2460-\u24ff\U0001d400-\U0001d7ff\U000e0020-\U000e007e]")
ALIEN = re.compile("[\u0370-\u04ff]")
TAGS = range(0xE0020, 0xE007F)
LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝӏкмтвнАВЕКМНОРСТУХІЈЅ\u03bf\u03b1\u03b5\u03b9\u03ba\u03bd\u03c1\u03c4\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
    "aeopcyxijshdqwlkmtbhABEKMHOPCTYXIJS" + "oaeiknptu" + "ABEZHIKMNOPTYX",
)
MIXED = re.compile(r"(?=\w*[A-Za-z])(?=\w*[\u0370-\u04ff])\w+")
LEET = str.maketrans("01345789@$!", "oleastbga" + "s" + "i")
LEET_WORD = re.compile(
    r"(?<![\w./:=-])(?=[\w@$!]*[A-Za-z])(?=[\w@$!]*[013457@$!][\w@$!]*[A-Za-z])[A-Za-z0-9@$!]{3,24}(?![\w./:=-])"
)
LEET_SIGN = re.compile(r"[A-Za-z][013457@$!][A-Za-z]")
LEET_MIN = 2
ROT13_WORDS = ("rot13", "rot-13", "caesar", "vtaber", "qvfertneq", "cerivbhf", "vafgehpgvba", "cebzcg")
APART = re.compile(r"(?<!\w)(?:[A-Za-z][ ._-]){5,}[A-Za-z](?!\w)(?:\s+(?:[A-Za-z][ ._-]){1,}[A-Za-z](?!\w))*")
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,4000}={0,2}(?![A-Za-z0-9+/_=-])")
HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){16,2000}(?![0-9A-Za-z])")
BACKWARDS = ("snoitcurtsni", "suoiverp", "tpmorp", "erongi", "drager", "senilediug")
WORDS_MIN = 3
BLOBS_MAX = 16


@dataclass(frozen=True, slots=True)
class View:
    """text as it reads; places[n] is where its n-th character stands in the original, or one place for them all."""

    text: str
    places: Sequence[int] | tuple[int, int]
    whole: bool = False

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where text[start:end] stands in the original: of a decoded text, all of what was decoded."""
        if self.whole:
            return self.places[0], self.places[1]
        return self.places[start], self.places[end - 1] + 1


def views_of(text: str) -> Iterator[View]:
    """The readings that differ from the text, none for nearly every text."""
    if not text.isascii() and (DRESSED.search(text) or (ALIEN.search(text) and MIXED.search(text))):
        if reading := _as_seen(text):
            yield reading
    if LEET_SIGN.search(text) and (leet := _without_digits(text)):
        yield leet
    if joined := _joined(text):
        yield joined
    yield from _decoded(text)
    lowered = text.lower()
    if any(word in lowered for word in ROT13_WORDS):
        yield View(codecs.decode(text, "rot13"), range(len(text)))
    if any(word in lowered for word in BACKWARDS):
        yield View(text[::-1], (0, len(text)), whole=True)


def _as_seen(text: str) -> View | None:
    """Without unseen signs, compatibility forms and look-alikes as the letters that they look like."""
    signs: list[str] = []
    positions: list[int] = []
    lookalike = {index for word in MIXED.finditer(text) for index in range(*word.span())}
    for index, sign in enumerate(text):
        if UNSEEN.match(sign):
            continue
        if ord(sign) in TAGS:
            sign = chr(ord(sign) - 0xE0000)
        elif index in lookalike:
            sign = sign.translate(LOOKALIKES)
        elif sign > "\u2000":
            sign = unicodedata.normalize("NFKC", sign)
        signs += sign
        positions += [index] * len(sign)
    reading = "".join(signs)
    return View(reading, positions) if reading != text and positions else None


def _without_digits(text: str) -> View | None:
    """Digits and signs inside words as the letters that they stand for, where at least two words are written so."""
    words = list(LEET_WORD.finditer(text))
    if len(words) < LEET_MIN:
        return None
    signs = list(text)
    for word in words:
        signs[word.start() : word.end()] = word[0].translate(LEET)
    return View("".join(signs), range(len(text)))


def _joined(text: str) -> View | None:
    """Letters set apart by single signs, joined; wider gaps part the words."""
    signs: list[str] = []
    positions: list[int] = []
    done = 0
    for match in APART.finditer(text):
        signs += text[done : match.start()]
        positions += range(done, match.start())
        for index in range(*match.span()):
            gap = not text[index].isalnum()
            if not gap or (text[index].isspace() and index and text[index - 1].isspace()):
                signs.append(" " if gap else text[index])
                positions.append(index)
        done = match.end()
    if not done:
        return None
    return View("".join([*signs, text[done:]]), [*positions, *range(done, len(text))])


def _decoded(text: str) -> Iterator[View]:
    """What stands in base64 or hexadecimal and reads as text when it is decoded."""
    result = 0
    for pattern, decode in ((BASE64, _from_base64), (HEX, bytes.fromhex)):
        for match in pattern.finditer(text):
            readable = _read(match[0], decode)
            if readable:
                result += 1
                yield View(readable, match.span(), whole=True)
            if result >= BLOBS_MAX:
                return


def _from_base64(blob: str) -> bytes:
    body = blob.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)


def _read(blob: str, decode: Callable[[str], bytes]) -> str:
    """The text, "" when it is none: of fewer than three words, or with signs that no text has."""
    try:
        text = str(decode(blob), "utf-8")
    except (ValueError, binascii.Error):
        return ""
    return text if len(text.split()) >= WORDS_MIN and all(sign.isprintable() or sign.isspace() for sign in text) else ""
