"""The filter language: `kind == 'RETRIEVER' and latency_ms > 500` as a condition on stored spans.

GRAMMAR states it. A name is a field, an attribute's full name, also written as attributes['...'], or `score.` with a
measure of the query run's evaluation; words of the language are read in either case.
"""

from __future__ import annotations

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
from lark import Token, v_args

from collections_app.domain.expressions import Builder, Language, unquote, words_of
from evaluation_app.spans.search import scores
from evaluation_app.spans.search.conditions import (
    WRITTEN,
    Literal,
    attribute_condition,
    check_attribute,
    known_types,
    words_match,
)
from evaluation_app.spans.store.columns import OI_KINDS, OTEL_KINDS, STATUS_CODES
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry import names

SCORE_EXAMPLE = "score.correctness"
LENGTH_MAX = 2000
Named = tuple[str, int]  # a name and its position, from 1
SIGNS = {"==": "==", "=": "==", "!=": "!=", "<>": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}
LOOKUPS: dict[str, Any] = {
    ">": GreaterThan, ">=": GreaterThanOrEqual, "<": LessThan, "<=": LessThanOrEqual, "contains": IContains,
    "starts with": StartsWith,
}  # fmt: skip
COMPARED = ("==", "!=", ">", ">=", "<", "<=")
KEYWORDS = frozenset(
    {"and", "or", "not", "in", "is", "contains", "starts", "with", "true", "false", "none", "null", "attributes"}
)
GRAMMAR = r"""
    start: expression
    ?expression: conjunction | expression OR conjunction -> any_of
    ?conjunction: negation | conjunction AND negation -> all_of
    ?negation: NOT negation -> negated | LPAR expression RPAR -> grouped | comparison
    ?comparison: name operator value -> compared
        | name [NOT] IN (LPAR values RPAR | LSQB values RSQB) -> one_of
        | name IS [NOT] (NONE | NULL) -> missing
        | TEXT [NOT] IN name -> containing
    name: NAME | ATTRIBUTES | ATTRIBUTES LSQB TEXT RSQB
    operator: SIGN | CONTAINS | STARTS [WITH]
    values: value (COMMA value)*
    value: TEXT | NUMBER | TRUE | FALSE

    %declare AND OR NOT IN IS CONTAINS STARTS WITH TRUE FALSE NONE NULL ATTRIBUTES
    NAME: /score\.[\w.\-@:]+|[A-Za-z_][\w.\-]*/
"""
LABELS = {"SIGN": f"an operator ({', '.join(dict.fromkeys(SIGNS.values()))})", "TEXT": "a text in quotes"}
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


def wrong_filter(message: str) -> InvalidInput:
    """The error of a filter that cannot be read, to be raised."""
    return InvalidInput(message, field="where")


@v_args(inline=True)
class ConditionBuilder(Builder[Q]):
    """Makes the condition while the text is parsed."""

    def any_of(self, left: Q, _or: Token, right: Q) -> Q:
        return left | right

    def all_of(self, left: Q, _and: Token, right: Q) -> Q:
        return left & right

    def negated(self, _not_: Token, condition: Q) -> Q:
        return _not(condition)

    def compared(self, name: Named, operator: str, value: Literal) -> Q:
        return compare(*name, operator, value)

    def one_of(
        self,
        name: Named,
        negation: Token | None,
        _in: Token,
        _open: Token,
        values: list[Literal],
        _end: Token,
    ) -> Q:
        condition = Q()
        for value in values:
            condition |= compare(*name, "==", value)
        return _not(condition) if negation else condition

    def missing(self, name: Named, _is: Token, negation: Token | None, _none: Token) -> Q:
        return compare(*name, "exists" if negation else "missing", None)

    def containing(self, text: Token, negation: Token | None, _in: Token, name: Named) -> Q:
        condition = compare(*name, "contains", unquote(text))
        return _not(condition) if negation else condition

    def name(self, first: Token, *rest: Token) -> Named:
        """The name and its position, from 1."""
        if not rest:
            return str(first), (first.start_pos or 0) + 1
        return f"attributes.{unquote(rest[1])}", (rest[1].start_pos or 0) + 1

    def operator(self, word: Token, _with: Token | None = None) -> str:
        return {"CONTAINS": "contains", "STARTS": "starts with"}.get(word.type) or SIGNS[word]


LANGUAGE = Language[Q](
    GRAMMAR, ConditionBuilder(), keywords=KEYWORDS, labels=LABELS, field="where", length_max=LENGTH_MAX,
    hint=" (texts need quotes)",
)  # fmt: skip


def compare(name: str, position: int, op: str, value: Literal) -> Q:
    """One comparison of a field or an attribute. Raises InvalidInput for an unknown name or a value that cannot be."""
    if name in ALIASES:
        return attribute_condition(ALIASES[name], op, value)
    if name.startswith(scores.PREFIX):
        return _compare_score(name, position, op, value)
    if name not in COLUMNS:
        return _compare_attribute(name, position, op, value)
    field = COLUMNS[name]
    if field.column == "words":
        if op not in ("contains", "==") or not isinstance(value, str):
            raise wrong_filter("text takes contains and a text in quotes")
        return Q(words_match(value))
    if field.column == "oi_kind" and str(value).upper() in OTEL_KINDS:
        field = Column("kind", write=str.upper)
    if op in ("exists", "missing"):
        return Q(*_is_there(field)) if op == "exists" else _not(Q(*_is_there(field)))
    requested = _typed(name, field, op, value)
    if op == "!=":
        return (
            Q(*_is_there(field)) & ~Q(Exact(field.source, requested))
            if field.holds != "text"
            else ~_exactly(field, requested)
        )
    return _exactly(field, requested) if op == "==" else Q(LOOKUPS[op](field.source, requested))


def _exactly(field: Column, requested: Any) -> Q:
    return Q(Exact(field.source, requested))


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


def _compare_score(name: str, position: int, op: str, value: Literal) -> Q:
    """Of the span's query run; a run without that score counts as a value that is not there."""
    if op in ("exists", "missing"):
        value = 0.0
    if op in ("contains", "starts with") or isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_filter(f"{name} is a number: it takes {', '.join(COMPARED)} and in, with a number such as 0.5")
    try:
        condition = scores.score_condition("run_id", name.removeprefix(scores.PREFIX), op, float(value))
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


TEXT_OPERATORS = ("==", "!=", "contains", "starts with", "in (", "is none", "is not none")
NUMBER_OPERATORS = (*dict.fromkeys(SIGNS.values()), "in (", "is none", "is not none")


def complete(text: str) -> list[str]:
    """The expression with each word that may stand next, or that the last word may become, fields before attributes.
    [] where it is wrong already."""
    return LANGUAGE.complete(text, _words)


def _words(accepted: set[str], named: str, word: str) -> list[str]:
    """named: the last name before, whose operators and values are meant."""
    column = COLUMNS.get(named)
    words: list[str] = []
    if "NAME" in accepted:
        measures = [f"{scores.PREFIX}{name}" for name in scores.OFFERED]
        attributes = sorted(WRITTEN) if word else []
        words += [*FIELD_NAMES, *(measures if word else measures[:1]), *attributes]
    if "SIGN" in accepted:
        is_number = named.startswith(scores.PREFIX) or (column is not None and column.holds == "number")
        words += NUMBER_OPERATORS if is_number else TEXT_OPERATORS
    if "TEXT" in accepted and "NAME" not in accepted and column is not None and column.column in CLOSED:
        words += [f"'{value}'" for value in CLOSED[column.column]()]
    return words + words_of(accepted, "and", "or", "not")
