"""Single chunks changed by hand, their neighbours, and the chunks of a collection that deserve a look.

The one place for chunking: a policy tried on a document or a sample, then applied to it, to new ones or to all.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django_htmx.http import HttpResponseClientRedirect

from collections_app.access.rules import READ, WRITE, needs
from collections_app.chunks import edits, finding_scan
from collections_app.chunks.document_snapshot import nearest_chunks
from collections_app.chunks.finding_scan import policy_of as security_policy_of
from collections_app.chunks.outliers import find_outliers, last_scan, scan_duplicates
from collections_app.chunks.overlays import FLAG_WORDS, FLAGS
from collections_app.chunks.policies import policy_for, policy_of
from collections_app.chunks.preview import (
    ChunkSpan,
    Preview,
    PreviewChunk,
    compare_pieces,
    preview_collection,
    preview_document,
)
from collections_app.collections.forms import POLICY_FIELDS, ChunkChangeForm, ChunkPolicyFields
from collections_app.collections.services import update_collection
from collections_app.collections.views import find_collection, find_document
from collections_app.documents.edits import edit_document
from collections_app.documents.reading_views import show_chunk
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import (
    PageRequest,
    find_or_404,
    is_part,
    next_address,
    page_number,
    pages_around,
    refuse,
    render_page,
    tell,
)
from collections_app.models import Chunk, Collection, Document
from ragd.errors import RagdError
from ragd.security import FAMILIES, RULES_VERSION

SAMPLE_PARTS = {"preview": "collections/parts/preview_sample.html"}
SAID = {
    "edit": gettext_lazy("Chunk %(index)s edited."),
    "add": gettext_lazy("Chunk added."),
    "disable": gettext_lazy("Chunk %(index)s disabled."),
    "enable": gettext_lazy("Chunk %(index)s enabled."),
    "attach": gettext_lazy("Edit attached to chunk %(index)s."),
    "undo": gettext_lazy("Edit reverted."),
}


@needs(READ, WRITE, methods="POST")
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
) -> edits.ChunkChange:
    action, user = values["action"], request.user
    if action == "undo":
        return edits.remove_overlay(collection, doc_id, values["overlay_id"] or 0, actor=user)
    if action == "attach":
        target = values["target"]
        return edits.attach_overlay(
            collection, doc_id, values["overlay_id"] or 0, -1 if target is None else target, actor=user
        )
    options = {"revision": values["revision"], "actor": user}
    if action == "edit":
        return edits.edit_chunk(collection, doc_id, index, values["content"], **options)
    if action == "add":
        return edits.add_chunk(collection, doc_id, values["content"], after=index, **options)
    return edits.set_chunk_enabled(collection, doc_id, index, enabled=action == "enable", **options)


def _say(collection: Collection, action: str, index: int, chunk_change: edits.ChunkChange) -> SafeString | str:
    """What was done; a change that is new can be undone from there."""
    if not chunk_change.changed:
        return gettext("Chunk %(index)s: no changes.") % {"index": index}
    message = SAID[action] % {"index": chunk_change.chunk_index if action == "attach" else index}
    if action in ("attach", "undo") or chunk_change.overlay_id is None or chunk_change.before is not None:
        return message
    return format_html(
        '{} <button type="button" class="button small" hx-post="{}" hx-vals="{}" hx-swap="none">{}</button>',
        message,
        reverse("collections:chunk", args=[collection.name, index, chunk_change.doc_id], query={"view": "change"}),
        f'{{"action": "undo", "overlay_id": {chunk_change.overlay_id}}}',
        gettext("Undo"),
    )


def _address(name: str, chunk_change: edits.ChunkChange) -> str:
    address = reverse("collections:document", args=[name, chunk_change.doc_id])
    return (
        address
        if chunk_change.chunk_index is None
        else f"{address}?chunk={chunk_change.chunk_index}#chunk-{chunk_change.chunk_index}"
    )


def _back(request: PageRequest, otherwise: str) -> HttpResponse:
    address = next_address(request, otherwise)
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


@needs(READ, WRITE, methods="GET")
def overlays(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Every change of a document's chunks; those whose text is gone can be attached elsewhere or removed."""
    collection, document = find_document(name, doc_id)
    context = {"collection": collection, "document": document, "overlays": edits.list_overlays(collection, doc_id)}
    return render_page(request, "collections/overlays.html", context)


