"""Conditions on stored spans that Django has no words for (an attribute's value, words), and names that are known.

Scores of evaluations as conditions on query runs and on their spans, by `score.correctness` or `score.recall@10`.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from django.db import connection
from django.db.models import BooleanField, F, Func, Q, Value

from evaluation_app.measures.catalogue import CUTS, HEADLINE, MEASURES, find
from evaluation_app.models import EvaluationItem, RunScore
from evaluation_app.telemetry.store.exporter import OWN_TYPES, TABLE_TYPES, WORD_CHARS, span_type, split_words
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
RERANK_TYPE = span_type(telemetry.RERANK)
TEXT_COLUMNS = {
    telemetry.OI_KIND: "oi_kind", telemetry.COLLECTION: "collection", telemetry.API_KEY: "api_key",
    telemetry.ENVIRONMENT: "environment",
}  # fmt: skip
NUMBER_COLUMNS = {
    telemetry.USAGE_INPUT_TOKENS: "input_tokens", telemetry.USAGE_OUTPUT_TOKENS: "output_tokens",
    telemetry.COST_TOTAL: "cost_usd", telemetry.SECURITY_RISK_SCORE: "risk_score",
}  # fmt: skip
LOOKUPS = {"eq": "exact", **{op: op for op in COMPARISONS}}
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
    return tuple(dict.fromkeys((*TABLE_TYPES, *OWN_TYPES, *seen_types())))


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
    return Q(**{f"{column}__{LOOKUPS[op]}": number}) if op in LOOKUPS else exact


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
        words = [f"'{word}'" for word in split_words(part)]
        if words and part.endswith("*"):
            words[-1] += ":*"
        joined = " & ".join(words)
        if words:
            terms.append(f"!({joined})" if part.startswith("-") and len(part) > 1 else joined)
    return " & ".join(terms) or f"'{'-' * WORD_CHARS}'"  # no span holds that word


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
    conditions: dict[str, Any] = {f"{stored}__{LOOKUPS[op]}": value} if op in LOOKUPS else {f"{stored}__isnull": False}
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
