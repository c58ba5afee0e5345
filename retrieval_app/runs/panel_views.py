"""Panels that other pages include: saved plans, who retrieved a chunk or a document, documents that no run has."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from collections_app.access.rules import READ, WRITE, needs
from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from collections_app.models import Collection, Document
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.runs.lineage import (
    DAYS_MAX,
    RUNS_SHOWN,
    USUAL_DAYS,
    count_retrievals,
    list_unretrieved,
    runs_of_chunk,
    runs_of_document,
)

DAYS = (7, 30, 90, 365)
PART = "retrieval/parts/retrieved.html"
PARTS = {"retrieved": PART, "retrieved-document": PART}  # a chunk may be shown over the page of its document


@needs(READ, WRITE, methods="GET")
def plans(request: PageRequest, name: str) -> HttpResponse:
    """The saved plans of a collection, for its settings page."""
    collection = find_or_404(Collection.objects.live(), name=name)
    context = {"collection": collection, "plans": SavedPlan.objects.of(collection).by_name()}
    return render_page(request, "retrieval/plans.html", context, parts={"plans": "retrieval/parts/plans.html"})


@needs(READ, WRITE, methods="GET")
def never_retrieved(request: PageRequest, name: str) -> HttpResponse:
    """For the statistics page; days=N says how far back is looked."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    requested = request.GET.get("days", "")
    days = min(int(requested), DAYS_MAX) if requested.isdecimal() and int(requested[:6]) else USUAL_DAYS
    documents, total = list_unretrieved(collection, days)
    since = timezone.now() - timedelta(days=days)
    context = {
        "collection": collection,
        "documents": documents,
        "total": total,
        "days": days,
        "choices": DAYS,
        "runs": QueryRun.objects.filter(collection=collection, created_at__gte=since).count(),
    }
    parts = {"never-retrieved": "retrieval/parts/never_retrieved.html"}
    return render_page(request, "retrieval/never_retrieved.html", context, parts=parts)


@needs(READ, WRITE, methods="GET")
def of_chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The last runs that retrieved a chunk, those of earlier revisions marked."""
    return _show(request, name, doc_id, index)


@needs(READ, WRITE, methods="GET")
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
