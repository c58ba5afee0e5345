"""Find where a text contradicts another one about the same thing: by small typed checks, no model.

    number    an amount, share or code that the source does not state, where it states another one of the kind
    date      the same of dates, weekdays and times of day
    period    "per hour" where the source says "per minute"
    name      a name that the source does not hold, where it has another one
    opposite  what the source denies, forbids or excepts is affirmed, or the other way round: negations and words of
              opposite meaning ("at least", "at most") are counted together, clause by clause

Every check says what the source has instead, and where the claim goes wrong. English and German.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from collections_app.domain.dates import Date
from collections_app.domain.quantities import MONEY, PERIODS, Quantity, Stated, is_german, read_quantities
from retrieval_app.answerers.extractive_answerer import list_stems

Kind = Literal["number", "date", "period", "name", "opposite"]

_WORDS = tomllib.loads(Path(__file__).with_name("contradictions.toml").read_text(encoding="utf-8"))
STOP_WORDS = frozenset(_WORDS["stop"].split())
_OPPOSITES = [
    (re.compile(rf"\b(?:{one})\b", re.IGNORECASE), re.compile(rf"\b(?:{other})\b", re.IGNORECASE))
    for one, other in _WORDS["opposites"]
]
_NEGATION = re.compile(_WORDS["negation"], re.IGNORECASE)
_ONLY = re.compile(_WORDS["only"], re.IGNORECASE)
_ALL = re.compile(_WORDS["all"], re.IGNORECASE)
_EXCEPT = re.compile(_WORDS["except"], re.IGNORECASE)
_EXCEPTED = re.compile(_WORDS["excepted"], re.IGNORECASE)
_FIRST_PART = re.compile(r"[^,]*,|\W*(?:\w+\s){0,3}?[A-ZÄÖÜ][\w-]+")
_ASKS_ACTOR, _PASSIVE, _ADVERBIAL = (
    re.compile(_WORDS[name], re.IGNORECASE) for name in ("asks_actor", "passive", "adverbial")
)
_FROM, _TO = re.compile(r"\bfrom\b", re.IGNORECASE), re.compile(r"\bto\b", re.IGNORECASE)
_CLAUSE = re.compile(_WORDS["clause"], re.IGNORECASE)
_BUT = re.compile(_WORDS["but"], re.IGNORECASE)
_UNLESS = re.compile(_WORDS["unless"], re.IGNORECASE)
_BOUND = re.compile(_WORDS["bound"], re.IGNORECASE)
_PART = re.compile(_WORDS["part"], re.IGNORECASE)
_OPEN = re.compile(_WORDS["open"], re.IGNORECASE)
_WITHOUT = re.compile(_WORDS["without"], re.IGNORECASE)
_SAME = [(re.compile(rf"\b(?:{said})", re.IGNORECASE), word) for said, word in _WORDS["same"]]
_TOKEN = re.compile(r"\w+")
_TITLE_STOP = re.compile(r"\b(?P<title>Mr|Mrs|Ms|Dr|Prof|St)\.")
_LEAD = re.compile(
    r"^\W*(?:(?P<yes>yes|ja|correct|right|genau)|(?P<no>no|nein|nope))\b(?=\s*(?:[,.:;!–—-]|$))", re.IGNORECASE
)
_MARKER = re.compile(r"\s*\[\d[\d\s,;–-]*\]")
_TITLES = frozenset(_WORDS["titles"].split())
_NAME = re.compile(r"[A-ZÄÖÜ][\w'’-]*[a-zäöüß][\w'’-]*|[A-Z]{2,}\b")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\"“„(]\s*|\n\s*)[\s\"“„'(*_-]*$")
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "non-", "dis", "de", "miss", "nicht")
REPEATED = 0.5  # the share of a question's words from which an answer is a whole sentence
SAME_SHARE = 0.7  # of the longer of two words, that both begin with


@dataclass(frozen=True, slots=True)
class Contradiction:
    """claim[start:end] is `said`; source: what the other text has instead, "" where it only denies."""

    kind: Kind
    start: int
    end: int
    said: str
    source: str


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
    if lead and lead["no"] and _EXCEPT.match(body.lstrip()):
        body = "no".ljust(lead.end()) + body[lead.end() :]
    for free in stated.quantities:
        if free.value == 0 and free.unit in MONEY and free.start >= (lead.end() if lead else 0):
            body = body[: free.start] + _padded("free", free.text) + body[free.end :]
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


def same_word(one: str, other: str) -> bool:
    """Return True for equal words and for two that begin alike, as "rebuild" and "rebuilding"."""
    if one == other:
        return True
    longer = max(len(one), len(other))
    least = max(4, SAME_SHARE * longer)
    if min(len(one), len(other)) < least:
        return False
    return one[: int(least + 0.999)] == other[: int(least + 0.999)]


def holds_word(words: Sequence[str] | frozenset[str], word: str) -> bool:
    return word in words or any(same_word(word, other) for other in words)


def share_held(words: Sequence[str] | frozenset[str], others: Sequence[str] | frozenset[str]) -> float:
    """The share of the words that the others hold; 0 for none."""
    return sum(holds_word(others, word) for word in words) / len(words) if words else 0.0


def find_contradictions(claim: str, source: str, given: str = "") -> list[Contradiction]:
    """What of the claim the source contradicts. Both must be about the same thing: see the callers.

    given: a text whose quantities and names need not stand in the source, such as the question.
    """
    language = is_german(f"{claim} {source} {given}")
    said, told, known = (read(text, language) for text in (claim, source, given))
    found = [
        *_numbers(said.stated, told.stated, known.stated),
        *_exchanged(said, told),
        *_periods(said, told, known),
        *_other_names(said, told, known),
    ]
    found.extend(_other_actors(said, told, known))
    leads = lead_of(said, known), lead_of(told, known)
    if (said.lead, told.lead) != (None, None) and None not in leads and leads[0] != leads[1]:
        found.append(Contradiction("opposite", 0, len(claim), claim, source))
    return [*found, *(list(_opposites(said, told, known)) or _wrong_side(said, told))]


def lead_of(text: Reading, question: Reading) -> bool | None:
    """Yes or no; of a sentence that repeats a question without saying either, by whether it denies it."""
    if text.lead is not None or not question.words or _OPEN.match(question.text):
        return text.lead
    asked = question.clauses[0]
    clauses = [each for each in text.clauses if not each.is_exception and not each.is_only]
    leads = {
        (asked.negations + each.negations + _opposed((each, each), (asked, asked))) % 2 == 0
        for each in clauses
        if share_held(asked.words, each.words) >= REPEATED
    }
    return leads.pop() if len(leads) == 1 and not _WITHOUT.search(text.text) else None


def unstated(claim: Reading, sources: Sequence[Reading], given: Reading) -> list[Quantity | Date | str]:
    """Numbers, dates and codes of the claim that none of the sources states, and `given` does not either."""
    held = [*(each.stated for each in sources), given.stated]
    missing: list[Quantity | Date | str] = [
        one
        for one in claim.stated.quantities
        if not any(one.equals(two) for each in held for two in each.quantities)
        and not (one.interval and any(each.has_interval(one.interval) for each in held))
        and not (one == replace(one, value=1.0, unit="times") and any(claim.stated.periods & it.periods for it in held))
    ]
    missing += [one for one in claim.stated.dates if not any(one.equals(two) for each in held for two in each.dates)]
    missing += [
        code
        for code, _, _ in claim.stated.codes
        if not any(code in each.rest.lower() or code in _codes(each) for each in held)
    ]
    return missing


def _codes(stated: Stated) -> set[str]:
    return {code for code, _, _ in stated.codes}


def _numbers(said: Stated, told: Stated, known: Stated) -> Iterator[Contradiction]:
    for one in said.quantities:
        if any(one.equals(two) for two in (*told.quantities, *known.quantities)):
            continue
        others = [
            two for two in told.quantities if one.is_like(two) and not any(two.equals(it) for it in said.quantities)
        ]
        others = [two for two in others if not any(two.equals(it) for it in known.quantities)]
        if others:
            yield Contradiction("number", one.start, one.end, one.text, others[0].text)
    for date in said.dates:
        if any(date.equals(two) for two in (*told.dates, *known.dates)):
            continue
        rest = [
            two
            for two in told.dates
            if date.is_like(two) and not any(two.equals(it) for it in (*said.dates, *known.dates))
        ]
        if rest:
            yield Contradiction("date", date.start, date.end, date.text, rest[0].text)
    yield from _reversed(said, told)
    own, others_codes = _codes(said), _codes(told) | _codes(known)
    for code, start, end in said.codes:
        strange = [other for other, _, _ in told.codes if other not in own]
        if code not in others_codes and strange:
            yield Contradiction("number", start, end, code, strange[0])


def _wrong_side(said: Reading, told: Reading) -> Iterator[Contradiction]:
    """An amount or date that one text gives as the earliest or least, the other one as the latest or most."""
    for one in said.facts:
        side = _bound(said, one)
        others = [two for two in told.facts if _are_equal(one, two)]
        if side and others and all(_bound(told, two) == -side for two in others):
            yield Contradiction("opposite", one.start, one.end, one.text, others[0].text)


def _bound(reading: Reading, fact: Quantity | Date) -> int:
    """1 for "from 3 March" and "not before 3 March", -1 for "by 3 March", 0 for neither."""
    found = _BOUND.search(reading.stated.rest[: fact.start])
    if not found or reading.stated.rest[: found.start()].rstrip().endswith(("from", "von")):
        return 0
    denied = sum(each.negations for each in reading.clauses if each.start <= fact.start < each.start + len(each.text))
    return (1 if found["lower"] else -1) * (-1 if denied % 2 else 1)


def _exchanged(said: Reading, told: Reading) -> Iterator[Contradiction]:
    """Two amounts that both texts state, each beside a word that the other text has beside the other amount."""
    ours, theirs = list(_beside(said)), list(_beside(told))
    for fact, words in ours:
        for other, others in theirs:
            is_known = any(_are_equal(fact, it) for it, _ in theirs) and any(_are_equal(other, it) for it, _ in ours)
            if _are_equal(fact, other) or not is_known:
                continue
            own = frozenset(word for it, held in ours if _are_equal(it, other) for word in held)
            right = frozenset(word for it, held in theirs if _are_equal(it, fact) for word in held)
            if any(holds_word(others, w) and not holds_word(own, w) and not holds_word(right, w) for w in words):
                yield Contradiction("number", fact.start, fact.end, fact.text, other.text)
                return


def _beside(reading: Reading) -> Iterator[tuple[Quantity | Date, tuple[str, ...]]]:
    """Each amount or date that stands alone in its part of an enumeration, with the words there."""
    start = 0
    for match in [*_PART.finditer(reading.stated.rest), None]:
        end = match.start() if match else len(reading.text)
        inside = [fact for fact in reading.facts if start <= fact.start < end]
        if len(inside) == 1:
            yield inside[0], content_words(reading.stated.rest[start:end])
        start = match.end() if match else end


def _reversed(said: Stated, told: Stated) -> Iterator[Contradiction]:
    """Of two dates that both state, one after the other."""
    own, others = ([date for date in stated.dates if date.month or date.year] for stated in (said, told))
    if len(own) != 2 or len(others) != 2:
        return
    (one, two), (first, last) = own, others
    if one.equals(last) and two.equals(first) and not one.equals(first):
        yield Contradiction("date", one.start, two.end, f"{one.text} - {two.text}", f"{first.text} - {last.text}")


def _periods(said: Reading, told: Reading, known: Reading) -> Iterator[Contradiction]:
    if any(one.stated.has_interval(each) for one, two in ((said, told), (told, said)) for each in two.stated.intervals):
        return
    own, others = (reading.stated.periods - known.stated.periods for reading in (said, told))
    times = own & PERIODS, others & PERIODS
    if own and others and (not own & others or (all(times) and not times[0] & times[1])):
        yield Contradiction("period", 0, len(said.text), ", ".join(sorted(own)), ", ".join(sorted(others)))


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


def _other_names(said: Reading, told: Reading, known: Reading) -> Iterator[Contradiction]:
    """A name that the source lacks, where it has one that the claim lacks."""
    low_told, low_known = told.text.lower(), known.text.lower()
    low_said = said.text.lower()
    strange = [
        (name, start) for name, start in said.names if name.lower() not in low_told and name.lower() not in low_known
    ]
    others = [name for name, _ in told.names if name.lower() not in low_said and name.lower() not in low_known]
    if strange and others:
        name, start = strange[0]
        yield Contradiction("name", start, start + len(name), name, others[0])


def _other_actors(said: Reading, told: Reading, known: Reading) -> Iterator[Contradiction]:
    """Where the question asks who did it, and the source names them as the one to whom it was done."""
    if not _ASKS_ACTOR.match(known.text) or len(said.clauses) != 1 or len(told.clauses) != 1:
        return
    ours, theirs = (_actor(reading, known) for reading in (said, told))
    if not ours or not theirs or not share_held(ours, told.words):
        return
    is_other = not share_held(ours, theirs)
    is_turned = any(
        _FROM.search(one.text) and _TO.search(two.text) and not (_TO.search(one.text) or _FROM.search(two.text))
        for one, two in ((said, told), (told, said))
    )  # A leases from B, B leases to A
    if is_other != is_turned:
        yield Contradiction("opposite", 0, len(said.text), said.text, told.text)


def _actor(reading: Reading, question: Reading) -> tuple[str, ...]:
    """Content words of the one who acts: behind "by", else before the first word of the question; () for not known."""
    text = reading.text
    if passive := _PASSIVE.search(text):
        named = text[passive.end() :]
    elif _ADVERBIAL.match(text):
        return ()
    else:
        asked = next((found for found in _TOKEN.finditer(text) if _is_asked(found[0], question)), None)
        named = text[: asked.start()] if asked else text
    if is_german(f"{text} {question.text}"):
        named = " ".join(token for token in _TOKEN.findall(named) if token[0].isupper())  # nouns
    return content_words(named)


def _is_asked(token: str, question: Reading) -> bool:
    return any(word[:4] == other[:4] for word in content_words(token) for other in question.words)  # "singt", "singen"


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
        has_value = any(offset + first <= each.start < offset + last for each in stated.quantities)
        negations = before.negations + (not has_value)
        yield _clause(plain[first:last], offset + first, stated, negations, is_exception=True)


def _clause(text: str, offset: int, stated: Stated, negations: int, *, is_exception: bool) -> Clause:
    is_only = bool(_ONLY.search(text))
    denied = len(_NEGATION.findall(_ONLY.sub(" ", text)))
    words = frozenset(content_words(stated.rest[offset : offset + len(text)]))
    return Clause(text, offset, words, negations + denied, is_exception, is_only, bool(_ALL.search(text)))


def _opposites(said: Reading, told: Reading, known: Reading) -> Iterator[Contradiction]:
    """Each clause of the claim against the clause of the source that holds most of it; of equals one has to agree."""
    for clause in said.clauses:
        others = _nearest(clause, said, told, known)
        if others and all(_differs(clause, other, said, told, known) for other in others):
            start = clause.start + len(clause.text) - len(clause.text.lstrip(" ,;:"))
            end = clause.start + len(clause.text.rstrip())
            source = others[0].text.strip(" ,;:")
            yield Contradiction("opposite", start, end, clause.text.strip(" ,;:"), source)


def _differs(clause: Clause, other: Clause, said: Reading, told: Reading, known: Reading) -> bool:
    ours, theirs = _complete(clause, known), _complete(other, known)
    if clause.is_exception and other.is_exception:
        return False  # what they are excepted from is compared by itself
    if clause.is_only != other.is_only:
        return _only_differs(ours, theirs, said, told)
    return (ours.negations + theirs.negations + _opposed((clause, ours), (other, theirs))) % 2 == 1


def _complete(clause: Clause, question: Reading) -> Clause:
    """An answer that hardly repeats its question, with the question: "What is not covered?" - "Damage"."""
    denied = _NEGATION.search(question.text)
    predicate = content_words(question.text[denied.end() :]) if denied else question.words
    if clause.is_exception or not question.words or share_held(predicate or question.words, clause.words) >= REPEATED:
        return clause
    text, words = f"{question.text} {clause.text}", clause.words.union(question.words)
    # a denial that the answer repeats is one denial
    return replace(clause, text=text, words=words, negations=clause.negations or question.negations)


def _only_differs(one: Clause, two: Clause, said: Reading, told: Reading) -> bool:
    """Of two clauses one of which says "only": that is "no other", so nothing else may be affirmed there."""
    only, other, whole = (one, two, told) if one.is_only else (two, one, said)
    exceptions = [clause for clause in whole.clauses if clause.is_exception]
    if exceptions:
        return all(clause.negations % 2 for clause in exceptions) != bool(only.negations % 2)
    parts = [content_words(part) for part in _PART.split(one.text)] if two.is_only else []
    if any(words and not share_held(words, two.words) for words in parts):
        return True
    return (other.is_all and not other.negations) or bool((other.negations + only.negations) % 2)


def _nearest(clause: Clause, said: Reading, told: Reading, known: Reading) -> list[Clause]:
    """The clauses of the source that are as much about the same as any: each holds half of what is new in the claim's,
    or its numbers."""
    likeness = [_likeness(clause, other, said, told, known) for other in told.clauses]
    best = max(likeness, default=0.0)
    near = [other for other, value in zip(told.clauses, likeness, strict=True) if value >= best]
    return [other for other in near if _is_about(clause, other, said, told, known)]


def _facts_in(reading: Reading, clause: Clause) -> list[Quantity | Date]:
    end = clause.start + len(clause.text)
    return [each for each in reading.facts if clause.start <= each.start < end]


def _count_shared(own: Sequence[Quantity | Date], others: Sequence[Quantity | Date]) -> int:
    """How many of them equal one of the others."""
    return sum(any(_are_equal(one, two) for two in others) for one in own)


def _are_equal(one: Quantity | Date, two: Quantity | Date) -> bool:
    if isinstance(one, Quantity):
        return isinstance(two, Quantity) and one.equals(two)
    return isinstance(two, Date) and one.equals(two)


def _likeness(clause: Clause, other: Clause, said: Reading, told: Reading, known: Reading) -> float:
    """Shared words, those that are not given counting more, and shared numbers."""
    words = sum(
        (1.0 if not holds_word(known.words, word) else 0.5)
        for word in sorted(clause.words)
        if holds_word(other.words, word)
    )
    own, others = _facts_in(said, clause), _facts_in(told, other)
    return float(words) + _count_shared(own, others)


def _is_about(clause: Clause, other: Clause, said: Reading, told: Reading, known: Reading) -> bool:
    new = [word for word in clause.words if not holds_word(known.words, word)]
    own, others = _facts_in(said, clause), _facts_in(told, other)
    shared = _count_shared(own, others)
    if new or own:
        held = sum(holds_word(other.words, word) for word in new) + shared + _opposed((clause, clause), (other, other))
        return held >= 0.5 * (len(new) + len(own)) and held > 0
    return share_held(clause.words, other.words) >= 0.5


def _opposed(one: tuple[Clause, Clause], two: tuple[Clause, Clause]) -> int:
    """How many pairs of words of opposite meaning stand one on each side, and not both on one side. Each side as it is
    written, and with its question, which counts where the side itself has neither word."""
    count = 0
    for words in _OPPOSITES:
        here, there = _side(words, one), _side(words, two)
        count += here + there == 0 and here != 0
    if count:
        return count
    own, others = one[0].words, two[0].words
    pairs = [(word, others) for word in own - others] + [(word, own) for word in others - own]
    return sum(any(f"{prefix}{word}" in words for prefix in _PREFIXES) for word, words in pairs)


def _side(words: tuple[re.Pattern[str], re.Pattern[str]], clauses: tuple[Clause, Clause]) -> int:
    """1 for the first of the words, -1 for the other, 0 for none or both."""
    for clause in clauses:
        first, second = (bool(word.search(clause.text)) for word in words)
        if first or second:
            return first - second
    return 0


def find_substitutions(claim: Reading, source: Reading, given: Reading) -> Iterator[tuple[str, str]]:
    """(word of the claim, word of the source) that stand in one place: beside the same word, with the same small words
    between, each missing on the other side. Whether they mean the same is left to the caller."""
    ours, theirs = (list(_neighbours(reading)) for reading in (claim, source))
    for own in ours:
        for other in theirs:
            pairs = ((own[0], other[0], own[2], other[2]), (own[2], other[2], own[0], other[0]))
            for word, there, here, near in pairs:
                if own[1] != other[1] or not same_word(here, near):
                    continue
                missing = there.isalpha() and not holds_word(source.words, word) and not holds_word(given.words, word)
                if missing and not holds_word(claim.words, there) and not holds_word(given.words, there):
                    yield word, there


def _neighbours(reading: Reading) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(content word, the small words between, the next content word)."""
    before = ""
    between: list[str] = []
    for token in _TOKEN.findall(reading.stated.rest.lower()):
        words = content_words(token)
        if not words:
            between.append(token)
            continue
        if before:
            yield before, tuple(between), words[0]
        before, between = words[0], []
