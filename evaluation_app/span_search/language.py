"""The filter language: `kind == 'RETRIEVER' and latency_ms > 500` as a condition on stored spans.

expression  = conjunction {"or" conjunction}
conjunction = negation {"and" negation}
negation    = "not" negation | "(" expression ")" | comparison
comparison  = name operator value | name ["not"] "in" "(" value {"," value} ")" | name "is" ["not"] "none"
            | text ["not"] "in" name
operator    = "==" "=" "!=" "<>" ">" ">=" "<" "<=" "contains" "starts with"
name        = a field | an attribute's full name, also as attributes['...']
value       = 'text' "text" number true false
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
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

from evaluation_app.span_search.conditions import Literal, attribute_condition, words_match
from evaluation_app.span_search.names import check_attribute, known_types
from evaluation_app.span_store.columns import OI_KINDS, OTEL_KINDS, STATUS_CODES
from evaluation_app.tracing.tokens import Token, split_tokens, wrong_filter
from ragd.errors import InvalidInput

LENGTH_MAX = 2000
DEPTH_MAX = 40
SIGNS = {"==": "==", "=": "==", "!=": "!=", "<>": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}
LOOKUPS: dict[str, Any] = {
    ">": GreaterThan, ">=": GreaterThanOrEqual, "<": LessThan, "<=": LessThanOrEqual, "contains": IContains,
    "starts with": StartsWith,
}  # fmt: skip
COMPARED = ("==", "!=", ">", ">=", "<", "<=")
WORDS = ("and", "or", "not", "in", "is", "contains", "starts", "with", "true", "false", "none", "null")
CLOSED: dict[str, Callable[[], Sequence[str]]] = {
    "oi_kind": lambda: (*OI_KINDS, *OTEL_KINDS),
    "status_code": lambda: STATUS_CODES,
    "type": known_types,
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
# none where neither is known
TOTAL = Coalesce(
    F("input_tokens") + F("output_tokens"), F("input_tokens"), F("output_tokens"), output_field=FloatField()
)


def parse_expression(text: str) -> Q:
    """The condition. Raises InvalidInput (field "where") that says what was expected and where, and for an unknown name
    lists the known ones."""
    if len(text) > LENGTH_MAX:
        raise wrong_filter(f"a filter has at most {LENGTH_MAX} characters, not {len(text)}")
    return Parser(split_tokens(text)).read()


class Parser:
    """Reads one expression; each method reads one rule of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def read(self) -> Q:
        found = self.expression()
        if self.now.kind != "end":
            raise self.expected("and, or, or the end")
        return found

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def expression(self) -> Q:
        found = self.conjunction()
        while self.take("or"):
            found |= self.conjunction()
        return found

    def conjunction(self) -> Q:
        found = self.negation()
        while self.take("and"):
            found &= self.negation()
        return found

    def negation(self) -> Q:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise wrong_filter(f"a filter nests at most {DEPTH_MAX} deep")
        try:
            if self.take("not"):
                return _not(self.negation())
            if self.take("("):
                found = self.expression()
                self.need(")")
                return found
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> Q:
        if self.now.kind == "text":
            part = self.step().value
            negated = self.take("not")
            self.need("in")
            return self.oriented(compare(*self.name(), "contains", part), negated)
        name, place = self.name()
        if self.take("is"):
            negated = self.take("not")
            if not (self.take("none") or self.take("null")):
                raise self.expected("none")
            return compare(name, place, "exists" if negated else "missing", None)
        negated = self.take("not")
        if self.take("in"):
            found = Q()
            for value in self.values():
                found |= compare(name, place, "==", value)
            return self.oriented(found, negated)
        if negated:
            raise self.expected("in")
        return compare(name, place, self.operator(), self.value())

    def oriented(self, condition: Q, negated: bool) -> Q:
        return _not(condition) if negated else condition

    def name(self) -> tuple[str, int]:
        token = self.now
        if token.kind != "name" or token.value.lower() in WORDS:
            raise self.expected("a name")
        self.step()
        if token.value != "attributes" or not self.take("["):
            return token.value, token.place
        named = self.now
        if named.kind != "text":
            raise self.expected("the attribute's name in quotes")
        self.step()
        self.need("]")
        return f"attributes.{named.value}", named.place

    def operator(self) -> str:
        token = self.now
        if token.kind == "sign" and token.value in SIGNS:
            self.step()
            return SIGNS[token.value]
        if self.take("contains"):
            return "contains"
        if self.take("starts"):
            self.take("with")
            return "starts with"
        raise self.expected(f"an operator ({', '.join(dict.fromkeys(SIGNS.values()))}, in, contains, starts with, is)")

    def values(self) -> list[Literal]:
        closing = ")" if self.take("(") else "]"
        if closing == "]":
            self.need("[")
        found = [self.value()]
        while self.take(","):
            found.append(self.value())
        self.need(closing)
        return found

    def value(self) -> Literal:
        token = self.now
        word = token.value.lower()
        if token.kind == "text":
            return self.step().value
        if token.kind == "number":
            self.step()
            return float(token.value) if re.search(r"[.eE]", token.value) else int(token.value)
        if token.kind == "name" and word in ("true", "false"):
            self.step()
            return word == "true"
        raise self.expected("a value (a text in quotes, a number, true or false)")

    def take(self, wanted: str) -> bool:
        token = self.now
        found = token.kind in ("name", "sign") and token.value.lower() == wanted
        self.at += found
        return found

    def need(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.expected(wanted)

    def step(self) -> Token:
        token = self.now
        self.at += 1
        return token

    def expected(self, wanted: str) -> InvalidInput:
        token = self.now
        found = "the filter ends" if token.kind == "end" else f"there is {token.value!r}"
        return wrong_filter(f"expected {wanted} at place {token.place}, but {found}")


def compare(name: str, place: int, op: str, value: Literal) -> Q:
    """One comparison of a field or an attribute. Raises InvalidInput for an unknown name or a value that cannot be."""
    if name not in COLUMNS:
        return _compare_attribute(name, place, op, value)
    field = COLUMNS[name]
    if field.column == "words":
        if op not in ("contains", "==") or not isinstance(value, str):
            raise wrong_filter("text takes contains and a text in quotes")
        return Q(words_match(value))
    if field.column == "oi_kind" and str(value).upper() in OTEL_KINDS:
        field = Column("kind", write=str.upper)
    if op in ("exists", "missing"):
        return Q(*_is_there(field)) if op == "exists" else _not(Q(*_is_there(field)))
    wanted = _typed(name, field, op, value)
    if op == "!=":
        return (
            Q(*_is_there(field)) & ~Q(Exact(field.source, wanted))
            if field.holds != "text"
            else ~_exactly(field, wanted)
        )
    return _exactly(field, wanted) if op == "==" else Q(LOOKUPS[op](field.source, wanted))


def _exactly(field: Column, wanted: Any) -> Q:
    return Q(Exact(field.source, wanted))


def _is_there(field: Column) -> list[Any]:
    """Not null; of a text, not empty."""
    parts: list[Any] = [IsNull(field.source, False)]
    return [*parts, ~Q(Exact(field.source, ""))] if field.holds == "text" else parts


def _typed(name: str, field: Column, op: str, value: Literal) -> Any:
    """The value as the column holds it."""
    if field.holds == "text":
        if not isinstance(value, str) or op not in ("==", "!=", "contains", "starts with"):
            raise wrong_filter(f"{name} is a text: it takes ==, !=, in, contains, starts with and a text in quotes")
        written = field.write(value)
        closed = CLOSED.get(field.column)
        if closed and op in ("==", "!=") and written not in closed():
            raise wrong_filter(f"there is no {name} {value!r}; there are {', '.join(closed())}")
        return written
    if op in ("contains", "starts with"):
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


def _compare_attribute(name: str, place: int, op: str, value: Literal) -> Q:
    attribute = name.removeprefix("attributes.")
    if "." not in attribute and attribute == name:
        close = get_close_matches(name, COLUMNS, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise wrong_filter(
            f"there is no field {name!r} (at place {place}); {meant}There are {', '.join(COLUMNS)}; "
            f"an attribute is written with its full name, such as gen_ai.request.model"
        )
    check_attribute(attribute, field="where")
    return attribute_condition(attribute, op, value)


def _not(condition: Q) -> Q:
    """True where the condition is not true: what is unknown, as of a value that is not there, counts as false."""
    known = Coalesce(ExpressionWrapper(condition, output_field=BooleanField()), Value(False))
    return Q(Exact(known, False))
