"""Write finished spans into PostgreSQL, off the request's path, and count those that are lost.

The columns that a span is searched by are taken from its name and attributes. The exporter never raises into the code
that made the span.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

import psycopg
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import format_span_id, format_trace_id
from psycopg.types.json import Jsonb
from pydantic_core import to_json

from ragd import telemetry
from ragd.conventions import TABLES
from ragd.security import redact
from ragd.security.secrets import find_secrets
from ragd.telemetry import names

OWN_SCOPE = "ragd"
TYPES_BY_PREFIX = {prefix: table.type for table in TABLES.spans for prefix in table.prefixes}
TABLE_TYPES = tuple(table.type for table in TABLES.spans)
OI_KINDS = ("CHAIN", "EMBEDDING", "RETRIEVER", "RERANKER", "LLM", "EVALUATOR", "TOOL", "AGENT", "GUARDRAIL")
OTEL_KINDS = ("INTERNAL", "CLIENT", "SERVER", "PRODUCER", "CONSUMER")
STATUS_CODES = ("OK", "ERROR", "UNSET")
OWN_TYPES = (
    telemetry.LEXICAL, telemetry.VECTOR, telemetry.HOP, telemetry.FUSE, telemetry.COMPRESS,
    telemetry.INGEST, telemetry.PARSE, telemetry.CHUNK, telemetry.STORE,
    names.FETCH, names.UNPACK, names.FILL, names.BUILD_INDEX, names.PROBE,
)  # fmt: skip

VALUE_CHARS = 1000  # of one value that are looked at for words
INDEXED_CHARS = 500  # an index takes no longer value than 2,704 bytes
WORDS_MAX = 300  # distinct words of one span
WORD_CHARS = 64
WORD = re.compile(r"[^\W_]+")
# What other attributes of the same span say already, or what is a text of a document and not of the question.
WORDLESS = re.compile(
    r"(retrieval|reranker)\.\w+\.\d+\.document\.(content|metadata)"
    r"|aitf\.rag\.retrieval\.docs|gen_ai\.retrieval\.documents|gen_ai\.(input|output)\.messages"
    r"|gen_ai\.system_instructions|gen_ai\.(request\.tools|tool\.definitions)"
    r"|llm\.(input_messages|output_messages|tools)\..*|llm\.invocation_parameters|embedding\.invocation_parameters"
    r"|ragd\.environment|.*\.mime_type|network\..*|http\.request\.header\..*|user_agent\..*"
)


class SpanColumns(NamedTuple):
    """In the order of COPY_SPANS. Counts, cost (US dollars) and risk (0 to 100) are None where the span has none."""

    type: str
    oi_kind: str
    model: str
    api_key: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    risk_score: float | None
    environment: str
    words: str


def span_columns(name: str, scope: str, description: str, attributes: Mapping[str, Any]) -> SpanColumns:
    """The columns of one span. attributes: as they are stored, with the content switch applied."""
    model = attributes.get(telemetry.REQUEST_MODEL) or attributes.get(telemetry.RERANK_MODEL) or ""
    return SpanColumns(
        type=span_type(name, scope),
        oi_kind=str(attributes.get(telemetry.OI_KIND) or "")[:INDEXED_CHARS],
        model=str(model)[:INDEXED_CHARS],
        api_key=str(attributes.get(telemetry.API_KEY) or "")[:INDEXED_CHARS],
        input_tokens=_count(attributes.get(telemetry.USAGE_INPUT_TOKENS)),
        output_tokens=_count(attributes.get(telemetry.USAGE_OUTPUT_TOKENS)),
        cost_usd=_number(attributes.get(telemetry.COST_TOTAL)),
        risk_score=_number(attributes.get(telemetry.SECURITY_RISK_SCORE)),
        environment=str(attributes.get(telemetry.ENVIRONMENT) or telemetry.PRODUCTION)[:INDEXED_CHARS],
        words=as_tsvector(span_words(name, description, attributes)),
    )


def span_type(name: str, scope: str = OWN_SCOPE) -> str:
    """The type of the span tables ("aitf.rag.retrieve"), else the first word of the own name ("rag.lexical").

    "" for a span of another instrumentation.
    """
    if scope != OWN_SCOPE:
        return ""
    first = name.partition(" ")[0]
    return TYPES_BY_PREFIX.get(first, first)


def span_words(name: str, description: str, attributes: Mapping[str, Any]) -> list[str]:
    """Distinct words of the name, the failure and the values of attributes, in that order; WORDS_MAX at most."""
    words: dict[str, None] = {}
    for text in dict.fromkeys((name, description, *_texts(attributes))):
        for word in split_words(text[:VALUE_CHARS]):
            words[word] = None
            if len(words) >= WORDS_MAX:
                return list(words)
    return list(words)


def split_words(text: str) -> list[str]:
    """Letters and digits in a row, compatible forms as one and without case, each cut at WORD_CHARS."""
    return [word[:WORD_CHARS] for word in WORD.findall(unicodedata.normalize("NFKC", text).casefold())]


def as_tsvector(words: list[str]) -> str:
    """PostgreSQL's text form. Words hold letters and digits only, so none needs to be escaped."""
    return " ".join(f"'{word}'" for word in words)