@needs(READ, WRITE, methods="GET")
def neighbours(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The chunks nearest to one; ?others=1 leaves its own document out."""
    collection, document = find_document(name, doc_id)
    chunk = find_or_404(Chunk.objects.of(collection).light(), doc_id=doc_id, chunk_index=index)
    others = request.GET.get("others") == "1"
    result = nearest_chunks(collection, doc_id, index, other_documents=others)
    context = {"collection": collection, "document": document, "chunk": chunk, "neighbours": result, "others": others}
    parts = {"neighbours": "collections/parts/neighbours.html"}
    return render_page(request, "collections/neighbours.html", context, parts=parts)


ROWS_PER_PAGE = 50
PAGE_MAX = 999_999


@needs(READ, WRITE, methods="GET POST")
def outliers(request: PageRequest, name: str) -> HttpResponse:
    """Counts per flag and the chunks, by ?flag=; a POST looks for near-duplicates anew."""
    collection = find_collection(name)
    if request.method == "POST":
        scan = scan_duplicates(collection, actor=request.user)
        message = gettext("%(found)s found.") % {
            "found": counted(scan.findings, gettext("near-duplicate,near-duplicates"))
        }
        if scan.report["complete"]:
            messages.success(request, message)
        else:
            messages.warning(request, gettext("The scan is incomplete: %(error)s.") % {"error": scan.report["error"]})
        return redirect("evaluation:health", name)
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


@needs(READ, WRITE, methods="GET POST")
def findings(request: PageRequest, name: str) -> HttpResponse:
    """Counts per family and the chunks, the riskiest first, by ?family=; a POST looks through the chunks."""
    collection = find_collection(name)
    if request.method == "POST":
        report = finding_scan.scan_collection(collection, seconds=finding_scan.PAGE_SCAN_S, actor=request.user).report
        count = counted(report["chunks_scanned"], gettext("chunk,chunks"))
        message = gettext("%(chunks)s scanned.") % {"chunks": count}
        if report["complete"]:
            messages.success(request, message)
        else:
            text = gettext("%(message)s The scan is incomplete: resume it, or run ragd check findings.")
            messages.warning(request, text % {"message": message})
        return redirect(reverse("evaluation:health", args=[name], query={"view": "findings"}))
    family = request.GET.get("family", "")
    family = family if family in FAMILIES else ""
    number = min(page_number(request), PAGE_MAX)
    rows = finding_scan.list_findings(collection, family, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1)
    scan = finding_scan.last_finding_scan(collection)
    context = {
        "collection": collection,
        "tab": "findings",
        "counts": finding_scan.count_findings(collection),
        "family": family,
        "rows": rows[:ROWS_PER_PAGE],
        **pages_around(number, has_more=len(rows) > ROWS_PER_PAGE),
        "scan": scan,
        "older_rules": scan is not None and scan.report["rules"] != RULES_VERSION,
        "policy": security_policy_of(collection),
    }
    return render_page(request, "collections/findings.html", context)


CHUNKS_PER_PAGE = 40


@needs(READ, WRITE, methods="GET POST")
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
                return tell(request, said % {"name": document.name}, "collections:document", name, doc_id)
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


def try_policy(request: PageRequest, collection: Collection) -> dict[str, Any]:
    """A policy that is tried on a few documents, once the address names one or the part is asked for.

    POST with do=policy makes it that of new documents, as `is_done` says. status: 422 for what cannot be tried.
    """
    form, keeps = _form(request, policy_for(collection)), request.POST.get("do") == "policy"
    has_trial = keeps or is_part(request, SAMPLE_PARTS) or any(field in request.GET for field in POLICY_FIELDS)
    context: dict[str, Any] = {"try_form": form, "is_tried": has_trial, "status": 200}
    if not has_trial:
        return context
    if not form.is_valid():
        return context | {"status": 422}
    try:
        if keeps:
            update_collection(collection, changes={"chunk_policy": form.chunk_policy()}, actor=request.user)
            messages.success(request, gettext("The chunking policy applies to new documents from now on."))
            return context | {"is_done": True}
        context["sample"] = preview_collection(collection, form.chunk_policy())
    except (ServiceError, RagdError) as error:
        return context | {"status": refuse(form, error)}
    return context | {
        "is_usual": form.chunk_policy() == policy_for(collection).as_dict(),
        "own_policies": collection.documents.exclude(chunk_policy_stated={}).count(),
        "query": _stated_query(form),
    }


class TryPolicyForm(ChunkPolicyFields):
    """The fields of a policy that is tried; all filled in, so that what is changed is seen."""


def _form(request: PageRequest, usual: Any) -> TryPolicyForm:
    provided = request.POST if request.method == "POST" else request.GET
    values = usual.as_dict() | {field: provided[field] for field in POLICY_FIELDS if field in provided}
    return TryPolicyForm(values, auto_id="try_%s")


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
