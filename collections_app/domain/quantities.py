"""Read numbers with their units, dates and times out of a text, in English and German, each with its place.

Values are comparable: units are converted to one of their kind (seconds, metres, ...), number words are numbers, and
dates have the same parts however they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from collections_app.domain.dates import (
    EINS,
    NAMED,
    ONES,
    ORDER,
    SCALES,
    TEXTS,
    WORD_NUMBER,
    WORDS_OF_ORDER,
    Date,
    read_dates,
    value_of_words,
)

SAME, NEARLY_SAME = 1e-3, 0.035  # relative; the latter between months and days


def _table(text: str) -> dict[str, tuple[str, float]]:
    """{name: (kind, factor)} of lines "kind: factor name name, factor name"."""
    units = {}
    for line in text.strip().splitlines():
        kind, _, rest = line.strip().partition(": ")
        for group in rest.split(", "):
            factor, *names = group.split()
            units.update(dict.fromkeys(names, (kind, float(factor))))
    return units


_UNITS = _table(TEXTS["units"])
_POWERS = {"square": ("area", 2, 1.0), "sq": ("area", 2, 1.0), "cubic": ("volume", 3, 1000.0)}
_CASED = {
    "MW": ("power", 1e6), "MWh": ("energy", 1e6), "A": ("current", 1.0), "K": ("kelvin", 1.0),
    "°": ("temperature", 1.0),
}  # fmt: skip
_PREFIX = {"€": "€", "$": "$", "£": "£", "EUR": "€", "USD": "$", "US$": "$", "CHF": "chf", "GBP": "£"}

_ABBREVIATED = re.compile(r"[^aeiou]{2}s")
_TIMES = {"once", "twice", "thrice"} | {f"{one}mal" for one in EINS}
_NOT_COUNTED = {"one", "ein", "eins", "zero", "null", "million", "hundred", "thousand", "hundert", "tausend"}

_PRICE = re.compile(
    rf"(?<![\w.,])(?P<whole>\d+|{NAMED})\s?(?P<unit>euros?|€|dollars?|\$|£|pounds?)"
    rf"(?:\s?(?P<part>\d\d)(?![\d.,%])|\s(?P<named>{NAMED})(?!\w))",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?<![\w.])(?:\d+(?:\.\d+){2,}|v\d+(?:\.\d+)+|(?=[\w./-]*\d)(?=[\w./-]*[A-Za-z])[A-Z][A-Za-z]*[-_/]?\d[\w/-]*)(?![\w])"
)
_NUMBER = re.compile(
    r"(?<![^\W\u2e80-\uffef])(?<![.,])(?P<prefix>(?:US\$|[€$£]|EUR|USD|CHF|GBP)\s?)?(?P<minus>(?<!\d)(?<!\d\s)[-−](?=\d))?"
    r"(?P<digits>\d{1,3}(?:[,.'\u202f\u00a0]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)(?P<ordinal>st|nd|rd|th)?(?![\d])"
    r"(?:\s?-?(?P<scale>hundred|thousand|million|billion|millionen|milliarden|mio|mrd)\b\.?)?",
    re.IGNORECASE,
)
_ORDINAL = re.compile(rf"\d+(?:st|nd|rd|th)|{ORDER}", re.IGNORECASE)
_FRACTION = re.compile(TEXTS["fraction"], re.IGNORECASE)
_HALVES = re.compile(TEXTS["halves"], re.IGNORECASE)
_FREE = re.compile(TEXTS["free"], re.IGNORECASE)
_NUMERATORS = {word: value for value in range(2, 10) for word in (str(value), ONES[value], EINS[value])}
_DENOMINATORS = {
    word: value for value, words in enumerate(TEXTS["denominators"].split(", "), 2) for word in words.split()
}
_SHARE = re.compile(rf"(?P<above>{'|'.join(_NUMERATORS)})?[\s-]?(?P<below>{'|'.join(_DENOMINATORS)})")
_VULGAR = {"½": (1, 2), "¼": (1, 4), "¾": (3, 4), "⅓": (1, 3), "⅔": (2, 3)}
_ONE = re.compile(TEXTS["one"], re.IGNORECASE)
_UNIT = re.compile(r"[\s\u00a0\u202f-]?(?P<unit>%|[€$£]|°\s?[CFcf]?|[A-Za-zµÄÖÜäöüß]+[²³2]?)(?![\w])")
_PER = re.compile(r"\b(?:per|each|every|an?)\s$", re.IGNORECASE)
_AS_SOON_AS = re.compile(r"once\s(?:they|it|he|she|you|we|the|this|that|there|your|their|its|all)\b", re.IGNORECASE)
_PER_CENT = re.compile(r"\s?per cent\b", re.IGNORECASE)
_PERIOD = re.compile(TEXTS["period"], re.IGNORECASE)
_ADVERBS, _PERIOD_NAMES = (dict(pair.split(":") for pair in TEXTS[name].split()) for name in ("adverbs", "periods"))
BEFORE_CHARS = 120  # looked at before a number: with all that stands there a row of numbers would take minutes
_EVERY = re.compile(r"\b(?:every|alle)\s$", re.IGNORECASE)
_ADVERB_BEFORE = re.compile(r"\b(?:\w+lich|\w+ly|(?:im|am|pro) \w+)\s$", re.IGNORECASE)
_PERIODS_OF = {
    ("time", 3600.0): "hour", ("time", 86400.0): "day", ("time", 604800.0): "week", ("months", 2629800.0): "month",
    ("months", 7889400.0): "quarter", ("months", 31557600.0): "year",
}  # fmt: skip
_SECONDS = {name: seconds for (_, seconds), name in _PERIODS_OF.items()} | {
    "minute": 60.0, "half_hour": 1800.0, "fortnight": 1209600.0, "half_year": 15778800.0,
}  # fmt: skip
MONEY = frozenset(("euro", "dollar", "pound", "franc"))
PERIOD_WORDS = frozenset((*_ADVERBS, *_PERIOD_NAMES, "annual", "month", "year"))
PERIODS = frozenset(_PERIOD_NAMES.values())
_GERMAN = re.compile(TEXTS["german"], re.IGNORECASE)
_ENGLISH = re.compile(TEXTS["english"], re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Quantity:
    """text[start:end] states `value` of a kind of unit ("time", "mass", ...), of a counted thing (its stem), or "".

    is_counted: whether the unit is a counted thing. interval: seconds between two times, of "three times an hour" and
    of "every 20 minutes"; 0 for another amount.
    """

    value: float
    unit: str
    start: int
    end: int
    text: str
    is_counted: bool = False
    interval: float = 0.0

    def is_like(self, other: Quantity) -> bool:
        """Return True if both can be compared: of one kind of unit, or one of them without any."""
        units = {self.unit, other.unit}
        if self.interval and other.interval:
            return True
        if _kind(self) == _kind(other) or "" in units or (self.is_counted and other.is_counted) or units <= MONEY:
            return True
        if self.is_counted or other.is_counted:
            return "times" in units
        return next(_written(self)) == next(_written(other))  # 55 °C and 55 W

    def equals(self, other: Quantity) -> bool:
        """Return True for the same amount; a number without a unit equals the same number of whatever."""
        if not self.is_like(other):
            return False
        if self.interval and other.interval:
            return _near(self.interval, other.interval, NEARLY_SAME)
        if self.value == other.value == 0 and {self.unit, other.unit} <= MONEY:
            return True
        is_counted = self.is_counted or other.is_counted
        if self.unit != other.unit and not is_counted and any(_ORDINAL.fullmatch(it.text) for it in (self, other)):
            return False  # "the third day" and "three days"
        if "times" in (self.unit, other.unit) and (self.is_counted or other.is_counted):
            return self.value == other.value
        if _kind(self) != _kind(other) and "" not in (self.unit, other.unit) and not self.is_counted:
            return False
        if "" in (self.unit, other.unit) and self.unit != other.unit:
            return any(_near(one, two, _tolerance(one, two)) for one in _plain(self) for two in _plain(other))
        is_rounded = self.unit == "percent" and (self.value % 1 or other.value % 1)  # 33 % and a third
        tolerance = SAME if self.unit == other.unit and not is_rounded else NEARLY_SAME
        if self.unit == other.unit and all(each.value == next(_written(each)) for each in (self, other)):
            tolerance = min(tolerance, _tolerance(self.value, other.value))
        return _near(self.value, other.value, tolerance)


@dataclass(frozen=True, slots=True)
class Stated:
    """What a text states in numbers. codes: names with digits and addresses, in lower case. periods: "hour" of "per
    hour", or the stem of another thing. rest: the text with all of these blanked, as long as the text."""

    quantities: tuple[Quantity, ...]
    dates: tuple[Date, ...]
    codes: tuple[tuple[str, int, int], ...]
    periods: frozenset[str]
    rest: str

    def has_interval(self, interval: float) -> bool:
        """Return True if something happens at this interval in seconds."""
        known = [*(each.interval for each in self.quantities), *(_SECONDS.get(name, 0.0) for name in self.periods)]
        return any(each and _near(each, interval, NEARLY_SAME) for each in known)

    @property
    def intervals(self) -> tuple[float, ...]:
        """Seconds between two times of what it states to happen again and again."""
        return tuple(each.interval for each in self.quantities if each.interval)


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
    for date in read_dates(text):
        if date.text.isdecimal() and (unit := _UNIT.match(text, date.end)) and len(unit["unit"]) > 2:
            if unit_of(unit["unit"]):
                continue  # "2000 litres"
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
    left = tuple(_with_interval(text, quantity) for quantity in quantities if not named[quantity])
    return Stated(left, tuple(dates), tuple(codes), periods, rest)


