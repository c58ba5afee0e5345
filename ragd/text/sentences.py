"""Sentence boundaries: a regular expression proposes, a few rules for the full stop decide. Any language, no model."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from ragd.text.languages import LAO, THAI

_WORDS = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
NEVER_LAST, BEFORE_NUMBERS, WEEKDAYS, OPENER_DECIDES, OPENERS, BEFORE_ORDINALS, AFTER_ORDINALS = (
    frozenset[str](_WORDS[name].split())
    for name in ("never_last", "before_numbers", "weekdays", "opener_decides", "openers", "before_ordinals",
                 "after_ordinals")
)  # fmt: skip


CLAUSE_BEFORE_CHARS = 20
CLAUSE_AFTER_CHARS = 10
QUOTE_CHARS_MAX = 300  # a bracket that nothing closes within so many characters holds nothing
_SPACED = ".!?…‽؟۔"  # need white space behind them: decimals, URLs and file names have none
_UNSPACED = "。！？｡．।॥‼⁇⁈⁉።፧፨။។៕։།༎"
_BOUNDARY = re.compile(
    rf"[{_SPACED}{_UNSPACED}\n](?:"
    rf"(?<=[{_SPACED}])(?<![{_SPACED}]{{2}})[{_SPACED}]*+[\"'”’»)\]}}›*_`]*+(?=\s)"
    rf"|(?<=[{_UNSPACED}])(?!\d)[{_UNSPACED}]*+[」』”’）》〉】〕〗〙］｝»\"')\]]*+"
    r"|(?<=\n)(?=[ \t]*+(?:\n|\||[-*+•] |\d{1,3}[.)] |#{1,6} )))"
)
# Thai and Lao end a sentence with a space and nothing else, and have spaces elsewhere too, around names and numbers:
# one between two longer runs of letters counts as an end. A Greek semicolon asks a question.
_SPACED_CLAUSE = f"(?<=[{THAI}{LAO}]) (?=[{THAI}{LAO}]{{{CLAUSE_AFTER_CHARS}}})"
_OTHER_BOUNDARY = re.compile(f"{_SPACED_CLAUSE}|(?<=[Ͱ-Ͽἀ-῿]);(?=\\s)")
_CLAUSE_BEFORE = re.compile(f"[{THAI}{LAO}]{{{CLAUSE_BEFORE_CHARS}}}")
_THAI_OR_LAO = re.compile(f"[{THAI}{LAO}]")  # a full stop behind it shortens a word
_BRACKETS = {"（": "）", "「": "」", "『": "』", "《": "》", "〈": "〉", "【": "】", "〔": "〕", "“": "”"}
_BRACKET = re.compile("[" + "".join((*_BRACKETS, *_BRACKETS.values())) + "\n]")
_QUOTED_GOES_ON = re.compile("(?:と|って|という|とか)")
_LAST_WORD = re.compile(r"[^\s(\[{\"'“‘«*_/]+\Z")
_ACRONYM = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_NEXT_WORD = re.compile(r"[\s\"'“‘«(\[*_`|¿¡]*+(?:§{1,2}\s?|[$€£±≈~](?=\d))?(\w+)(?=(\.?))")
_DATE = re.compile(r"(?<!\d)\d{1,2}\. ?\d{1,2}\. ?(?:\d{4}|\d\d)(?!\d)")
_LOOK_BACK_CHARS = 40


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Spans (start, end) of the sentences, in order, without the white space between them.

    Every character that is not white space lies in exactly one span. Blank lines, list items, table rows and headings
    begin a new span, any other line break does not. [] for text that is empty or blank.
    """
    spans = []
    start = 0
    for end in (*sentence_ends(text, 0, len(text)), len(text)):
        piece = text[start:end]
        if content := piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(content)))
        start = end
    return spans


