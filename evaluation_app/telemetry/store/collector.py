"""Send finished spans to a collector: the one of the environment, else the one that an administrator set.

OpenTelemetry's exporter sends, and reads timeout, compression and certificates from its own variables. Django's models
are loaded later than this module.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg
import requests
from django.conf import settings
from django.utils.module_loading import import_string
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Status

from collections_app.endpoints.secrets import decrypt
from evaluation_app.telemetry.store.exporter import CountedExporter, captured_attributes
from ragd import telemetry
from ragd.normalization import normalize
from ragd.readers.fetching.addresses import find_metadata_host

PROTOBUF, JSON = PROTOCOLS = ("http/protobuf", "http/json")
JSON_IDS = frozenset({"traceId", "spanId", "parentSpanId"})
SENT_HEADERS = frozenset({"content-type", "content-encoding", "user-agent"})  # those of the exporter itself
READ_SETTING = """
SELECT value ->> 'endpoint', value ->> 'protocol', secret FROM server_settings
WHERE key = 'collector' AND (value -> 'is_enabled')::boolean
"""
REFRESH_S = 10.0
NOTE_EVERY_S = 10.0
TEST_SPAN = "ragd.connection_test"
TEST_TIMEOUT_S = 5.0
ANSWER_CHARS_MAX = 300

Row = tuple[str, str, str]  # of READ_SETTING

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Collector:
    """Where spans go, "" for nowhere. protocol: one of PROTOCOLS."""

    endpoint: str
    protocol: str
    headers: Mapping[str, str]


def read_collector() -> Collector:
    """Return the collector of the environment, which a function that the settings name reads."""
    found: Collector = import_string(settings.RAGD_COLLECTOR)()
    return found


def open_row(row: Row) -> Collector:
    """Raises UnreadableSecretError for headers of another server key, ValueError for a host that is not called."""
    endpoint, protocol, secret = row
    parts = urlsplit(endpoint)
    if ip := find_metadata_host(parts.hostname or "", parts.port):
        raise ValueError(f"{endpoint} leads to {ip}, where no collector answers; enter the collector's address")
    return Collector(endpoint, protocol, json.loads(decrypt(secret) or "{}"))


def name_endpoint(url: str) -> str:
    """Scheme, host, port and path: without user, password and query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


class CollectorExporter(CountedExporter):
    """Sends batches to the collector in force. Without one, spans are dropped and not counted.

    The stored one is read every REFRESH_S while there are spans, so a change needs no restart; a database that does not
    answer changes nothing.
    """

    retry_after_s = 30.0

    def _begin(self) -> None:
        super()._begin()
        self._source: Collector | Row | None = None
        self._client: CollectorClient | None = None
        self._endpoint = ""
        self._read_at, self._noted_at = float("-inf"), time.monotonic()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._lock:
            self._refresh()
            result = super().export(spans)
            if time.monotonic() - self._noted_at >= NOTE_EVERY_S:
                self._note()
            return result

    def shutdown(self) -> None:
        with self._lock:
            self._close()
            self._note()

    def _refresh(self) -> None:
        if isinstance(self._source, Collector) or time.monotonic() - self._read_at < REFRESH_S:
            return
        self._read_at = time.monotonic()
        try:
            source = self._find_source()
        except psycopg.Error as error:
            log.debug("where spans are sent could not be read: %s", error)
            return
        if source != self._source:
            self._close()
            self._source, self._retry_at = source, 0.0

    def _find_source(self) -> Collector | Row | None:
        if (collector := read_collector()).endpoint:
            return collector
        with self._connect() as connection:
            return connection.execute(READ_SETTING).fetchone()

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        if self._source is None:
            return
        if self._client is None:
            source = self._source
            self._client = CollectorClient(source if isinstance(source, Collector) else open_row(source))
        self._client.deliver([redacted(span, self.capture) for span in spans])
        self.delivered += len(spans)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.exporter.shutdown()  # type: ignore[no-untyped-call]

    def _note(self) -> None:
        """Keep the counts; a database that does not answer is for others to tell."""
        self._noted_at = time.monotonic()
        if not self._offered or not (self._source or self._endpoint):
            return
        source = self._source
        if source is not None:
            self._endpoint = name_endpoint(source.endpoint if isinstance(source, Collector) else source[0])
        try:
            with self._connect() as connection:
                self._store_counts(connection, self._endpoint)
        except psycopg.Error as error:
            log.debug("the counts of what was sent could not be kept: %s", error)


