"""Typed filters: conditions over a chunk's place, origin, tags and metadata, read from JSON and judged in Python.

    {"field": "page", "op": "gte", "value": 3}    {"and": [...]}    {"or": [...]}    {"not": {...}}

A field has no value, one or several. A comparison holds when any of the values satisfies it, so with no value it does
not hold. `ne`, `nin` and `not` hold exactly where `eq`, `in` and the condition inside do not, for chunks without a
value too. Values of another type never satisfy a comparison: 3 is not "3", and true is not 1.

`ragd.search.conditions` is the same in SQL; `matches` is what it is held to.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, Literal

from ragd.errors import InvalidInput

Kind = Literal["text", "texts", "number", "pages", "time", "json"]

DEPTH_MAX = 12
PARTS_MAX = 200
VALUES_MAX = 500
TEXT_CHARS_MAX = 2000
METADATA = "metadata."

EQUAL_OPS = ("eq", "ne", "in", "nin")
ORDER_OPS = ("gt", "gte", "lt", "lte")
OPS = (*EQUAL_OPS, *ORDER_OPS, "exists", "prefix")
OPPOSITES = {"ne": "eq", "nin": "in"}

# texts: several. pages: whole numbers from the field's value to that of SPAN_ENDS.
FIELDS: dict[str, Kind] = {
    "tags": "texts", "doc_id": "text", "title": "text", "language": "text", "media_type": "text",
    "created_at": "time", "updated_at": "time",
    "page": "pages", "page_end": "number", "section": "texts", "block": "text",
    "sheet": "text", "row": "pages", "row_end": "number", "slide": "number", "chapter": "text",
    "speaker": "text", "message": "number", "sender": "text", "recipient": "text", "subject": "text",
    "sent_at": "time", "file_created_at": "time", "file_modified_at": "time",
}  # fmt: skip
SPAN_ENDS = {"page": "page_end", "row": "row_end"}
# of the document alone; and of the document where the chunk does not say it
DOCUMENT_FIELDS = frozenset({"title", "created_at", "updated_at"})
INHERITED_FIELDS = frozenset({"language", "media_type"})
EXPECTED: dict[Kind, str] = {
    "text": "a text",
    "texts": "a text",
    "number": "a whole number",
    "pages": "a whole number",
    "time": "a date such as 2024-01-31 or a time with its zone such as 2024-01-31T08:00:00Z",
    "json": "a text, a number, true or false",
}

# A date, or a time of day behind it; hours to 23, seconds to 59, zones to 15:59: what PostgreSQL and Python both read.
# Without braces, because it stands in SQL that is formatted.
ZONE = "(Z|[+-](0[0-9]|1[0-5]):?[0-5][0-9])"
ISO_TIME = (
    "[1-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
    "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9][0-9]?[0-9]?[0-9]?[0-9]?[0-9]?)?)?" + ZONE + "?)?"
)
DAY_CHARS = 10
_ISO_TIME, _ZONE = re.compile(ISO_TIME), re.compile(ZONE + r"\Z")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Comparison:
    """value: text, number or truth; a tuple of them for in and nin, and of headings for a prefix of section."""

    field: str
    op: str
    value: Any

    @property
    def kind(self) -> Kind:
        return "json" if self.field.startswith(METADATA) else FIELDS[self.field]

    def as_dict(self) -> dict[str, Any]:
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {"field": self.field, "op": self.op, "value": value}


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Condition, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"and": [part.as_dict() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"or": [part.as_dict() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Negation:
    part: Condition

    def as_dict(self) -> dict[str, Any]:
        return {"not": self.part.as_dict()}


Condition = Comparison | AllOf | AnyOf | Negation


@dataclass(frozen=True, slots=True)
class Period:
    """What a stated date or time covers: all of the day in UTC, or one instant; both ends belong to it."""

    first: datetime
    last: datetime


def parse_condition(values: object) -> Condition | None:
    """The condition that the JSON states, in its canonical form; None for an empty object or None.

    Canonical: parts of and/or flattened, without repeats and in one order, as are the values of in and nin; what means
    the same by that has the same `as_dict`. Raises InvalidInput (field "filter") that names the field or part, and says
    what was expected.
    """
    if values is None or values == {}:
        return None
    return _Reader().read(values, 1)


def parse_period(text: str) -> Period | None:
    """None for a text that is no ISO 8601 date or time. A time without a zone is one in UTC."""
    if not _ISO_TIME.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    is_day = len(text) == DAY_CHARS
    return Period(moment, datetime.combine(moment.date(), time.max, UTC) if is_day else moment)


def compared_fields(condition: Condition | None) -> Iterator[Comparison]:
    """Every comparison of the condition."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Negation):
        yield from compared_fields(condition.part)
    elif condition is not None:
        for part in condition.parts:
            yield from compared_fields(part)


def metadata_paths(field: str) -> list[list[str]]:
    """Where a metadata field stands: under the key as it is written, and with dots step by step into objects."""
    key = field.removeprefix(METADATA)
    steps = key.split(".")
    return [[key]] if len(steps) == 1 or not all(steps) else [[key], steps]


