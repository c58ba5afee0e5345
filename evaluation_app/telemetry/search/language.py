"""The filter language over stored spans, and the conditions on them that Django has no words for.

Scores of evaluations as conditions on query runs and on their spans, by `score.correctness` or `score.recall@10`.

A name is a field, an attribute's full name, also written as attributes['...'], or `score.` with a measure of the query
run's evaluation.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, ExpressionWrapper, F, FloatField, Func, Q, Value
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
from evaluation_app.measures.catalogue import CUTS, HEADLINE, MEASURES, find
from evaluation_app.models import EvaluationItem, RunScore
from evaluation_app.telemetry.store import exporter
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.errors import InvalidInput
from ragd.telemetry import names
from retrieval_app.runs.run_log import register_scores

SEEN_NAMES = """
SELECT DISTINCT regexp_replace(jsonb_object_keys(attributes), '\\.[0-9]+(?=\\.|$)', '.N', 'g')
FROM (SELECT attributes FROM spans ORDER BY started_at DESC, id DESC LIMIT %(rows)s) newest
"""
SEEN_TYPES = """
SELECT DISTINCT type FROM (SELECT type FROM spans ORDER BY started_at DESC, id DESC LIMIT %(rows)s) newest
WHERE type <> ''
"""
LOOKED_AT = 2000  # newest spans
KEPT_S = 60.0
SHOWN_MAX = 12
# What the instrumentations of requests, statements and tasks write, and the members of OpenInference's lists.
OF_OTHERS = frozenset(
    {
        "http.request.method", "http.response.status_code", "http.route", "url.path", "url.scheme", "url.query",
        "client.address", "db.system", "db.system.name", "db.name", "db.namespace", "db.query.text", "db.statement",
        "celery.action", "celery.task_name", "celery.state", "messaging.message.id", "messaging.destination",
    }
)  # fmt: skip
MEMBERS = {
    (names.OI_RETRIEVAL_DOCUMENTS, names.OI_RERANKER_INPUT, names.OI_RERANKER_OUTPUT): (
        "document.id", "document.content", "document.score", "document.metadata"
    ),
    (names.OI_LLM_INPUT, names.OI_LLM_OUTPUT): ("message.role", "message.content"),
    (names.OI_EMBEDDINGS,): ("embedding.text",),
    (names.OI_EVALUATIONS,): (
        "evaluation.name", "evaluation.score", "evaluation.label", "evaluation.explanation"
    ),
}  # fmt: skip
NUMBERED = re.compile(r"\.\d+(?=\.|$)")

_lock = threading.Lock()
_kept: dict[str, tuple[float, frozenset[str]]] = {}
NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,2})?")
LITERALS = ("true", "false", "null")
COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
LONE = ("exists", "missing")
RERANK_TYPE = exporter.span_type(telemetry.RERANK)
TEXT_COLUMNS = {
    telemetry.OI_KIND: "oi_kind", telemetry.COLLECTION: "collection", telemetry.API_KEY: "api_key",
    telemetry.ENVIRONMENT: "environment",
}  # fmt: skip
NUMBER_COLUMNS = {
    telemetry.USAGE_INPUT_TOKENS: "input_tokens", telemetry.USAGE_OUTPUT_TOKENS: "output_tokens",
    telemetry.COST_TOTAL: "cost_usd", telemetry.SECURITY_RISK_SCORE: "risk_score",
}  # fmt: skip
COMPARISON_LOOKUPS = {"eq": "exact", **{op: op for op in COMPARISONS}}
TEXT_LOOKUPS = {"eq": "exact", "contains": "icontains", "prefix": "startswith"}
Literal = str | int | float | bool | None


def written_attributes() -> frozenset[str]:
    """Names that ragd gives to attributes; a number in a list's name stands as N."""
    message = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    message |= telemetry.record_names(telemetry.RECORDS)
    message |= {field.name for table in TABLES.spans for field in table.fields}
    message |= {f"{each}.N.{member}" for lists, members in MEMBERS.items() for each in lists for member in members}
    return OF_OTHERS | {value for value in message if "." in value and not value.endswith(".")}


def known_attributes() -> list[str]:
    """What a filter may name, in order: what ragd writes, and what the newest spans of others hold."""
    return sorted(WRITTEN | seen_attributes())


def seen_attributes() -> frozenset[str]:
    return _read_once("attributes", lambda: _column(SEEN_NAMES))


def seen_types() -> tuple[str, ...]:
    """Types among the newest spans, in order."""
    return tuple(sorted(_read_once("types", lambda: _column(SEEN_TYPES))))


def known_types() -> tuple[str, ...]:
    """Those of the span tables, ragd's own, and what else the newest spans are."""
    return tuple(dict.fromkeys((*exporter.TABLE_TYPES, *exporter.OWN_TYPES, *seen_types())))


