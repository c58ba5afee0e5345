"""Waterfalls and spans: of a trace, of a run, of a job; one span with everything that it carries; their validity."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.page_requests import PageRequest, find_or_404, is_part, render_page
from collections_app.models import Collection, IngestJob
from evaluation_app.models import Span
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE, nearby_matches, span_href
from evaluation_app.telemetry.store.span_reads import (
    flush_pending,
    run_validity,
    runs_of_trace,
    trace_validity,
    traces_asked_by,
)
from evaluation_app.telemetry.traces.span_page import describe_span_page, span_documents
from evaluation_app.telemetry.traces.span_usage import CHUNKS_COUNT, facts_of, with_facts
from evaluation_app.telemetry.traces.waterfall import (
    SHOWN,
    SPANS_READ,
    Waterfall,
    build_waterfall,
    run_waterfall,
    trace_waterfall,
    tree_of,
    walk_tree,
)
from ragd.conventions import Report, Violation
from ragd.telemetry import names
from retrieval_app.models import QueryRun

INGESTS_SHOWN = 5
TRACES_READ = 20  # more attempts than a job has
PARTS = {"waterfall": "evaluation/parts/waterfall.html", "waterfall-rows": "evaluation/parts/waterfall_rows.html"}
VALIDITY_PARTS = {"validity": "evaluation/parts/validity.html"}
RUNS_SHOWN = 5
RUNS_LISTED = 100  # questions of an evaluation run
WRONG_SHOWN = 40


def job_waterfall(job: IngestJob, *, words: str = "", shown: str = "") -> Waterfall:
    """The job's own spans: an upload of many files is one trace, of which this is a part. Empty: none is stored."""
    return build_waterfall(job_spans(job), words=words, shown=shown)


def job_spans(job: IngestJob) -> list[Span]:
    """Those that name the job, with all that stands in them, each attempt of its own, by start. Two queries."""
    named = Span.objects.filter(attributes__contains={names.JOB_ID: str(job.pk)})
    traces = set(named.order_by().values_list("trace_id", flat=True)[:TRACES_READ])
    spans = list(with_facts(Span.objects.filter(trace_id__in=traces).order_by("started_at", "id"))[:SPANS_READ])
    return _below(spans, [span for span in spans if facts_of(span).get(names.JOB_ID) == str(job.pk)])


def _below(spans: Sequence[Span], tops: Sequence[Span]) -> list[Span]:
    children = tree_of(spans)
    ids = {
        span.span_id
        for top in tops
        for span, _ in walk_tree({None: [top], **{key: value for key, value in children.items() if key is not None}})
    }
    return [span for span in spans if span.span_id in ids]


@dataclass(frozen=True, slots=True)
class Ingest:
    """One time that a document was ingested. job_id: None where no job did it, as for text sent over the API, or where
    it is gone.

    chunks: how many it stored; None: it stored none, because it failed or nothing had changed.
    """

    span: Span
    kind: str
    job_id: uuid.UUID | None
    attempt: int
    chunks: int | None


def traces_of_document(collection: Collection, doc_id: str) -> list[Ingest]:
    """The last ingests of a document whose spans are stored, newest first. Three queries."""
    requested = {names.COLLECTION: collection.name, names.DOCUMENT_ID: doc_id}
    span_query_set = with_facts(Span.objects.filter(name=names.INGEST, attributes__contains=requested))
    spans = sorted(span_query_set, key=lambda span: span.started_at, reverse=True)[:INGESTS_SHOWN]
    stored = Span.objects.filter(name=names.STORE, trace_id__in=[span.trace_id for span in spans])
    chunks = {span.parent_span_id: facts_of(span).get(CHUNKS_COUNT) for span in with_facts(stored)}
    job_ids = {job_id for span in spans if (job_id := _read_id(facts_of(span).get(names.JOB_ID)))}
    jobs = set(IngestJob.objects.filter(pk__in=job_ids).values_list("pk", flat=True))
    return [_ingest(span, chunks.get(span.span_id), jobs) for span in spans]


