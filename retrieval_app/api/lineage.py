"""Who retrieved a chunk or a document, over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.params import functions as param

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.fields import DocId, Instant
from collections_app.http.auth import BearerAuth
from collections_app.services.chunks.neighbours import find_chunk
from collections_app.services.documents.documents import get_document
from retrieval_app.runs.lineage import (
    RUNS_SHOWN,
    Retrievals,
    RetrievedBy,
    count_retrievals,
    retrieval_counts,
    runs_of_chunk,
    runs_of_document,
)

router = Router(auth=BearerAuth(), tags=["runs"])

RUNS_MAX = 1000


class RetrievedItem(Schema):
    run_id: UUID
    query: str
    kind: str
    status: str
    channel: str
    created_at: datetime
    rank: int = Field(description="of the best chunk")
    chunk_index: int
    chunks: int = Field(description="how many chunks of the document the run retrieved")
    cited: bool
    revision: int = Field(description="of the document then")
    generation: int


class RetrievedList(Schema):
    runs: int = Field(description="stored runs in all, those that are not listed too")
    cited: int = Field(description="runs whose answer cites it")
    last_at: datetime | None
    items: list[RetrievedItem] = Field(description="newest first")


class DocumentCount(Schema):
    doc_id: str
    runs: int
    cited: int
    last_at: datetime


class DocumentCounts(Schema):
    items: list[DocumentCount] = Field(description="documents that were retrieved, most often first, then by doc_id")


@router.get(
    "/collections/{collection}/retrieved/{int:chunk_index}/{doc:doc_id}",
    operation_id="chunks-runs",
    response={200: RetrievedList, **ERRORS},
)
def list_runs_of_chunk(
    request: HttpRequest,
    collection: str,
    chunk_index: int,
    doc_id: DocId,
    limit: int = param.Query(RUNS_SHOWN, ge=1, le=RUNS_MAX),
) -> Any:
    """The stored runs that retrieved a chunk, whatever it said then."""
    target = find_collection(request, collection)
    find_chunk(target, doc_id, chunk_index)
    return _answer(
        count_retrievals(target, doc_id, chunk_index), runs_of_chunk(target, doc_id, chunk_index, limit=limit)
    )


@router.get(
    "/collections/{collection}/retrieved",
    operation_id="documents-runs",
    response={200: RetrievedList | DocumentCounts, **ERRORS},
)
def list_runs_of_document(
    request: HttpRequest,
    collection: str,
    doc_id: DocId | None = None,
    since: Instant | None = None,
    limit: int = param.Query(RUNS_SHOWN, ge=1, le=RUNS_MAX),
) -> Any:
    """The stored runs that retrieved a document; without doc_id, how often each document was retrieved."""
    target = find_collection(request, collection)
    if doc_id is None:
        counts = retrieval_counts(target, since=since)
        ordered = sorted(counts.items(), key=lambda item: (-item[1].runs, item[0]))
        return {"items": [{"doc_id": name} | asdict(count) for name, count in ordered]}
    document = get_document(target, doc_id)
    runs = runs_of_document(target, document.doc_id, limit=limit)
    return _answer(count_retrievals(target, document.doc_id), runs)


def _answer(count: Retrievals, runs: list[RetrievedBy]) -> dict[str, Any]:
    return asdict(count) | {"items": runs}
