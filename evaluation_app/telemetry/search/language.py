"""The filter language over stored spans: `kind == 'RETRIEVER' and latency_ms > 500`.

A name is a field, an attribute's full name, also written as attributes['...'], or `score.` with a measure of the query
run's evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, F, FloatField, Q, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    IContains,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StartsWith,
)

from collections_app.domain.expressions import SYMBOLS, Compiler, quote
from evaluation_app.telemetry.search import conditions
from evaluation_app.telemetry.search.conditions import (
    WRITTEN,
    Literal,
    attribute_condition,
    check_attribute,
    known_types,
    words_match,
)
from evaluation_app.telemetry.store.exporter import OI_KINDS, OTEL_KINDS, STATUS_CODES
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry import names

SCORE_EXAMPLE = "score.correctness"
LOOKUPS: dict[str, Any] = {
    "gt": GreaterThan, "gte": GreaterThanOrEqual, "lt": LessThan, "lte": LessThanOrEqual, "contains": IContains,
    "prefix": StartsWith,
}  # fmt: skip
EQUALITY, TEXT_OPS = ("==", "!="), ("contains", "starts with")
TESTS = ("in (", "not in (", "is none", "is not none")
COMPARED = (*EQUALITY, ">", ">=", "<", "<=")
CLOSED: dict[str, Callable[[], Sequence[str]]] = {
    "oi_kind": lambda: (*OI_KINDS, *OTEL_KINDS),
    "status_code": lambda: STATUS_CODES,
    "type": known_types,
    "environment": lambda: telemetry.ENVIRONMENTS,
}


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the language: its column, what its values are (text, number, time, uuid), how a text is written."""

    column: str
    holds: str = "text"
    write: Callable[[str], str] = str

    @property
    def source(self) -> Any:
        return TOTAL if self.column == "total_tokens" else F(self.column)


COLUMNS = {
    "type": Column("type"),
    "kind": Column("oi_kind", write=str.upper),
    "span_kind": Column("oi_kind", write=str.upper),
    "name": Column("name"),
    "collection": Column("collection"),
    "model": Column("model"),
    "api_key": Column("api_key"),
    "environment": Column("environment"),
    "status": Column("status_code", write=str.upper),
    "status_code": Column("status_code", write=str.upper),
    "status_message": Column("status_description"),
    "service": Column("service"),
    "scope": Column("scope"),
    "trace_id": Column("trace_id", write=str.lower),
    "span_id": Column("span_id", write=str.lower),
    "parent_id": Column("parent_span_id", write=str.lower),
    "run_id": Column("run_id", "uuid"),
    "latency_ms": Column("duration_ms", "number"),
    "duration_ms": Column("duration_ms", "number"),
    "input_tokens": Column("input_tokens", "number"),
    "output_tokens": Column("output_tokens", "number"),
    "total_tokens": Column("total_tokens", "number"),
    "cost_usd": Column("cost_usd", "number"),
    "risk_score": Column("risk_score", "number"),
    "start_time": Column("started_at", "time"),
    "end_time": Column("ended_at", "time"),
    "text": Column("words"),
}
# fields that are attributes of another name
ALIASES = {"input": names.INPUT_VALUE, "output": names.OUTPUT_VALUE}
FIELD_NAMES = (*COLUMNS, *ALIASES)
# none where neither is known
TOTAL = Coalesce(
    F("input_tokens") + F("output_tokens"), F("input_tokens"), F("output_tokens"), output_field=FloatField()
)


def parse_expression(text: str) -> Q:
    """The condition. Raises InvalidInput (field "where") that says what was expected and at which character, counted
    from 1, and for an unknown name lists the known ones."""
    return LANGUAGE.read(text)


def complete(text: str) -> list[str]:
    """The expression with each word that may stand next, or that the last word may become, fields before attributes.
    [] where it is wrong already."""
    return LANGUAGE.complete(text, _offered_fields, _offered_operators, _offered_values)


class _QueryCompiler(Compiler[Q]):
    """Makes a condition on Span."""

    field = "where"
    length_max = 2000

    def compare(self, name: str, position: int, op: str, value: Any) -> Q:
        if op == "exists":
            return compare(name, position, "exists" if value else "missing", None)
        if op == "nin":
            return _not(self.compare(name, position, "in", value))
        if not isinstance(value, list):
            return compare(name, position, op, value)
        if op != "in" or not value:
            raise wrong_filter(f"{name}: {SYMBOLS[op]} takes {'one text' if value else 'a list of at least one value'}")
        return reduce(or_, (compare(name, position, "eq", each) for each in value))

    def join(self, word: str, left: Q, right: Q) -> Q:
        return left & right if word == "and" else left | right

    def negate(self, condition: Q) -> Q:
        return _not(condition)


LANGUAGE = _QueryCompiler()
wrong_filter = LANGUAGE.wrong