def _ingest(span: Span, chunks: object, jobs: set[uuid.UUID]) -> Ingest:
    facts = facts_of(span)
    attempt, job_id = facts.get(names.JOB_ATTEMPT), _read_id(facts.get(names.JOB_ID))
    return Ingest(
        span=span,
        kind=str(facts.get(names.JOB_KIND) or "text"),
        job_id=job_id if job_id in jobs else None,
        attempt=attempt if isinstance(attempt, int) else 1,
        chunks=chunks if isinstance(chunks, int) else None,
    )


def _read_id(value: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(value))
    except ValueError:
        return None


def _filter(request: PageRequest) -> dict[str, str]:
    """What the address asks for; a word for `show` that means nothing shows everything."""
    words = request.GET.get("q", "").replace("\x00", "").strip()
    shown = request.GET.get("show", "")
    return {"words": words, "shown": shown if shown in SHOWN else ""}


def _waterfall_context(waterfall: Any, requested: dict[str, str]) -> dict[str, Any]:
    return {"waterfall": waterfall, "wanted": requested, "choices": SHOWN.items()}


@needs(READ, EVALUATE, methods="GET")
def trace(request: PageRequest, trace_id: str) -> HttpResponse:
    """Everything of a trace; run=: of that run in it alone; view=validity: whether its spans are as they should be."""
    trace_id, requested = trace_id.replace("\x00", ""), _filter(request)
    if request.GET.get("view") == "validity":
        return _show_validity(request, trace_id)
    named = _run_in(trace_id, request.GET.get("run", ""))
    waterfall = run_waterfall(named, **requested) if named else trace_waterfall(trace_id, **requested)
    if not waterfall.span_count:
        raise Http404(f"no span of the trace {trace_id} is stored")
    of_trace = Q(trace_id=trace_id) | Q(pk__in=runs_of_trace(trace_id))
    asked = traces_asked_by(trace_id)
    context = {
        "trace_id": trace_id,
        "named": named,
        "runs": QueryRun.objects.filter(of_trace).for_lists()[:RUNS_SHOWN],
        "asked": QueryRun.objects.filter(trace_id__in=asked).for_lists()[:RUNS_LISTED] if asked else (),
    } | _chosen_span(request, Q(run_id=named.pk) if named else Q(trace_id=trace_id))
    return render_page(
        request, "evaluation/trace.html", context | _waterfall_context(waterfall, requested), parts=PARTS
    )


def _run_in(trace_id: str, requested: str) -> QueryRun | None:
    """The run that the address names. Http404 for one that is not of this trace."""
    if not requested:
        return None
    run_id = _read_id(requested)
    run = QueryRun.objects.filter(pk=run_id, trace_id=trace_id).first() if run_id else None
    if run is None:
        raise Http404(f"the trace {trace_id} holds no run {requested}")
    return run


def describe_run_trace(request: PageRequest, run: QueryRun) -> dict[str, Any]:
    """The spans of a run. span=: the one that stands open beside them."""
    flush_pending(run)
    requested = _filter(request)
    context = _waterfall_context(run_waterfall(run, **requested), requested)
    return context if is_part(request, PARTS) else context | {"view": "trace"} | _chosen_span(request, Q(run_id=run.pk))


def _chosen_span(request: PageRequest, shown: Q) -> dict[str, Any]:
    """What the pane beside the spans shows: the span that the address names, else the first pipeline of those shown,
    which holds question and answer, else the first span; {} for one that is not stored."""
    span_id = request.GET.get("span", "").replace("\x00", "")
    rows = Span.objects.filter(Q(span_id=span_id) if span_id else shown).order_by("started_at", "id")
    chosen = rows.first() if span_id else rows.filter(type=PIPELINE_TYPE).first() or rows.first()
    return {"chosen": chosen} | (describe_span_page(chosen, request.GET.get("tab", "")) if chosen else {})


