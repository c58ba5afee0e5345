"""OCSF 7004, AI Data Retrieval: the search, the embedding of its question, reranking, and the query as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evaluation_app.spans.exports.ocsf_base import (
    RESOURCE_UID,
    RETRIEVAL,
    Event,
    EventClass,
    base_event,
    count,
    enrichment,
    find_value,
    number,
    observable,
    present,
)  # fmt: skip
from evaluation_app.spans.exports.records import RunContext, SpanRecord
from ragd import telemetry

CLASS = EventClass(
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
    event = base_event(record, context, CLASS, activity_of(record, context))
    facts = _rerank_facts(record) if stage == telemetry.RERANK else _stage_facts(record, context, stage)
    event |= {
        "database_name": str(find_value(record, context, telemetry.RETRIEVE_DATABASE) or telemetry.DATABASE),
        "database_type": str(record.attributes.get(telemetry.DB_SYSTEM_NAME) or DATABASE_TYPE),
        "query": record.attributes.get(telemetry.RAG_QUERY),
        "filter": record.attributes.get(telemetry.RETRIEVE_FILTER),
        "embedding_model": find_value(record, context, telemetry.QUERY_EMBEDDING_MODEL),
        "embedding_dimensions": find_value(record, context, telemetry.QUERY_EMBEDDING_DIMENSIONS),
        "pipeline_name": find_value(record, context, telemetry.PIPELINE_NAME) or record.collection or None,
        "pipeline_stage": _stage_name(record, stage),
        "index": find_value(record, context, telemetry.RETRIEVE_INDEX) or record.collection or None,
        "quality_scores": _quality(record, context),
        "risk_score": number(record.attributes, telemetry.SECURITY_RISK_SCORE),
        **facts,
    }
    documents = _documents(record, stage)
    event["observables"] = [
        observable(f"documents[{index}].id", "Resource UID", RESOURCE_UID, item["id"])
        for index, item in enumerate(documents)
    ]
    event["enrichments"] = [
        enrichment(f"documents[{index}]", "retrieved_document", item["id"], item)
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
    values = {name: find_value(record, context, name) for name in _FOUND}
    return {
        "top_k": values[telemetry.RETRIEVE_TOP_K],
        "results_count": count(values, telemetry.RETRIEVE_RESULTS_COUNT),
        "min_score": number(values, telemetry.RETRIEVE_MIN_SCORE),
        "max_score": number(values, telemetry.RETRIEVE_MAX_SCORE),
    }


_FOUND = (
    telemetry.RETRIEVE_TOP_K,
    telemetry.RETRIEVE_RESULTS_COUNT,
    telemetry.RETRIEVE_MIN_SCORE,
    telemetry.RETRIEVE_MAX_SCORE,
)


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


def _stage_name(record: SpanRecord, stage: str) -> str:
    """That of the root is the last stage reached; a stage is named by itself."""
    return str(record.attributes.get(telemetry.PIPELINE_STAGE) or stage.removeprefix("rag."))


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
