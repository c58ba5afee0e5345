"""Read a text once for comparisons: its amounts and dates, names, and clauses with their negations and exceptions.

Words are compared by stems, without inflection and stop words. English and German; the words stand in
`contradictions.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path

from collections_app.domain.dates import Date
from collections_app.domain.quantities import BEFORE_CHARS, MONEY, Quantity, Stated, is_german, read_quantities
from retrieval_app.answers.extractive_answerer import list_stems

WORDS = tomllib.loads(Path(__file__).with_name("contradictions.toml").read_text(encoding="utf-8"))
STOP_WORDS = frozenset(WORDS["stop"].split())
NEGATION = re.compile(WORDS["negation"], re.IGNORECASE)
_ONLY = re.compile(WORDS["only"], re.IGNORECASE)
_ALL = re.compile(WORDS["all"], re.IGNORECASE)
_EXCEPT = re.compile(WORDS["except"], re.IGNORECASE)
_EXCEPTED = re.compile(WORDS["excepted"], re.IGNORECASE)
_ENDING = re.compile(WORDS["ending"])
_GE = re.compile(r"^(ab|an|auf|aus|durch|ein|fest|mit|nach|um|vor|weg|zu)?(?:ge|zu)(?=[a-zß]{3,}(?:t|en|te)$)")
_UMLAUTS = str.maketrans("äöü", "aou")
_FIRST_PART = re.compile(r"[^,]*,|\W*(?:\w+\s){0,3}?[A-ZÄÖÜ][\w-]+")
_CLAUSE = re.compile(WORDS["clause"], re.IGNORECASE)
_BUT = re.compile(WORDS["but"], re.IGNORECASE)
_UNLESS = re.compile(WORDS["unless"], re.IGNORECASE)
_BOUND, BOUND_BEHIND, AHEAD = (re.compile(WORDS[name], re.IGNORECASE) for name in ("bound", "bound_behind", "ahead"))
_SAME = [(re.compile(rf"\b(?:{said})", re.IGNORECASE), word) for said, word in WORDS["same"]]
_TITLE_STOP = re.compile(r"\b(?P<title>Mr|Mrs|Ms|Dr|Prof|St)\.")
_LEAD = re.compile(
    r"^\W*(?:(?P<yes>yes|ja|correct|right|genau)|(?P<no>no|nein|nope))\b(?=\s*(?:[,.:;!–—-]|$))", re.IGNORECASE
)
_MARKER = re.compile(r"\s*\[\d[\d\s,;–-]*\]")
_TITLES = frozenset(WORDS["titles"].split())
_NAME = re.compile(r"[A-ZÄÖÜ][\w'’-]*[a-zäöüß][\w'’-]*|[A-Z]{2,}\b")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\"“„(]\s*|\n\s*)[\s\"“„'(*_-]*$")
SAME_SHARE = 0.7  # of the longer of two words, that both begin with


@dataclass(frozen=True, slots=True)
class Clause:
    """negations: how many; of what stands behind an exception, one more than before it."""

    text: str
    start: int
    words: frozenset[str]
    negations: int
    is_exception: bool
    is_only: bool
    is_all: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A text read once. words: content words, stemmed, in order; names: (name, start). lead: True for a text that
    begins with yes, False for no."""

    text: str
    stated: Stated
    words: tuple[str, ...]
    names: tuple[tuple[str, int], ...]
    clauses: tuple[Clause, ...]
    lead: bool | None

    @property
    def facts(self) -> tuple[Quantity | Date, ...]:
        return (*self.stated.quantities, *self.stated.dates)

    @property
    def negations(self) -> int:
        return sum(clause.negations for clause in self.clauses if not clause.is_exception)


@lru_cache(maxsize=8192)
def read(text: str, german: bool | None = None) -> Reading:
    """german: of a text that does not tell its language by itself."""
    plain = _MARKER.sub(lambda found: " " * len(found[0]), text)
    stated = read_quantities(plain, german=german)
    lead = _LEAD.match(plain)
    body = " " * lead.end() + plain[lead.end() :] if lead else plain
    if lead and lead["no"] and (_EXCEPT.match(body.lstrip(" ,")) or _EXCEPTED.match(body.strip())):
        body = "no".ljust(lead.end()) + body[lead.end() :]
    for date in stated.dates:
        body = body[: date.start] + " " * len(date.text) + body[date.end :]
    for free in stated.quantities:
        if free.value == 0 and free.unit in MONEY and free.start >= (lead.end() if lead else 0):
            body = body[: free.start] + _padded("free", free.text) + body[free.end :]
    facts: tuple[Quantity | Date, ...] = (*stated.quantities, *stated.dates)
    for fact in facts:
        if (bound := bound_before(body, fact)) and bound["denied"]:
            body = body[: bound.start("denied")] + " " * len(bound["denied"]) + body[bound.end("denied") :]
    for said, word in _SAME:
        body = said.sub(partial(_padded, word), body)
    body = _BUT.sub(lambda found: f"{found[0][:-3]}exc", body)
    clauses = tuple(_clauses(body, stated))
    names = (
        ()
        if (german if is_german(plain) is None else is_german(plain))
        else tuple(_names(stated.rest, is_whole=not stated.quantities and not stated.dates))
    )
    return Reading(text, stated, content_words(stated.rest), names, clauses, bool(lead["yes"]) if lead else None)


