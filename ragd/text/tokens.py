"""What a word is: the tokens of a text and the forms by which each is indexed and looked for.

A token is a run of letters, marks and digits, or several of them joined by single signs such as `-`, `/`, `.`, `_`, `@`
or `&`: a compound. A compound is found as a whole and by its parts, in texts and in questions alike; where it has signs
of several kinds, also by what the stronger signs separate (`MS17-010` of `MS17-010/A`). A pictograph is a token too.
Other punctuation and signs separate tokens.

Forms are folded: case (Unicode's full case folding), width, ligatures and other compatibility forms (NFKC), digits of
all scripts, hyphens; invisible characters are left out. A text is also indexed by

- each word without its accents, at the same place. A question with the accents finds the exact form, which therefore
  never ranks lower; a question without them finds both.
- the numbers, of three digits or more, in a word that mixes letters and digits: `7604` of `7604NI`. Shorter numbers and
  the letters cost SciFact .005 nDCG@10, so `MS17` is found by `MS17` alone. Beginnings of words are not searched.
- a version without its v: `2.10.3` of `v2.10.3`.

Parts of letters are words, which a dictionary reduces. Parts with digits, wholes, pictographs and pairs of characters
are units, indexed as they are.
Character classes are those of the package `regex`; normalization, digits and case are pinned by ragd.normalization.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import regex
import unicodedata2

from ragd.normalization import fold_case
from ragd.text.languages import pairs_of, split_runs

WHOLE_CHARS_MAX = 100
PIECES_MAX = 4
PIECE_DIGITS_MIN = 3

_IGNORED = r"\p{Cf}\p{Default_Ignorable_Code_Point}"
_WORD = rf"[\p{{L}}\p{{N}}](?:[\p{{L}}\p{{M}}\p{{N}}{_IGNORED}]|[·׳״](?=[\p{{L}}\p{{N}}]))*+"
_DASHES = "-\u2010-\u2013\u2212\ufe63\uff0d"
_SIGN = rf"[@/\\:&+._{_DASHES}\u2044\u2215\uff20\uff0f\uff3c\uff1a\uff06\uff0b\uff0e\uff3f]"
TOKEN = regex.compile(
    rf"{_WORD}(?:{_SIGN}[{_IGNORED}]*+{_WORD})*+(?:(?<=\p{{L}})(?:\+\+|\#)(?![\p{{L}}\p{{N}}]))?"
    r"|\p{Regional_Indicator}{2}|(?![©®™])\p{Extended_Pictographic}"
)
_INVISIBLE = regex.compile(rf"[{_IGNORED}\p{{Me}}]+")
PART = regex.compile(r"[\p{L}\p{M}\p{N}·׳״]+")
_LEVELS = ("@", "/", "\\", ":", "&", "+", "-", ".", "_")  # from the strongest sign to the weakest
_SIGNS = str.maketrans({"\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2212": "-", "\u2044": "/",
                        "\u2215": "/"})  # fmt: skip
_RAISED = regex.compile(r"(?<=[0-9])(?=\p{No})")  # a power, a note or a fraction behind a number
_OTHER_DIGIT = regex.compile(r"[^\P{Nd}0-9]")
_ACCENT = regex.compile(r"(?<=[a-zα-ωе][\u0300-\u036f]*)[\u0300-\u036f]|[\u0591-\u05c7\u0640\u064b-\u065f\u0670]")
_STROKES = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe",
                          "ı": "i"})  # fmt: skip
_PLAIN = re.compile("[A-Za-z]+")
_NUMBER = regex.compile(r"\p{N}")
_VERSION = regex.compile(r"v(([0-9]+)\..*)")
_PIECE = regex.compile(r"[\p{L}\p{M}]+|\p{N}+")


class Forms(NamedTuple):
    """The forms of one token. words: one entry for each place, with the forms that stand there; units: as they are."""

    words: tuple[tuple[str, ...], ...]
    units: tuple[str, ...]


def find_tokens(text: str) -> list[str]:
    """The tokens of a text as they are written there, in order."""
    return [str(token) for token in TOKEN.findall(text)]


def read_question(text: str, *, paired: bool) -> tuple[str, Sequence[str]]:
    """(the words of a question in order, a space between two, and its units). paired: runs of characters without spaces
    become pairs, which are units behind the others.

    No other sign is left in the words, so that the database's parser takes each for one word.
    """
    text, runs = split_runs(text) if paired else (text, [])
    forms = [question_forms(token) for token in find_tokens(text)]
    words = " ".join(word for each in forms for (word,) in each.words)
    units = [unit for each in forms for unit in each.units]
    return words, units + [pair for run in runs for pair in pairs_of(run)]


def word_terms(text: str) -> list[str]:
    """The folded words of a text in any script, in order; runs without spaces as pairs, behind the words."""
    rest, runs = split_runs(text)
    words = [word for token in find_tokens(rest) for (word,) in question_forms(token).words]
    return words + [pair for run in runs for pair in pairs_of(run)]


@lru_cache(maxsize=1 << 15)
def question_forms(token: str) -> Forms:
    """What a question looks for: each part, and the wholes."""
    if _PLAIN.fullmatch(token):
        return Forms(((token.lower(),),), ())
    folded = fold(token)
    parts = PART.findall(folded)
    if not parts:
        return Forms((), (folded,) if folded else ())
    return _forms(parts, _wholes(folded, parts))


@lru_cache(maxsize=1 << 16)
def text_forms(token: str) -> Forms:
    """What a text is indexed by: that, and the forms without accents, the pieces and the version's number."""
    words, units = question_forms(token)
    numbered = [unit for unit in units if _NUMBER.search(unit)]
    pieces = [piece for unit in numbered if PART.fullmatch(unit) for piece in _pieces(unit)]
    if numbered and (version := _VERSION.match(numbered[0])):
        pieces += version.groups()
    bare = [(word, other) if (other := remove_accents(word)) != word else (word,) for (word,) in words]
    return Forms(tuple(bare), (*units, *pieces))