@needs(READ, EVALUATE, methods="GET")
def waterfall_of_job(request: PageRequest, job_id: uuid.UUID) -> HttpResponse:
    """What one job did, without the other jobs of its upload. For the job's page; a page of its own otherwise."""
    job = get_object_or_404(IngestJob.objects.select_related("collection"), pk=job_id)
    requested = _filter(request)
    context = {"job": job} | _waterfall_context(job_waterfall(job, **requested), requested)
    return render_page(request, "evaluation/job_waterfall.html", context, parts=PARTS)


@needs(READ, methods="GET")
def document_traces(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The last ingests of a document as traces. For the document's page; a page of its own otherwise."""
    collection, doc_id = find_or_404(Collection.objects.live(), name=name), doc_id.replace("\x00", "")
    context = {"collection": collection, "doc_id": doc_id, "ingests": traces_of_document(collection, doc_id)}
    parts = {"ingests": "evaluation/parts/ingests.html"}
    return render_page(request, "evaluation/ingests.html", context, parts=parts)


@needs(READ, EVALUATE, methods="GET")
def span(request: PageRequest, trace_id: str, span_id: str) -> HttpResponse:
    """One span with everything that it carries. tab=: which vocabulary."""
    records = find_or_404(Span.objects.all(), trace_id=trace_id, span_id=span_id)
    run = QueryRun.objects.filter(pk=records.run_id).for_lists().first() if records.run_id else None
    context = describe_span_page(records, request.GET.get("tab", "")) | {"run": run}
    context["nearby"] = nearby_matches(records, request.GET)
    return render_page(request, "evaluation/span.html", context)


@needs(READ, EVALUATE, methods="GET")
def documents(request: PageRequest, trace_id: str, span_id: str) -> HttpResponse:
    """The documents of a span as cards, for its row in a waterfall; the span's page otherwise."""
    records = find_or_404(Span.objects.all(), trace_id=trace_id, span_id=span_id)
    parts = {f"documents-{span_id}": "evaluation/parts/span_documents.html"}
    if not is_part(request, parts):
        return redirect(span_href(records))
    return render_page(request, "evaluation/span.html", {"documents": span_documents(records)}, parts=parts)


def show_run_validity(request: PageRequest, run: QueryRun) -> HttpResponse:
    """Whether the run's spans are what the conventions ask for: a badge that opens to what is not."""
    flush_pending(run)
    context = {"run": run, "trace_id": run.trace_id} | _describe_reports(run_validity(run))
    return render_page(request, "evaluation/validity.html", context, parts=VALIDITY_PARTS)


def _show_validity(request: PageRequest, trace_id: str) -> HttpResponse:
    if not Span.objects.of_trace(trace_id).exists():
        raise Http404(f"no span of the trace {trace_id} is stored")
    context = {"trace_id": trace_id} | _describe_reports(trace_validity(trace_id))
    return render_page(request, "evaluation/validity.html", context, parts=VALIDITY_PARTS)


def _describe_reports(reports: Mapping[str, Report]) -> dict[str, Any]:
    """reports: those of the vocabularies that govern a span. wrong: [(vocabulary, violation)] of each of the first
    WRONG_SHOWN spans that do not conform. other: how many spans no vocabulary governs."""
    wrong: dict[tuple[str, str], list[tuple[str, Violation]]] = {}
    for name, report in reports.items():
        for violation in report.violations:
            wrong.setdefault((violation.trace_id, violation.span_id), []).append((name, violation))
    governing = [(name, report) for name, report in reports.items() if report.spans]
    return {
        "reports": governing,
        "wrong": list(wrong.values())[:WRONG_SHOWN],
        "wrong_total": len(wrong),
        "wrong_more": max(0, len(wrong) - WRONG_SHOWN),
        "total": sum(map(len, wrong.values())),
        "other": min((report.other for report in reports.values()), default=0),
    }
