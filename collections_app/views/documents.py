"""Documents of a collection: the table, what is added to it, and changes to many at once."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.errors import ServiceError, describe
from collections_app.forms import DOCUMENT_SORTS, BulkForm, DocumentFilterForm, TextForm
from collections_app.models import Collection, Document
from collections_app.pages import PageRequest, next_address, page_of, refuse, render_page
from collections_app.policies import policy_for
from collections_app.querysets import DocumentQuerySet
from collections_app.services.documents import (
    delete_documents,
    ingest_text,
    reindex_documents,
    set_documents_enabled,
)
from collections_app.templatetags.interface import counted
from collections_app.views.collections import find_collection
from collections_app.views.jobs import active_jobs
from ragd.errors import RagdError

DOCUMENTS_PER_PAGE = 50


@require_GET
def list_documents(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    form = DocumentFilterForm(request.GET)
    form.is_valid()
    sort = request.GET.get("sort", "")
    sort = sort if sort in DOCUMENT_SORTS else "-updated"
    rows = _filtered(collection, form.cleaned_data).listed().order_by(*DOCUMENT_SORTS[sort])
    context = {
        "collection": collection,
        "tab": "documents",
        "form": form,
        "sort": sort,
        "page": page_of(request, rows, DOCUMENTS_PER_PAGE),
        "is_filtered": any(form.cleaned_data.values()),
        "present_policy": policy_for(collection).as_dict(),
    } | active_jobs(collection)
    parts = {"documents": "collections/parts/documents.html"}
    return render_page(request, "collections/documents.html", context, parts=parts)


def _filtered(collection: Collection, wanted: dict[str, Any]) -> DocumentQuerySet:
    rows: DocumentQuerySet = Document.objects.filter(collection=collection).matching(wanted.get("q", ""))
    if wanted.get("tag"):
        rows = rows.tagged([wanted["tag"]])
    if wanted.get("enabled"):
        rows = rows.filter(enabled=wanted["enabled"] == "yes")
    return rows


@require_http_methods(["GET", "POST"])
def write_text(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    form = TextForm(request.POST or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            given = form.cleaned_data
            try:
                outcome = ingest_text(
                    collection,
                    given["doc_id"],
                    given["content"],
                    title=given["title"],
                    tags=given["tags"],
                    metadata=given["metadata"],
                    source="page",
                    actor=request.user,
                )
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
            else:
                messages.success(request, _describe_outcome(given["doc_id"], outcome))
                return redirect("collections:document", name, given["doc_id"])
    context = {"collection": collection, "form": form, "tab": "documents"}
    return render_page(request, "collections/text.html", context, status=status)


def _describe_outcome(doc_id: str, outcome: Any) -> str:
    if outcome.unchanged:
        return f"{doc_id} had the same text already; nothing was changed."
    return f"{doc_id} was indexed as {counted(outcome.chunks_written, 'chunk')}."


@require_http_methods(["GET", "POST"])
def change_documents(request: PageRequest, name: str) -> HttpResponse:
    """Enable, disable, re-index or delete the chosen documents. Deleting asks first, with counts; a GET only asks."""
    collection = find_collection(name)
    if request.method == "GET":
        return confirm_delete(request, collection, request.GET.getlist("doc_id"))
    form = BulkForm(request.POST)
    doc_ids = request.POST.getlist("doc_id")
    back = next_address(request, collection_address(collection))
    if not form.is_valid() or not doc_ids:
        messages.warning(request, "Choose documents first, then what to do with them.")
        return redirect(back)
    action = form.cleaned_data["action"]
    if action == "delete" and not form.cleaned_data["confirmed"]:
        return confirm_delete(request, collection, doc_ids)
    try:
        said = _change(request, collection, action, doc_ids)
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["error"]["message"])
    else:
        messages.success(request, said)
    return redirect(back)


def _change(request: PageRequest, collection: Collection, action: str, doc_ids: list[str]) -> str:
    if action == "delete":
        gone = delete_documents(collection, doc_ids, actor=request.user)
        return f"{counted(gone['documents'], 'document')} deleted with {counted(gone['chunks'], 'chunk')}."
    if action == "reindex":
        jobs = reindex_documents(collection, doc_ids, actor=request.user)
        return f"{counted(len(jobs), 'document')} will be indexed again."
    changed = set_documents_enabled(collection, doc_ids, enabled=action == "enable", actor=request.user)
    return f"{counted(changed, 'document')} {action}d."


def confirm_delete(request: PageRequest, collection: Collection, doc_ids: list[str]) -> HttpResponse:
    documents = list(Document.objects.filter(collection=collection, doc_id__in=doc_ids).listed().by_doc_id())
    if not documents:
        raise Http404("none of these documents is in the collection")
    context = {
        "collection": collection,
        "documents": documents,
        "chunk_total": sum(document.chunk_count for document in documents),
        "next": next_address(request, collection_address(collection)),
    }
    return render_page(request, "collections/delete_documents.html", context)


def collection_address(collection: Collection) -> str:
    return reverse("collections:detail", args=[collection.name])