class _Reader:
    def __init__(self) -> None:
        self.count = 0

    def read(self, values: object, depth: int) -> Condition:
        self.count += 1
        if depth > DEPTH_MAX or self.count > PARTS_MAX:
            raise _wrong(f"a filter has at most {PARTS_MAX} parts and nests at most {DEPTH_MAX} deep; simplify it")
        if not isinstance(values, Mapping):
            raise _wrong(
                f"a filter is an object such as {{'field': 'page', 'op': 'gte', 'value': 3}}, not {_short(values)}"
            )
        joined = [name for name in ("and", "or", "not") if name in values]
        if not joined:
            return _read_comparison(values)
        if len(values) > 1:
            raise _wrong(f"a part with {joined[0]!r} holds nothing else; this one holds {', '.join(map(str, values))}")
        name, inside = joined[0], values[joined[0]]
        if name == "not":
            return Negation(self.read(inside, depth + 1))
        if not isinstance(inside, list | tuple) or not inside:
            raise _wrong(f"{name!r} takes a list of at least one condition, not {_short(inside)}")
        return _join(AllOf if name == "and" else AnyOf, [self.read(part, depth + 1) for part in inside])


def _join(kind: type[AllOf] | type[AnyOf], parts: Sequence[Condition]) -> Condition:
    flat: list[Condition] = []
    for part in parts:
        if isinstance(part, AllOf | AnyOf) and isinstance(part, kind):
            flat += part.parts
        else:
            flat.append(part)
    by_text = {_canonical(part.as_dict()): part for part in flat}
    ordered = tuple(by_text[text] for text in sorted(by_text))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def _read_comparison(values: Mapping[str, Any]) -> Comparison:
    field, op = values.get("field"), values.get("op")
    if unknown := sorted(set(map(str, values)) - {"field", "op", "value"}):
        raise _wrong(f"a comparison holds field, op and value, or a part holds and, or, not; there is {unknown[0]!r}")
    kind = _kind_of(field)
    if op not in OPS:
        raise _wrong(f"{field}: op must be one of {', '.join(OPS)}, not {_short(op)}")
    if op == "exists":
        value = values.get("value", True)
        if not isinstance(value, bool):
            raise _wrong(f"{field}: exists takes true or false, not {_short(value)}")
        return Comparison(str(field), op, value)
    if "value" not in values:
        raise _wrong(f"{field}: {op} needs a value: {EXPECTED[kind]}")
    return Comparison(str(field), op, _read_value(str(field), kind, op, values["value"]))


def _kind_of(field: object) -> Kind:
    if not isinstance(field, str):
        raise _wrong(f"field must be the name of a field, not {_short(field)}; there are {_known()}")
    if field.startswith(METADATA) and len(field) > len(METADATA):
        _check_text(field, field)
        return "json"
    if field not in FIELDS:
        raise _wrong(f"there is no field {_short(field)}; there are {_known()}")
    return FIELDS[field]


def _known() -> str:
    return ", ".join((METADATA + "KEY", *FIELDS))


def _read_value(field: str, kind: Kind, op: str, value: Any) -> Any:
    if op in ("in", "nin"):
        if not isinstance(value, list | tuple) or len(value) > VALUES_MAX:
            raise _wrong(f"{field}: {op} takes a list of at most {VALUES_MAX} values, not {_short(value)}")
        single = {_canonical(item): item for item in (_scalar(field, kind, op, item) for item in value)}
        return tuple(single[text] for text in sorted(single))
    if op == "prefix":
        if kind not in ("text", "texts", "json"):
            raise _wrong(f"{field}: prefix is for texts; {field} is {EXPECTED[kind]}: use {', '.join(ORDER_OPS)}")
        if field == "section" and isinstance(value, list | tuple) and value:
            if len(value) > DEPTH_MAX:
                raise _wrong(f"{field}: prefix takes at most {DEPTH_MAX} headings, not {len(value)}")
            return tuple(_text(field, op, item) for item in value)
        return _text(field, op, value)
    scalar = _scalar(field, kind, op, value)
    if op in ORDER_OPS and isinstance(scalar, bool):
        raise _wrong(f"{field}: {op} compares numbers, texts and dates, not {_short(value)}")
    if op in ORDER_OPS and kind == "json" and isinstance(scalar, str):
        _check_zone(field, op, scalar)
    return scalar


def _scalar(field: str, kind: Kind, op: str, value: Any) -> str | int | float | bool:
    if kind in ("text", "texts"):
        return _text(field, op, value)
    if kind == "time":
        text = _text(field, op, value, kind)
        if parse_period(text) is None:
            raise _wrong(f"{field}: {op} needs {EXPECTED[kind]}, not {_short(value)}")
        _check_zone(field, op, text)
        return text
    if isinstance(value, bool | str) and kind == "json":
        return _check_text(field, value) if isinstance(value, str) else value
    number = _number(value)
    if number is None or (kind != "json" and not isinstance(number, int)):
        hint = "; ask for a missing value with exists" if value is None else ""
        raise _wrong(f"{field}: {op} needs {EXPECTED[kind]}, not {_short(value)}{hint}")
    return number


