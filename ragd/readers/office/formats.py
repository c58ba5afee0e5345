"""How the cells of sheets show numbers, where that says more than the value: percentages, units, zeros, hours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

PERCENT, HOURS, SECONDS = "%", "[h]:mm", "[h]:mm:ss"
# Quoted text, an escaped character, a currency, a condition or colour, room, anything else.
TOKEN = re.compile(r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|(\[[^\]]*\])|([_*].)|(.)', re.DOTALL)
ELAPSED = re.compile(r"\[h+\]", re.IGNORECASE)
SIGNS, DIGITS, PLACE = "$€£¥ ", "0#?.,", "\0"
UNKNOWN = re.compile(r"[^$€£¥ 0#?.,()+-]")
DATED = re.compile(r"[dy]|mmm", re.IGNORECASE)
EPOCH, EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
DAYS_MAX = 2_950_000  # up to the year 9976
ISO_TIME = re.compile(r"(-?)PT(\d+)H(\d+)M(\d+)(?:[.,]\d+)?S")
# Beyond it a floating-point number no longer holds every whole number.
WHOLE_LIMIT = 2**53


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """kind: of a percentage or a length of time. before, after: what stands around a number. digits: the fewest."""

    kind: str = ""
    before: str = ""
    after: str = ""
    digits: int = 0


class Shown(float):
    """A number and how its cell shows it."""

    text: str = ""


def parse_format(code: str) -> NumberFormat | None:
    """The format of a code such as `#,##0.00 "€"`, by its part for positive numbers; None if it only says the value."""
    tokens = TOKEN.findall(code.replace("General", "0").split(";")[0])
    letters, brackets = ("".join(token[at] for token in tokens) for at in (5, 3))
    if "%" in letters:
        return NumberFormat(PERCENT)
    if ELAPSED.search(brackets):
        return NumberFormat(SECONDS if "s" in letters.lower() else HOURS)
    digits = re.sub(r"[^0#?.,]", "", letters)
    if not digits or UNKNOWN.search(letters) or digits.endswith(",") or re.search("[<>=]", brackets):
        return None  # dates, fractions, exponents, thousands, conditions
    before, _, rest = "".join(map(_shown, tokens)).partition(PLACE)
    inner, _, after = rest.rpartition(PLACE)
    if inner.replace(PLACE, "").strip():
        return None
    form = NumberFormat("", before.lstrip(), after.rstrip(), len(digits) if re.fullmatch("00+", digits) else 0)
    return None if form == NumberFormat() else form


def _shown(token: tuple[str, ...]) -> str:
    quoted, escaped, currency, _, room, other = token
    if other:
        return PLACE if other in DIGITS else other if other in SIGNS else ""
    return " " if room else quoted + escaped + currency


def format_value(value: Any, form: NumberFormat) -> Any:
    """The value with the text that its cell shows; as it is, where the format does not fit."""
    if form.kind in (HOURS, SECONDS):
        if isinstance(value, str) and (match := ISO_TIME.fullmatch(value)):
            hours, minutes, seconds = map(int, match.groups()[1:])
            value = timedelta(hours=hours, minutes=minutes, seconds=seconds) * (-1 if match[1] else 1)
        return show_elapsed(value, has_seconds=form.kind != HOURS) if isinstance(value, timedelta) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    shown = Shown(value)
    if form.kind == PERCENT:
        shown.text = f"{value * 100:.10g}%"
    else:
        digits = form.digits if float(value).is_integer() else 0
        shown.text = f"{'-' if value < 0 else ''}{form.before}{show_number(abs(value)).zfill(digits)}{form.after}"
    return shown


def show_number(value: float) -> str:
    """A number as people write it: a whole one without a point."""
    if isinstance(value, Shown):
        return value.text
    return str(int(value)) if float(value).is_integer() and abs(value) < WHOLE_LIMIT else f"{value:.15g}"


def show_point(value: str, code: str, epoch: datetime = EPOCH) -> str:
    """The value of a chart as its format shows it: a date in ISO form, a percentage, a number with its unit."""
    try:
        number = float(value)
    except ValueError:
        return value
    if DATED.search("".join(token[5] for token in TOKEN.findall(code.replace("General", "0")))) and number >= 1:
        return (epoch + timedelta(days=number)).date().isoformat() if number < DAYS_MAX else value
    return show_number(format_value(number, form) if (form := parse_format(code)) else number)


def show_elapsed(value: timedelta, *, has_seconds: bool = True) -> str:
    """A length of time in hours, however many: 42:30:00, or 42:30."""
    total = round(value.total_seconds())
    minutes, seconds = divmod(abs(total), 60)
    text = f"{'-' if total < 0 else ''}{minutes // 60}:{minutes % 60:02d}"
    return f"{text}:{seconds:02d}" if has_seconds else text