def _compound(text: str, first: Quantity, second: Quantity) -> Quantity | None:
    """The sum of two amounts that are one, as "3 hours and 20 minutes"."""
    joined = re.fullmatch(r",?\s(?:and\s|und\s)?", text[first.end : second.start])
    if (
        not joined
        or first.unit != second.unit
        or first.unit not in ("time", "months", "length", "mass", "euro", "pound")
    ):
        return None
    if second.value >= first.value / (next(_written(first)) or 1):
        return None
    return replace(first, value=first.value + second.value, end=second.end, text=text[first.start : second.end])


def _before(quantity: Quantity) -> int:
    return max(0, quantity.start - BEFORE_CHARS)


def _period_of(text: str, quantity: Quantity) -> str:
    """The period that "every 3 months" names: "quarter"; "" for another amount."""
    if not _EVERY.search(text, _before(quantity), quantity.start):
        return ""
    return _PERIODS_OF.get((quantity.unit, quantity.value), "")


def _with_interval(text: str, quantity: Quantity) -> Quantity:
    """The quantity of "three times an hour" and of "every 20 minutes", with its interval."""
    if quantity.unit in ("time", "months") and _EVERY.search(text, _before(quantity), quantity.start):
        return replace(quantity, interval=quantity.value)
    if quantity.unit != "times" or not quantity.value:
        return quantity
    behind = _PERIOD.match(text[quantity.end :].lstrip())
    before = _ADVERB_BEFORE.search(text, _before(quantity), quantity.start)
    written = behind[0] if behind else before[0].strip() if before else ""
    names = [name for name in _periods(written) if name in _SECONDS]
    return replace(quantity, interval=_SECONDS[names[0]] / quantity.value) if names else quantity


