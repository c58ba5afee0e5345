"""Documents of a collection: the table, one document beside its chunks, one chunk, and changes to many at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db.models import F, QuerySet
from django.db.models.functions import Substr
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.errors import ServiceError, describe
from collections_app.forms import DOCUMENT_SORTS, BulkForm, DocumentFilterForm, TextForm, UploadForm
from collections_app.models import Chunk, Collection, Document
from collections_app.pages import PageRequest, find_or_404, next_address, page_of, refuse, render_page
from collections_app.passages import ChunkSpan, Piece, cut_pieces
from collections_app.policies import policy_for
from collections_app.querysets import DocumentQuerySet
from collections_app.services.documents import (
    delete_documents,
    ingest_text,
    reindex_documents,
    set_documents_enabled,
    submit_uploads,
)
from collections_app.templatetags.interface import counted
from collections_app.views.collections import find_collection
from collections_app.views.jobs import active_jobs
from ragd.errors import RagdError

DOCUMENTS_PER_PAGE = 50
CHUNKS_PER_PAGE = 40


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
def upload(request: PageRequest, name: str) -> HttpResponse:
    """Files in, one line per file out. A script sends them in small requests and asks for the lines alone."""
    collection = find_collection(name)
    form = UploadForm(request.POST or None, request.FILES or None)
    outcomes: list[Any] = []
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            given = form.cleaned_data
            try:
                outcomes = submit_uploads(
                    collection, given["uploads"], tags=given["tags"], metadata=given["metadata"], actor=request.user
                )
                status = 200
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    context = {
        "collection": collection,
        "form": form,
        "outcomes": outcomes,
        "tab": "documents",
        "limit_mb": settings.RAGD_MAX_DOCUMENT_MB,
    } | active_jobs(collection)
    parts = {"upload-results": "collections/parts/upload_results.html"}
    return render_page(request, "collections/upload.html", context, parts=parts, status=200 if request.htmx else status)


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


@require_GET
def document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The text with its chunks' edges beside the chunks, some chunks at a time; ?start=&end= marks a cited place."""
    collection = find_collection(name)
    found = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    cited = _cited_span(request, found)
    chunks = Chunk.objects.light().of_document(found)
    reading = _read(request, found, chunks, cited)
    cited_revision = _whole_number(request.GET.get("revision"))
    context = {
        "collection": collection,
        "document": found,
        "reading": reading,
        "cited": cited,
        "present_policy": policy_for(collection).as_dict(),
        "moved_from": cited_revision if cited and cited_revision not in (None, found.revision) else None,
    }
    return render_page(request, "collections/document.html", context)


@dataclass(frozen=True, slots=True)
class Reading:
    """One page of a document: pieces of text and the chunks over them. number counts from 1."""

    number: int
    total: int
    pieces: list[Piece]
    chunks: list[Chunk]

    @property
    def cited_chunks(self) -> set[int]:
        return {index for piece in self.pieces if piece.cited for index in piece.chunks}

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.total else None


def _read(request: PageRequest, document: Document, chunks: QuerySet[Chunk], cited: tuple[int, int] | None) -> Reading:
    total = max(1, -(-document.chunk_count // CHUNKS_PER_PAGE))
    number = min(_page_number(request, chunks, cited), total)
    first = (number - 1) * CHUNKS_PER_PAGE
    shown = list(chunks[first : first + CHUNKS_PER_PAGE + 1])
    following = shown[CHUNKS_PER_PAGE:]
    shown = shown[:CHUNKS_PER_PAGE]
    start = shown[0].start_char if shown and first else 0
    end = following[0].start_char if following else document.size_chars
    end = max([end, *(chunk.end_char for chunk in shown)])
    spans = [ChunkSpan(chunk.chunk_index, chunk.start_char, chunk.end_char) for chunk in shown]
    return Reading(number, total, cut_pieces(_text_of(document, start, end), start, spans, cited), shown)


def _text_of(document: Document, start: int, end: int) -> str:
    """text[start:end], cut in the database: a long document stays there."""
    rows = Document.objects.filter(pk=document.pk).annotate(passage=Substr(F("text"), start + 1, max(end - start, 0)))
    return str(rows.values_list("passage", flat=True).get())


def _page_number(request: PageRequest, chunks: QuerySet[Chunk], cited: tuple[int, int] | None) -> int:
    if cited is not None:
        holders = chunks.filter(start_char__lte=cited[0]).order_by("-chunk_index")
        return (holders.values_list("chunk_index", flat=True).first() or 0) // CHUNKS_PER_PAGE + 1
    asked = _whole_number(request.GET.get("chunk"))
    if asked is not None:
        return asked // CHUNKS_PER_PAGE + 1
    return max(_whole_number(request.GET.get("page")) or 1, 1)


def _cited_span(request: PageRequest, document: Document) -> tuple[int, int] | None:
    """start and end of the address when they name a place inside the document, else None."""
    start, end = _whole_number(request.GET.get("start")), _whole_number(request.GET.get("end"))
    if start is None or end is None or not 0 <= start < end or start >= document.size_chars:
        return None
    return start, min(end, document.size_chars)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


@require_GET
def chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """One chunk with its numbers, its neighbours and, with ?start=&end=, the cited place in it."""
    collection = find_collection(name)
    found = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    shown = find_or_404(Chunk.objects.light(), collection=collection, doc_id=doc_id, chunk_index=index)
    cited = _cited_span(request, found)
    span = ChunkSpan(shown.chunk_index, shown.start_char, shown.end_char)
    context = {
        "collection": collection,
        "document": found,
        "chunk": shown,
        "pieces": cut_pieces(shown.content, shown.start_char, [span], cited),
        "size_chars": shown.end_char - shown.start_char,
        "before": index - 1 if index else None,
        "after": index + 1 if index + 1 < found.chunk_count else None,
        "tab": "documents",
    }
    return render_page(request, "collections/chunk.html", context)
