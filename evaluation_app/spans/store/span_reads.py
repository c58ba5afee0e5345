"""Reads of the span store: the spans of a run or trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from django.utils import timezone
from opentelemetry import trace

from collections_app.models.key_scope import EVERYTHING, CollectionScope
from evaluation_app.models import Span, SpanWriter
from evaluation_app.models.spans import SpanQuerySet
from ragd import telemetry
from retrieval_app.models import QueryRun

WRITER_DAYS = 7
FRESH_S = 10.0
FLUSH_TIMEOUT_MS = 1000


def run_spans(run: QueryRun, rows: SpanQuerySet | None = None) -> list[Span]:
    """The run's spans by start: its own, what they stand in (the request) and what stands in them. May be [].

    rows: the spans to read from, for instance without their content; None: all with everything.
    """
    stored = Span.objects.all() if rows is None else rows
    # a trace may be that of a caller who asked a thousand times: its tree alone is read first
    tree = list(Span.objects.of_trace(run.trace_id).only("span_id", "parent_span_id", "run_id"))
    if not tree:
        return list(stored.of_run(run.pk))
    own = {span.span_id for span in tree if span.run_id == run.pk}
    ids = own | _ancestors(tree, own) | _descendants(tree, own)
    whole = stored.of_trace(run.trace_id)
    return list(whole.filter(span_id__in=ids) if own and len(ids) < len(tree) else whole)


def trace_spans(trace_id: str, scope: CollectionScope = EVERYTHING) -> list[Span]:
    """A trace's spans by start, for a caller who may see these collections.

    A span without a collection, such as the request, is seen with those that stand in it or that it stands in.
    """
    spans = list(Span.objects.of_trace(trace_id))
    if scope.opened is None:
        return spans
    made_at = dict(scope.opened.values())
    own = {span.span_id for span in spans if span.collection in made_at and span.started_at >= made_at[span.collection]}
    near = own | _ancestors(spans, own) | _descendants(spans, own)
    return [span for span in spans if span.span_id in own or (span.span_id in near and not span.collection)]


def _ancestors(spans: Sequence[Span], ids: set[str]) -> set[str]:
    parents = {span.span_id: span.parent_span_id for span in spans}
    result: set[str] = set()
    for span_id in ids:
        parent = parents.get(span_id)
        while parent and parent not in result:
            result.add(parent)
            parent = parents.get(parent)
    return result


def _descendants(spans: Sequence[Span], ids: set[str]) -> set[str]:
    children: dict[str | None, list[str]] = defaultdict(list)
    for span in spans:
        children[span.parent_span_id].append(span.span_id)
    result: set[str] = set()
    waiting = list(ids)
    while waiting:
        for child in children[waiting.pop()]:
            if child not in result:
                result.add(child)
                waiting.append(child)
    return result


def flush_pending(run: QueryRun) -> None:
    """Let the spans of a run that has only just ended reach the store, if this process made them."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None and (timezone.now() - run.created_at).total_seconds() < FRESH_S:
        flush(FLUSH_TIMEOUT_MS)


def forget_writers() -> int:
    """Forget the counts of processes that wrote nothing for WRITER_DAYS; returns how many."""
    return SpanWriter.objects.filter(updated_at__lt=timezone.now() - timedelta(days=WRITER_DAYS)).delete()[0]


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