def unit_of(word: str) -> tuple[str, float] | None:
    """(kind, factor) of a unit however it is written; None for another word."""
    if word in _CASED:
        return _CASED[word]
    low = word.lower().replace("° ", "°")
    for ending in ("", "s", "n", "e", "en"):
        form = low.removesuffix(ending)
        if form in _UNITS and (form == low or len(form) > 2 or (len(form) == 2 and _ABBREVIATED.fullmatch(low))):
            return _UNITS[form]  # "hrs" is "hr", but "has" is not "ha" and "men" is not "m"
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
    written = _read_number(quantity.text)
    yield quantity.value if written is None else written


@lru_cache(maxsize=8192)
def _read_number(text: str) -> float | None:
    if found := _NUMBER.search(text):
        return _value(found["digits"], german=None)
    words = WORD_NUMBER.match(text)
    return value_of_words(words["word"]) if words else None


def _tolerance(one: float, two: float) -> float:
    """0 between whole numbers as they are written, of which each is another one."""
    return 0.0 if one % 1 == two % 1 == 0 else SAME


def _near(one: float, two: float, tolerance: float) -> bool:
    return abs(one - two) <= tolerance * max(abs(one), abs(two))


def _quantities(text: str, german: bool | None) -> Iterator[Quantity]:
    taken: list[tuple[int, int]] = []

    def is_free(start: int, end: int) -> bool:
        return all(end <= first or start >= last for first, last in taken)

    for quantity in (*map(_free, _FREE.finditer(text)), *_fractions(text), *_prices(text, german)):
        if is_free(quantity.start, quantity.end):
            taken.append((quantity.start, quantity.end))
            yield quantity
    for match in _NUMBER.finditer(text):
        if is_free(*match.span()):
            value = _value(match["digits"], german) * SCALES.get((match["scale"] or "").lower(), 1)
            signed = -value if match["minus"] else value
            found = _with_unit(text, match, signed, (match["prefix"] or "").strip(), german=german)
            taken.append((found.start, found.end))
            yield found
    for match in WORD_NUMBER.finditer(text):
        word = match["word"].lower()
        if not is_free(*match.span()) or _AS_SOON_AS.match(text, match.start()):
            continue
        if word == "second" and _PER.search(text[: match.start()]):
            continue
        found = _with_unit(text, match, value_of_words(word), "", word, german=german)
        if (word in _NOT_COUNTED and (found.unit == "" or found.is_counted)) or WORDS_OF_ORDER.get(word) == 1:
            continue
        taken.append((found.start, found.end))
        yield found
    for match in _ONE.finditer(text):
        start = max(match.start(name) for name in "abcf")
        if is_free(start, match.end()) and (known := unit_of(match["unit"])) and known[0] in ("time", "months"):
            yield Quantity(known[1], known[0], start, match.end(), text[start : match.end()])


