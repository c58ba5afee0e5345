"""Which spans tell of an ingest job and of a document."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from collections_app.models import Collection, IngestJob
from evaluation_app.models import Span
from evaluation_app.pages.traces.span_usage import CHUNKS_COUNT, facts_of, with_facts
from evaluation_app.pages.traces.waterfall import SPANS_READ, Waterfall, build_waterfall, tree_of, walk_tree
from ragd.telemetry import names

INGESTS_SHOWN = 5
TRACES_READ = 20  # more attempts than a job has


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
    asked = {job_id for span in spans if (job_id := _read_id(facts_of(span).get(names.JOB_ID)))}
    jobs = set(IngestJob.objects.filter(pk__in=asked).values_list("pk", flat=True))
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
