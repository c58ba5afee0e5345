"""OCSF events, one a line: 7001 model inference, 7004 data retrieval, 7005 security finding.

Of a trace, the calls of models are 7001, the stages of retrieval 7004, and each finding on any span is a 7005. Spans of
other kinds (requests, statements, the steps of an ingest) are no event. `schemas/` says what each class holds.

Controls of an event's kind and those of each field that it recorded are kept apart, because the sources that name them
differ: a mapper of events names controls per kind of event, the span tables name them per field, and where both speak
they do not agree.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from evaluation_app.telemetry.evidence.report import controls_of_row
from evaluation_app.telemetry.exports.records import RunContext, SpanRecord, context_key, read_contexts
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.conventions.tables import Field
from ragd.security import FAMILIES
from ragd.version import product_version

INFERENCE = "model_inference"
RETRIEVAL = "data_retrieval"
FINDING = "security_finding"

EVENT_CONTROLS: Mapping[str, Mapping[str, Mapping[str, list[str]]]] = tomllib.loads(
    Path(__file__).with_name("event_controls.toml").read_text(encoding="utf-8")
)
Event = dict[str, Any]

VERSION = "1.1.0"
CATEGORY = (7, "AI System Activity")
NAMESPACE = UUID("5f1f9c1e-7a0e-5d51-9d0c-7a0b5a9b7c11")  # of the events' ids
INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL = 1, 2, 3, 4, 5
SEVERITIES = {1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical"}
STATUSES = {0: "Unknown", 1: "Success", 2: "Failure"}
STATUS_IDS = {"UNSET": 0, "OK": 1, "ERROR": 2}
RESOURCE_UID = 10  # of the types of observables
PROVIDER = "ragd"


def event_controls(kind: str) -> dict[str, Any]:
    """The compliance object of one kind of event: framework -> its controls. A fresh copy."""
    return {
        framework: {name: list(numbers) for name, numbers in controls.items()}
        for framework, controls in EVENT_CONTROLS[kind].items()
    }


def field_controls(record: SpanRecord) -> dict[str, dict[str, list[str]]]:
    """framework -> control -> the fields that this span recorded and that name it, both sorted. {}: none."""
    result: dict[str, dict[str, set[str]]] = {}
    for row in recorded_rows(record):
        for framework, number in controls_of_row(row):
            result.setdefault(framework, {}).setdefault(number, set()).add(row.name)
    return {
        framework: {number: sorted(names) for number, names in sorted(controls.items())}
        for framework, controls in sorted(result.items())
    }


def recorded_rows(record: SpanRecord) -> Iterator[Field]:
    """The rows of the normative tables of which the span, or an event on it, holds a value."""
    if record.table is None:
        return
    for row in record.table.fields:
        holders = record.named_events(row.event) if row.event else [record.attributes]
        if any(holder.get(row.name) is not None for holder in holders):
            yield row
    for event in TABLES.events:
        if event.span_type == record.table.type:
            holders = record.named_events(event.name)
            yield from (row for row in event.fields if any(holder.get(row.name) is not None for holder in holders))


@dataclass(frozen=True, slots=True)
class EventClass:
    """uid: 7001. kind: its row of the controls per event. activities: activity_id -> name."""

    uid: int
    name: str
    kind: str
    activities: Mapping[int, str]


def base_event(
    record: SpanRecord,
    context: RunContext,
    event_class: EventClass,
    activity: int,
    *,
    severity: int | None = None,
    index: str = "",
) -> Event:
    """The fields of every class. An error is a failure of medium severity. index: tells several events of one span
    apart; the id of an event depends on its span alone, so that a second export gives the same ids."""
    severity_id = severity or (MEDIUM if record.has_failed else INFORMATIONAL)
    status_id = STATUS_IDS.get(record.status_code, 0)
    activity_name, time = event_class.activities[activity], record.started_at.isoformat()
    event: Event = {
        "activity_id": activity,
        "activity_name": activity_name,
        "category_uid": CATEGORY[0],
        "category_name": CATEGORY[1],
        "class_uid": event_class.uid,
        "class_name": event_class.name,
        "type_uid": event_class.uid * 100 + activity,
        "type_name": f"{event_class.name}: {activity_name}",
        "time": time,
        "start_time": time,
        "end_time": record.ended_at.isoformat(),
        "duration": round(record.duration_ms, 3),
        "severity_id": severity_id,
        "severity": SEVERITIES[severity_id],
        "status_id": status_id,
        "status": STATUSES[status_id],
        "message": record.name,
        "metadata": {
            "version": VERSION,
            "product": {"name": "ragd", "vendor_name": "ragd", "version": product_version()},
            "uid": str(uuid5(NAMESPACE, f"{record.trace_id}:{record.span_id}:{event_class.uid}:{index}")),
            "correlation_uid": record.trace_id,
            "original_time": time,
            "logged_time": record.ended_at.isoformat(),
        },
        "actor": _actor(record, context),
        "compliance": event_controls(event_class.kind),
        "field_compliance": field_controls(record),
        "unmapped": _unmapped(record),
    }
    if record.has_failed:
        event["status_code"] = str(record.attributes.get(telemetry.ERROR_TYPE) or "error")
        event["status_detail"] = record.status_description
    return event


def _actor(record: SpanRecord, context: RunContext) -> dict[str, Any]:
    """Who asked, as far as the trace tells: the user, the session, the label of the API key."""
    names = {"uid": telemetry.USER_ID, "credential_uid": telemetry.API_KEY, "session": telemetry.SESSION_ID}
    user = {name: str(value) for name, own in names.items() if (value := find_value(record, context, own)) is not None}
    session = user.pop("session", None)
    actor = {"app_name": record.service or "ragd", "user": user or None}
    return present(actor | {"session": None if session is None else {"uid": session}})


def find_value(record: SpanRecord, context: RunContext, name: str) -> Any:
    value = record.attributes.get(name)
    return context.find(name) if value is None else value


def _unmapped(record: SpanRecord) -> dict[str, Any]:
    """Where the event comes from: what OCSF has no field for."""
    values = {
        "span_id": record.span_id,
        "parent_span_id": record.parent_span_id,
        "span_kind": record.kind,
        "run_id": record.run_id,
        "collection": record.collection,
        "channel": record.attributes.get(telemetry.CHANNEL),
    }
    return {name: value for name, value in values.items() if value}


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None: an optional field is there or it is not."""
    return {name: value for name, value in values.items() if value is not None}


