"""Single chunks changed by hand, their neighbours, and the chunks of a collection that deserve a look."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from collections_app.domain.formats import counted
from collections_app.domain.outliers import FLAG_WORDS, FLAGS
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import (
    PageRequest,
    find_or_404,
    next_address,
    page_number,
    pages_around,
    render_page,
)
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
from collections_app.services.chunks.chunk_outliers import find_outliers, last_scan, scan_duplicates
from collections_app.services.chunks.finding_scan import (
    PAGE_SCAN_S,
    count_findings,
    last_finding_scan,
    list_findings,
    scan_collection,
)
from collections_app.services.chunks.neighbours import nearest_chunks
from collections_app.services.governance.security_policy import policy_of
from collections_app.views.collections import find_collection, find_document
from collections_app.views.forms.collections import ChunkChangeForm
from collections_app.views.reading import show_chunk
from ragd.errors import RagdError
from ragd.security import FAMILIES, RULES_VERSION

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


ROWS_PER_PAGE = 50
PAGE_MAX = 999_999


@require_http_methods(["GET", "POST"])
def outliers(request: PageRequest, name: str) -> HttpResponse:
    """Counts per flag and the chunks, by ?flag=; a POST looks for near-duplicates anew."""
    collection = find_collection(name)
    if request.method == "POST":
        scan = scan_duplicates(collection, actor=request.user)
        message = gettext("%(found)s found.") % {
            "found": counted(scan.found, gettext("near-duplicate,near-duplicates"))
        }
        if scan.complete:
            messages.success(request, message)
        else:
            messages.warning(request, gettext("The scan is incomplete: %(error)s.") % {"error": scan.error})
        return redirect("collections:outliers", name)
    flag = request.GET.get("flag", "")
    flag = flag if flag in FLAGS else ""
    number = min(page_number(request), PAGE_MAX)
    found = find_outliers(collection, flag, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1)
    rows, counts = (found.rows, found.counts) if found else (None, None)
    context = {
        "collection": collection,
        "tab": "outliers",
        "counts": counts,
        "links": [(each, FLAG_WORDS[each], counts.by_flag[each] if counts else None) for each in FLAGS],
        "flag": flag,
        "rows": rows[:ROWS_PER_PAGE] if rows is not None else None,
        **pages_around(number, has_more=rows is not None and len(rows) > ROWS_PER_PAGE),
        "scan": last_scan(collection),
    }
    return render_page(request, "collections/outliers.html", context)


@require_http_methods(["GET", "POST"])
def findings(request: PageRequest, name: str) -> HttpResponse:
    """Counts per family and the chunks, the riskiest first, by ?family=; a POST looks through the chunks."""
    collection = find_collection(name)
    if request.method == "POST":
        done = scan_collection(collection, seconds=PAGE_SCAN_S, actor=request.user)
        message = gettext("%(chunks)s scanned.") % {"chunks": counted(done.chunks_scanned, gettext("chunk,chunks"))}
        if done.complete:
            messages.success(request, message)
        else:
            messages.warning(
                request,
                gettext("%(message)s The scan is incomplete: resume it, or run ragd check findings.")
                % {"message": message},
            )
        return redirect("collections:findings", name)
    family = request.GET.get("family", "")
    family = family if family in FAMILIES else ""
    number = min(page_number(request), PAGE_MAX)
    rows = list_findings(collection, family, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1)
    scan = last_finding_scan(collection)
    context = {
        "collection": collection,
        "tab": "findings",
        "counts": count_findings(collection),
        "family": family,
        "rows": rows[:ROWS_PER_PAGE],
        **pages_around(number, has_more=len(rows) > ROWS_PER_PAGE),
        "scan": scan,
        "older_rules": scan is not None and scan.rules != RULES_VERSION,
        "policy": policy_of(collection),
    }
    return render_page(request, "collections/findings.html", context)