def compare(name: str, position: int, op: str, value: Literal) -> Q:
    """One comparison of a field or an attribute. Raises InvalidInput for an unknown name or a value that cannot be."""
    if name in ALIASES:
        return attribute_condition(ALIASES[name], op, value)
    if name.startswith(conditions.PREFIX):
        return _compare_score(name, position, op, value)
    if name not in COLUMNS:
        return _compare_attribute(name, position, op, value)
    field = COLUMNS[name]
    if field.column == "words":
        if op not in ("contains", "eq") or not isinstance(value, str):
            raise wrong_filter("text takes contains and a text in quotes")
        return Q(words_match(value))
    if field.column == "oi_kind" and str(value).upper() in OTEL_KINDS:
        field = Column("kind", write=str.upper)
    if op in ("exists", "missing"):
        return Q(*_is_there(field)) if op == "exists" else _not(Q(*_is_there(field)))
    requested = _typed(name, field, op, value)
    if op == "ne":
        return (
            Q(*_is_there(field)) & ~Q(Exact(field.source, requested))
            if field.holds != "text"
            else ~_exactly(field, requested)
        )
    return _exactly(field, requested) if op == "eq" else Q(LOOKUPS[op](field.source, requested))


def _exactly(field: Column, requested: Any) -> Q:
    return Q(Exact(field.source, requested))


def _is_there(field: Column) -> list[Any]:
    """Not null; of a text, not empty."""
    parts: list[Any] = [IsNull(field.source, False)]
    return [*parts, ~Q(Exact(field.source, ""))] if field.holds == "text" else parts


def _typed(name: str, field: Column, op: str, value: Literal) -> Any:
    """The value as the column holds it."""
    if field.holds == "text":
        if not isinstance(value, str) or op not in ("eq", "ne", "contains", "prefix"):
            raise wrong_filter(f"{name} is a text: it takes ==, !=, in, contains, starts with and a text in quotes")
        written = field.write(value)
        closed = CLOSED.get(field.column)
        if closed and op in ("eq", "ne") and written not in closed():
            raise wrong_filter(f"there is no {name} {value!r}; there are {', '.join(closed())}")
        return written
    if op in ("contains", "prefix"):
        raise wrong_filter(f"{name} is no text: it takes {', '.join(COMPARED)} and in")
    if field.holds == "number":
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1e15:
            raise wrong_filter(f"{name} is a number: it is compared with one such as 500, not {value!r}")
        return value
    return _read_special(name, field, value)


def _read_special(name: str, field: Column, value: Literal) -> Any:
    """A time, or a run's id."""
    try:
        if field.holds == "uuid":
            return UUID(str(value))
        moment = datetime.fromisoformat(str(value))
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        example = "'2026-01-31T08:00:00Z'" if field.holds == "time" else "a UUID in quotes"
        raise wrong_filter(f"{name} is compared with {example}, not {value!r}") from None


def _compare_score(name: str, position: int, op: str, value: Literal) -> Q:
    """Of the span's query run; a run without that score counts as a value that is not there."""
    if op in ("exists", "missing"):
        value = 0.0
    if op in ("contains", "prefix") or isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_filter(f"{name} is a number: it takes {', '.join(COMPARED)} and in, with a number such as 0.5")
    try:
        condition = conditions.score_condition("run_id", name.removeprefix(conditions.PREFIX), op, float(value))
    except InvalidInput as error:
        raise wrong_filter(f"{error.message} (at position {position})") from None
    return _not(condition) if op == "missing" else condition


def _compare_attribute(name: str, position: int, op: str, value: Literal) -> Q:
    attribute = name.removeprefix("attributes.")
    if "." not in attribute and attribute == name:
        close = get_close_matches(name, FIELD_NAMES, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise wrong_filter(
            f"there is no field {name!r} (at position {position}); {meant}There are {', '.join(FIELD_NAMES)}; "
            f"an attribute is written with its full name, such as gen_ai.request.model, and a score as {SCORE_EXAMPLE}"
        )
    check_attribute(attribute, field="where")
    return attribute_condition(attribute, op, value)


def _not(condition: Q) -> Q:
    """True where the condition is not true: what is unknown, as of a value that is not there, counts as false."""
    known = Coalesce(ExpressionWrapper(condition, output_field=BooleanField()), Value(False))
    return Q(Exact(known, False))


def _offered_fields(word: str) -> list[str]:
    measures = [f"{conditions.PREFIX}{name}" for name in conditions.OFFERED]
    return [*FIELD_NAMES, *measures, *sorted(WRITTEN)] if word else [*FIELD_NAMES, *measures[:1]]


def _offered_operators(field: str) -> tuple[str, ...]:
    column = COLUMNS.get(field)
    is_number = field.startswith(conditions.PREFIX) or (column is not None and column.holds == "number")
    return (*COMPARED, *TESTS) if is_number else (*EQUALITY, *TEXT_OPS, *TESTS)


def _offered_values(field: str, word: str) -> list[str]:
    column = COLUMNS.get(field)
    return [quote(value) for value in CLOSED[column.column]()] if column and column.column in CLOSED else []
