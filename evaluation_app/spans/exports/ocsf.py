"""OCSF events, one a line: 7001 model inference, 7004 data retrieval, 7005 security finding.

Of a trace, the calls of models are 7001, the stages of retrieval 7004, and each finding on any span is a 7005. Spans of
other kinds (requests, statements, the steps of an ingest) are no event. `schemas/` says what each class holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from evaluation_app.spans.exports.ocsf_base import (
    CRITICAL,
    FINDING,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    Event,
    EventClass,
    base_event,
    number,
    present,
)
from evaluation_app.spans.exports.ocsf_inference import inference_event
from evaluation_app.spans.exports.ocsf_retrieval import retrieval_event
from evaluation_app.spans.exports.records import RunContext, SpanRecord, context_key, read_contexts
from ragd import telemetry
from ragd.security import FAMILIES

CLASS = EventClass(
    7005,
    "AI Security Finding",
    FINDING,
    {1: "Threat", 2: "PII", 3: "Guardrail", 4: "Policy Violation", 5: "Anomaly", 99: "Other"},
)
THREAT, PERSONAL_DATA, GUARDRAIL = 1, 2, 3
ACTIVITIES: Mapping[str, int] = {
    telemetry.SECURITY_THREAT_DETECTED: THREAT,
    telemetry.PII_EVENT: PERSONAL_DATA,
    telemetry.SECURITY_GUARDRAIL_TRIGGERED: GUARDRAIL,
}
KINDS = {THREAT: "threat", PERSONAL_DATA: "personal_data", GUARDRAIL: "guardrail"}
RISK_SEVERITIES = {"critical": CRITICAL, "high": HIGH, "medium": MEDIUM, "low": LOW, "info": INFORMATIONAL}
LEVELS = ((90.0, "critical"), (70.0, "high"), (40.0, "medium"), (10.0, "low"), (0.0, "info"))
PERSONAL_RISK = FAMILIES["personal_data"].score  # the event of personal data states none
PATTERN = "pattern"
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


def finding_events(record: SpanRecord, context: RunContext) -> Iterator[Event]:
    """An event per finding on the span, in their order. A span without any has none."""
    for index, event in enumerate(record.events):
        activity = ACTIVITIES.get(str(event.get("name")))
        if activity is not None:
            yield _finding(record, context, activity, event.get("attributes") or {}, index)


def _finding(record: SpanRecord, context: RunContext, activity: int, values: Mapping[str, Any], index: int) -> Event:
    score = _score(record, activity, values)
    level = str(values.get(telemetry.SECURITY_RISK_LEVEL) or "")
    level = level if level in RISK_SEVERITIES else risk_level(score)
    confidence = number(values, telemetry.SECURITY_CONFIDENCE)
    event = base_event(record, context, CLASS, activity, severity=RISK_SEVERITIES[level], index=str(index))
    event |= {
        "finding_type": str(values.get(telemetry.SECURITY_THREAT_TYPE) or KINDS[activity]),
        "risk_level": level,
        "risk_score": score,
        "confidence": 1.0 if confidence is None else confidence,
        "detection_method": str(
            values.get(telemetry.SECURITY_METHOD) or ("guardrail" if activity == GUARDRAIL else PATTERN)
        ),
        "blocked": bool(values.get(telemetry.SECURITY_BLOCKED, False)) or _has_refused(values),
        "details": present(values),
    }
    event |= present(
        {
            "owasp_category": values.get(telemetry.SECURITY_OWASP),
            "guardrail_name": values.get(telemetry.SECURITY_GUARDRAIL_NAME),
            "guardrail_provider": values.get(telemetry.SECURITY_GUARDRAIL_PROVIDER),
        }
    )
    if activity == PERSONAL_DATA:
        types = values.get(telemetry.PII_TYPES)
        event["pii_types"] = [str(item) for item in types] if isinstance(types, list | tuple) else []
        event["pii_count"] = int(number(values, telemetry.PII_COUNT) or 0)
    return event


def _score(record: SpanRecord, activity: int, values: Mapping[str, Any]) -> float:
    """That of the finding; of personal data the family's; of a guardrail the risk of what it acted on."""
    own = number(values, telemetry.SECURITY_RISK_SCORE)
    if own is not None:
        return own
    if activity == PERSONAL_DATA:
        return PERSONAL_RISK
    return number(record.attributes, telemetry.SECURITY_RISK_SCORE) or 0.0


def _has_refused(values: Mapping[str, Any]) -> bool:
    return values.get(telemetry.SECURITY_GUARDRAIL_RESULT) == "fail"


def risk_level(score: float) -> str:
    """The word for a score of 0 to 100."""
    return next((word for least, word in LEVELS if score >= least), "info")


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
