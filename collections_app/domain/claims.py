"""Claims that disagree: sentences of different documents that say other numbers, dates or the contrary of one thing.

Pure rules, no model. A sentence is a claim when it states a number, a date, or enough words to be denied. Two claims
are about the same when they share most of their rare words, and one of them says hardly anything that the other does
not. Then they disagree where

    number     both give one value of the same unit (after conversion), and the values differ;
    date       both give one date of the same precision, and the dates differ;
    negation   one is negated and the other is not, and all else is nearly equal.

Rules for English and German; numbers and dates are read in both.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from ragd.text.sentences import split_sentences

Kind = Literal["number", "date", "negation"]
KINDS: tuple[Kind, ...] = ("number", "date", "negation")

WORDS_MIN = 3  # of a claim
SENTENCE_CHARS_MAX = 600
KEYS = 6  # of the rarest words of a claim; claims that share two of them are compared
CLAIMS_MAX = 100_000  # that are compared at a time
GROUP_MAX = 40  # claims with the same two words: more, and the words say nothing
REST_SMALLER = 0.04  # of the shared weight: what the poorer of two claims says alone
REST_LARGER = 0.45  # the same of the richer one
REST_NEGATION = 0.25  # of both together, where nothing but a negation differs

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|[^\W_]*\d[^\s,;:!?()]*", re.UNICODE)
_NUMBER = re.compile(
    r"(?<![\w.,/:#-])([€$£]\s?)?(\d{1,3}(?:[,\u202f\u00a0]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?![\w.,:/-]*\d)"
    r"(?:[\s\u00a0-]?(%|€|\$|°C|[A-Za-zµÄÖÜäöüß]+))?"
)
_MONTHS = (
    "january|februar|februari|february|january|januar|march|märz|april|may|mai|june|juni|july|juli|august|september|"
    "october|oktober|november|december|dezember"
)
_MONTH_NUMBER = {
    "january": 1, "januar": 1, "february": 2, "februar": 2, "march": 3, "märz": 3, "april": 4, "may": 5, "mai": 5,
    "june": 6, "juni": 6, "july": 7, "juli": 7, "august": 8, "september": 9, "october": 10, "oktober": 10,
    "november": 11, "december": 12, "dezember": 12,
}  # fmt: skip
_DATE = re.compile(
    rf"\b(?:(?P<y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d)|(?P<d2>\d{{1,2}})\.?\s(?P<n2>{_MONTHS})(?:\s(?P<y2>\d{{4}}))?"
    rf"|(?P<n3>{_MONTHS})\s(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s(?P<y3>\d{{4}}))?|(?P<n4>{_MONTHS})\s(?P<y4>\d{{4}})"
    r"|(?P<y5>(?:1[5-9]|20)\d\d))\b(?![\w.,]*\d)",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|cannot|neither|nor|nicht|nie|niemals|kein(?:e[mnrs]?)?|weder)\b|n['’]t\b",
    re.IGNORECASE,
)
_BOUNDS = re.compile(
    r"\b(?:at least|at most|up to|more than|less than|fewer than|over|under|about|around|mindestens|höchstens|bis zu|"
    r"mehr als|weniger als|über|unter|etwa|rund)\b",
    re.IGNORECASE,
)


def _words(text: str) -> list[str]:
    return text.split()


_NUMBER_WORDS = (
    _words("two three four five six seven eight nine ten eleven twelve"),
    _words("zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"),
)
_IN_WORDS = {word: value for words in _NUMBER_WORDS for value, word in enumerate(words, 2)}
_FACTORS: Mapping[str, Mapping[str, float]] = {
    "s": {"ms": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "second": 1, "sekunde": 1, "min": 60, "minute": 60,
          "h": 3600, "hour": 3600, "stunde": 3600, "day": 86_400, "tag": 86_400, "tage": 86_400, "week": 604_800,
          "woche": 604_800},
    "b": {"byte": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 1024, "mib": 1024**2, "gib": 1024**3},
    "m": {"mm": 0.001, "cm": 0.01, "m": 1, "meter": 1, "metre": 1, "km": 1000, "kilometer": 1000, "kilometre": 1000},
    "kg": {"g": 0.001, "gram": 0.001, "gramm": 0.001, "kg": 1, "kilogram": 1, "kilogramm": 1, "t": 1000},
    "l": {"ml": 0.001, "l": 1, "litre": 1, "liter": 1},
    "%": {"%": 1, "percent": 1, "prozent": 1},
    "€": {"€": 1, "euro": 1, "eur": 1},
    "$": {"$": 1, "dollar": 1, "usd": 1},
    "°": {"°c": 1, "degree": 1, "grad": 1},
}  # fmt: skip
_UNITS = {unit: (base, factor) for base, units in _FACTORS.items() for unit, factor in units.items()}
_COUNTED = re.compile(rf"\b({'|'.join(_IN_WORDS)})\s([^\W\d_]+)", re.IGNORECASE)
# a number behind one of these names a thing
_LABEL = re.compile(
    r"\b(?:section|chapter|figure|table|step|version|page|part|no\.?|nr\.?|article|paragraph|item|level|line|row|port|"
    r"abschnitt|kapitel|abbildung|tabelle|schritt|seite|teil|artikel|absatz|zeile|stufe)\s*$",
    re.IGNORECASE,
)
_STOP = frozenset(
    _words(
        "a an the and or of in on at to for from by with as is are was were be been has have had it its this that these"
        " those there which who whom whose will would can could may must shall should do does did than then so such"
        " also only per every each der die das ein eine einer eines einem einen und oder von im in am an zu zum zur für"
        " mit auf als ist sind war waren wird werden hat haben es sich dass dem den des auch nur pro jede jeder jedes"
        " jeden"
    )
)


Stated = tuple[float | str, str]  # a value, and how it is written


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence and what it states. place: which document and chunk; start and end: characters of the chunk.

    values: base unit -> values in it, in order. dates: precision ("year", "month", "day", "day of year") -> dates.
    """

    place: tuple[str, int]
    start: int
    end: int
    text: str
    words: frozenset[str]
    values: Mapping[str, tuple[Stated, ...]] = field(default_factory=dict)
    dates: Mapping[str, tuple[Stated, ...]] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two claims of different documents, in the order of their places. score: 0 to 1, how much they are about the same.

    said: what each states where they differ, such as ("30 days", "14 days"); the negation's word or "" for a negation.
    """

    kind: Kind
    first: Claim
    second: Claim
    score: float
    said: tuple[str, str]


def read_claims(place: tuple[str, int], content: str) -> Iterator[Claim]:
    """The claims of a chunk, in order."""
    for start, end in split_sentences(content):
        text = content[start:end]
        if len(text) <= SENTENCE_CHARS_MAX and not text.lstrip().startswith(("#", "|", "```")):
            claim = read_claim(place, start, end, text)
            if claim is not None:
                yield claim


def read_claim(place: tuple[str, int], start: int, end: int, text: str) -> Claim | None:
    """None for a sentence that states too little, and for a question."""
    if text.rstrip().endswith("?"):
        return None
    dates, rest = _take_dates(text)
    values, rest = _take_values(rest)
    negations = len(_NEGATION.findall(rest))
    rest = _BOUNDS.sub(" ", _NEGATION.sub(" ", rest))
    words = frozenset(_stem(word) for word in _WORD.findall(rest.casefold()) if word not in _STOP and len(word) > 1)
    if len(words) < WORDS_MIN:
        return None
    bounds = tuple(sorted(match.casefold() for match in _BOUNDS.findall(text)))
    return Claim(place, start, end, text, words, values, dates, bounds, negations % 2 == 1)


def find_disagreements(claims: Sequence[Claim]) -> list[Disagreement]:
    """Of claims of different documents, the likeliest first; ties by the places of both. [] for none.

    Of two chunks one disagreement of each kind is told, the one with the higher score.
    """
    rarity = _rarity(claims)
    best: dict[tuple[object, ...], Disagreement] = {}
    for one, other in _candidates(claims, rarity):
        found = compare(claims[one], claims[other], rarity)
        if found is None:
            continue
        key = (found.first.place, found.second.place, found.kind)
        if key not in best or found.score > best[key].score:
            best[key] = found
    return sorted(best.values(), key=_order)


def _order(each: Disagreement) -> tuple[object, ...]:
    return (-each.score, each.first.place, each.second.place, KINDS.index(each.kind))


def compare(one: Claim, other: Claim, rarity: Mapping[str, float]) -> Disagreement | None:
    """What two claims disagree in, None where they do not, are of one document, or not about the same."""
    first, second = sorted((one, other), key=lambda claim: (claim.place, claim.start))
    if first.place[0] == second.place[0] or first.text == second.text:
        return None
    shared = _weight(first.words & second.words, rarity)
    rests = sorted(_weight(words, rarity) for words in (first.words - second.words, second.words - first.words))
    if len(first.words & second.words) < WORDS_MIN or not shared:
        return None
    if rests[0] > REST_SMALLER * shared or rests[1] > REST_LARGER * shared:
        return None
    score = round(shared / (shared + sum(rests)), 4)
    if first.negated != second.negated:
        same = _agree(first.values, second.values) and _agree(first.dates, second.dates)
        if same and sum(rests) <= REST_NEGATION * shared:
            said = tuple((_NEGATION.search(claim.text) or [""])[0] for claim in (first, second))
            return Disagreement("negation", first, second, score, (said[0], said[1]))
        return None
    for kind, left, right in (("number", first.values, second.values), ("date", first.dates, second.dates)):
        said_here = _differing(left, right)
        if said_here and (kind == "date" or first.bounds == second.bounds):
            return Disagreement("number" if kind == "number" else "date", first, second, score, said_here)
    return None


def _differing(
    left: Mapping[str, tuple[Stated, ...]], right: Mapping[str, tuple[Stated, ...]]
) -> tuple[str, str] | None:
    """How each writes the one value in which they differ; None where all agree, or it is not clear which one it is."""
    if left.keys() != right.keys():
        return None
    units = [unit for unit in sorted(left) if _plain(left[unit]) != _plain(right[unit])]
    if len(units) != 1 or len(left[units[0]]) != len(right[units[0]]):
        return None
    pairs = [pair for pair in zip(left[units[0]], right[units[0]], strict=True) if pair[0][0] != pair[1][0]]
    if len(pairs) != 1 or sorted(map(str, _plain(left[units[0]]))) == sorted(map(str, _plain(right[units[0]]))):
        return None
    return pairs[0][0][1], pairs[0][1][1]


def _plain(stated: Sequence[Stated]) -> list[float | str]:
    return [value for value, _ in stated]


def _agree(left: Mapping[str, tuple[Stated, ...]], right: Mapping[str, tuple[Stated, ...]]) -> bool:
    return left.keys() == right.keys() and all(_plain(left[unit]) == _plain(right[unit]) for unit in left)


def _rarity(claims: Sequence[Claim]) -> dict[str, float]:
    """Inverse frequency of each word over the claims."""
    held = Counter(word for claim in claims for word in claim.words)
    return {word: math.log((len(claims) + 1) / (count + 0.5)) for word, count in held.items()}


def _weight(words: Iterable[str], rarity: Mapping[str, float]) -> float:
    return math.fsum(sorted(rarity.get(word, 0.0) for word in words))


def _candidates(claims: Sequence[Claim], rarity: Mapping[str, float]) -> list[tuple[int, int]]:
    """Pairs of claims that share two of their rarest words, in order."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        rare = sorted(claim.words, key=lambda word: (-rarity[word], word))[:KEYS]
        for key in combinations(sorted(rare), 2):
            groups[key].append(index)
    pairs: set[tuple[int, int]] = set()
    for members in groups.values():
        if 1 < len(members) <= GROUP_MAX:
            pairs.update(combinations(members, 2))
    return sorted(pairs)


