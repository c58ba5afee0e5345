"""Hands finished spans to a collector, off the request's path: one that is away costs nothing, and what it missed is
counted."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
import urllib3
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

NOTE_SENDER = """
INSERT INTO span_senders (name, endpoint, sent, lost, last_error, last_error_at, updated_at)
VALUES (%(name)s, %(endpoint)s, %(sent)s, %(lost)s, %(last_error)s, %(last_error_at)s, now())
ON CONFLICT (name) DO UPDATE SET endpoint = excluded.endpoint, sent = excluded.sent, lost = excluded.lost,
    last_error = excluded.last_error, last_error_at = excluded.last_error_at, updated_at = now()
"""
FORGET_SENDERS = "DELETE FROM span_senders WHERE updated_at < now() - interval '7 days'"
NOTE_EVERY_S = 10.0
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0  # how long a collector that failed is left alone; doubled each time
QUEUE_MAX = 4096
TIMEOUT_S = 5.0
IDS = frozenset({"traceId", "spanId", "parentSpanId"})

log = logging.getLogger(__name__)


class SendingExporter(SpanExporter):
    """Hands batches to `inner` and counts. A collector that failed is left alone for a while, up to a minute: batches
    of that time are lost at once, without being prepared.

    connect opens an autocommit connection on which the counts are kept now and then. endpoint: for people, without
    credentials.
    """

    def __init__(
        self, inner: SpanExporter, connect: Callable[[], psycopg.Connection[Any]], *, name: str, endpoint: str
    ) -> None:
        self._inner = inner
        self._connect = connect
        self._name = name
        self._endpoint = endpoint
        self.waiting: Callable[[], int] = lambda: 0
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (again := begin()) and again())

    def _begin(self) -> None:
        self._lock, self._count_lock = threading.Lock(), threading.Lock()
        self._offered = self._received = self._refused = self.sent = 0
        self._retry_at, self._pause_s, self._noted_at = 0.0, PAUSE_S, time.monotonic()
        self.last_error = ""
        self.last_error_at: datetime | None = None

    def offer(self) -> None:
        """A span was put into the queue before this exporter; `waiting` tells how many are in it."""
        with self._count_lock:
            self._offered += 1

    @property
    def lost(self) -> int:
        """Spans that the collector did not take, and those that a full queue threw away."""
        return self._refused + max(0, self._offered - self._received - self.waiting())

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._lock:
            self._received += len(spans)
            has_gone = time.monotonic() >= self._retry_at and self._send(spans)
            if not has_gone:
                self._refused += len(spans)
            if time.monotonic() - self._noted_at >= NOTE_EVERY_S:
                self._note()
            return SpanExportResult.SUCCESS if has_gone else SpanExportResult.FAILURE

    def _send(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            result, problem = self._inner.export(spans), f"{self._endpoint} did not take the spans; the log says why"
        except Exception as error:
            result, problem = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"[:500]
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            self._pause_s = PAUSE_S
            return True
        self.last_error, self.last_error_at = problem, datetime.now(UTC)
        self._retry_at = time.monotonic() + self._pause_s
        log.warning("spans were not sent: %s; the collector is left alone for %.0f s", problem, self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        return False

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)

    def shutdown(self) -> None:
        with self._lock:
            self._inner.shutdown()
            self._note()

    def _note(self) -> None:
        """Keep the counts; a database that does not answer is for others to tell."""
        self._noted_at = time.monotonic()
        if not self._offered:
            return
        values = {
            "name": f"{self._name}:{os.getpid()}",
            "endpoint": self._endpoint,
            "sent": self.sent,
            "lost": self.lost,
            "last_error": self.last_error,
            "last_error_at": self.last_error_at,
        }
        try:
            with self._connect() as connection:
                connection.execute(NOTE_SENDER, values)
                connection.execute(FORGET_SENDERS)
        except psycopg.Error as error:
            log.debug("the counts of what was sent could not be kept: %s", error)


class SendingProcessor(BatchSpanProcessor):
    """A bounded queue in front of a collector that counts what did not fit."""

    def __init__(self, exporter: SendingExporter) -> None:
        super().__init__(exporter, max_queue_size=QUEUE_MAX)
        self.exporter = exporter
        queue = self._batch_processor._queue
        exporter.waiting = lambda: len(queue)

    def on_end(self, span: ReadableSpan) -> None:
        self.exporter.offer()
        super().on_end(span)


class HttpExporter(SpanExporter):
    """OTLP over HTTP; redirects are not followed. Raises OSError or HTTPError when it fails.

    protocol: http/json or http/protobuf. tls: what urllib3 calls ca_certs, cert_file and key_file.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str],
        compress: bool,
        tls: Mapping[str, Any] | None = None,
        protocol: str = "http/json",
    ) -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._headers = headers
        self._compress = compress
        self._pool = urllib3.PoolManager(timeout=TIMEOUT_S, retries=False, **(tls or {}))

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        answer = post_spans(
            self._pool,
            self._endpoint,
            spans,
            headers=self._headers,
            protocol=self._protocol,
            compress=self._compress,
        )
        if answer.status >= 300:
            raise OSError(f"{name_endpoint(self._endpoint)} answered {answer.status}: {answer.data[:200]!r}")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._pool.clear()


def post_spans(
    pool: urllib3.PoolManager,
    endpoint: str,
    spans: Sequence[ReadableSpan],
    *,
    headers: Mapping[str, str],
    protocol: str = "http/json",
    compress: bool = False,
) -> urllib3.BaseHTTPResponse:
    """The answer of a receiver of OTLP, whatever its status. protocol: http/json or http/protobuf. Raises what the pool
    raises."""
    request = encode_spans(spans)
    if protocol == "http/json":
        kind, body = "application/json", json_request(MessageToDict(request, use_integers_for_enums=True)).encode()
    else:
        kind, body = "application/x-protobuf", request.SerializeToString()
    stated = {**headers, "Content-Type": kind} | ({"Content-Encoding": "gzip"} if compress else {})
    return pool.request("POST", endpoint, body=gzip.compress(body) if compress else body, headers=stated)


def json_request(message: Any) -> str:
    """A request that protobuf has put into JSON, as the protocol wants it: ids hexadecimal instead of base64."""
    return json.dumps(_with_hex_ids(message), ensure_ascii=False, separators=(",", ":"))


def _with_hex_ids(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            name: base64.b64decode(item).hex() if name in IDS else _with_hex_ids(item) for name, item in node.items()
        }
    return [_with_hex_ids(item) for item in node] if isinstance(node, list) else node


def name_endpoint(url: str) -> str:
    """Scheme, host, port and path: without user, password and query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
