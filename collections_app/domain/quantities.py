"""Read numbers with their units, dates and times out of a text, in English and German, each with its place.

Values are comparable: units are converted to one of their kind (seconds, metres, ...), number words are numbers, and
dates have the same parts however they are written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

SAME, NEARLY_SAME = 1e-3, 0.035  # relative; the latter between months and days
_TEXTS = tomllib.loads(Path(__file__).with_name("quantities.toml").read_text(encoding="utf-8"))


def _table(text: str) -> dict[str, tuple[str, float]]:
    """{name: (kind, factor)} of lines "kind: factor name name, factor name"."""
    units = {}
    for line in text.strip().splitlines():
        kind, _, rest = line.strip().partition(": ")
        for group in rest.split(", "):
            factor, *names = group.split()
            units.update(dict.fromkeys(names, (kind, float(factor))))
    return units


_UNITS = _table(_TEXTS["units"])
_SQUARE = {"square metre": ("area", 1.0), "square meter": ("area", 1.0), "square kilometre": ("area", 1e6)}
_CASED = {
    "MW": ("power", 1e6),
    "MWh": ("energy", 1e6),
    "A": ("current", 1.0),
    "K": ("kelvin", 1.0),
    "°": ("temperature", 1.0),
}
_PREFIX = {"€": "€", "$": "$", "£": "£", "EUR": "€", "USD": "$", "US$": "$", "CHF": "chf", "GBP": "£"}

_ONES = _TEXTS["ones"].split()
_TENS = _TEXTS["tens"].split()
_EINS = _TEXTS["eins"].split()
_ZIGS = _TEXTS["zigs"].split()
_ORDINALS = _TEXTS["ordinals"].split()
_ORDNUNG = _TEXTS["ordnung"].split()


def _number_words() -> dict[str, int]:
    words = dict(zip(_ONES, range(20), strict=True)) | dict(zip(_EINS, range(20), strict=True))
    for index, (ten, zig) in enumerate(zip(_TENS, _ZIGS, strict=True), 2):
        words |= {ten: 10 * index, zig: 10 * index}
        words |= {f"{ten}-{one}": 10 * index + digit for digit, one in enumerate(_ONES[1:10], 1)}
        words |= {f"{one}und{zig}": 10 * index + digit for digit, one in enumerate(_EINS[1:10], 1)}
    words |= {
        "hundred": 100,
        "hundert": 100,
        "thousand": 1000,
        "tausend": 1000,
        "million": 10**6,
        "dozen": 12,
        "dutzend": 12,
    }
    words |= {"once": 1, "twice": 2, "thrice": 3}
    words |= {f"{one}mal": digit for digit, one in enumerate(_EINS[1:13], 1)}
    return words


_WORDS = _number_words()
_WORDS_OF_ORDER = {word: value for value, word in enumerate(_ORDINALS, 1)} | {
    f"{word}{ending}": value for value, word in enumerate(_ORDNUNG, 1) for ending in ("e", "en", "er", "es", "em")
}
_TIMES = {"once", "twice", "thrice"} | {f"{one}mal" for one in _EINS}
_SCALES = {"hundred": 100, "hundert": 100, "thousand": 1000, "tausend": 1000, "million": 10**6, "millionen": 10**6,
           "billion": 10**9, "milliarden": 10**9, "mio": 10**6, "mrd": 10**9, "k": 1000}  # fmt: skip
_NOT_COUNTED = {"one", "ein", "zero", "null", "million", "hundred", "thousand", "hundert", "tausend", "acht"}

_MONTHS = _TEXTS["months"].split(", ")
_MONTH = "|".join(_MONTHS)
_DAYS = _TEXTS["days"].split(", ")
_ORDER = "|".join(sorted(_WORDS_OF_ORDER, key=len, reverse=True))
_DATE = re.compile(
    rf"\b(?P<y1>\d{{4}})-(?P<m1>\d\d)-(?P<d1>\d\d)\b"
    rf"|(?<![\w.])(?P<d2>\d{{1,2}})\.\s?(?P<m2>\d{{1,2}})\.(?:\s?(?P<y2>\d{{4}}|\d\d(?![\d.%])))?(?![\d%])"
    rf"|(?<![\w/])(?P<a3>\d{{1,2}})/(?P<b3>\d{{1,2}})/(?P<y3>\d{{4}})\b"
    rf"|(?<![\w.,])(?P<d4>\d{{1,2}}|{_ORDER})(?:\.|st|nd|rd|th)?(?:\s+of)?\s+(?P<n4>{_MONTH})\b\.?(?:,?\s+(?:of\s+)?(?P<y4>\d{{4}}))?"
    rf"|\b(?P<n5>{_MONTH})\.?\s+(?:the\s+)?(?P<d5>\d{{1,2}}(?!\d))(?:st|nd|rd|th)?(?:,?\s+(?P<y5>\d{{4}}))?\b(?![.,]\d)"
    rf"|\b(?P<n6>{_MONTH})\.?,?\s+(?:of\s+)?(?P<y6>\d{{4}})\b"
    rf"|\b(?P<n7>(?-i:January|February|March|April|June|July|August|September|October|November|December|Januar|Februar|März|Mai|Juni|Juli"
    rf"|Oktober|Dezember)|(?<=[a-z]\s)(?-i:May))\b"
    rf"|(?<![\w.,/:+-])(?P<y8>1[5-9]\d\d|20\d\d)(?![\w/:]|[.,]\d|-\d|\s?(?:%|[€$£]|\w*°))",
    re.IGNORECASE,
)
_PRICE = re.compile(
    r"(?<![\w.,])(?P<whole>\d+)\s?(?P<unit>euros?|€|dollars?|\$|£)\s?(?P<part>\d\d)(?![\d.,%])", re.IGNORECASE
)
_CLOCK = re.compile(
    r"(?<![\w.:])(?P<h>[01]?\d|2[0-4])(?:[:.](?P<m>[0-5]\d))?\s?(?:(?P<mark>uhr|[ap]\.?m\b\.?|o'clock)"
    r"|(?=(?:to|until|and|bis|und|-|–)\s?(?P<last>\d{1,2})(?:[:.][0-5]\d)?\s?(?P<shared>uhr|[ap]\.?m\b)))"
    r"|(?<![\w.:])(?P<h2>[01]?\d|2[0-4]):(?P<m2>[0-5]\d)(?![\w:])",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?<![\w.])(?:\d+(?:\.\d+){2,}|v\d+(?:\.\d+)+|(?=[\w./-]*\d)(?=[\w./-]*[A-Za-z])[A-Z][A-Za-z]*[-_/]?\d[\w/-]*)(?![\w])"
)
_NUMBER = re.compile(
    r"(?<![\w.,])(?P<prefix>(?:US\$|[€$£]|EUR|USD|CHF|GBP)\s?)?(?P<minus>(?<!\d)(?<!\d\s)[-−](?=\d))?"
    r"(?P<digits>\d{1,3}(?:[,.'\u202f\u00a0]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)(?P<ordinal>st|nd|rd|th)?(?![\d])"
    r"(?:\s?-?(?P<scale>hundred|thousand|million|billion|millionen|milliarden|mio|mrd)\b\.?)?",
    re.IGNORECASE,
)
_NAMED = "|".join(sorted(_WORDS, key=len, reverse=True))
_WORD_NUMBER = re.compile(
    rf"(?<![\w-])(?P<word>{_ORDER}|(?:{_NAMED})(?:[\s-]?(?:hundred|thousand|million|hundert|tausend)"
    rf"(?:(?:\sand\s|[\s-]|und)?(?:{_NAMED}))?)*)(?!\w)",
    re.IGNORECASE,
)
_ORDINAL = re.compile(rf"\d+(?:st|nd|rd|th)|{_ORDER}", re.IGNORECASE)
_HALF = re.compile(_TEXTS["half"], re.IGNORECASE)
_ONE = re.compile(_TEXTS["one"], re.IGNORECASE)
_UNIT = re.compile(r"[\s\u00a0\u202f-]?(?P<unit>%|[€$£]|°\s?[CFcf]?|[A-Za-zµÄÖÜäöüß]+[²³2]?)(?![\w])")
_PERIOD = re.compile(_TEXTS["period"], re.IGNORECASE)
_ADVERBS, _PERIOD_NAMES = (dict(pair.split(":") for pair in _TEXTS[name].split()) for name in ("adverbs", "periods"))
_PERIODS_OF = {
    ("time", 3600.0): "hour", ("time", 86400.0): "day", ("time", 604800.0): "week", ("months", 2629800.0): "month",
    ("months", 7889400.0): "quarter", ("months", 31557600.0): "year",
}  # fmt: skip
MONEY = frozenset(("euro", "dollar", "pound", "franc"))
PERIODS = frozenset(_PERIOD_NAMES.values())
_GERMAN = re.compile(_TEXTS["german"], re.IGNORECASE)
_ENGLISH = re.compile(_TEXTS["english"], re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Quantity:
    """text[start:end] states `value` of a kind of unit ("time", "mass", ...), of a counted thing (its stem), or "".

    thing: whether the unit is a counted thing.
    """

    value: float
    unit: str
    start: int
    end: int
    text: str
    is_counted: bool = False

    def is_like(self, other: Quantity) -> bool:
        """Return True if both can be compared: of one kind of unit, or one of them without any."""
        units = {self.unit, other.unit}
        if _kind(self) == _kind(other) or "" in units or (self.is_counted and other.is_counted) or units <= MONEY:
            return True
        if self.is_counted or other.is_counted:
            return "times" in units
        return next(_written(self)) == next(_written(other))  # 55 °C and 55 W

    def equals(self, other: Quantity) -> bool:
        """Return True for the same amount; a number without a unit equals the same number of whatever."""
        if not self.is_like(other):
            return False
        is_counted = self.is_counted or other.is_counted
        if self.unit != other.unit and not is_counted and any(_ORDINAL.fullmatch(it.text) for it in (self, other)):
            return False  # "the third day" and "three days"
        if "times" in (self.unit, other.unit) and (self.is_counted or other.is_counted):
            return self.value == other.value
        if _kind(self) != _kind(other) and "" not in (self.unit, other.unit) and not self.is_counted:
            return False
        if "" in (self.unit, other.unit) and self.unit != other.unit:
            return any(_near(one, two, SAME) for one in _plain(self) for two in _plain(other))
        tolerance = SAME if self.unit == other.unit else NEARLY_SAME
        return _near(self.value, other.value, tolerance)


@dataclass(frozen=True, slots=True)
class Date:
    """The parts that text[start:end] states; None for the others. weekday: 0 for Monday. minute: of the day."""

    start: int
    end: int
    text: str
    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    minute: int | None = None

    @property
    def parts(self) -> tuple[int | None, ...]:
        return (self.year, self.month, self.day, self.weekday, self.minute)

    def is_like(self, other: Date) -> bool:
        """Return True if both state one of the parts."""
        return any(None not in pair for pair in zip(self.parts, other.parts, strict=True))

    def equals(self, other: Date) -> bool:
        """Return True if they share a part and agree in all that both state."""
        pairs = zip(self.parts, other.parts, strict=True)
        return self.is_like(other) and all(one == two for one, two in pairs if None not in (one, two))


@dataclass(frozen=True, slots=True)
class Stated:
    """What a text states in numbers. codes: names with digits and addresses, in lower case. periods: "hour" of "per
    hour", or the stem of another thing. rest: the text with all of these blanked, as long as the text."""

    quantities: tuple[Quantity, ...]
    dates: tuple[Date, ...]
    codes: tuple[tuple[str, int, int], ...]
    periods: frozenset[str]
    rest: str


