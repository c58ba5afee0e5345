"""Writes finished spans into Postgres, off the request's path, and never raises into it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

import psycopg
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import format_span_id, format_trace_id

from evaluation_app.spans.store.columns import span_columns
from evaluation_app.spans.store.counting import CountedExporter
from ragd import telemetry
from ragd.security import redact
from ragd.security.secrets import find_secrets
from ragd.telemetry import names

COPY_SPANS = """
COPY spans (trace_id, span_id, parent_span_id, name, kind, scope, service, started_at, ended_at, duration_ms,
            status_code, status_description, collection, run_id, attributes, events, links, dropped_count,
            type, oi_kind, model, api_key, input_tokens, output_tokens, cost_usd, risk_score, environment,
            words)
FROM STDIN
"""
COUNT_SPANS = """
INSERT INTO span_writers (name, written, lost, last_error, last_error_at, updated_at)
VALUES (%(name)s, %(written)s, %(lost)s, %(last_error)s, %(last_error_at)s, now())
ON CONFLICT (name) DO UPDATE SET written = excluded.written, lost = excluded.lost, last_error = excluded.last_error,
    last_error_at = excluded.last_error_at, updated_at = now()
"""
NAME_CHARS = 500  # callers name models, and an index takes no longer value than 2,704 bytes
HIDDEN = "[secret]"
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
        rows = [span_row(span, self._capture) for span in spans]
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        with self._connection.cursor() as cursor, cursor.copy(COPY_SPANS) as copy:
            for row in rows:
                copy.write_row(row)
        self.delivered += len(rows)
        self._connection.execute(
            COUNT_SPANS,
            {
                "name": f"{self._name}:{os.getpid()}",
                "written": self.delivered,
                "lost": self.lost,
                "last_error": self.last_error,
                "last_error_at": self.last_error_at,
            },
        )

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
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(storable(value))
    return json.dumps(storable(value)) if "\\u0000" in text or "\\ud" in text else text


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