class CollectorClient(requests.Session):
    """OpenTelemetry's exporter and the session through which it sends: with no headers but those of this collector, as
    JSON where the collector wants that."""

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self.auth = lambda request: request  # else requests takes what .netrc has for the host, before these headers
        self.collector = collector
        self.problem = ""
        self.exporter = OTLPSpanExporter(collector.endpoint, session=self)

    def deliver(self, spans: Sequence[ReadableSpan]) -> None:
        """Raises OSError for what the collector did not take; redirects are not followed."""
        self.problem = ""
        if self.exporter.export(spans) is not SpanExportResult.SUCCESS or self.problem:
            raise OSError(
                f"{name_endpoint(self.collector.endpoint)}: {self.problem or 'the request could not be made'}"
            )

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send a request of the exporter, and keep what went wrong."""
        headers = {name: value for name, value in options["headers"].items() if name.lower() in SENT_HEADERS}
        if self.collector.protocol == JSON:
            headers["content-type"] = "application/json"
            options["data"] = as_json(options["data"], gzipped="gzip" in headers.values())
        options["headers"] = {**self.collector.headers, **headers}
        try:
            answer = super().request(method, url, **options)
        except requests.RequestException as error:
            self.problem = _reason(error)
            raise
        self.problem = f"answered {answer.status_code}: {answer.content[:200]!r}" if answer.status_code >= 300 else ""
        return answer


def _reason(error: BaseException) -> str:
    """What is at the bottom of an error of requests, whose own text repeats the address with its query."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}"


def as_json(request: bytes, *, gzipped: bool) -> bytes:
    """A request in protobuf as the protocol writes it in JSON: ids hexadecimal, enumerations as numbers."""
    message = ExportTraceServiceRequest.FromString(gzip.decompress(request) if gzipped else request)
    tree = _with_hex_ids(MessageToDict(message, use_integers_for_enums=True))
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    return gzip.compress(text) if gzipped else text


def _with_hex_ids(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            name: base64.b64decode(item).hex() if name in JSON_IDS else _with_hex_ids(item)
            for name, item in node.items()
        }
    return [_with_hex_ids(item) for item in node] if isinstance(node, list) else node


def redacted(span: ReadableSpan, capture: telemetry.Capture) -> ReadableSpan:
    """A copy of a finished span with the content switch applied to attributes, events, links and status."""
    description = telemetry.captured_status(span.status.description, capture) if span.status.description else None
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=captured_attributes(span.attributes or {}, capture),
        events=[
            Event(event.name, captured_attributes(event.attributes or {}, capture), event.timestamp)
            for event in span.events
        ],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code, description),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """endpoint: without secrets. status: of the HTTP answer, None where none came. said: how the answer began, or what
    failed. trace_id: of the span, by which the collector finds it."""

    endpoint: str
    protocol: str
    passed: bool
    status: int | None
    said: str
    took_ms: float
    trace_id: str


def send_test_span(collector: Collector) -> Trial:
    """Send a span without any text of the server to the collector, once. Nothing is raised for what fails there."""
    provider = TracerProvider(resource=Resource.create({"service.name": "ragd"}), shutdown_on_exit=False)
    span = provider.get_tracer("ragd").start_span(TEST_SPAN)
    span.end()
    assert isinstance(span, ReadableSpan) and span.context is not None
    started = time.perf_counter()
    status, said = _try(collector, encode_spans([span]).SerializeToString())
    return Trial(
        endpoint=name_endpoint(collector.endpoint),
        protocol=collector.protocol,
        passed=status is not None and status < 300 and not said,
        status=status,
        said=said,
        took_ms=1000 * (time.perf_counter() - started),
        trace_id=f"{span.context.trace_id:032x}",
    )


def _try(collector: Collector, request: bytes) -> tuple[int | None, str]:
    """Status and what was said; nothing is said of a request that was taken whole."""
    with CollectorClient(collector) as client:
        headers = {"content-type": "application/x-protobuf"}
        try:
            answer = client.request(
                "POST", collector.endpoint, data=request, headers=headers, timeout=TEST_TIMEOUT_S, allow_redirects=False
            )
        except (requests.RequestException, OSError, ValueError) as error:
            return None, normalize(_reason(error))[:ANSWER_CHARS_MAX]
    if answer.status_code >= 300:
        return answer.status_code, _as_text(answer.content)
    return answer.status_code, _rejected(answer.content, collector.protocol)


def _rejected(data: bytes, protocol: str) -> str:
    """What the collector says of spans that it did not take; "" where it took them."""
    response = ExportTraceServiceResponse()
    try:
        if protocol == JSON:
            Parse(data or b"{}", response, ignore_unknown_fields=True)
        else:
            response.ParseFromString(data)
    except (DecodeError, ParseError):
        return f"no answer of OTLP: {_as_text(data)}"
    partial = response.partial_success
    return f"not taken: {normalize(partial.error_message)[:ANSWER_CHARS_MAX]}" if partial.rejected_spans else ""


def _as_text(data: bytes) -> str:
    return normalize(data[: 4 * ANSWER_CHARS_MAX].decode("utf-8", "replace"))[:ANSWER_CHARS_MAX].strip()