def sentence_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Ascending positions in text[start:end] right behind a sentence; `end` itself is never one of them."""
    for match in _boundaries(text, start, end):
        if _is_end(text, match):
            yield match.end()


def last_sentence_end(text: str, start: int, end: int) -> int:
    """The last of sentence_ends(), or 0."""
    for match in reversed([*_boundaries(text, start, end)]):
        if _is_end(text, match):
            return match.end()
    return 0


def _boundaries(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """What may be the end of a sentence, in order."""
    found = _BOUNDARY.finditer(text, start, end)
    if text.isascii():
        return found
    others = [*_OTHER_BOUNDARY.finditer(text, start, end)]
    return iter(sorted([*found, *others], key=lambda match: match.start())) if others else found


def _is_end(text: str, match: re.Match[str]) -> bool:
    mark = text[match.start()]
    if mark in _SPACED:
        return _ends_sentence(text, match)
    if mark == " ":
        return _CLAUSE_BEFORE.match(text, max(0, match.start() - CLAUSE_BEFORE_CHARS)) is not None
    return mark not in _UNSPACED or not _in_brackets(text, match)


def _in_brackets(text: str, match: re.Match[str]) -> bool:
    """Whether a bracket or quotation is open behind the mark and closed soon, or a quoted sentence goes on."""
    end = match.end()
    if text[end - 1] in "」』”" and _QUOTED_GOES_ON.match(text, end):
        return True
    first = max(text.rfind("\n", 0, end) + 1, end - QUOTE_CHARS_MAX)
    opened: list[str] = []
    for bracket in _BRACKET.findall(text, first, end):
        if bracket in _BRACKETS:
            opened.append(_BRACKETS[bracket])
        elif opened and bracket == opened[-1]:
            opened.pop()
    if not opened:
        return False
    closed = text.find(opened[0], end, end + QUOTE_CHARS_MAX)
    return closed >= 0 and text.find("\n", end, closed) < 0


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    following = _NEXT_WORD.match(text, match.end())
    if following is None:
        return True
    if following.group(1)[0].islower():
        return False
    if text[match.start()] != "." or text.startswith("..", match.start()):
        return True
    dates = _DATE.finditer(text, max(0, match.start() - 7), match.start() + 13)
    if any(date.start() < match.start() < date.end() for date in dates):
        return False
    before = text[max(0, match.start() - _LOOK_BACK_CHARS) : match.start()]
    return _full_stop_ends(
        before, following.group(1), initial_follows=len(following.group(1)) == len(following.group(2))
    )


def _full_stop_ends(before: str, following: str, *, initial_follows: bool) -> bool:
    match = _LAST_WORD.search(before)
    if match is None:
        return True
    word, key = match.group(), match.group().lower()
    if key in NEVER_LAST or _THAI_OR_LAO.match(word[-1]):
        return False
    if word.isdecimal():
        is_ordinal = following in AFTER_ORDINALS or (len(word) < 3 and _opens_ordinal(before[: match.start()]))
        return not is_ordinal and not _numbers_a_line(before, match.start())
    if following[0].isdigit():
        return key not in BEFORE_NUMBERS and word not in WEEKDAYS and not key.endswith("str")
    if len(word) == 1 and word.islower():  # "z. B.", "e. V.", but "Solve for x."
        return not initial_follows
    if key in OPENER_DECIDES or _ACRONYM.fullmatch(word):
        return following in OPENERS and not initial_follows
    return True


def _opens_ordinal(before: str) -> bool:
    """Whether it ends with a German word that stands before ordinals, as in "das 16. Lebensjahr"."""
    words = before.lower().split()[-2:]
    return bool(words) and words[-1] in BEFORE_ORDINALS and words != ["i", "am"]


def _numbers_a_line(before: str, start: int) -> bool:
    """Whether what starts at `start` is the first word of its line, as in "1. Introduction"."""
    return not before[before.rfind("\n", 0, start) + 1 : start].strip(" \t#*>|")
