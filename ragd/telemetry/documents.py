"""The spans that carry documents: retrieval and reranking, in three vocabularies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span, SpanKind

from ragd.telemetry import names
from ragd.telemetry.content import Value, redacted_text
from ragd.telemetry.spans import add_event, open_span, reach_stage, set_attributes
from ragd.types import Candidate, Filters, canonical_json

SNIPPET_CHARS = 200


@contextmanager
def retrieve_span(
    *,
    query: str,
    top_k: int,
    index: str | None = None,
    filters: Filters | None = None,
    database: str = names.DATABASE,
    embedding_model: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Iterator[Span]:
    """Retrieval as a whole: `rag.retrieve {database}`. Call `record_results` before it closes; 0 results until then.

    metadata: facts of the search without any text of a user, such as its mode and its pool.
    """
    reach_stage("retrieve")
    attributes: dict[str, Value | None] = {
        names.RETRIEVE_DATABASE: database, names.RAG_QUERY: query, names.RETRIEVE_INDEX: index,
        names.RETRIEVE_TOP_K: top_k,
        names.RETRIEVE_FILTER: canonical_json(filters.as_dict()) if filters else None, names.RETRIEVE_RESULTS_COUNT: 0,
        names.OI_KIND: "RETRIEVER", names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.OPERATION_NAME: "retrieval", names.DATA_SOURCE_ID: index, names.RETRIEVAL_QUERY_TEXT: query,
        names.REQUEST_TOP_K: top_k, names.REQUEST_MODEL: embedding_model, names.DB_SYSTEM_NAME: "postgresql",
        names.METADATA: canonical_json(dict(metadata)) if metadata else None,
    }  # fmt: skip
    with open_span(f"{names.RETRIEVE} {database}", SpanKind.CLIENT, attributes) as span:
        yield span


CELLS = "cells"  # of a chunk's attributes: an entry for each line, too long for a span


def record_results(span: Span, candidates: Sequence[Candidate]) -> None:
    """Put the retrieved documents on a retrieve span, best first, in all three vocabularies. Empty: a count of 0.

    A document's metadata is that of its chunk, and what the chunk's attributes say besides.
    """
    if not span.is_recording():
        return
    attributes: dict[str, Value | None] = {names.RETRIEVE_RESULTS_COUNT: len(candidates)}
    index = str((getattr(span, "attributes", None) or {}).get(names.RETRIEVE_INDEX) or "")
    documents = [(item, _provenance(item, index)) for item in candidates]
    attributes[names.RETRIEVAL_DOCS] = canonical_json(
        [
            {"id": _doc_id(item), "score": _unit(item), "snippet": _snippet(item), "provenance": origin}
            for item, origin in documents
        ]
    )
    scored = canonical_json([{"id": _doc_id(item), "score": _unit(item)} for item in candidates])
    attributes |= {
        names.RETRIEVAL_DOCUMENTS: scored,
        names.OUTPUT_VALUE: scored,
        names.OUTPUT_MIME_TYPE: "application/json",
    }
    if candidates:
        scores = [_unit(item) for item in candidates]
        attributes |= {names.RETRIEVE_MIN_SCORE: min(scores), names.RETRIEVE_MAX_SCORE: max(scores)}
    set_attributes(span, attributes | _documents(names.OI_RETRIEVAL_DOCUMENTS, candidates))
    for rank, (item, origin) in enumerate(documents, 1):
        add_event(span, names.DOC_RETRIEVED, _document_event(item, origin, rank))


def _doc_id(candidate: Candidate) -> str:
    return f"{candidate.doc_id}#{candidate.chunk_index}"


def _snippet(candidate: Candidate) -> str:
    return redacted_text(candidate.content)[:SNIPPET_CHARS]


def _unit(candidate: Candidate) -> float:
    return min(1.0, max(0.0, float(candidate.unit_score)))


def _provenance(candidate: Candidate, index: str) -> str:
    source = candidate.metadata.get("source")
    if isinstance(source, str) and source:
        return source
    return f"{index}/{candidate.doc_id}" if index else candidate.doc_id


def _documents(prefix: str, candidates: Sequence[Candidate]) -> dict[str, Value | None]:
    attributes: dict[str, Value | None] = {}
    for number, item in enumerate(candidates):
        base = f"{prefix}.{number}.document"
        attributes[f"{base}.id"] = _doc_id(item)
        attributes[f"{base}.content"] = item.content
        attributes[f"{base}.score"] = _unit(item)
        known = {name: value for name, value in item.attributes.items() if name != CELLS}
        attributes[f"{base}.metadata"] = json.dumps(known | dict(item.metadata), sort_keys=True, default=str)
    return attributes


def _document_event(candidate: Candidate, provenance: str, rank: int) -> dict[str, Value | None]:
    event: dict[str, Value | None] = {
        names.DOC_ID: _doc_id(candidate), names.DOC_SCORE: _unit(candidate), names.DOC_PROVENANCE: provenance,
        names.DOC_RANK: rank, names.DOC_SCORE_RAW: float(candidate.score), names.DOC_SCORE_KIND: candidate.score_kind,
    }  # fmt: skip
    for name, list_rank in candidate.ranks.items():
        event[f"{names.DOC_LIST}.{name}.rank"] = list_rank.rank
        event[f"{names.DOC_LIST}.{name}.score"] = float(list_rank.score)
    return event


@contextmanager
def rerank_span(*, model: str, query: str, candidates: Sequence[Candidate], top_k: int | None = None) -> Iterator[Span]:
    """Reranking: `rag.rerank {model}`. Call `record_reranked` before it closes; an output count of 0 until then."""
    reach_stage("rerank", len(candidates))
    attributes: dict[str, Value | None] = {
        names.RERANK_MODEL: model, names.RERANK_INPUT_COUNT: len(candidates), names.RERANK_OUTPUT_COUNT: 0,
        names.RAG_QUERY: query, names.OI_KIND: "RERANKER",
        names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.OI_RERANKER_MODEL: model, names.OI_RERANKER_QUERY: query,
        names.OI_RERANKER_TOP_K: top_k or len(candidates),
    }  # fmt: skip
    with open_span(f"{names.RERANK} {model}", SpanKind.CLIENT, attributes) as span:
        if span.is_recording():
            set_attributes(span, _documents(names.OI_RERANKER_INPUT, candidates))
        yield span


def record_reranked(span: Span, candidates: Sequence[Candidate]) -> None:
    """Put the reranked documents on a rerank span, best first."""
    if span.is_recording():
        set_attributes(
            span, {names.RERANK_OUTPUT_COUNT: len(candidates)} | _documents(names.OI_RERANKER_OUTPUT, candidates)
        )