def _free(match: re.Match[str]) -> Quantity:
    return Quantity(0.0, "euro", match.start(), match.end(), match[0])


def _prices(text: str, german: bool | None) -> Iterator[Quantity]:
    """Amounts of money with the smaller coin behind the unit, as "9 Euro 50"."""
    for match in _PRICE.finditer(text):
        following = _UNIT.match(text, match.end())
        if match["named"] and (value_of_words(match["named"]) > 99 or (following and unit_of(following["unit"]))):
            continue
        kind = _UNITS[match["unit"].lower().removesuffix("s")][0]
        whole = int(match["whole"]) if match["whole"].isdecimal() else value_of_words(match["whole"])
        part = int(match["part"]) if match["part"] else value_of_words(match["named"])
        yield Quantity(whole + part / 100, kind, match.start(), match.end(), match[0])


def _fractions(text: str) -> Iterator[Quantity]:
    """ "a quarter of an hour" as an amount; "two thirds" and "1/3" as a share in percent."""
    for match in _HALVES.finditer(text):
        known = unit_of(match["unit"] or match["unit2"])
        count = next((match[name] for name in ("count", "zahl", "before") if match[name]), "one").lower()
        if known:
            whole = 1 if count in ("a", "an") else int(count) if count.isdecimal() else value_of_words(count)
            yield Quantity((whole + 0.5) * known[1], known[0], match.start(), match.end(), match[0])
    for match in _FRACTION.finditer(text):
        share = _share(match)
        unit = next((match[name] for name in ("unit", "einheit") if match[name]), None)
        known = unit_of(unit) if unit else None
        if known:
            yield Quantity(share * known[1], known[0], match.start(), match.end(), match[0])
        elif unit and unit.lower() in ("dozen", "dutzend"):
            yield Quantity(share * 12, "", match.start(), match.end(), match[0])
        else:
            end = match.start(1) + len(match[1]) if not match["of"] else match.end("of")
            yield Quantity(round(100 * share, 6), "percent", match.start(), end, text[match.start() : end])


def _share(match: re.Match[str]) -> float:
    if match["sign"]:
        one, other = _VULGAR[match["sign"]]
        return one / other
    if match["one"]:
        return int(match["one"]) / int(match["other"])
    if match["in"]:
        return 1 / (int(match["in"]) if match["in"].isdecimal() else value_of_words(match["in"]))
    parts = _SHARE.search(match[1].lower())
    return _NUMERATORS.get(parts["above"], 1) / _DENOMINATORS[parts["below"]] if parts else 1.0


def _with_unit(
    text: str, match: re.Match[str], value: float, prefix: str, word: str = "", *, german: bool | None
) -> Quantity:
    start, end = match.span()
    if prefix:
        kind, factor = _UNITS[_PREFIX[prefix.upper()]]
        return Quantity(value * factor, kind, start, end, text[start:end])
    if word in _TIMES:
        return Quantity(value, "times", start, end, text[start:end])
    if word in WORDS_OF_ORDER or match.groupdict().get("ordinal"):
        return Quantity(value, "", start, end, text[start:end])
    behind = _UNIT.match(text, end)
    if not behind:
        return Quantity(value, "", start, end, text[start:end])
    if per_cent := _PER_CENT.match(text, end):
        return Quantity(value, "percent", start, per_cent.end(), text[start : per_cent.end()])
    known = unit_of(behind["unit"])
    if known is None and behind["unit"].lower() not in _STOP and (second := _UNIT.match(text, behind.end())):
        found, power = unit_of(second["unit"]), _POWERS.get(behind["unit"].lower())
        if found and power and found[0] == "length":
            known, behind = (power[0], found[1] ** power[1] * power[2]), second
        elif found and len(second["unit"]) > 2 and found[0] in ("time", "months"):  # operating hours
            known, behind = found, second
    if known is None:
        name = behind["unit"].lower()
        # a small word, the first word of what goes on, or no German noun
        is_other = len(name) < 3 or name in _STOP or not text[end].isspace() or (german and behind["unit"].islower())
        counted = "" if is_other else stem(name)
        return Quantity(value, counted, start, end, text[start:end], bool(counted))
    kind, value = known[0], value * known[1]
    if kind == "fahrenheit":
        kind, value = "temperature", (value - 32) / 1.8
    elif kind == "kelvin":
        kind, value = "temperature", value - 273.15
    return Quantity(round(value, 9), kind, start, behind.end(), text[start : behind.end()])


_STOP = frozenset(TEXTS["stop"].split())


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
