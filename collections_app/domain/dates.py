"""Read dates, weekdays and times of day out of a text, in English and German, each with its place.

Number words of English and German, and what they are worth.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

TEXTS = tomllib.loads(Path(__file__).with_name("quantities.toml").read_text(encoding="utf-8"))
ONES, _TENS, EINS, _ZIGS, _ORDINALS, _ORDNUNG = (
    TEXTS[name].split() for name in ("ones", "tens", "eins", "zigs", "ordinals", "ordnung")
)
SCALES = {"hundred": 100, "hundert": 100, "thousand": 1000, "tausend": 1000, "million": 10**6, "millionen": 10**6,
          "billion": 10**9, "milliarden": 10**9, "mio": 10**6, "mrd": 10**9, "k": 1000}  # fmt: skip
_DOZENS = {"dozen": 12, "dutzend": 12}


def _number_words() -> dict[str, int]:
    words = dict(zip(ONES, range(20), strict=True)) | dict(zip(EINS, range(20), strict=True))
    for index, (ten, zig) in enumerate(zip(_TENS, _ZIGS, strict=True), 2):
        words |= {ten: 10 * index, zig: 10 * index}
        words |= {f"{ten}{mark}{one}": 10 * index + digit for digit, one in enumerate(ONES[1:10], 1) for mark in "- "}
        words |= {f"{one}und{zig}": 10 * index + digit for digit, one in enumerate(EINS[1:10], 1)}
    words |= {name: SCALES[name] for name in ("hundred", "hundert", "thousand", "tausend", "million")} | _DOZENS
    words |= {"eins": 1, "once": 1, "twice": 2, "thrice": 3}
    return words | {f"{one}mal": digit for digit, one in enumerate(EINS[1:13], 1)}


_WORDS = _number_words()
WORDS_OF_ORDER = {word: value for value, word in enumerate(_ORDINALS, 1)} | {
    f"{word}{ending}": value for value, word in enumerate(_ORDNUNG, 1) for ending in ("e", "en", "er", "es", "em")
}
ORDER = "|".join(sorted(WORDS_OF_ORDER, key=len, reverse=True))
NAMED = "|".join(sorted(_WORDS, key=len, reverse=True))
SMALL = "|".join(
    sorted(
        (
            word
            for word, value in _WORDS.items()
            if word.isalpha() and value < 60 and not word.endswith(("mal", "ice", "once", "tzend", "dozen"))
        ),
        key=len,
        reverse=True,
    )
)
WORD_NUMBER = re.compile(
    rf"(?<![\w-])(?P<word>{ORDER}|(?:(?:hundert|tausend)(?:und)?)?(?:{NAMED})"
    rf"(?:[\s-]?(?:hundred|thousand|million|hundert|tausend|dozen|dutzend)(?:(?:\sand\s|[\s-]|und)?(?:{NAMED}))?)*)(?!\w)",
    re.IGNORECASE,
)


LARGEST = 10**15  # nobody counts further in words


def value_of_words(words: str) -> float:
    """Of a number word with its scales: 3400 for "three thousand four hundred"."""
    low = words.lower()
    if low in WORDS_OF_ORDER:
        return WORDS_OF_ORDER[low]
    total = part = 0
    for word in re.findall(NAMED, low):
        value = _WORDS[word]
        if word in _DOZENS or value == 100:
            part = max(part, 1) * value
        elif value < 100:
            part += value
        else:
            total, part = total + max(part, 1) * value, 0
    return min(total + part, LARGEST)


def value_of(written: str) -> int:
    """Of a small number in digits or in one word."""
    return int(written) if written.isdecimal() else _WORDS[written.lower()]


NOON = 720  # minutes
_MONTHS = TEXTS["months"].split(", ")
_MONTH = "|".join(_MONTHS)
_DAYS = TEXTS["days"].split(", ")
_DATE = re.compile(
    rf"\b(?P<y1>\d{{4}})-(?P<m1>\d\d)-(?P<d1>\d\d)\b"
    rf"|(?<![\w.])(?P<d2>\d{{1,2}})\.\s?(?P<m2>\d{{1,2}})\.(?:\s?(?P<y2>\d{{4}}|\d\d(?![\d.%])))?(?![\d%])"
    rf"|(?<![\w/])(?P<a3>\d{{1,2}})/(?P<b3>\d{{1,2}})/(?P<y3>\d{{4}})\b"
    rf"|(?<![\w/.])(?P<m9>0?[1-9]|1[0-2])/(?P<y9>\d{{4}})\b"
    rf"|(?<![\w.,])(?P<d4>\d{{1,2}}|{ORDER})(?:\.|st|nd|rd|th)?(?:\s+of)?\s+(?P<n4>{_MONTH})\b\.?(?:,?\s+(?:of\s+)?(?P<y4>\d{{4}}))?"
    rf"|\b(?P<n5>{_MONTH})\.?\s+(?:the\s+)?(?P<d5>\d{{1,2}}(?!\d))(?:st|nd|rd|th)?(?:,?\s+(?P<y5>\d{{4}}))?\b(?![.,]\d)"
    rf"|\b(?P<n6>{_MONTH})\.?,?\s+(?:of\s+)?(?P<y6>\d{{4}})\b"
    rf"|\b(?P<n7>(?-i:January|February|March|April|June|July|August|September|October|November|December|Januar|Februar|März|Mai|Juni|Juli"
    rf"|Oktober|Dezember)|(?<=[a-z]\s)(?-i:May))\b"
    rf"|(?<![\w.,/:+-])(?P<y8>1[5-9]\d\d|20\d\d)(?![\w/:]|[.,]\d|-\d|\s?(?:%|[€$£]|\w*°))",
    re.IGNORECASE,
)
_HOUR = rf"(?:[01]?\d|2[0-4]|{SMALL})"
_RANGE = r"(?:to|until|till|and|bis|und|-|–)"
_CLOCK = re.compile(
    rf"(?<![\w.:,])(?:(?P<h>{_HOUR})(?:[:.](?P<m>[0-5]\d))?\s?(?:(?P<mark>uhr\b|[ap]\.?m\b\.?(?!\s(?:tag|ende|anfang|stück|platz)\b)|o['’]clock)"
    rf"(?:\s(?P<m3>[0-5]\d|{SMALL})(?!\s?\w|[,.:]\d))?"
    rf"|(?=\s?{_RANGE}\s?(?P<last>{_HOUR})(?:[:.][0-5]\d)?\s?(?P<shared>uhr|[ap]\.?m\b))|(?=\s(?:{TEXTS['day_half']})))"
    rf"|(?P<h2>[01]?\d|2[0-4]):(?P<m2>[0-5]\d)(?![\w:])"
    rf"|(?:an?\s)?(?P<part>half|(?:drei)?viertel|(?:three\s)?quarters?"
    rf"|(?:(?<=\bat\s)|(?<=\bby\s)|(?<=\bum\s)|(?<=\bab\s)|(?<=\bbis\s)|(?<=\bgegen\s)){_HOUR})"
    rf"\s(?:minute[ns]?\s)?(?P<side>past|after|to|before|nach|vor)\s(?P<halb>halb\s)?(?P<h4>{_HOUR})(?:\suhr)?(?!\w|[:.,]\d|\s?%)"
    rf"|halb\s(?P<h5>{_HOUR})(?:\suhr)?(?!\w)|(?P<three>dreiviertel)\s(?P<h6>{_HOUR})(?:\suhr)?(?!\w)"
    rf"|(?P<noon>noon|midday|zwölf uhr mittags)\b|(?P<midnight>midnight|mitternacht)\b)",
    re.IGNORECASE,
)
# an hour without a mark, as "at nine"; behind the second kind of words only in a text that has another time
_BARE_HOUR = re.compile(
    rf"\b(?:(?:at|um)|(?P<shy>by|from|between|von|zwischen|until|till|to|bis|ab|and|und))\s(?P<h>{_HOUR})(?=[.,;!?](?!\d)|$|\s(?:and|und|or|oder|until|till|to|bis|on|am|an)\b)",
    re.IGNORECASE,
)
_DAY_HALF = re.compile(rf",?\s(?:{TEXTS['day_half']})\b", re.IGNORECASE)
_PARTS = {"half": 30, "viertel": 15, "quarter": 15, "dreiviertel": 45, "three quarters": 45}
_DAY = "|".join(_DAYS)
_SHORT_DAYS = [day.split() for day in TEXTS["short_days"].split(", ")]
_SHORT = "|".join((_DAY, *(name for names in _SHORT_DAYS for name in names)))
_WEEK = re.compile(
    rf"\b(?P<first>{_SHORT})s?\.?\s?(?:to|through|thru|until|till|bis|-|–)\s?(?P<last>{_SHORT})s?\b"
    rf"|(?P<work>{TEXTS['weekdays']})|(?P<end>{TEXTS['weekend']})"
    rf"|\b(?P<day>{_DAY})(?:(?:vor|nach)?mittag|abend|morgen|nacht)?(?:s|e?n)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Date:
    """The parts that text[start:end] states; None for the others. weekdays: 0 for Monday. minute: of the
    day; is_open: it may be twelve hours later as well, as "half past six".
    """

    start: int
    end: int
    text: str
    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekdays: frozenset[int] | None = None
    minute: int | None = None
    is_open: bool = False

    @property
    def parts(self) -> tuple[int | frozenset[int] | None, ...]:
        return (self.year, self.month, self.day, self.weekdays, self.minute)

    def is_like(self, other: Date) -> bool:
        """Return True if both state one of the parts."""
        return any(None not in pair for pair in zip(self.parts, other.parts, strict=True))

    def equals(self, other: Date) -> bool:
        """Return True if they share a part and agree in all that both state."""
        if (self.is_open or other.is_open) and None not in (self.minute, other.minute):
            return self._open().equals(other._open())
        pairs = zip(self.parts, other.parts, strict=True)
        return self.is_like(other) and all(one == two for one, two in pairs if None not in (one, two))

    def _open(self) -> Date:
        return replace(self, minute=(self.minute or 0) % NOON, is_open=False)


def read_dates(text: str) -> Iterator[Date]:
    """The dates, weekdays and times of day of the text, in order. A set of weekdays, as "Monday to Friday", is one."""
    found = [_date(match) for match in _DATE.finditer(text)]
    clocks = [_clock(match, text) for match in _CLOCK.finditer(text)]
    bare = [match for match in _BARE_HOUR.finditer(text) if clocks or not match["shy"]]
    found += [*clocks, *(_bare_hour(match) for match in bare), *map(_week, _WEEK.finditer(text))]
    taken = -1
    for date in sorted((date for date in found if date), key=lambda item: (item.start, -item.end)):
        if date.start >= taken:
            taken = date.end
            yield date


def _week(match: re.Match[str]) -> Date:
    if match["work"] or match["end"]:
        days = set(range(5)) if match["work"] else {5, 6}
    elif match["first"]:
        first, last = _day_of(match["first"]), _day_of(match["last"])
        days = {day % 7 for day in range(first, last + 1 if last >= first else last + 8)}
    else:
        days = {_day_of(match["day"])}
    return Date(match.start(), match.end(), match[0], weekdays=frozenset(days))


def _day_of(name: str) -> int:
    low = name.lower()
    return next(
        index
        for index, (names, short) in enumerate(zip(_DAYS, _SHORT_DAYS, strict=True))
        if low in names.split("|") or low in short
    )


def _date(match: re.Match[str]) -> Date | None:
    part = {name: value for name, value in match.groupdict().items() if value}
    year = next((int(part[name]) for name in part if name[0] == "y"), None)
    name = next((part[key] for key in part if key[0] == "n"), "")
    month = next((number for number, names in enumerate(_MONTHS, 1) if name and re.fullmatch(names, name, re.I)), None)
    written = next((part[key] for key in part if key[0] == "d"), "")
    day = WORDS_OF_ORDER.get(written.lower()) or (int(written) if written.isdecimal() else None)
    if written := part.get("m1") or part.get("m2") or part.get("m9"):
        month = int(written)
    if "a3" in part:
        one, two = int(part["a3"]), int(part["b3"])
        day, month = (one, two) if one > 12 else (two, one) if two > 12 else (None, None)
    year = year + 2000 if year is not None and year < 100 else year
    if (month or 1) > 12 or (day or 1) > 31:
        return None
    return Date(match.start(), match.end(), match[0], year, month, day)


def _clock(match: re.Match[str], text: str) -> Date:
    half = _DAY_HALF.match(text, match.end("shared") if match["shared"] else match.end())
    end = half.end() if half and not match["shared"] else match.end()
    mark = (match["mark"] or match["shared"] or "").lower()
    if match["noon"] or match["midnight"]:
        return Date(match.start(), match.end(), match[0], minute=NOON if match["noon"] else 0)
    hour = value_of(match["h"] or match["h2"] or match["h4"] or match["h5"] or match["h6"])
    minute = 60 * hour + _minutes(match)
    is_late, is_early = mark.startswith("p"), mark.startswith("a")
    if half:
        is_late, is_early = bool(half["late"]), not half["late"]
        if half["night"]:
            is_late, is_early = hour >= 6, hour < 6
    is_spoken = not (match["h"] or match["h2"]) or mark.startswith("o")
    if is_late and minute < NOON and hour <= value_of(match["last"] or "12"):
        minute += NOON
    if is_early and hour == 12:
        minute -= NOON
    is_open = is_spoken and not (is_late or is_early) and hour <= 12
    return Date(match.start(), end, text[match.start() : end], minute=minute % (2 * NOON), is_open=is_open)


def _minutes(match: re.Match[str]) -> int:
    """What stands beside the hour: -30 for "halb", 15 for "quarter past"."""
    if match["h5"]:
        return -30
    if match["h6"]:
        return -15
    if not match["h4"]:
        return value_of(match["m"] or match["m2"] or match["m3"] or "0")
    part = match["part"].lower()
    count = _PARTS.get(part) or value_of(part)
    sign = 1 if match["side"].lower() in ("past", "after", "nach") else -1
    return sign * count - (30 if match["halb"] else 0)


def _bare_hour(match: re.Match[str]) -> Date:
    hour = value_of(match["h"])
    return Date(match.start("h"), match.end(), match["h"], minute=60 * hour % (2 * NOON), is_open=hour <= 12)