def number(attributes: Mapping[str, Any], name: str) -> float | None:
    """A double, None when it is missing or no number."""
    value = attributes.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def count(attributes: Mapping[str, Any], name: str) -> int:
    """An integer, 0 when it is missing."""
    value = attributes.get(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def first_text(holders: Sequence[Mapping[str, Any]], name: str) -> str | None:
    """The first of these that has the name, as text."""
    return next((str(holder[name]) for holder in holders if holder.get(name) is not None), None)


INFERENCE_CLASS = EventClass(
    7001,
    "AI Model Inference",
    INFERENCE,
    {1: "Chat", 2: "Text Completion", 3: "Embedding Generation", 4: "Image", 5: "Audio", 99: "Other"},
)
OPERATIONS = {"chat": 1, "text_completion": 2, "embeddings": 3}
NO_REASON = "not_applicable"  # an embeddings call has no finish reason
PARAMETERS = (
    telemetry.REQUEST_MAX_TOKENS, telemetry.REQUEST_TEMPERATURE, telemetry.REQUEST_TOP_P, telemetry.REQUEST_TOP_K,
    telemetry.REQUEST_STOP_SEQUENCES, telemetry.REQUEST_FREQUENCY_PENALTY, telemetry.REQUEST_PRESENCE_PENALTY,
    telemetry.REQUEST_SEED, telemetry.REQUEST_TOOL_CHOICE, telemetry.REQUEST_RESPONSE_FORMAT,
    telemetry.REQUEST_ENCODING_FORMAT, telemetry.REQUEST_DIMENSIONS,
)  # fmt: skip


def inference_event(record: SpanRecord, context: RunContext) -> Event:
    """A chat, text_completion or embeddings span as an event of class 7001."""
    attributes = record.attributes
    operation = str(attributes.get(telemetry.OPERATION_NAME) or record.name.partition(" ")[0])
    event = base_event(record, context, INFERENCE_CLASS, OPERATIONS.get(operation, 99))
    event |= {
        "model": _model(record, operation),
        "token_usage": _usage(record),
        "latency": _latency(record),
        "streaming": bool(attributes.get(telemetry.REQUEST_STREAM, False)),
        "tools_provided": _tools_count(attributes.get(telemetry.REQUEST_TOOLS)),
        "finish_reason": _finish_reason(record, operation),
    }
    event |= present(
        {
            "request_content": _request(record),
            "response_content": first_text([*record.named_events(telemetry.CONTENT_COMPLETION)], telemetry.COMPLETION),
            "response_uid": attributes.get(telemetry.RESPONSE_ID),
            "system_prompt_hash": attributes.get(telemetry.SYSTEM_PROMPT_HASH),
            "endpoint": _endpoint(record),
            "cost": _cost(record),
            "risk_score": number(attributes, telemetry.SECURITY_RISK_SCORE),
        }
    )
    if record.has_failed:
        event["error"] = {
            "type": str(attributes.get(telemetry.ERROR_TYPE) or "error"),
            "message": record.status_description,
        }
    return event


def _model(record: SpanRecord, operation: str) -> dict[str, Any]:
    attributes = record.attributes
    model = str(attributes.get(telemetry.REQUEST_MODEL) or "unknown")
    parameters = {name.rpartition(".")[2]: attributes[name] for name in PARAMETERS if attributes.get(name) is not None}
    return {
        "model_id": model,
        "name": model,
        "version": str(attributes.get(telemetry.RESPONSE_MODEL) or model),
        "provider": str(attributes.get(telemetry.GEN_AI_SYSTEM) or "unknown"),
        "type": "embedding" if operation == "embeddings" else "llm",
        "parameters": parameters,
    }


def _usage(record: SpanRecord) -> dict[str, Any]:
    """Tokens; the total is the sum. estimated: the provider did not report them."""
    attributes = record.attributes
    provided, made = count(attributes, telemetry.USAGE_INPUT_TOKENS), count(attributes, telemetry.USAGE_OUTPUT_TOKENS)
    usage = {
        "input_tokens": provided,
        "output_tokens": made,
        "total_tokens": provided + made,
        "cached_tokens": count(attributes, telemetry.USAGE_CACHED_TOKENS),
        "reasoning_tokens": count(attributes, telemetry.USAGE_REASONING_TOKENS),
        "estimated": bool(attributes.get(telemetry.USAGE_ESTIMATED, False)),
    }
    return usage | present({"estimated_cost_usd": number(attributes, telemetry.COST_TOTAL)})


def _latency(record: SpanRecord) -> dict[str, Any]:
    attributes = record.attributes
    total = number(attributes, telemetry.LATENCY_TOTAL_MS)
    return {"total_ms": record.duration_ms if total is None else total} | present(
        {
            "time_to_first_token_ms": number(attributes, telemetry.LATENCY_FIRST_TOKEN_MS),
            "tokens_per_second": number(attributes, telemetry.LATENCY_TOKENS_PER_SECOND),
            "queue_time_ms": number(attributes, telemetry.LATENCY_QUEUE_MS),
            "inference_time_ms": number(attributes, telemetry.LATENCY_INFERENCE_MS),
        }
    )


def _cost(record: SpanRecord) -> dict[str, Any] | None:
    """US dollars; None for a model that has no price, which is not a price of zero."""
    total = number(record.attributes, telemetry.COST_TOTAL)
    if total is None:
        return None
    return {"total_cost_usd": total, "currency": "USD"} | present(
        {
            "input_cost_usd": number(record.attributes, telemetry.COST_INPUT),
            "output_cost_usd": number(record.attributes, telemetry.COST_OUTPUT),
        }
    )


def _finish_reason(record: SpanRecord, operation: str) -> str:
    """The first one; "error" for a call that failed without any."""
    reasons = record.attributes.get(telemetry.RESPONSE_FINISH_REASONS)
    if isinstance(reasons, list | tuple) and reasons:
        return str(reasons[0])
    if record.has_failed:
        return "error"
    return NO_REASON if operation == "embeddings" else "unknown"


def _request(record: SpanRecord) -> str | None:
    """The prompt, or the texts of an embeddings call, as far as the span holds them."""
    prompt = first_text(record.named_events(telemetry.CONTENT_PROMPT), telemetry.PROMPT)
    if prompt is not None:
        return prompt
    texts = [
        str(value)
        for name, value in record.attributes.items()
        if name.startswith(f"{telemetry.OI_EMBEDDINGS}.") and name.endswith(".embedding.text")
    ]
    return "\n".join(texts) if texts else None


def _endpoint(record: SpanRecord) -> dict[str, Any] | None:
    host = record.attributes.get(telemetry.SERVER_ADDRESS)
    if host is None:
        return None
    return {"hostname": str(host)} | present({"port": record.attributes.get(telemetry.SERVER_PORT)})


def _tools_count(tools: Any) -> int:
    try:
        read = json.loads(tools) if isinstance(tools, str) else []
    except ValueError:
        return 0
    return len(read) if isinstance(read, list) else 0


RETRIEVAL_CLASS = EventClass(
    7004,
    "AI Data Retrieval",
    RETRIEVAL,
    {
        1: "Vector Search", 2: "Document Retrieval", 3: "Knowledge Graph Query", 4: "Embedding Generation",
        5: "Reranking", 99: "Other",
    },
)  # fmt: skip
VECTOR_SEARCH, DOCUMENT_RETRIEVAL, EMBEDDING, RERANKING, OTHER = 1, 2, 4, 5, 99
DATABASE_TYPE = "postgresql"
DOCUMENT = re.compile(r"\.(\d+)\.document\.(id|score)$")


def retrieval_event(record: SpanRecord, context: RunContext) -> Event:
    """A pipeline, query, retrieve, rerank or evaluate span as an event of class 7004.

    What a stage does not say itself (the database, the count of results, the scores of the answer) comes from the
    other stages of its run. A pipeline that failed before it retrieved has 0 results of the server's own database.
    """
    stage = record.name.partition(" ")[0]
    event = base_event(record, context, RETRIEVAL_CLASS, activity_of(record, context))
    facts = _rerank_facts(record) if stage == telemetry.RERANK else _stage_facts(record, context, stage)
    # that of the root is the last stage reached; a stage is named by itself
    event |= {
        "database_name": str(find_value(record, context, telemetry.RETRIEVE_DATABASE) or telemetry.DATABASE),
        "database_type": str(record.attributes.get(telemetry.DB_SYSTEM_NAME) or DATABASE_TYPE),
        "query": record.attributes.get(telemetry.RAG_QUERY),
        "filter": record.attributes.get(telemetry.RETRIEVE_FILTER),
        "embedding_model": find_value(record, context, telemetry.QUERY_EMBEDDING_MODEL),
        "embedding_dimensions": find_value(record, context, telemetry.QUERY_EMBEDDING_DIMENSIONS),
        "pipeline_name": find_value(record, context, telemetry.PIPELINE_NAME) or record.collection or None,
        "pipeline_stage": str(record.attributes.get(telemetry.PIPELINE_STAGE) or stage.removeprefix("rag.")),
        "index": find_value(record, context, telemetry.RETRIEVE_INDEX) or record.collection or None,
        "quality_scores": _quality(record, context),
        "risk_score": number(record.attributes, telemetry.SECURITY_RISK_SCORE),
        **facts,
    }
    documents = _documents(record, stage)
    event["observables"] = [
        {"name": f"documents[{index}].id", "type": "Resource UID", "type_id": RESOURCE_UID, "value": item["id"]}
        for index, item in enumerate(documents)
    ]
    event["enrichments"] = [
        {
            "name": f"documents[{index}]",
            "type": "retrieved_document",
            "value": item["id"],
            "data": item,
            "provider": PROVIDER,
        }
        for index, item in enumerate(documents)
    ]
    return present(event)


def activity_of(record: SpanRecord, context: RunContext) -> int:
    """1 where vectors were compared, 2 where words alone decided, 4 where the question was embedded, 5 reranking.

    A retrieval of whose stages none is stored counts as a vector search when it names a model.
    """
    stage = record.name.partition(" ")[0]
    if stage == telemetry.RETRIEVE:
        if record.span_id in context.vector_parents:
            return VECTOR_SEARCH
        known = bool(context.attributes)
        return DOCUMENT_RETRIEVAL if known or not record.attributes.get(telemetry.REQUEST_MODEL) else VECTOR_SEARCH
    if stage == telemetry.QUERY:
        return EMBEDDING if record.attributes.get(telemetry.QUERY_EMBEDDING_MODEL) else OTHER
    return RERANKING if stage == telemetry.RERANK else OTHER


def _stage_facts(record: SpanRecord, context: RunContext, stage: str) -> dict[str, Any]:
    """How many were asked for and found, and their scores. The preparation of a question finds nothing itself."""
    if stage == telemetry.QUERY:
        return {"results_count": 0}
    names = (telemetry.RETRIEVE_RESULTS_COUNT, telemetry.RETRIEVE_MIN_SCORE, telemetry.RETRIEVE_MAX_SCORE)
    values = {name: find_value(record, context, name) for name in names}
    return {
        "top_k": find_value(record, context, telemetry.RETRIEVE_TOP_K),
        "results_count": count(values, telemetry.RETRIEVE_RESULTS_COUNT),
        "min_score": number(values, telemetry.RETRIEVE_MIN_SCORE),
        "max_score": number(values, telemetry.RETRIEVE_MAX_SCORE),
    }


def _rerank_facts(record: SpanRecord) -> dict[str, Any]:
    scores = [item["score"] for item in _documents(record, telemetry.RERANK) if "score" in item]
    return {
        "top_k": record.attributes.get(telemetry.OI_RERANKER_TOP_K),
        "results_count": count(record.attributes, telemetry.RERANK_OUTPUT_COUNT),
        "input_count": count(record.attributes, telemetry.RERANK_INPUT_COUNT),
        "rerank_model": record.attributes.get(telemetry.RERANK_MODEL),
        "min_score": min(scores, default=None),
        "max_score": max(scores, default=None),
    }


def _quality(record: SpanRecord, context: RunContext) -> dict[str, float] | None:
    """The scores of the answer: those on the span itself, else those that its run has. None: not scored."""
    own = {short: number(record.attributes, name) for short, name in telemetry.QUALITY_NAMES.items()}
    return present(own) or context.quality or None


def _documents(record: SpanRecord, stage: str) -> list[dict[str, Any]]:
    """The documents that came out, best first: {id, score?, rank, provenance?}."""
    if stage == telemetry.RETRIEVE:
        return [_from_event(values, rank) for rank, values in _events(record)]
    return _flattened(record.attributes, telemetry.OI_RERANKER_OUTPUT) if stage == telemetry.RERANK else []


def _events(record: SpanRecord) -> list[tuple[int, Mapping[str, Any]]]:
    events = record.named_events(telemetry.DOC_RETRIEVED)
    return [(rank, values) for rank, values in enumerate(events, 1) if values.get(telemetry.DOC_ID) is not None]


def _from_event(values: Mapping[str, Any], rank: int) -> dict[str, Any]:
    return {"id": str(values[telemetry.DOC_ID]), "rank": rank} | present(
        {"score": number(values, telemetry.DOC_SCORE), "provenance": values.get(telemetry.DOC_PROVENANCE)}
    )


def _flattened(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """`<prefix>.N.document.id` and `.score` as a list in the order of N."""
    result: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        match = DOCUMENT.search(name) if name.startswith(f"{prefix}.") else None
        if match and value is not None:
            result.setdefault(int(match[1]), {})[match[2]] = str(value) if match[2] == "id" else float(value)
    return [item | {"rank": position + 1} for position, item in sorted(result.items()) if "id" in item]


FINDING_CLASS = EventClass(
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
    refused = values.get(telemetry.SECURITY_GUARDRAIL_RESULT) == "fail"
    event = base_event(record, context, FINDING_CLASS, activity, severity=RISK_SEVERITIES[level], index=str(index))
    event |= {
        "finding_type": str(values.get(telemetry.SECURITY_THREAT_TYPE) or KINDS[activity]),
        "risk_level": level,
        "risk_score": score,
        "confidence": 1.0 if confidence is None else confidence,
        "detection_method": str(
            values.get(telemetry.SECURITY_METHOD) or ("guardrail" if activity == GUARDRAIL else PATTERN)
        ),
        "blocked": bool(values.get(telemetry.SECURITY_BLOCKED, False)) or refused,
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
