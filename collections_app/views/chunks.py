"""Single chunks changed by hand, the changes of a document, and the nearest neighbours of a chunk."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, find_or_404, next_address, render_page
from collections_app.models import Chunk, Collection
from collections_app.services.chunks.chunk_edits import (
    ChunkChange,
    add_chunk,
    attach_overlay,
    edit_chunk,
    list_overlays,
    remove_overlay,
    set_chunk_enabled,
)
from collections_app.services.chunks.neighbours import nearest_chunks
from collections_app.views.collections import find_document
from collections_app.views.forms.collections import ChunkChangeForm
from collections_app.views.reading import show_chunk
from ragd.errors import RagdError

SAID = {
    "edit": gettext_lazy("Chunk %(index)s edited."),
    "add": gettext_lazy("Chunk added."),
    "disable": gettext_lazy("Chunk %(index)s disabled."),
    "enable": gettext_lazy("Chunk %(index)s enabled."),
    "attach": gettext_lazy("Edit attached to chunk %(index)s."),
    "undo": gettext_lazy("Edit reverted."),
}


@require_POST
def change(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """Edit, add behind, disable, enable, undo, attach; then back to where it was asked, at the chunk."""
    collection, document = find_document(name, doc_id)
    form = ChunkChangeForm(request.POST)
    if not form.is_valid():
        return show_chunk(
            request, collection, document, index, refused=str(next(iter(form.errors.values()))[0]), status=422
        )
    data = form.cleaned_data
    try:
        chunk_change = _change(request, collection, doc_id, index, data)
    except (ServiceError, RagdError) as error:
        status, body = describe(error)
        if data["action"] in ("edit", "add") and not request.htmx:
            return show_chunk(request, collection, document, index, refused=body["error"]["message"], status=status)
        messages.error(request, body["error"]["message"])
        return _back(request, reverse("collections:document", args=[name, doc_id]))
    messages.success(request, _say(collection, data["action"], index, chunk_change))
    return _back(request, _address(name, chunk_change))


def _change(
    request: PageRequest, collection: Collection, doc_id: str, index: int, values: dict[str, Any]
) -> ChunkChange:
    action, user = values["action"], request.user
    if action == "undo":
        return remove_overlay(collection, doc_id, values["overlay_id"] or 0, actor=user)
    if action == "attach":
        target = values["target"]
        return attach_overlay(
            collection, doc_id, values["overlay_id"] or 0, -1 if target is None else target, actor=user
        )
    options = {"revision": values["revision"], "actor": user}
    if action == "edit":
        return edit_chunk(collection, doc_id, index, values["content"], **options)
    if action == "add":
        return add_chunk(collection, doc_id, values["content"], after=index, **options)
    return set_chunk_enabled(collection, doc_id, index, enabled=action == "enable", **options)


def _say(collection: Collection, action: str, index: int, chunk_change: ChunkChange) -> SafeString | str:
    """What was done; a change that is new can be undone from there."""
    if not chunk_change.changed:
        return gettext("Chunk %(index)s: no changes.") % {"index": index}
    message = SAID[action] % {"index": chunk_change.chunk_index if action == "attach" else index}
    if action in ("attach", "undo") or chunk_change.overlay_id is None or chunk_change.before is not None:
        return message
    return format_html(
        '{} <button type="button" class="button small" hx-post="{}" hx-vals="{}" hx-swap="none">{}</button>',
        message,
        reverse("collections:chunk-change", args=[collection.name, index, chunk_change.doc_id]),
        f'{{"action": "undo", "overlay_id": {chunk_change.overlay_id}}}',
        gettext("Undo"),
    )


def _address(name: str, chunk_change: ChunkChange) -> str:
    address = reverse("collections:document", args=[name, chunk_change.doc_id])
    return (
        address
        if chunk_change.chunk_index is None
        else f"{address}?chunk={chunk_change.chunk_index}#chunk-{chunk_change.chunk_index}"
    )


def _back(request: PageRequest, otherwise: str) -> HttpResponse:
    address = next_address(request, otherwise)
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


@require_GET
def overlays(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Every change of a document's chunks; those whose text is gone can be attached elsewhere or removed."""
    collection, document = find_document(name, doc_id)
    context = {"collection": collection, "document": document, "overlays": list_overlays(collection, doc_id)}
    return render_page(request, "collections/overlays.html", context)


@require_GET
def neighbours(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The chunks nearest to one; ?others=1 leaves its own document out."""
    collection, document = find_document(name, doc_id)
    chunk = find_or_404(Chunk.objects.of(collection).light(), doc_id=doc_id, chunk_index=index)
    others = request.GET.get("others") == "1"
    result = nearest_chunks(collection, doc_id, index, other_documents=others)
    context = {
        "collection": collection,
        "document": document,
        "chunk": chunk,
        "neighbours": result,
        "others": others,
    }
    parts = {"neighbours": "collections/parts/neighbours.html"}
    return render_page(request, "collections/neighbours.html", context, parts=parts)
