"""Whether stored spans are what the conventions say: of a run, of a trace, of any spans.

One report per vocabulary, by its name: AITF, OpenInference, OpenTelemetry GenAI. No spans give empty reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluation_app.models import Span
from evaluation_app.spans.store.span_reads import run_spans
from evaluation_app.spans.store.span_records import SpanRecord
from ragd.conventions import Report, validate_all
from retrieval_app.models import QueryRun


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
    return validate_all([SpanRecord.from_orm(span).dict() for span in spans])
