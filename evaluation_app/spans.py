"""Reads of the span store: the spans of a run or trace, as a waterfall, the newest traces; and how old ones go."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone
from opentelemetry import trace

from evaluation_app.models import Span, SpanWriter
from ragd import telemetry
from retrieval_app.models import QueryRun

DELETE_OLD_SPANS = """
DELETE FROM spans WHERE (started_at, id) IN (
    SELECT started_at, id FROM spans WHERE started_at < %(before)s
    ORDER BY started_at, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
"""
PRUNE_BATCH = 2000
PRUNE_PAUSE_S = 0.05
WRITER_DAYS = 7
FRESH_S = 10.0
FLUSH_TIMEOUT_MS = 1000


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """One span as a bar. depth counts from 0; offset_ms from the waterfall's start; left and width in percent."""

    span: Span
    depth: int
    offset_ms: float
    duration_ms: float
    left: float
    width: float
    children_count: int


@dataclass(frozen=True, slots=True)
class Waterfall:
    """rows: each span directly before its children, siblings by start. Empty: no span is stored (yet)."""

    rows: list[WaterfallRow]
    started_at: datetime | None
    total_ms: float
    failed_count: int


def run_spans(run: QueryRun) -> list[Span]:
    """The run's spans by start: its own, what they stand in (the request) and what stands in them. May be []."""
    spans = list(Span.objects.of_trace(run.trace_id)) or list(Span.objects.of_run(run.pk))
    own = {span.span_id for span in spans if span.run_id == run.pk}
    if not own:
        return spans
    above = _ancestors(spans, own)
    below = _descendants(spans, own)
    return [span for span in spans if span.span_id in own | above | below]


def _ancestors(spans: Sequence[Span], ids: set[str]) -> set[str]:
    parents = {span.span_id: span.parent_span_id for span in spans}
    found: set[str] = set()
    for span_id in ids:
        parent = parents.get(span_id)
        while parent and parent not in found:
            found.add(parent)
            parent = parents.get(parent)
    return found


def _descendants(spans: Sequence[Span], ids: set[str]) -> set[str]:
    children: dict[str | None, list[str]] = defaultdict(list)
    for span in spans:
        children[span.parent_span_id].append(span.span_id)
    found: set[str] = set()
    waiting = list(ids)
    while waiting:
        for child in children[waiting.pop()]:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def run_waterfall(run: QueryRun) -> Waterfall:
    return build_waterfall(run_spans(run))


def trace_waterfall(trace_id: str) -> Waterfall:
    return build_waterfall(list(Span.objects.of_trace(trace_id)))


def build_waterfall(spans: Sequence[Span]) -> Waterfall:
    """Spans as nested bars. A span whose parent is not among them stands at the top."""
    if not spans:
        return Waterfall([], None, 0.0, 0)
    first = min(span.started_at for span in spans)
    total_ms = max((span.ended_at - first) / timedelta(milliseconds=1) for span in spans)
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda item: (item.started_at, item.id or 0)):
        children[span.parent_span_id if span.parent_span_id in known else None].append(span)
    rows = [_row(span, depth, first, total_ms, children) for span, depth in _walk(children)]
    return Waterfall(rows, first, total_ms, sum(span.has_failed for span in spans))


def _walk(children: Mapping[str | None, Sequence[Span]]) -> Iterator[tuple[Span, int]]:
    waiting = [(span, 0) for span in reversed(children[None])]
    while waiting:
        span, depth = waiting.pop()
        yield span, depth
        waiting.extend((child, depth + 1) for child in reversed(children.get(span.span_id, ())))


def _row(
    span: Span, depth: int, first: datetime, total_ms: float, children: Mapping[str | None, Sequence[Span]]
) -> WaterfallRow:
    offset_ms = (span.started_at - first) / timedelta(milliseconds=1)
    share = 100 / total_ms if total_ms > 0 else 0.0
    return WaterfallRow(
        span=span,
        depth=depth,
        offset_ms=offset_ms,
        duration_ms=span.duration_ms,
        left=round(offset_ms * share, 3),
        width=round(span.duration_ms * share, 3) if share else 100.0,
        children_count=len(children.get(span.span_id, ())),
    )


def recent_traces(limit: int = 50) -> list[Span]:
    """The newest queries and ingests, each by the span that stands for it, without attributes. One query."""
    return list(Span.objects.entries().without_content()[:limit])


def span_dict(span: Span) -> dict[str, Any]:
    """A span as the API answers it: every vocabulary's attributes under their own names."""
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "name": span.name,
        "kind": span.kind,
        "start": span.started_at.isoformat(),
        "end": span.ended_at.isoformat(),
        "status": {"code": span.status_code, "description": span.status_description},
        "attributes": span.attributes,
        "events": span.events,
        "links": span.links,
    }


def flush_pending(run: QueryRun) -> None:
    """Let the spans of a run that has only just ended reach the store, if this process made them."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None and (timezone.now() - run.created_at).total_seconds() < FRESH_S:
        flush(FLUSH_TIMEOUT_MS)


def prune_spans(days: int | None = None, *, batch: int = PRUNE_BATCH) -> int:
    """Delete spans older than `days` (RAGD_SPAN_RETENTION_DAYS; 0 keeps all), a batch at a time; returns how many went.

    Must run outside a transaction: each batch is its own, so that nobody waits long for one.
    """
    keep_days = settings.RAGD_SPAN_RETENTION_DAYS if days is None else days
    SpanWriter.objects.filter(updated_at__lt=timezone.now() - timedelta(days=WRITER_DAYS)).delete()
    if not keep_days:
        return 0
    before, deleted = timezone.now() - timedelta(days=keep_days), 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(DELETE_OLD_SPANS, {"before": before, "batch": batch})
            deleted += int(cursor.rowcount)
            if cursor.rowcount < batch:
                return deleted
        time.sleep(PRUNE_PAUSE_S)


def lost_spans() -> int:
    """Spans that every process of the last days counted as lost."""
    return sum(SpanWriter.objects.values_list("lost", flat=True))


def model_calls(spans: Sequence[Span]) -> list[Span]:
    """The chat and embeddings spans, by start."""
    return [
        span
        for span in spans
        if telemetry.OPERATION_NAME in span.attributes and telemetry.GEN_AI_SYSTEM in span.attributes
    ]