def is_german(text: str) -> bool | None:
    """By the small words of the text; None where it has none of either language."""
    german, english = len(_GERMAN.findall(text)), len(_ENGLISH.findall(text))
    return None if german == english else german > english


@lru_cache(maxsize=8192)
def read_quantities(text: str, *, german: bool | None = None) -> Stated:
    """Everything that the text states in numbers, in its order. german: of a text that does not tell by itself whether
    "1.200" is a number above a thousand."""
    language = is_german(text)
    chars = list(text)

    def blank(start: int, end: int) -> None:
        chars[start:end] = " " * (end - start)

    dates = []
    for date in _dates(text):
        dates.append(date)
        blank(date.start, date.end)
    codes = []
    for match in _CODE.finditer("".join(chars)):
        codes.append((match[0].lower(), match.start(), match.end()))
        blank(*match.span())
    quantities: list[Quantity] = []
    numbers = _quantities("".join(chars), german if language is None else language)
    for quantity in sorted(numbers, key=lambda item: item.start):
        blank(quantity.start, quantity.end)
        if quantities and (total := _compound(text, quantities[-1], quantity)):
            quantities[-1] = total
        else:
            quantities.append(quantity)
    rest = "".join(chars)
    named = {quantity: _period_of(text, quantity) for quantity in quantities}
    periods = frozenset((*_periods(rest), *filter(None, named.values())))
    left = tuple(quantity for quantity in quantities if not named[quantity])
    return Stated(left, tuple(dates), tuple(codes), periods, rest)


