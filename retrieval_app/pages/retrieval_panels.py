"""Who retrieved a chunk or a document: lists that the pages of both include by their address."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from collections_app.models import Collection, Document
from retrieval_app.runs.lineage import RUNS_SHOWN, count_retrievals, runs_of_chunk, runs_of_document

PART = "retrieval/parts/retrieved.html"
PARTS = {"retrieved": PART, "retrieved-document": PART}  # a chunk may be shown over the page of its document


@require_GET
def of_chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The last runs that retrieved a chunk, those of earlier revisions marked."""
    return _show(request, name, doc_id, index)


@require_GET
def of_document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The last runs that retrieved any chunk of a document."""
    return _show(request, name, doc_id, None)


def _show(request: PageRequest, name: str, doc_id: str, index: int | None) -> HttpResponse:
    collection = get_object_or_404(Collection.objects.live(), name=name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    runs = runs_of_document(collection, doc_id) if index is None else runs_of_chunk(collection, doc_id, index)
    context = {
        "collection": collection,
        "document": document,
        "index": index,
        "runs": runs,
        "tally": count_retrievals(collection, doc_id, index),
        "most": RUNS_SHOWN,
    }
    return render_page(request, "retrieval/retrieved.html", context, parts=PARTS)
