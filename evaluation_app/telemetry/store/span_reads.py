"""Reads of the span store: the spans of a run or trace, and the shape in which they are answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max, Min, Sum
from django.utils import timezone
from ninja import Field, Schema
from opentelemetry import trace

from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.http.schemas import IsoTime, Stored
from evaluation_app.models import Span, SpanWriter
from evaluation_app.models.spans import SpanQuerySet
from ragd import telemetry
from ragd.conventions import Report, validate_all
from retrieval_app.models import QueryRun

WRITER_DAYS = 7
FRESH_S = 10.0
FLUSH_TIMEOUT_MS = 1000
EVALUATE_TYPE = "aitf.rag.evaluate"
PIPELINE_TYPE = "aitf.rag.pipeline"
LATER_MAX = 200  # traces of later evaluations that are read with a run or a trace


class SpanStatus(Schema):
    code: str = Field(validation_alias="status_code")
    description: str = Field(validation_alias="status_description")


class SpanEvent(Schema):
    name: str
    time: str
    attributes: dict[str, Any]


class SpanLink(Schema):
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class SpanRecord(Schema):
    """A span as it is answered: every vocabulary's attributes under their own names."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start: IsoTime = Field(validation_alias="started_at")
    end: IsoTime = Field(validation_alias="ended_at")
    status: SpanStatus
    attributes: dict[str, Any]
    events: Stored[list[SpanEvent]]
    links: Stored[list[SpanLink]]

    @staticmethod
    def resolve_status(span: Span) -> Span:
        return span


def run_spans(run: QueryRun) -> list[Span]:
    """The run's spans by start: its own, what they stand in (the request), what stands in them; then those that
    evaluated it later, in traces of their own. May be []."""
    # a trace may be that of a caller who asked a thousand times: its tree alone is read first
    tree = _tree(run)
    if not tree:
        return list(Span.objects.of_run(run.pk))
    own = _of_question(tree, run)
    spans = _chosen(Span.objects.of_trace(run.trace_id), tree, own | _ancestors(tree, own))
    return [*spans, *later_spans([run.pk], run.trace_id)]


def question_spans(run: QueryRun, rows: SpanQuerySet) -> list[Span]:
    """The run's own spans and what stands in them, by start, so that they take as long as the run did. May be [].

    rows: the spans to read from, for instance without their content.
    """
    tree = _tree(run)
    if not tree:
        return list(rows.of_run(run.pk).exclude(trace_id__in=_later_traces([run.pk], run.trace_id)))
    return list(_chosen(rows.of_trace(run.trace_id), tree, _of_question(tree, run)))


def later_spans(runs: Sequence[UUID], trace_id: str, rows: SpanQuerySet | None = None) -> list[Span]:
    """The spans of all traces but this one that evaluate these runs, by start; of the newest LATER_MAX."""
    traces = _later_traces(runs, trace_id)
    stored = Span.objects.all() if rows is None else rows
    return list(stored.filter(trace_id__in=traces).order_by("started_at", "id")) if traces else []


def _later_traces(runs: Sequence[UUID], trace_id: str) -> list[str]:
    roots = Span.objects.filter(run_id__in=runs, type=EVALUATE_TYPE, parent_span_id=None).exclude(trace_id=trace_id)
    return list(roots.order_by("-started_at", "-id").values_list("trace_id", flat=True)[:LATER_MAX])


def runs_of_trace(trace_id: str) -> list[UUID]:
    """The runs that spans of the trace name, at most LATER_MAX."""
    named = Span.objects.of_trace(trace_id).exclude(run_id=None).order_by()
    return [pk for pk in named.values_list("run_id", flat=True).distinct()[:LATER_MAX] if pk is not None]


def traces_asked_by(trace_id: str) -> list[str]:
    """The traces of the questions that the trace of an evaluation run asked, each linked to it; at most LATER_MAX."""
    times = Span.objects.of_trace(trace_id).aggregate(first=Min("started_at"), last=Max("ended_at"))
    if times["first"] is None:
        return []
    asked = Span.objects.filter(type=PIPELINE_TYPE, environment=telemetry.EVALUATION, started_at__gte=times["first"])
    linked = asked.filter(started_at__lte=times["last"], links__contains=[{"trace_id": trace_id}])
    return list(linked.order_by("started_at", "id").values_list("trace_id", flat=True)[:LATER_MAX])


def _tree(run: QueryRun) -> list[Span]:
    return list(Span.objects.of_trace(run.trace_id).only("span_id", "parent_span_id", "run_id"))


def _of_question(tree: Sequence[Span], run: QueryRun) -> set[str]:
    own = {span.span_id for span in tree if span.run_id == run.pk}
    return own | _descendants(tree, own)


def _chosen(stored: SpanQuerySet, tree: Sequence[Span], ids: set[str]) -> SpanQuerySet:
    """All of a trace when it is of the run alone, or when nothing in it says of whom it is."""
    return stored.filter(span_id__in=ids) if ids and len(ids) < len(tree) else stored


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
    """Spans that every process of the last days counted as lost on the way to the span store."""
    return sum(SpanWriter.objects.filter(endpoint="").values_list("lost", flat=True))


def run_validity(run: QueryRun) -> Mapping[str, Report]:
    return spans_validity(run_spans(run))


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
    senders = SpanWriter.objects.exclude(endpoint="")
    sums = senders.aggregate(sent=Sum("written"), lost=Sum("lost"), updated_at=Max("updated_at"))
    newest = senders.order_by("-updated_at").first()
    failed = senders.exclude(last_error_at=None).order_by("-last_error_at").first()
    return CollectorState(
        endpoint=newest.endpoint if newest else "",
        sent=sums["sent"] or 0,
        lost=sums["lost"] or 0,
        last_error=failed.last_error if failed else "",
        last_error_at=failed.last_error_at if failed else None,
        updated_at=sums["updated_at"],
    )