def _compound(text: str, first: Quantity, second: Quantity) -> Quantity | None:
    """The sum of two amounts that are one, as "3 hours and 20 minutes"."""
    joined = re.fullmatch(r",?\s(?:and\s|und\s)?", text[first.end : second.start])
    if not joined or first.unit != second.unit or first.unit not in ("time", "months", "length", "mass"):
        return None
    if second.value >= first.value / (next(_written(first)) or 1):
        return None
    return replace(first, value=first.value + second.value, end=second.end, text=text[first.start : second.end])


def _period_of(text: str, quantity: Quantity) -> str:
    """The period that "every 3 months" names: "quarter"; "" for another amount."""
    if not re.search(r"\b(?:every|alle)\s$", text[: quantity.start], re.IGNORECASE):
        return ""
    return _PERIODS_OF.get((quantity.unit, quantity.value), "")


def unit_of(word: str) -> tuple[str, float] | None:
    """(kind, factor) of a unit however it is written; None for another word."""
    if word in _CASED:
        return _CASED[word]
    low = word.lower().replace("° ", "°")
    for form in (low, low.removesuffix("s"), low.removesuffix("n"), low.removesuffix("e"), low.removesuffix("en")):
        if form in _UNITS:
            return _UNITS[form]
    return None


def stem(word: str) -> str:
    """Without the commonest endings, so that "days" and "day", "starts" and "start" are one word."""
    word = re.sub(r"['’]s$", "", word)
    if len(word) > 4 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word.removesuffix(ending)
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _kind(quantity: Quantity) -> str:
    return "time" if quantity.unit == "months" else quantity.unit


