"""Whether stored spans are what the conventions say: of a run, of a trace, of any spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluation_app.models import Span
from evaluation_app.spans import run_spans, span_dict
from ragd.conventions import Report, validate, validate_all
from retrieval_app.models import QueryRun


def run_validity(run: QueryRun) -> Report:
    """The run's spans against the normative tables, those that judged it later in traces of their own among them.

    A run without stored spans gives an empty report.
    """
    spans = run_spans(run)
    known = {span.pk for span in spans}
    return spans_validity([*spans, *(span for span in Span.objects.of_run(run.pk) if span.pk not in known)])


def trace_validity(trace_id: str) -> Report:
    """The same for every span of a trace, an ingest among them; "" and an unknown one give an empty report."""
    return spans_validity(list(Span.objects.of_trace(trace_id)))


def spans_validity(spans: Sequence[Span]) -> Report:
    return validate([span_dict(span) for span in spans])


def vocabularies_validity(spans: Sequence[Span]) -> Mapping[str, Report]:
    """One report per vocabulary, by its name: AITF, OpenInference, OpenTelemetry GenAI."""
    return validate_all([span_dict(span) for span in spans])