def _take_dates(text: str) -> tuple[dict[str, tuple[Stated, ...]], str]:
    found: dict[str, list[Stated]] = defaultdict(list)

    def note(match: re.Match[str]) -> str:
        year = match["y"] or match["y2"] or match["y3"] or match["y4"] or match["y5"]
        name = match["n2"] or match["n3"] or match["n4"]
        month = int(match["m"]) if match["m"] else _MONTH_NUMBER.get((name or "").casefold(), 0)
        day = int(match["d"] or match["d2"] or match["d3"] or 0)
        precision, value = "day of year", f"{month:02}-{day:02}"
        if match["y5"]:
            precision, value = "year", str(year)
        elif not day:
            precision, value = "month", f"{year}-{month:02}"
        elif year:
            precision, value = "day", f"{year}-{month:02}-{day:02}"
        found[precision].append((value, match[0]))
        return " "

    rest = _DATE.sub(note, text)
    return {precision: tuple(values) for precision, values in found.items()}, rest


def _take_values(text: str) -> tuple[dict[str, tuple[Stated, ...]], str]:
    found: dict[str, list[Stated]] = defaultdict(list)

    def note(match: re.Match[str]) -> str:
        if _LABEL.search(match.string[: match.start()]):
            return match[0]
        base, value = _in_base(float(re.sub("[,\u202f\u00a0]", "", match[2])), match[1] or match[3] or "")
        found[base].append((value, match[0].strip()))
        return f" {match[3] or ''} "

    def count(match: re.Match[str]) -> str:
        base, value = _in_base(_IN_WORDS[match[1].casefold()], match[2])
        found[base].append((value, match[0]))
        return f" {match[2]} "

    rest = _NUMBER.sub(note, re.sub(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+", "", text))
    rest = _COUNTED.sub(count, rest)
    return {unit: tuple(values) for unit, values in found.items()}, rest


def _in_base(value: float, written: str) -> tuple[str, float]:
    """(the base unit, the value in it); another word than a unit stands for itself."""
    unit = written.strip().casefold()
    for form in (unit, unit.removesuffix("s"), unit.removesuffix("n")):
        if form in _UNITS:
            base, factor = _UNITS[form]
            return base, round(value * factor, 9)
    return ("" if unit in _STOP else _stem(unit)), value


def _stem(word: str) -> str:
    """Without the commonest endings, so that "days" and "day", "starts" and "start" are one word."""
    word = re.sub(r"['’]s$", "", word)
    if len(word) > 4 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word.removesuffix(ending)
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