def _plain(quantity: Quantity) -> Iterator[float]:
    """The value, and the number that is written where a unit was converted."""
    yield quantity.value
    yield from _written(quantity)


def _written(quantity: Quantity) -> Iterator[float]:
    """The number as it is written, else the value."""
    if found := _NUMBER.search(quantity.text):
        yield _value(found["digits"], german=None)
    else:
        words = _WORD_NUMBER.match(quantity.text)
        yield _value_of_words(words["word"]) if words else quantity.value


def _value_of_words(words: str) -> float:
    """Of a number word with its scales: 3400 for "three thousand four hundred"."""
    low = words.lower()
    if low in _WORDS_OF_ORDER:
        return _WORDS_OF_ORDER[low]
    total = part = 0
    for word in re.findall(_NAMED, low):
        value = _WORDS[word]
        if value < 100:
            part += value
        elif value == 100:
            part = max(part, 1) * value
        else:
            total, part = total + max(part, 1) * value, 0
    return total + part


def _near(one: float, two: float, tolerance: float) -> bool:
    return abs(one - two) <= tolerance * max(abs(one), abs(two))


def _dates(text: str) -> Iterator[Date]:
    taken = -1
    found = [_date(match) for match in _DATE.finditer(text)]
    found += [_clock(match) for match in _CLOCK.finditer(text)]
    for number, names in enumerate(_DAYS):
        found += [
            Date(match.start(), match.end(), match[0], weekday=number)
            for match in re.finditer(rf"\b(?:{names})(?:s|e?n)?\b", text, re.IGNORECASE)
        ]
    for date in sorted((date for date in found if date), key=lambda item: (item.start, -item.end)):
        if date.start >= taken:
            taken = date.end
            yield date


