"""Sends spans where an administrator said on the page *Connections*, as long as it is said: each process asks now and
then, so a change needs no restart. Without Django's models, which are loaded later than tracing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from collections_app.fetching.addresses import find_metadata_host
from collections_app.model_endpoints.secrets import UnreadableSecretError, decrypt
from evaluation_app.spans.store.collector_export import PAUSE_S, SendingExporter, name_endpoint
from evaluation_app.spans.store.collector_trial import Collector, host_of

READ = "SELECT endpoint, protocol, secret FROM collector_settings WHERE is_enabled"
REFRESH_S = 10.0

Row = tuple[str, str, str]

log = logging.getLogger(__name__)


class NowhereExporter(SpanExporter):
    """Takes spans and drops them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        return


class SwitchedExporter(SendingExporter):
    """Sends to the stored collector, which is read every REFRESH_S seconds while there are spans; without one, spans
    are dropped and not counted. A database that does not answer changes nothing.

    build makes the exporter of a collector. A row whose headers cannot be read, or whose host leads to where clouds
    keep secrets, is one that takes nothing, with the reason as the last error.
    """

    def __init__(
        self,
        build: Callable[[Collector], SpanExporter],
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        name: str,
    ) -> None:
        super().__init__(NowhereExporter(), connect, name=name, endpoint="")
        self._build = build

    def _begin(self) -> None:
        super()._begin()
        self._row: Row | None = None
        self._read_at: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._lock:
            self._refresh()
            if self._row is None:
                self._received += len(spans)
                return SpanExportResult.SUCCESS
        return super().export(spans)

    def _refresh(self) -> None:
        if self._read_at is not None and time.monotonic() - self._read_at < REFRESH_S:
            return
        self._read_at = time.monotonic()
        try:
            with self._connect() as connection:
                row = connection.execute(READ).fetchone()
        except psycopg.Error as error:
            log.debug("where spans are sent could not be read: %s", error)
            return
        if row != self._row:
            self._take_up(row)

    def _take_up(self, row: Row | None) -> None:
        self._inner.shutdown()
        self._inner, self._endpoint = NowhereExporter(), name_endpoint(row[0]) if row else ""
        self._row, self._retry_at, self._pause_s = row, 0.0, PAUSE_S
        if row is None:
            return
        try:
            self._inner = self._build(read_row(row))
        except (UnreadableSecretError, ValueError) as error:
            self._inner = RefusingExporter(str(error))

    def _note(self) -> None:
        if self._endpoint or self.sent or self.last_error:
            super()._note()


class RefusingExporter(NowhereExporter):
    """Takes nothing, for a reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError(self._reason)


def read_row(row: Row) -> Collector:
    """Raises UnreadableSecretError for headers of another server key, ValueError for a host that is not called."""
    endpoint, protocol, secret = row
    if ip := find_metadata_host(*host_of(endpoint)):
        raise ValueError(f"{endpoint} leads to {ip}, where no collector answers; enter the collector's address")
    return Collector(endpoint, protocol, json.loads(decrypt(secret) or "{}"), {})