def check_attribute(name: str, *, field: str) -> None:
    """Raise InvalidInput, with the nearest known names, for an attribute that no span has."""
    numbered = NUMBERED.sub(".N", name)
    if name in WRITTEN or numbered in WRITTEN or numbered in seen_attributes():
        return
    known = known_attributes()
    close = get_close_matches(numbered, known, 3)
    near = close or known[:SHOWN_MAX]
    more = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
    message = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(near)}{more}"
    raise InvalidInput(f"no span has an attribute {name!r}; {message}", field=field)


def forget_seen() -> None:
    """Look again at the next question."""
    with _lock:
        _kept.clear()


def _read_once(what: str, read: Callable[[], frozenset[str]]) -> frozenset[str]:
    with _lock:
        stored = _kept.get(what)
    if stored is None or time.monotonic() - stored[0] > KEPT_S:
        stored = (time.monotonic(), read())
        with _lock:
            _kept[what] = stored
    return stored[1]


def _column(sql: str) -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"rows": LOOKED_AT})
        return frozenset(value for (value,) in cursor.fetchall())


WRITTEN = written_attributes()


def attribute_condition(name: str, op: str, value: Literal) -> Q:
    """`attribute_matches`, read from the column that holds the same value where there is one: an attribute lies beside
    texts that take long to unpack."""
    exact = Q(attribute_matches(name, op, value))
    if name == telemetry.REQUEST_MODEL and op == "eq" and isinstance(value, str) and value:
        return Q(model=value) & (~Q(type=RERANK_TYPE) | exact)  # of a reranking, the column holds another attribute
    if column := TEXT_COLUMNS.get(name):
        return _text_condition(column, op, value) if isinstance(value, str | None) and value != "" else exact
    column = NUMBER_COLUMNS.get(name)
    number = float(str(value)) if not isinstance(value, bool) and NUMBER.fullmatch(str(value)) else None
    if not column or isinstance(value, bool) or (number is None and op not in LONE):
        return exact
    if op in LONE:
        return Q(**{f"{column}__isnull": op == "missing"})
    if op == "ne":
        return Q(**{f"{column}__isnull": False}) & ~Q(**{column: number})
    return Q(**{f"{column}__{COMPARISON_LOOKUPS[op]}": number}) if op in COMPARISON_LOOKUPS else exact


def _text_condition(column: str, op: str, value: str | None) -> Q:
    """The columns are empty where the attribute is not there; COMPARISONS would depend on the database's collation."""
    if op in LONE:
        return Q(**{column: ""}) if op == "missing" else ~Q(**{column: ""})
    if op == "ne":
        return ~Q(**{column: ""}) & ~Q(**{column: value})
    if op in TEXT_LOOKUPS:
        return Q(**{f"{column}__{TEXT_LOOKUPS[op]}": value})
    name = next(name for name, each in TEXT_COLUMNS.items() if each == column)
    return Q(attribute_matches(name, op, value))


def attribute_matches(name: str, op: str, value: Literal) -> Func:
    """attributes @@ jsonpath. op: eq, ne, gt, gte, lt, lte, contains, prefix, exists, missing.

    A text that reads as a number or as true or false also equals that value. ne wants the attribute to be there.
    Greater and less compare numbers with numbers and texts with texts. contains ignores case. Of a list, any item.
    """
    path = f"$.{_quoted(name)}"
    if op in LONE:
        return _on_attributes(f"exists({path})" if op == "exists" else f"!exists({path})")
    if op == "ne":
        return _on_attributes(f"exists({path}) && !{_some(path, _equals(value))}")
    return _on_attributes(_some(path, _test(op, value)))


def words_match(text: str) -> Func:
    """Spans whose words hold all words of `text`, in any order, whatever their case; `pum*` is a beginning.

    Quotes keep what stands between them together only as words that all must occur. `-word` must not occur.
    """
    return Func(F("words"), Value(_tsquery(text)), template="%(expressions)s::tsquery", arg_joiner=" @@ ",
                output_field=BooleanField())  # fmt: skip


def _tsquery(text: str) -> str:
    try:
        parts = shlex.split(text)
    except ValueError:  # a quote that does not end
        parts = text.split()
    terms = []
    for part in parts:
        words = [f"'{word}'" for word in exporter.split_words(part)]
        if words and part.endswith("*"):
            words[-1] += ":*"
        joined = " & ".join(words)
        if words:
            terms.append(f"!({joined})" if part.startswith("-") and len(part) > 1 else joined)
    return " & ".join(terms) or f"'{'-' * exporter.WORD_CHARS}'"  # no span holds that word


def _some(path: str, test: str) -> str:
    """Whether a value at the path passes: true or false, never unknown, whatever types are compared."""
    return f"exists({path} ? ({test}))"


