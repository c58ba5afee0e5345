"""Earlier revisions of documents over HTTP. The doc_id stands in the query: in the path it could end as these do."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, find_collection
from collections_app.documents.revisions import services as service
from collections_app.documents.revisions.services import compare_revisions
from collections_app.documents.schemas import DifferenceAnswer, RevisionDetail, RevisionItem
from collections_app.documents.services import get_document
from collections_app.http.paging import DEFAULT_LIMIT, cut_page, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, DocId, Limit, PageOf
from collections_app.models import Document, DocumentRevision

router = Router(auth=BearerAuth(), tags=["revisions"])

REVISIONS = "/collections/{collection}/revisions"
DOC_ID = param.Query(..., description="the document's id")
AGAINST = param.Query(None, alias="with", description="the later revision; the present one when left out")


def _document(request: HttpRequest, collection: str, doc_id: str) -> Document:
    return get_document(find_collection(request, collection), doc_id)


@router.get(REVISIONS, operation_id="revisions-list", response=PageOf[RevisionItem])
def list_revisions(
    request: HttpRequest,
    collection: str,
    doc_id: DocId = DOC_ID,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The revisions of a document that are kept, newest first; the first is the present one."""
    document = _document(request, collection, doc_id)
    rows = DocumentRevision.objects.listed().of_document(document.collection_id, document.doc_id)
    page = paginate(rows, ("-revision",), limit=limit, cursor=cursor)
    present = [] if cursor else [service.present_revision(document)]
    return {"items": [*present, *page.items], "next_cursor": page.next_cursor}


@router.get(f"{REVISIONS}/{{int:number}}", operation_id="revisions-get", response=RevisionDetail)
def get_revision(request: HttpRequest, collection: str, number: int, doc_id: DocId = DOC_ID) -> Any:
    """One revision with its text."""
    document = _document(request, collection, doc_id)
    revision = service.any_revision(document, number)
    if number == document.revision:
        revision.page_map, revision.segments = document.page_map, document.segments
    else:
        maps = service.revision_maps(document, number)
        revision.page_map, revision.segments = maps["page_map"], maps["segments"]
    revision.text = service.revision_text(document, number)
    return revision


@router.get(f"{REVISIONS}/{{int:number}}/diff", operation_id="revisions-diff", response=DifferenceAnswer)
def diff_revisions(
    request: HttpRequest,
    collection: str,
    number: int,
    doc_id: DocId = DOC_ID,
    against: int | None = AGAINST,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """From this revision to another one: fields and chunks, changed chunks word by word, equal ones folded."""
    document = _document(request, collection, doc_id)
    difference = compare_revisions(document, number, document.revision if against is None else against)
    page = cut_page(difference.chunks.changes, limit=limit, cursor=cursor)
    return {
        "before": difference.before.revision,
        "after": difference.after.revision,
        "fields": difference.fields,
        "counts": difference.chunks.counts,
        "paired_by_order": difference.chunks.by_order,
        "changes": page.items,
        "next_cursor": page.next_cursor,
    }