def _forms(parts: Iterable[str], wholes: Iterable[str]) -> Forms:
    words: list[str] = []
    numbered: list[str] = []
    for part in parts:
        (numbered if _NUMBER.search(part) else words).append(part)
    return Forms(tuple((word,) for word in words), (*wholes, *numbered))


def _pieces(part: str) -> list[str]:
    pieces = [str(piece) for piece in _PIECE.findall(part)]
    if not 1 < len(pieces) <= PIECES_MAX:
        return []
    return [piece for piece in pieces if len(piece) >= PIECE_DIGITS_MIN and _NUMBER.match(piece)]


def fold(token: str) -> str:
    """The form in which tokens are compared."""
    if token.isascii():
        return token.lower()
    token = _RAISED.sub("^", _INVISIBLE.sub("", token))
    token = unicodedata2.normalize("NFKC", fold_case(unicodedata2.normalize("NFKC", token)))
    token = _OTHER_DIGIT.sub(lambda digit: str(unicodedata2.decimal(digit[0])), token.replace("i\u0307", "i"))
    return token.translate(_SIGNS)


def remove_accents(word: str) -> str:
    """The folded word without accents: of Latin and Greek letters, the dots of ё, the points of Hebrew and Arabic.

    й, and the marks of scripts in which they are letters of their own, stay.
    """
    if word.isascii():
        return word
    bare = _ACCENT.sub("", unicodedata2.normalize("NFD", word.translate(_STROKES)))
    return str(unicodedata2.normalize("NFC", bare))


def _wholes(folded: str, parts: list[str]) -> list[str]:
    """The token where it is more than one part, then what its signs separate, from the strongest to the weakest."""
    if not parts or folded == parts[0] or regex.search(r"\s", folded):
        return []
    bare = folded.rstrip("+#")
    wholes = [folded] if len(folded) <= WHOLE_CHARS_MAX else []
    for level in _LEVELS:
        if level in bare:
            *segments, last = bare.split(level)
            for segment in (*segments, last + folded[len(bare) :]):
                wholes += _wholes(segment, PART.findall(segment))
            break
    return wholes