def _test(op: str, value: Literal) -> str:
    if op == "contains":
        return f'@ like_regex {_quoted(str(value))} flag "iq"'
    if op == "prefix":
        return f"@ starts with {_quoted(str(value))}"
    if op == "eq":
        return _equals(value)
    if op not in COMPARISONS:
        raise ValueError(op)
    is_text = isinstance(value, str) and not NUMBER.fullmatch(value)
    return f"@ {COMPARISONS[op]} {_quoted(str(value)) if is_text else value}"


def _equals(value: Literal) -> str:
    """Equal to the value in any of the forms in which it may be stored."""
    if not isinstance(value, str):
        return f"@ == {json.dumps(value)}"
    forms = [value] if NUMBER.fullmatch(value) or value in LITERALS else []
    return " || ".join(f"@ == {form}" for form in [*forms, _quoted(value)])


def _on_attributes(path: str) -> Func:
    return Func(F("attributes"), Value(path), template="%(expressions)s::jsonpath", arg_joiner=" @@ ",
                output_field=BooleanField())  # fmt: skip


def _quoted(text: str) -> str:
    """A string of jsonpath: JSON's, without what PostgreSQL refuses."""
    return json.dumps(text.replace("\x00", "").encode("utf-8", "replace").decode(), ensure_ascii=False)


PREFIX = "score."
USUAL_CUT = 10
# what a field offers, headline metrics first; others are found by their names
OFFERED = tuple(
    f"{name}@{USUAL_CUT}" if name in CUTS else name
    for name in (*HEADLINE, *(each for each in MEASURES if each not in HEADLINE))
)


def score_condition(column: str, measure: str, op: str = "exists", value: float = 0.0) -> Q:
    """Rows whose query run, named by `column`, has a score that compares so: as a golden question of an evaluation run,
    or from a judge of stored runs. Of several evaluations of one run any will do.

    op: one of LOOKUPS, "ne" or "exists", which asks for a score whatever it is. Raises InvalidInput (field "measure")
    for a measure that the catalogue does not know.
    """
    stored = f"scores__{find(measure).name}__value"
    conditions: dict[str, Any] = (
        {f"{stored}__{COMPARISON_LOOKUPS[op]}": value} if op in COMPARISON_LOOKUPS else {f"{stored}__isnull": False}
    )
    condition = Q(**conditions) & ~Q(**{stored: value}) if op == "ne" else Q(**conditions)
    items = EvaluationItem.objects.filter(condition, query_run__isnull=False).order_by()
    judged = RunScore.objects.filter(condition).order_by()
    runs = items.values_list("query_run").union(judged.values_list("query_run"), all=True)
    return Q(**{f"{column}__in": runs})


def _of_runs(measure: str, below: float | None, above: float | None) -> Q:
    bounds = [(op, bound) for op, bound in (("lt", below), ("gt", above)) if bound is not None]
    condition = Q() if bounds else score_condition("pk", measure)
    for op, bound in bounds:
        condition &= score_condition("pk", measure, op, bound)
    return condition


register_scores("evaluations", OFFERED, _of_runs)


SCORE_EXAMPLE = "score.correctness"
LOOKUPS: dict[str, Any] = {
    "gt": GreaterThan, "gte": GreaterThanOrEqual, "lt": LessThan, "lte": LessThanOrEqual, "contains": IContains,
    "prefix": StartsWith,
}  # fmt: skip
EQUALITY, TEXT_OPS = ("==", "!="), ("contains", "starts with")
TESTS = ("in (", "not in (", "is none", "is not none")
COMPARED = (*EQUALITY, ">", ">=", "<", "<=")
CLOSED: dict[str, Callable[[], Sequence[str]]] = {
    "oi_kind": lambda: (*exporter.OI_KINDS, *exporter.OTEL_KINDS),
    "status_code": lambda: exporter.STATUS_CODES,
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
    if name.startswith(PREFIX):
        return _compare_score(name, position, op, value)
    if name not in COLUMNS:
        return _compare_attribute(name, position, op, value)
    field = COLUMNS[name]
    if field.column == "words":
        if op not in ("contains", "eq") or not isinstance(value, str):
            raise wrong_filter("text takes contains and a text in quotes")
        return Q(words_match(value))
    if field.column == "oi_kind" and str(value).upper() in exporter.OTEL_KINDS:
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
        condition = score_condition("run_id", name.removeprefix(PREFIX), op, float(value))
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
    measures = [f"{PREFIX}{name}" for name in OFFERED]
    return [*FIELD_NAMES, *measures, *sorted(WRITTEN)] if word else [*FIELD_NAMES, *measures[:1]]


def _offered_operators(field: str) -> tuple[str, ...]:
    column = COLUMNS.get(field)
    is_number = field.startswith(PREFIX) or (column is not None and column.holds == "number")
    return (*COMPARED, *TESTS) if is_number else (*EQUALITY, *TEXT_OPS, *TESTS)


def _offered_values(field: str, word: str) -> list[str]:
    column = COLUMNS.get(field)
    return [quote(value) for value in CLOSED[column.column]()] if column and column.column in CLOSED else []
