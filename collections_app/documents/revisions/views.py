"""Earlier revisions of a document on pages: the list, one of them, the difference of two, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext

from collections_app.access.rules import READ, WRITE, needs
from collections_app.chunks.preview import ChunkSpan, cut_pieces
from collections_app.collections.views import find_document
from collections_app.documents.edits import is_busy, roll_back
from collections_app.documents.files import has_pages
from collections_app.documents.revisions.services import (
    any_revision,
    compare_revisions,
    find_revision,
    has_present_text,
    present_revision,
    revision_places,
    revision_text,
    revisions_kept,
    rollback_changes,
)
from collections_app.errors import ServiceError
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    page_number,
    page_of,
    render_page,
    tell,
    whole_number,
)
from collections_app.models import Document, DocumentRevision

PER_PAGE = 50
CHUNKS_PER_PAGE = 40
CHANGES_PER_PAGE = 40
CHOICES_MAX = 200


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One state of a document. reason and by: what made it of the one before; "" where that is not known."""

    revision: DocumentRevision
    reason: str
    by: str
    present: bool
    chars_more: int | None
    chunks_more: int | None
    has_before: bool


@needs(READ, WRITE, methods="GET")
def history(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Every revision that is kept, the present one first."""
    collection, document = find_document(name, doc_id)
    rows = DocumentRevision.objects.listed().of_document(collection.pk, doc_id)
    page = page_of(request, rows, PER_PAGE)
    stored = list(page)
    newer = (
        [present_revision(document)]
        if page.number == 1
        else list(rows[page.start_index() - 2 : page.start_index() - 1])
    )
    following = list(rows[page.end_index() : page.end_index() + 1])
    states = [*newer, *stored, *following]
    first = 0 if page.number == 1 else 1
    last = len(newer) + len(stored)
    context = {
        "collection": collection,
        "document": document,
        "part": "history",
        "page": page,
        "rows": [_history_row(states, number, document) for number in range(first, last)],
        "kept_most": revisions_kept(collection),
        "is_busy": is_busy(collection, doc_id),
    }
    return render_page(request, "collections/revisions.html", context)


def _history_row(states: list[DocumentRevision], number: int, document: Document) -> HistoryRow:
    state = states[number]
    before = states[number + 1] if number + 1 < len(states) else None
    return HistoryRow(
        revision=state,
        reason=before.reason if before else "",
        by=before.replaced_by if before else "",
        present=state.revision == document.revision,
        chars_more=state.size_chars - before.size_chars if before else None,
        chunks_more=state.chunk_count - before.chunk_count if before else None,
        has_before=before is not None,
    )


@needs(READ, WRITE, methods="GET")
def revision(request: PageRequest, name: str, number: int, doc_id: str) -> HttpResponse:
    """The text of a revision, to be read; ?start=&end= marks a cited place."""
    collection, document = find_document(name, doc_id)
    result = _or_404(document, number)
    cited = cited_span(request.GET, result.size_chars)
    chunk_places = revision_places(document, number)
    total = max(1, -(-len(chunk_places) // CHUNKS_PER_PAGE))
    shown_page = min(_page_number(request, chunk_places, cited), total)
    first = (shown_page - 1) * CHUNKS_PER_PAGE
    page_chunks = chunk_places[first : first + CHUNKS_PER_PAGE]
    start = page_chunks[0].start if page_chunks and first else 0
    end = (
        chunk_places[first + CHUNKS_PER_PAGE].start
        if first + CHUNKS_PER_PAGE < len(chunk_places)
        else result.size_chars
    )
    end = max([end, *(position.end for position in page_chunks)])
    spans = [ChunkSpan(position.index, position.start, position.end) for position in page_chunks]
    context = {
        "collection": collection,
        "document": document,
        "revision": result,
        "part": "history",
        "present": number == document.revision,
        "has_pages": has_pages(result),
        "cited": cited,
        "pieces": cut_pieces(revision_text(document, number, start, end), start, spans, cited),
        "page_number": shown_page,
        "page_total": total,
    }
    return render_page(request, "collections/revision.html", context)


def _page_number(request: PageRequest, positions: list[Any], cited: tuple[int, int] | None) -> int:
    if cited is not None:
        holders = [number for number, position in enumerate(positions) if position.start <= cited[0]]
        return (holders[-1] if holders else 0) // CHUNKS_PER_PAGE + 1
    return page_number(request)


@needs(READ, WRITE, methods="GET")
def difference(request: PageRequest, name: str, before: int, after: int, doc_id: str) -> HttpResponse:
    """What differs between two revisions: fields, then chunks with their words marked."""
    collection, document = find_document(name, doc_id)
    numbers = DocumentRevision.objects.of_document(collection.pk, doc_id).values_list("revision", flat=True)
    context: dict[str, Any] = {
        "collection": collection,
        "document": document,
        "part": "history",
        "before": before,
        "after": after,
        "numbers": [document.revision, *numbers[:CHOICES_MAX]],
    }
    status = 200
    try:
        result = compare_revisions(document, before, after)
    except ServiceError as error:
        status = error.status
        context["problem"] = error.message
    else:
        context["difference"] = result
        context["page"] = Paginator(result.chunks.changes, CHANGES_PER_PAGE).get_page(request.GET.get("page"))
    return render_page(request, "collections/difference.html", context, status=status)


@needs(WRITE, methods="GET POST")
def rollback(request: PageRequest, name: str, number: int, doc_id: str) -> HttpResponse:
    """Ask, then make the document what it was."""
    collection, document = find_document(name, doc_id)
    if request.method == "POST":
        with RefusalMessages(request):
            outcome = roll_back(collection, doc_id, number, actor=request.user)
            text = gettext("Rolled back to revision %(number)s (now revision %(revision)s).")
            if outcome.unchanged:
                text = gettext("No changes: %(doc_id)s already has the content of revision %(number)s.")
            values = {"doc_id": doc_id, "number": number, "revision": outcome.revision}
            return tell(request, text % values, "collections:document", name, doc_id)
        return redirect(reverse("collections:document", args=[name, doc_id], query={"view": "history"}))
    result = _or_404(document, number, earlier=True)
    context = {
        "collection": collection,
        "document": document,
        "revision": result,
        "next_number": document.revision + 1,
        "policy_changes": rollback_changes(collection, document, result),
        "is_busy": is_busy(collection, doc_id),
    }
    return render_page(request, "collections/rollback.html", context)


def _or_404(document: Document, number: int, *, earlier: bool = False) -> DocumentRevision:
    try:
        return find_revision(document, number) if earlier else any_revision(document, number)
    except ServiceError as error:
        raise Http404(error.message) from None


def cited_elsewhere(query: QueryDict, document: Document) -> tuple[str | None, int | None]:
    """(address, number) for an address that cites a place (?start=&end=&revision=) of an earlier revision.

    address: of the place in that revision, where it is kept and had another text. number: of the revision, where it is
    not kept any more, so that nobody can tell whether the place has moved. (None, None): the place is here.
    """
    number, start, end = (whole_number(query.get(name)) for name in ("revision", "start", "end"))
    if number is None or start is None or end is None or number == document.revision:
        return None, None
    rows = DocumentRevision.objects.of_document(document.collection_id, document.doc_id)
    if not rows.filter(revision=number).exists():
        return None, number
    if has_present_text(document, number):
        return None, None
    place = {"view": "revision", "number": number, "start": start, "end": end}
    return reverse("collections:document", args=[document.collection.name, document.doc_id], query=place), None


def cited_span(query: QueryDict, size_chars: int) -> tuple[int, int] | None:
    """start and end of the address when they name a place inside a text of this size, else None."""
    start, end = whole_number(query.get("start")), whole_number(query.get("end"))
    if start is None or end is None or not 0 <= start < end or start >= size_chars:
        return None
    return start, min(end, size_chars)
