"""OCSF events, one a line: 7001 model inference, 7004 data retrieval, 7005 security finding.

Of a trace, the calls of models are 7001, the stages of retrieval 7004, and each finding on any span is a 7005. Spans of
other kinds (requests, statements, the steps of an ingest) are no event. `schemas/` says what each class holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from evaluation_app.spans.exports.context import RunContext, context_key, read_contexts
from evaluation_app.spans.exports.ocsf_base import Event
from evaluation_app.spans.exports.ocsf_findings import finding_events
from evaluation_app.spans.exports.ocsf_inference import inference_event
from evaluation_app.spans.exports.ocsf_retrieval import retrieval_event
from evaluation_app.spans.exports.records import SpanRecord
from ragd import telemetry

Maker = Callable[[SpanRecord, RunContext], Event]

MAKERS: Mapping[str, Maker] = {
    telemetry.CHAT: inference_event,
    "text_completion": inference_event,
    telemetry.EMBEDDINGS: inference_event,
    telemetry.PIPELINE: retrieval_event,
    telemetry.QUERY: retrieval_event,
    telemetry.RETRIEVE: retrieval_event,
    telemetry.RERANK: retrieval_event,
    telemetry.EVALUATE: retrieval_event,
}


def write_ocsf(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """A line per event, a piece per batch; what stands on other spans of the runs is read with each batch."""
    for batch in batches:
        contexts = read_contexts(batch)
        events = (event for record in batch for event in span_events(record, contexts[context_key(record)]))
        yield "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)


def span_events(record: SpanRecord, context: RunContext) -> Iterator[Event]:
    """The events of one span: that of its kind, if it has one, then its findings in their order."""
    maker = MAKERS.get(record.name.partition(" ")[0])
    if maker is not None:
        yield maker(record, context)
    yield from finding_events(record, context)