def _date(match: re.Match[str]) -> Date | None:
    part = {name: value for name, value in match.groupdict().items() if value}
    year = next((int(part[name]) for name in part if name[0] == "y"), None)
    name = next((part[key] for key in part if key[0] == "n"), "")
    month = next((number for number, names in enumerate(_MONTHS, 1) if name and re.fullmatch(names, name, re.I)), None)
    written = next((part[key] for key in part if key[0] == "d"), "")
    day = _WORDS_OF_ORDER.get(written.lower()) or (int(written) if written.isdecimal() else None)
    if "m1" in part or "m2" in part:
        month = int(part.get("m1") or part["m2"])
    if "a3" in part:
        one, two = int(part["a3"]), int(part["b3"])
        day, month = (one, two) if one > 12 else (two, one) if two > 12 else (None, None)
    year = year + 2000 if year is not None and year < 100 else year
    if (month or 1) > 12 or (day or 1) > 31:
        return None
    return Date(match.start(), match.end(), match[0], year, month, day)


def _clock(match: re.Match[str]) -> Date:
    hour, minute = int(match["h"] or match["h2"]), int(match["m"] or match["m2"] or 0)
    mark = (match["mark"] or match["shared"] or "").lower()
    if mark.startswith("p") and hour < 12 and hour <= int(match["last"] or 12):
        hour += 12
    if mark.startswith("a") and hour == 12:
        hour = 0
    return Date(match.start(), match.end(), match[0], minute=60 * hour + minute)


def _quantities(text: str, german: bool | None) -> Iterator[Quantity]:
    taken: list[tuple[int, int]] = []

    def is_free(start: int, end: int) -> bool:
        return all(end <= first or start >= last for first, last in taken)

    for match in _HALF.finditer(text):
        unit = match["unit"] or match["einheit"] or match["u"]
        known = unit_of(unit) if unit else None
        if match["share"]:
            yield Quantity(50.0, "percent", match.start(), match.end(), match[0].strip())
        elif known:
            yield Quantity(0.5 * known[1], known[0], match.start(), match.end(), match[0])
        else:
            continue
        taken.append(match.span())
    for match in _PRICE.finditer(text):
        kind = _UNITS[match["unit"].lower().removesuffix("s")][0]
        yield Quantity(int(match["whole"]) + int(match["part"]) / 100, kind, match.start(), match.end(), match[0])
        taken.append(match.span())
    for match in _NUMBER.finditer(text):
        if is_free(*match.span()):
            value = _value(match["digits"], german) * _SCALES.get((match["scale"] or "").lower(), 1)
            found = _with_unit(text, match, -value if match["minus"] else value, (match["prefix"] or "").strip())
            taken.append((found.start, found.end))
            yield found
    for match in _WORD_NUMBER.finditer(text):
        word = match["word"].lower()
        if not is_free(*match.span()):
            continue
        found = _with_unit(text, match, _value_of_words(word), "", word)
        if (word in _NOT_COUNTED and (found.unit == "" or found.is_counted)) or _WORDS_OF_ORDER.get(word) == 1:
            continue
        taken.append((found.start, found.end))
        yield found
    for match in _ONE.finditer(text):
        start = max(match.start(name) for name in "abc")
        if is_free(start, match.end()) and (known := unit_of(match["unit"])) and known[0] in ("time", "months"):
            yield Quantity(known[1], known[0], start, match.end(), text[start : match.end()])


