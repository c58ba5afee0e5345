"""Pages of traces: waterfalls of a trace, a run, a job; one span; their validity; query runs by conversation.

Two query runs beside each other: answers, rankings that are joined by lines, both traces on one axis.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.documents.revisions.differences import Part, mark_words
from collections_app.http.lists import Filter, ListKind, list_page, read_filters
from collections_app.http.page_requests import (
    PageRequest,
    collection_titles,
    find_or_404,
    is_part,
    page_of,
    render_page,
)
from collections_app.models import Collection, IngestJob
from evaluation_app.models import Review, ReviewTask, Span
from evaluation_app.runs.comparison.pages import SHOWN_RANKS, RankRow, join_rankings
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE, nearby_matches, span_href
from evaluation_app.telemetry.store import span_store
from evaluation_app.telemetry.traces.span_page import describe_span_page, span_documents
from evaluation_app.telemetry.traces.waterfall import (
    CHUNKS_COUNT,
    SHOWN,
    SPANS_READ,
    Waterfall,
    build_waterfall,
    facts_of,
    on_axis,
    run_waterfall,
    trace_waterfall,
    tree_of,
    walk_tree,
    with_facts,
)
from ragd.conventions import Report, Violation
from ragd.identity import can_be_stored
from ragd.telemetry import names
from retrieval_app.answers.answer_html import strip_marks
from retrieval_app.models import ChatThread, QueryRun
from retrieval_app.runs.models import QueryRunQuerySet, RunFilter

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
    of_trace = Q(trace_id=trace_id) | Q(pk__in=span_store.runs_of_trace(trace_id))
    asked = span_store.traces_asked_by(trace_id)
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
    span_store.flush_pending(run)
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
    job = get_object_or_404(IngestJob.objects.listed(), pk=job_id)
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
    span_store.flush_pending(run)
    context = {"run": run, "trace_id": run.trace_id} | _describe_reports(span_store.run_validity(run))
    return render_page(request, "evaluation/validity.html", context, parts=VALIDITY_PARTS)


def _show_validity(request: PageRequest, trace_id: str) -> HttpResponse:
    if not Span.objects.of_trace(trace_id).exists():
        raise Http404(f"no span of the trace {trace_id} is stored")
    context = {"trace_id": trace_id} | _describe_reports(span_store.trace_validity(trace_id))
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


PER_PAGE = 50
ANY, INCORRECT = "any", "incorrect"


CONVERSATIONS = ListKind(
    "conversations", gettext_lazy("conversation,conversations"), gettext_lazy("Search questions"), words="text"
)


@dataclass(frozen=True, slots=True)
class Feedback:
    """How often people called an answer correct and incorrect, and how often they said something."""

    correct: int = 0
    incorrect: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """first: its oldest run. cost: of the runs whose cost is known, `priced` of them; None where there are none."""

    name: str
    first: QueryRun
    questions: int
    began: datetime
    ended: datetime
    failed: int
    declined: int
    cost: float | None
    priced: int
    slowest: float | None
    took: float | None
    feedback: Feedback


def show_conversations(request: PageRequest) -> HttpResponse:
    """The one asked last first; text=, collection=, channel=, feedback=.

    id= is one conversation, 404 without a run that the reader may see.
    """
    if name := request.GET.get("id", ""):
        return _show_one(request, name)
    titles = collection_titles(request)
    feedback = [(ANY, gettext("With feedback")), (INCORRECT, gettext("Incorrect"))]
    filters = [
        Filter("collection", gettext("Collection"), titles.items(), free=True),
        Filter("channel", gettext("Channel"), QueryRun.Channel.choices),
        Filter("feedback", gettext("Feedback"), feedback),
    ]
    stated = read_filters(request.GET, [Filter("text", CONVERSATIONS.search, free=True), *filters])
    listing = list_page(request, CONVERSATIONS, _matching(stated.texts).by_conversation(), filters)
    context = listing.context() | {"level": "conversations", "rows": read_conversations(list(listing.page))}
    parts = {"conversations": "evaluation/parts/conversations.html"}
    return render_page(request, "evaluation/activity.html", context, parts=parts)


def _matching(wanted: Mapping[str, Any]) -> QueryRunQuerySet:
    """All runs of the conversations in which one run matches, so that figures are of whole conversations."""
    rows = QueryRun.objects.of_conversations()
    if not wanted:
        return rows
    found = rows.filtered(RunFilter(**{name: value for name, value in wanted.items() if name != "feedback"}))
    if chosen := wanted.get("feedback"):
        given = ReviewTask.objects.filter(reason=ReviewTask.FEEDBACK, query_run__isnull=False)
        if chosen == INCORRECT:
            given = given.filter(reviews__verdicts__correctness=0)
        found = found.filter(pk__in=given.values("query_run"))
    return rows.filter(conversation_id__in=found.values("conversation_id"))


def read_conversations(rows: Sequence[Mapping[str, Any]]) -> list[Conversation]:
    """Of rows of `by_conversation`, in their order. Three queries."""
    names = [row["conversation_id"] for row in rows]
    runs = QueryRun.objects.filter(conversation_id__in=names)
    oldest = runs.for_lists().order_by("conversation_id", "created_at", "id").distinct("conversation_id")
    first = {run.conversation_id: run for run in oldest}
    feedback = _count_feedback(runs)
    return [
        Conversation(
            name=name,
            first=first[name],
            feedback=feedback.get(name, Feedback()),
            **{key: value for key, value in row.items() if key != "conversation_id"},
        )
        for name, row in zip(names, rows, strict=True)
        if name in first
    ]


def _count_feedback(runs: QueryRunQuerySet) -> dict[str, Feedback]:
    """By conversation; those without feedback are left out."""
    tasks = ReviewTask.objects.filter(reason=ReviewTask.FEEDBACK)
    given = runs.filter(pk__in=tasks.values("query_run")).order_by()
    belongs: dict[UUID, str] = dict(given.values_list("pk", "conversation_id"))
    counts: dict[str, list[Any]] = {}
    for review in Review.objects.filter(task__query_run__in=belongs, task__reason=ReviewTask.FEEDBACK).values_list(
        "task__query_run", "verdicts__correctness"
    ):
        if review[0] in belongs:
            counts.setdefault(belongs[review[0]], []).append(review[1])
    return {name: Feedback(values.count(1), values.count(0), len(values)) for name, values in counts.items()}


def _show_one(request: PageRequest, name: str) -> HttpResponse:
    """Its runs, oldest first."""
    runs = QueryRun.objects.filter(conversation_id=name) if can_be_stored(name) else QueryRun.objects.none()
    rows = read_conversations(list(runs.by_conversation()))
    if not rows:
        raise Http404
    page = page_of(request, runs.for_lists().order_by("created_at", "id"), PER_PAGE)
    given = Review.objects.filter(task__query_run__in=[run.pk for run in page], task__reason=ReviewTask.FEEDBACK)
    said: dict[Any, list[Review]] = {}
    for review in given.select_related("task").order_by("created_at", "id"):
        said.setdefault(review.task.query_run, []).append(review)
    context = {
        "conversation": rows[0],
        "page": page,
        "turns": [(run, said.get(run.pk, [])) for run in page],
        "thread": _thread(request, name),
    }
    return render_page(request, "evaluation/conversation.html", context)


def _thread(request: PageRequest, name: str) -> ChatThread | None:
    """Of the chat, where the conversation is one that the reader may open."""
    try:
        return ChatThread.objects.readable_by(request.user).filter(pk=UUID(name)).first()
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class RunSide:
    """answer: its words without Markdown, marked where the other's has others. more: results beyond `ranks`."""

    letter: str
    run: QueryRun
    answer: tuple[Part, ...]
    ranks: tuple[RankRow, ...]
    waterfall: Waterfall

    @property
    def total(self) -> int:
        return len(self.run.retrieved_ids)

    @property
    def more(self) -> int:
        return max(0, self.total - SHOWN_RANKS)


