"""Which spans tell of an ingest job and of a document."""

from __future__ import annotations

from collections.abc import Sequence

from collections_app.models import Collection, IngestJob
from evaluation_app.models import Span
from evaluation_app.span_facts import JOB_ID, facts_of, with_facts
from evaluation_app.waterfall import SPANS_READ, Waterfall, build_waterfall, tree_of, walk_tree

INGESTS_SHOWN = 5


def job_trace_id(job: IngestJob) -> str:
    """The trace that the job was sent in, from its W3C traceparent; "" for a job that was made without one."""
    parts = job.traceparent.split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""


def job_waterfall(job: IngestJob, *, words: str = "", shown: str = "") -> Waterfall:
    """The job's own spans: an upload of many files is one trace, of which this is a part. Empty: none is stored."""
    return build_waterfall(job_spans(job), words=words, shown=shown)


def job_spans(job: IngestJob) -> list[Span]:
    """Those that name the job, with all that stands in them, each attempt of its own, by start."""
    spans = list(with_facts(Span.objects.of_trace(job_trace_id(job)))[:SPANS_READ])
    return _below(spans, [span for span in spans if facts_of(span).get(JOB_ID) == str(job.pk)])


def _below(spans: Sequence[Span], tops: Sequence[Span]) -> list[Span]:
    children = tree_of(spans)
    ids = {
        span.span_id
        for top in tops
        for span, _ in walk_tree({None: [top], **{key: value for key, value in children.items() if key is not None}})
    }
    return [span for span in spans if span.span_id in ids]


def traces_of_document(collection: Collection, doc_id: str) -> list[tuple[IngestJob, Waterfall]]:
    """The last jobs about a document whose spans are stored, newest first, with what they did."""
    jobs = IngestJob.objects.filter(collection=collection, doc_id=doc_id).exclude(traceparent="")
    found = [(job, job_waterfall(job)) for job in jobs.order_by("-created_at", "-id")[:INGESTS_SHOWN]]
    return [(job, waterfall) for job, waterfall in found if waterfall.rows]