def _number(value: Any) -> int | float | None:
    """A finite number, as a whole one where it is one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**18 else None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _text(field: str, op: str, value: Any, kind: Kind = "text") -> str:
    if not isinstance(value, str):
        raise _wrong(f"{field}: {op} needs {EXPECTED[kind]}, not {_short(value)}")
    return _check_text(field, value)


def _check_text(field: str, value: str) -> str:
    if len(value) > TEXT_CHARS_MAX:
        raise _wrong(f"{field[:80]}: a text has at most {TEXT_CHARS_MAX} characters here, not {len(value)}")
    if _UNSTORABLE.search(value):
        raise _wrong(f"{_short(field)}: no stored text holds the character in {_short(value)}")
    return value


def _check_zone(field: str, op: str, text: str) -> None:
    if len(text) > DAY_CHARS and parse_period(text) and not _ZONE.search(text):
        raise _wrong(f"{field}: {op} needs a time with its zone, such as {text}Z for UTC, not {_short(text)}")


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, field="filter")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def matches(condition: Condition, record: Mapping[str, Any]) -> bool:
    """Whether a chunk passes. record: doc_id, tags, metadata, attributes, and the document's title, created_at,
    updated_at, language, media_type (times as datetime with a zone or ISO text); what it does not hold has no value."""
    if isinstance(condition, Comparison):
        return _compares(condition, record)
    if isinstance(condition, Negation):
        return not matches(condition.part, record)
    results = (matches(part, record) for part in condition.parts)
    return all(results) if isinstance(condition, AllOf) else any(results)


def first_failure(condition: Condition, record: Mapping[str, Any]) -> Condition | None:
    """The smallest part that the chunk had to satisfy and does not; None when it passes."""
    if matches(condition, record):
        return None
    if isinstance(condition, AllOf):
        return next(failure for part in condition.parts if (failure := first_failure(part, record)))
    return condition


def _compares(comparison: Comparison, record: Mapping[str, Any]) -> bool:
    op, value = comparison.op, comparison.value
    if op in OPPOSITES:
        return not _compares(Comparison(comparison.field, OPPOSITES[op], value), record)
    values = _values(comparison.field, record)
    if op == "exists":
        return any(item is not None for item in values) is value
    if op == "in":
        return any(_compares(Comparison(comparison.field, "eq", item), record) for item in value)
    if op == "prefix" and isinstance(value, tuple):
        return values[: len(value)] == list(value)
    if comparison.kind == "pages":
        return _spans(op, value, values, record.get("attributes", {}).get(SPAN_ENDS[comparison.field]))
    return any(_satisfies(comparison.kind, op, item, value) for item in values)


def _spans(op: str, value: int, values: Sequence[Any], end: Any) -> bool:
    """Whether any page from the first to the last satisfies the comparison."""
    if not values or _number(values[0]) is None:
        return False
    first = values[0]
    last = end if _number(end) is not None else first
    if op == "eq":
        return bool(first <= value <= last)
    return _ORDERS[op](last if op in ("gt", "gte") else first, value)


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: bool(a == b),
    "gt": lambda a, b: bool(a > b),
    "gte": lambda a, b: bool(a >= b),
    "lt": lambda a, b: bool(a < b),
    "lte": lambda a, b: bool(a <= b),
    "prefix": lambda a, b: bool(a.startswith(b)),
}


def _satisfies(kind: Kind, op: str, item: Any, value: Any) -> bool:
    if isinstance(value, str):
        if not isinstance(item, str | datetime):
            return False
        stated = parse_period(value) if kind == "time" or (kind == "json" and op in ORDER_OPS) else None
        if stated:
            return _is_within(op, item, stated)
        return isinstance(item, str) and _ORDERS[op](item.encode(), value.encode())
    if isinstance(value, bool) or isinstance(item, bool):
        return op == "eq" and item is value
    if not isinstance(item, int | float):
        return False
    # as written: 0.1 is 0.1 in the database
    return _ORDERS[op](Decimal(str(item)), Decimal(str(value)))


def _is_within(op: str, item: str | datetime, stated: Period) -> bool:
    period = parse_period(item) if isinstance(item, str) else Period(item, item)
    if period is None:
        return False
    moment = period.first
    if op == "eq":
        return stated.first <= moment <= stated.last
    return _ORDERS[op](moment, stated.last if op in ("gt", "lte") else stated.first)


def _values(field: str, record: Mapping[str, Any]) -> list[Any]:
    if field.startswith(METADATA):
        metadata = record.get("metadata", {})
        return [item for path in metadata_paths(field) for found in _walk([metadata], path) for item in _listed(found)]
    if field in ("tags", "doc_id"):
        return _listed(record.get(field))
    attributes = record.get("attributes", {})
    if field in DOCUMENT_FIELDS or (field in INHERITED_FIELDS and field not in attributes):
        return [] if record.get(field) in (None, "") else [record[field]]
    return _listed(attributes.get(field))


def _walk(items: list[Any], path: Sequence[str]) -> list[Any]:
    for key in path:
        inside = [each for item in items for each in _listed(item)]
        items = [item[key] for item in inside if isinstance(item, Mapping) and key in item]
    return items


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