def _texts(attributes: Mapping[str, Any]) -> Iterator[str]:
    """What is JSON repeats what other attributes say in words."""
    for name, value in attributes.items():
        if isinstance(value, str) and value and not value.startswith(("[{", "{")) and not _is_wordless(name):
            yield value


@lru_cache(4096)
def _is_wordless(name: str) -> bool:
    return WORDLESS.fullmatch(name) is not None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    """A finite number that is no truth value and fits a column, else None: attributes may hold anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) and abs(value) < 2**53 else None


LOG_EVERY_S = 60.0
COUNT_SPANS = """
INSERT INTO statuses (kind, name, values, made_at) VALUES ('span_writer', %(name)s, %(values)s, now())
ON CONFLICT (kind, name) DO UPDATE SET values = excluded.values, made_at = now()
"""

log = logging.getLogger(__name__)


class CountedExporter(SpanExporter):
    """Hands batches to `_send` and never raises. A batch that fails is lost and counted, never retried; the target is
    then left alone for `retry_after_s`, and batches of that time are lost at once.

    connect opens an autocommit connection with short timeouts. name: of the process, for people. capture: the content
    switch of the target. A forked child counts from nothing.
    """

    retry_after_s = 5.0

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], *, name: str, capture: telemetry.Capture = "full"
    ) -> None:
        self._connect = connect
        self._name = name
        self.capture = capture
        self._logged_at = float("-inf")
        self.waiting: Callable[[], int] = lambda: 0
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (again := begin()) and again())

    def _begin(self) -> None:
        self._lock, self._count_lock = threading.RLock(), threading.Lock()
        self._retry_at = 0.0
        self._offered = self._received = self._refused = self.delivered = 0
        self.last_error = ""
        self.last_error_at: datetime | None = None

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        """Deliver a batch and count what was delivered. Whatever it raises is the reason why the batch is lost."""
        raise NotImplementedError

    def offer(self) -> None:
        """Count a span that was put into the queue before this exporter; `waiting` tells how many are in it."""
        with self._count_lock:
            self._offered += 1

    @property
    def lost(self) -> int:
        """Spans that could not be delivered, and those that a full queue threw away."""
        return self._refused + max(0, self._offered - self._received - self.waiting())

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._lock:
            self._received += len(spans)
            if time.monotonic() < self._retry_at:
                self._refused += len(spans)
                return SpanExportResult.FAILURE
            try:
                self._send(spans)
            except Exception as error:
                self._give_up(error, len(spans))
                return SpanExportResult.FAILURE
            return SpanExportResult.SUCCESS

    def _give_up(self, error: Exception, spans_count: int) -> None:
        self._refused += spans_count
        self.last_error = f"{type(error).__name__}: {error}".strip()[:500]
        self.last_error_at = datetime.now(UTC)
        self._retry_at = time.monotonic() + self.retry_after_s
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.warning("%d spans are lost: %s (%d lost so far)", spans_count, self.last_error, self.lost)

    def _store_counts(self, connection: psycopg.Connection[Any], endpoint: str = "") -> None:
        """endpoint: of the collector, "" for the span store."""
        name = f"{self._name}:{os.getpid()}" + (" to a collector" if endpoint else "")
        failed_at = self.last_error_at.isoformat() if self.last_error_at else None
        values = {
            "endpoint": endpoint, "written": self.delivered, "lost": self.lost,
            "last_error": self.last_error, "last_error_at": failed_at,
        }  # fmt: skip
        connection.execute(COUNT_SPANS, {"name": name, "values": Jsonb(values)})

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class CountingProcessor(BatchSpanProcessor):
    """The SDK's bounded queue in front of an exporter that counts what did not fit. limits: of BatchSpanProcessor."""

    def __init__(self, exporter: CountedExporter, **limits: Any) -> None:
        super().__init__(exporter, **limits)
        self.exporter = exporter
        queue = self._batch_processor._queue
        exporter.waiting = lambda: len(queue)

    def on_end(self, span: ReadableSpan) -> None:
        self.exporter.offer()
        super().on_end(span)


COPY_SPANS = """
COPY spans (trace_id, span_id, parent_span_id, name, kind, scope, service, started_at, ended_at, duration_ms,
            status_code, status_description, collection, run_id, attributes, events, links, dropped_count,
            type, oi_kind, model, api_key, input_tokens, output_tokens, cost_usd, risk_score, environment,
            words)
FROM STDIN
"""
NAME_CHARS = 500  # callers name models, and an index takes no longer value than 2,704 bytes
HIDDEN = "[secret]"
REFUSED_JSON = ("\\u0000", "NaN", "Infinity")
ADDRESS_NAMES = (names.URL_FULL, names.HTTP_URL, names.HTTP_TARGET, "url.path")
# of a parameter; sessions and sign-in come back with a code, buckets are signed
SECRET_NAME = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|passphrase|pwd|passcode|passwort|kennwort|credentials?|signature|\bsig|\bauth"
    r"|authorization|assertion|jwt|session(?:_?id)?|\bsid|\bcode|samlresponse)$",
    re.IGNORECASE,
)
USER_INFO = re.compile(r"(?<=://)[^/?#@\s]+@")

