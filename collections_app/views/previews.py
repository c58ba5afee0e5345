"""The one place for chunking: a policy tried on a document or a sample, then applied to it, to new ones or to all."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from collections_app.domain.passages import ChunkSpan, compare_pieces
from collections_app.errors import ServiceError
from collections_app.http.page_requests import (
    PageRequest,
    find_or_404,
    is_part,
    page_number,
    pages_around,
    refuse,
    render_page,
)
from collections_app.models import Document
from collections_app.policies import policy_for, policy_of
from collections_app.services.chunks.chunk_preview import Preview, PreviewChunk, preview_collection, preview_document
from collections_app.services.collections.collections import update_collection
from collections_app.services.documents.edits import edit_document
from collections_app.views.collections import find_collection
from collections_app.views.forms.collections import POLICY_FIELDS, ChunkPolicyFields
from ragd.errors import RagdError

CHUNKS_PER_PAGE = 40


@require_http_methods(["GET", "POST"])
def preview(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """A document under a policy that is tried; a POST makes it the document's own, with `reset` the collection's."""
    collection = find_collection(name)
    document = find_or_404(Document.objects.defer("text"), collection=collection, doc_id=doc_id)
    form = _form(request, policy_of(collection, document))
    status, result = 200, None
    if form.is_valid():
        try:
            if request.method == "POST":
                own = {} if "reset" in request.POST else form.chunk_policy()
                edit_document(collection, doc_id, {"chunk_policy": own}, actor=request.user)
                said = (
                    gettext("%(name)s now has its own chunking policy.")
                    if own
                    else gettext("%(name)s has the chunking policy of the collection again.")
                )
                messages.success(request, said % {"name": document.name})
                return redirect("collections:document", name, doc_id)
            result = preview_document(collection, document, form.chunk_policy())
        except (ServiceError, RagdError) as error:
            status = refuse(form, error)
    else:
        status = 422
    context = {
        "collection": collection,
        "document": document,
        "form": form,
        "preview": result,
        "query": _stated_query(form) if result else "",
    } | (_window(request, result) if result else {})
    parts = {"preview": "collections/parts/preview.html"}
    status = 200 if is_part(request, parts) else status
    return render_page(request, "collections/preview.html", context, parts=parts, status=status)


@require_http_methods(["GET", "POST"])
def preview_sample(request: PageRequest, name: str) -> HttpResponse:
    """A few documents of a collection under a policy that is tried; a POST makes it that of new documents."""
    collection = find_collection(name)
    form = _form(request, policy_for(collection))
    sample, status = None, 200
    if form.is_valid():
        try:
            if request.method == "POST":
                update_collection(collection, changes={"chunk_policy": form.chunk_policy()}, actor=request.user)
                messages.success(request, gettext("The chunking policy applies to new documents from now on."))
                return redirect("collections:preview-sample", name)
            sample = preview_collection(collection, form.chunk_policy())
        except (ServiceError, RagdError) as error:
            status = refuse(form, error)
    else:
        status = 422
    context = {
        "collection": collection,
        "form": form,
        "sample": sample,
        "is_usual": bool(sample) and form.chunk_policy() == policy_for(collection).as_dict(),
        "own_policies": collection.documents.exclude(chunk_policy_stated={}).count(),
        "tab": "chunking",
        "query": _stated_query(form) if sample else "",
    }
    parts = {"preview": "collections/parts/preview_sample.html"}
    status = 200 if is_part(request, parts) else status
    return render_page(request, "collections/preview_sample.html", context, parts=parts, status=status)


class TryPolicyForm(ChunkPolicyFields):
    """The fields of a policy that is tried; all filled in, so that what is changed is seen."""


def _form(request: PageRequest, usual: Any) -> TryPolicyForm:
    provided = request.POST if request.method == "POST" else request.GET
    values = usual.as_dict() | {field: provided[field] for field in POLICY_FIELDS if field in provided}
    return TryPolicyForm(values)


def _stated_query(form: TryPolicyForm) -> str:
    return urlencode({name: value for name, value in form.cleaned_data.items() if value not in (None, "")})


def _window(request: PageRequest, preview: Preview) -> dict[str, Any]:
    """The chunks of one page with the text that they are of, under both cuts."""
    total = max(1, -(-len(preview.then) // CHUNKS_PER_PAGE))
    number = min(page_number(request), total)
    first = (number - 1) * CHUNKS_PER_PAGE
    page_chunks = preview.then[first : first + CHUNKS_PER_PAGE]
    following = preview.then[first + CHUNKS_PER_PAGE :]
    start = page_chunks[0].start if first else 0
    end = max([following[0].start if following else preview.chars, *(position.end for position in page_chunks)])
    cut = [position for position in preview.now if position.start < position.end]  # what was added by hand has no edge
    now = [position for position in cut if start <= position.start < end]
    return {
        "pieces": compare_pieces(preview.text[start:end], start, _spans(page_chunks), _spans(now)),
        "shown": page_chunks,
        "total": total,
        **pages_around(number, has_more=number < total),
        "edges": len(cut),
        "stay": len(
            {position.start for position in cut}
            & {position.start for position in preview.then if position.start < position.end}
        ),
    }


def _spans(positions: Any) -> list[ChunkSpan]:
    listed: list[PreviewChunk] = list(positions)
    return [ChunkSpan(position.index, position.start, position.end) for position in listed]
