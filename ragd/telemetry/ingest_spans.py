"""The spans of an ingest: one root per piece of work, and its stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.trace import Span, SpanKind

from ragd.telemetry import names
from ragd.telemetry.content import Value
from ragd.telemetry.environments import PRODUCTION, current_environment, environment
from ragd.telemetry.spans import open_span, sharing, stage


@contextmanager
def ingest_span(
    *,
    collection: str,
    doc_id: str,
    job_id: str | None = None,
    kind: str | None = None,
    attempt: int | None = None,
    queue_ms: float | None = None,
    api_key: str | None = None,
    name: str = names.INGEST,
) -> Iterator[Span]:
    """The root of one document's ingest, or of another job over a collection's chunks (`name`).

    Every ragd span inside carries the collection and api_key, the label of the key that asked for it. kind: of the job.
    attempt: from 1. queue_ms: how long the job waited before this attempt.
    """
    shared: dict[str, Value | None] = {names.COLLECTION: collection, names.API_KEY: api_key or None}
    attributes: dict[str, Value | None] = {
        names.OI_KIND: "CHAIN", names.DOCUMENT_ID: doc_id or None, names.JOB_ID: job_id, names.JOB_KIND: kind,
        names.JOB_ATTEMPT: attempt, names.LATENCY_QUEUE_MS: queue_ms,
        names.INPUT_VALUE: doc_id or None, names.INPUT_MIME_TYPE: "text/plain" if doc_id else None,
    }  # fmt: skip
    with (
        environment(current_environment() or PRODUCTION),
        sharing(shared),
        open_span(name, SpanKind.INTERNAL, attributes) as span,
    ):
        yield span


def fetch_span(*, address: str) -> AbstractContextManager[Span]:
    """What a job fetches from a site or a bucket. The part of an address after "?" goes through the content switch."""
    return open_span(names.FETCH, SpanKind.INTERNAL, {names.OI_KIND: "CHAIN", names.URL_FULL: address})


def unpack_span(*, size_bytes: int) -> AbstractContextManager[Span]:
    """An archive becomes jobs of its members; their traces go on from here."""
    return stage(names.UNPACK, size_bytes=size_bytes)


def parse_span(*, name: str, size_bytes: int) -> AbstractContextManager[Span]:
    return stage(names.PARSE, file_name=name, size_bytes=size_bytes)


def chunk_span(*, size_chars: int, kind: str) -> AbstractContextManager[Span]:
    return stage(names.CHUNK, size_chars=size_chars, kind=kind)


def fill_span(*, documents_count: int, chunks_count: int) -> AbstractContextManager[Span]:
    """Some documents on their way into a new generation."""
    return stage(names.FILL, documents_count=documents_count, chunks_count=chunks_count)


def store_span(*, chunks_count: int) -> AbstractContextManager[Span]:
    return stage(names.STORE, chunks_count=chunks_count)