def _padded(word: str, found: re.Match[str] | str) -> str:
    length = len(found if isinstance(found, str) else found[0])
    return word.ljust(length)[:length]


def content_words(text: str) -> tuple[str, ...]:
    """Stems of the words that say something, in order."""
    return tuple(word for word in list_stems(text) if word not in STOP_WORDS and any(map(str.isalnum, word)))


@lru_cache(maxsize=8192)
def _plain(word: str) -> str:
    """Without umlauts, and of a German participle without "ge": "abgekocht", "abkochen"."""
    return _GE.sub(r"\1", word.translate(_UMLAUTS))


def count_alike(one: str, other: str) -> int:
    """With how many equal letters both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def same_word(one: str, other: str) -> bool:
    """Return True for equal words and for two that begin alike, as "rebuild" and "rebuilding"."""
    one, other = _plain(one), _plain(other)
    if one == other:
        return True
    least = max(4, SAME_SHARE * max(len(one), len(other)))
    if min(len(one), len(other)) < least:
        return False
    start = count_alike(one, other)
    return start >= least and bool(_ENDING.fullmatch(one[start:]) and _ENDING.fullmatch(other[start:]))


def holds_word(words: Sequence[str] | frozenset[str], word: str) -> bool:
    return word in words or any(same_word(word, other) for other in words)


def share_held(words: Sequence[str] | frozenset[str], others: Sequence[str] | frozenset[str]) -> float:
    """The share of the words that the others hold; 0 for none."""
    return sum(holds_word(others, word) for word in words) / len(words) if words else 0.0


def bound_before(text: str, fact: Quantity | Date) -> re.Match[str] | None:
    first = max(0, fact.start - BEFORE_CHARS)
    found = _BOUND.search(text, first, fact.start)
    is_range = found and text[first : found.start()].rstrip().endswith(("from", "von"))
    return None if is_range else found


def _names(rest: str, *, is_whole: bool) -> Iterator[tuple[str, int]]:
    """Names of an English text: capitals inside a sentence, and at its beginning where another one follows."""
    rest = _TITLE_STOP.sub(r"\g<title> ", rest)
    found = list(_NAME.finditer(rest))
    for index, match in enumerate(found):
        begins = bool(_SENTENCE_START.search(rest[: match.start()]))
        follows = index + 1 < len(found) and rest[match.end() : found[index + 1].start()] == " "
        alone = is_whole and rest.strip(" .!?\"'") == match[0]
        if match[0].lower() in _TITLES or match[0].lower() in STOP_WORDS:
            continue
        if not begins or follows or alone:
            yield match[0].removesuffix("'s").removesuffix("’s"), match.start()


def _clauses(text: str, stated: Stated) -> Iterator[Clause]:
    start = 0
    for match in [*_CLAUSE.finditer(text), None]:
        end = match.start() if match else len(text)
        yield from _exceptions(text[start:end], start, stated)
        start = match.start() if match and match.end() - match.start() else end


def _exceptions(text: str, offset: int, stated: Stated) -> Iterator[Clause]:
    """The clause, and behind "except" another one that says the contrary."""
    if not any(map(str.isalnum, text)):
        return
    plain = _UNLESS.sub(lambda found: "not".ljust(len(found[0])), text)
    found = _EXCEPTED.search(plain) or _EXCEPT.search(plain)
    main, first, last = plain, len(plain), len(plain)
    if found:
        main, first, last = plain[: found.start()], found.end(), len(plain)
        if "what" in found.groupdict():
            first, last = found.span("what")
        elif not any(map(str.isalnum, main)) and (part := _FIRST_PART.match(plain, first)) and part.end() < last - 1:
            last, main = part.end(), plain[part.end() :]  # "Except on Sundays, it is open."
    begin = offset + (last if found and found.start() == 0 and last < len(plain) else 0)
    before = _clause(main, begin, stated, 0, is_exception=False)
    if any(map(str.isalnum, main)):
        yield before
    if found:
        # "except on Sundays, when every 40 minutes": another value, no denial
        within = [each for each in stated.quantities if offset + first <= each.start < offset + last]
        has_value = any(one.is_like(two) for one in within for two in stated.quantities if two.start < offset + first)
        negations = before.negations + (not has_value)
        yield _clause(plain[first:last], offset + first, stated, negations, is_exception=True)


def _clause(text: str, offset: int, stated: Stated, negations: int, *, is_exception: bool) -> Clause:
    is_only = bool(_ONLY.search(text))
    denied = len(NEGATION.findall(_ONLY.sub(" ", text)))
    words = frozenset(content_words(stated.rest[offset : offset + len(text)]))
    return Clause(text, offset, words, negations + denied, is_exception, is_only, bool(_ALL.search(text)))


def are_equal(one: Quantity | Date, two: Quantity | Date) -> bool:
    if isinstance(one, Quantity):
        return isinstance(two, Quantity) and one.equals(two)
    return isinstance(two, Date) and one.equals(two)
