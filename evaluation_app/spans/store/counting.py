"""Export finished spans off the request's path, and count those that are lost on the way."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ragd import telemetry

LOG_EVERY_S = 60.0

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
        self._capture = capture
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