def _with_unit(text: str, match: re.Match[str], value: float, prefix: str, word: str = "") -> Quantity:
    start, end = match.span()
    if prefix:
        kind, factor = _UNITS[_PREFIX[prefix.upper()]]
        return Quantity(value * factor, kind, start, end, text[start:end])
    if word in _TIMES:
        return Quantity(value, "times", start, end, text[start:end])
    if word in _WORDS_OF_ORDER or match.groupdict().get("ordinal"):
        return Quantity(value, "", start, end, text[start:end])
    behind = _UNIT.match(text, end)
    if not behind:
        return Quantity(value, "", start, end, text[start:end])
    known = unit_of(behind["unit"])
    if known is None and behind["unit"].lower() not in _STOP and (second := _UNIT.match(text, behind.end())):
        name = f"square {second['unit']}" if behind["unit"].lower() == "square" else second["unit"]
        found = _SQUARE.get(name.lower().removesuffix("s")) or unit_of(name)
        if found and len(name) > 2 and found[0] in ("time", "months", "area"):  # operating hours
            known, behind = found, second
    if known is None:
        name = behind["unit"].lower()
        # a small word, or the first word of what goes on
        counted = "" if len(name) < 3 or name in _STOP or not text[end].isspace() else stem(name)
        return Quantity(value, counted, start, end, text[start:end], bool(counted))
    kind, value = known[0], value * known[1]
    if kind == "fahrenheit":
        kind, value = "temperature", (value - 32) / 1.8
    elif kind == "kelvin":
        kind, value = "temperature", value - 273.15
    return Quantity(round(value, 9), kind, start, behind.end(), text[start : behind.end()])


_STOP = frozenset(_TEXTS["stop"].split())


def _value(digits: str, german: bool | None) -> float:
    plain = re.sub("['\u202f\u00a0]", "", digits)
    marks = [char for char in plain if char in ",."]
    if len(marks) > 1:
        last = marks[-1]
        decimal = last if marks.count(last) == 1 else ""
    elif marks and len(plain.partition(marks[0])[2]) == 3 and plain.partition(marks[0])[0] != "0":
        decimal = marks[0] if (marks[0] == ".") != bool(german) or (marks[0] == "," and german) else ""
        if marks[0] == "," and not german:
            decimal = ""
    else:
        decimal = marks[0] if marks else ""
    whole = "".join("." if char == decimal else "" if char in ",." else char for char in plain)
    return float(whole)


def _periods(rest: str) -> Iterator[str]:
    for match in _PERIOD.finditer(rest):
        if match["adverb"]:
            yield _ADVERBS[match["adverb"].lower()]
            continue
        for word in (match["one"], match["two"]):
            low = (word or "").lower()
            name = next(
                (
                    _PERIOD_NAMES[form]
                    for form in (low, low.removesuffix("s"), low.removesuffix("en"), low.removesuffix("e"))
                    if form in _PERIOD_NAMES
                ),
                None,
            )
            explicit = re.match(r"/|per|each|every|pro|je|for each|of every", match[0], re.IGNORECASE)
            if name:
                yield name
            elif explicit and len(low) > 2:
                yield stem(low)
