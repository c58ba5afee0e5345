"""Reads of the span store: the spans of a run or trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Sum
from django.utils import timezone
from opentelemetry import trace

from collections_app.models.key_scope import EVERYTHING, CollectionScope
from evaluation_app.models import Span, SpanSender, SpanWriter
from evaluation_app.models.spans import SpanQuerySet
from evaluation_app.spans.store.span_records import SpanRecord
from ragd.conventions import Report, validate_all
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


def run_validity(run: QueryRun) -> Mapping[str, Report]:
    return spans_validity(all_run_spans(run))


def all_run_spans(run: QueryRun) -> list[Span]:
    """`run_spans` by start, then those that judged the run later in traces of their own."""
    spans = run_spans(run)
    known = {span.pk for span in spans}
    return [*spans, *(span for span in Span.objects.of_run(run.pk) if span.pk not in known)]


def trace_validity(trace_id: str) -> Mapping[str, Report]:
    """Of every span of a trace, an ingest among them; "" and an unknown one have none."""
    return spans_validity(list(Span.objects.of_trace(trace_id)))


def spans_validity(spans: Sequence[Span]) -> Mapping[str, Report]:
    """Vocabulary (AITF, OpenInference, OpenTelemetry GenAI) -> its report; empty reports for no spans."""
    return validate_all([SpanRecord.from_orm(span).dict() for span in spans])


@dataclass(frozen=True, slots=True)
class CollectorState:
    """What all processes of the last days sent. endpoint: "" when nothing was ever sent or refused."""

    endpoint: str
    sent: int
    lost: int
    last_error: str
    last_error_at: datetime | None
    updated_at: datetime | None


def collector_state() -> CollectorState:
    sums = SpanSender.objects.aggregate(sent=Sum("sent"), lost=Sum("lost"), updated_at=Max("updated_at"))
    newest = SpanSender.objects.order_by("-updated_at").first()
    failed = SpanSender.objects.exclude(last_error_at=None).order_by("-last_error_at").first()
    return CollectorState(
        endpoint=newest.endpoint if newest else "",
        sent=sums["sent"] or 0,
        lost=sums["lost"] or 0,
        last_error=failed.last_error if failed else "",
        last_error_at=failed.last_error_at if failed else None,
        updated_at=sums["updated_at"],
    )