_abandoned: list[object] = []  # connections inherited over a fork: kept, so that nothing closes the parent's socket


class PostgresSpanExporter(CountedExporter):
    """COPYs batches over a connection of its own."""

    _connection: psycopg.Connection[Any] | None = None

    def _begin(self) -> None:
        super()._begin()
        _abandoned.append(self._connection)
        self._connection = None

    def shutdown(self) -> None:
        with self._lock:
            self._close()

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        rows = [span_row(span, self.capture) for span in spans]
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        with self._connection.cursor() as cursor, cursor.copy(COPY_SPANS) as copy:
            for row in rows:
                copy.write_row(row)
        self.delivered += len(rows)
        self._store_counts(self._connection)

    def _give_up(self, error: Exception, spans_count: int) -> None:
        super()._give_up(error, spans_count)
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def span_row(span: ReadableSpan, capture: telemetry.Capture) -> tuple[Any, ...]:
    """One row for COPY_SPANS, with the content switch applied and what Postgres cannot store replaced."""
    context = span.get_span_context()
    assert context is not None and span.start_time is not None and span.end_time is not None
    attributes = captured_attributes(span.attributes or {}, capture)
    name = storable(span.name)[:NAME_CHARS]
    description = storable(telemetry.captured_status(span.status.description or "", capture))
    scope = span.instrumentation_scope.name if span.instrumentation_scope else ""
    return (
        format_trace_id(context.trace_id),
        format_span_id(context.span_id),
        format_span_id(span.parent.span_id) if span.parent else None,
        name,
        span.kind.name,
        scope,
        str(span.resource.attributes.get("service.name", "")),
        _moment(span.start_time),
        _moment(span.end_time),
        (span.end_time - span.start_time) / 1e6,
        span.status.status_code.name,
        description,
        storable(str(attributes.get(telemetry.COLLECTION, ""))),
        attributes.get(telemetry.RUN_ID),
        storable_json(attributes),
        storable_json([_event(event, capture) for event in span.events]),
        storable_json([_link(link.context, link.attributes or {}) for link in span.links]),
        span.dropped_attributes + span.dropped_events + span.dropped_links,
        *(storable(value) for value in span_columns(name, scope, description, attributes)),
    )


def captured_attributes(attributes: Mapping[str, Any], capture: telemetry.Capture) -> dict[str, Any]:
    """Attributes as the content switch lets them through; what the instrumentations of others recorded included.

    Secrets in addresses are in none.
    """
    masked = mask_addresses(attributes)
    if capture == "full":
        return masked
    return {name: telemetry.captured(name, value, capture) for name, value in masked.items()}


def storable_json(value: Any) -> str:
    """The value as JSON that jsonb takes. What it would refuse is looked for in the text, because it is rare."""
    try:
        text = to_json(value).decode()
    except ValueError:  # a lone surrogate
        return json.dumps(storable(value))
    return json.dumps(storable(value)) if any(each in text for each in REFUSED_JSON) else text


def storable(value: Any) -> Any:
    """The value without what jsonb and text refuse: NUL is dropped, a lone surrogate becomes "?"."""
    if isinstance(value, str):
        return value.replace("\x00", "").encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _event(event: Event, capture: telemetry.Capture) -> dict[str, Any]:
    attributes = captured_attributes(event.attributes or {}, capture)
    return {"name": event.name, "time": _moment(event.timestamp).isoformat(), "attributes": attributes}


def _link(context: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
        "attributes": dict(attributes),
    }


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).replace(
        microsecond=nanoseconds % 1_000_000_000 // 1000
    )


def mask_addresses(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with secrets hidden in those that hold an address or the query of one."""
    masked = dict(attributes)
    for name in ADDRESS_NAMES:
        if isinstance(masked.get(name), str):
            masked[name] = mask_address(masked[name])
    if isinstance(masked.get(names.URL_QUERY), str):
        masked[names.URL_QUERY] = mask_query(masked[names.URL_QUERY])
    return masked


def mask_address(address: str) -> str:
    """Without user and password, and its query as `mask_query` leaves it."""
    path, mark, query = USER_INFO.sub("", address).partition("?")
    return redact(path, find_secrets(path)) + mark + mask_query(query)


def mask_query(query: str) -> str:
    """Values of parameters that are called like a secret, or look like one, are "[secret]"; the rest is unchanged."""
    return "&".join(_mask_parameter(parameter) for parameter in query.split("&"))


def _mask_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals:
        return HIDDEN if _holds_secret(parameter) else parameter
    is_secret = value and (SECRET_NAME.search(unquote_plus(name)) or _holds_secret(value))
    return f"{name}={HIDDEN}" if is_secret else parameter


def _holds_secret(value: str) -> bool:
    return any(find_secrets(unquote_plus(value)))
