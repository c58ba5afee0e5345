"""Who retrieved a chunk or a document, and which documents no run has retrieved, over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Schema
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, find_collection
from collections_app.chunks.document_snapshot import find_chunk
from collections_app.documents.services import get_document
from collections_app.errors import WrongValueError
from collections_app.http.paging import DEFAULT_LIMIT, LIMIT_MAX
from collections_app.http.schemas import Cursor, DocId, Instant, Limit, between
from retrieval_app.runs import lineage

router = Router(auth=BearerAuth(), tags=["runs"])

RUNS_MAX = 1000


class RetrievedList(Schema):
    runs: int = Field(description="stored runs in all, those that are not listed too")
    cited: int = Field(description="runs whose answer cites it")
    last_at: datetime | None
    items: list[lineage.RetrievedBy] = Field(description="newest first")


class DocumentCount(Schema):
    doc_id: str
    runs: int
    cited: int
    last_at: datetime


class DocumentCounts(Schema):
    items: list[DocumentCount] = Field(description="documents that were retrieved, most often first, then by doc_id")


@router.get(
    "/collections/{collection}/retrieved", operation_id="documents-runs", response=RetrievedList | DocumentCounts
)
def list_runs_of_document(
    request: HttpRequest,
    collection: str,
    doc_id: DocId | None = None,
    chunk_index: int | None = None,
    since: Instant | None = None,
    limit: int = param.Query(lineage.RUNS_SHOWN, ge=1, le=RUNS_MAX),
) -> Any:
    """The stored runs that retrieved a document or one chunk of it, whatever that said then.

    Without doc_id: how often each document was retrieved.
    """
    target = find_collection(request, collection)
    if doc_id is None:
        counts = lineage.retrieval_counts(target, since=since)
        ordered = sorted(counts.items(), key=lambda item: (-item[1].runs, item[0]))
        return {"items": [{"doc_id": name} | asdict(count) for name, count in ordered]}
    doc_id = get_document(target, doc_id).doc_id
    if chunk_index is None:
        runs = lineage.runs_of_document(target, doc_id, limit=limit)
    else:
        find_chunk(target, doc_id, chunk_index)
        runs = lineage.runs_of_chunk(target, doc_id, chunk_index, limit=limit)
    return asdict(lineage.count_retrievals(target, doc_id, chunk_index)) | {"items": runs}


unretrieved_router = Router(tags=["collections"])


class NeverRetrievedPage(Schema):
    items: list[lineage.Unretrieved]
    total: int = Field(description="from the beginning of this page on")
    next_after: str | None = Field(description="the `after` of the next page")


@unretrieved_router.get(
    "/collections/{collection}/never-retrieved", operation_id="collections-never-retrieved", response=NeverRetrievedPage
)
def list_unretrieved_documents(
    request: HttpRequest,
    collection: str,
    days: Annotated[int, between(1, lineage.DAYS_MAX)] = param.Query(
        lineage.USUAL_DAYS, description="how far back is looked"
    ),
    after: Cursor = "",
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Documents that no stored run of the last days retrieved, by doc_id."""
    target = find_collection(request, collection)
    for name, value, most in (("days", days, lineage.DAYS_MAX), ("limit", limit, LIMIT_MAX)):
        if not 1 <= value <= most:
            raise WrongValueError(f"{name} must be from 1 to {most}, not {value}", name)
    items, total = lineage.list_unretrieved(target, days, after=after.replace("\x00", ""), most=limit)
    return {"items": items, "total": total, "next_after": items[-1].doc_id if total > len(items) else None}