@needs(READ, EVALUATE, methods="GET")
def compare_query_runs(request: PageRequest, run_id: uuid.UUID, other_id: uuid.UUID) -> HttpResponse:
    """The first run of the address is B, what it is compared with is A. show=all: SQL and HTTP too."""
    after, before = (get_object_or_404(QueryRun.objects.select_related("user"), pk=pk) for pk in (run_id, other_id))
    span_store.flush_pending(after)
    shown = "" if request.GET.get("show") == "all" else "stages"
    waterfalls = [run_waterfall(run, shown=shown) for run in (before, after)]
    axis_ms = max(waterfall.total_ms for waterfall in waterfalls)
    parts = mark_words(strip_marks(before.answer or ""), strip_marks(after.answer or ""))
    joined = join_rankings(before.retrieved_ids, after.retrieved_ids)
    sides = [
        RunSide(
            letter,
            run,
            tuple(part for part in parts if part.kind in ("same", kind)),
            ranks,
            on_axis(waterfall, axis_ms),
        )
        for letter, run, kind, ranks, waterfall in zip(
            "AB", (before, after), ("removed", "added"), joined.ranks, waterfalls, strict=True
        )
    ]
    context = {
        "sides": sides,
        "lines": joined.lines,
        "letter": "B",
        "same_answer": before.answer == after.answer,
        "same_question": before.query == after.query,
        "settings": _changed(before.plan, after.plan),
        "shows_all": shown == "",
    }
    return render_page(request, "evaluation/query_runs_compared.html", context)


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, in A, in B) of the retrieval settings that differ."""
    names = sorted(before.keys() | after.keys())
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]
