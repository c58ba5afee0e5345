"""Whole collections as files, seen in a browser: export, import, and what became of them; proofs and checks too."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.api.transfers import stream_export
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, refuse, render_page
from collections_app.models import Collection, Operation
from collections_app.services.collections.invariant_check import request_check
from collections_app.services.collections.operations import recent_transfers
from collections_app.services.transfer.export import open_export
from collections_app.services.transfer.import_stage import request_import
from collections_app.views.forms.collections import ImportForm
from ragd.errors import RagdError

PROOF_FIRST = ("documents", "chunks", "chunk_tables")
COUNTS_FIRST = ("documents", "chunks", "sources", "revisions", "overlays")


@require_POST
def export(request: PageRequest, name: str) -> HttpResponseBase:
    """The download; the page that asked for it stays."""
    collection = find_or_404(Collection.objects.live(), name=name)
    try:
        return stream_export(open_export(collection, actor=request.user))
    except (ServiceError, RagdError) as error:
        messages.error(request, str(error))
        return redirect("collections:settings", name)


@require_GET
def strip(request: PageRequest, name: str) -> HttpResponse:
    """How exports and imports of the collection fare, asked for again and again by its settings page."""
    collection = find_or_404(Collection.objects.live(), name=name)
    context = {"collection": collection, **recent_transfers(name)}
    return render_page(request, "collections/parts/transfers.html", context)


@require_http_methods(["GET", "POST"])
def import_file(request: PageRequest) -> HttpResponse:
    """A file is looked at while the browser waits; a worker imports what it holds, followed on the operation's page."""
    form = ImportForm(request.POST or None, request.FILES or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            options = {field: form.cleaned_data[field] or None for field in ("name", "embed_model", "embed_dims")}
            try:
                requested = request_import(
                    form.cleaned_data["file"], **options, replace=form.cleaned_data["replace"], actor=request.user
                )
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
            else:
                return redirect("collections:operation", requested.pk)
    return render_page(request, "collections/import.html", {"form": form}, status=status)


@require_GET
def operation(request: PageRequest, operation_id: UUID) -> HttpResponse:
    """One export, import, check, deletion or retention: how far it is, and what came of it."""
    result = get_object_or_404(Operation, pk=operation_id)
    collection = Collection.objects.live().filter(name=result.subject).first() if result.subject else None
    context = {"operation": result, "collection": collection, "proof": _proof(result), "counts": _counts(result)}
    parts = {"operation": "collections/parts/operation.html"}
    return render_page(request, "collections/operation.html", context, parts=parts)


def _counts(results: Operation) -> list[tuple[str, int]]:
    """(what, how many) of an export or import, documents and chunks first."""
    counts = results.report.get("counts", {})
    return [(noun, counts[noun]) for noun in sorted(counts, key=lambda noun: (_place(COUNTS_FIRST, noun), noun))]


def _place(order: tuple[str, ...], noun: str) -> int:
    return order.index(noun) if noun in order else len(order)


def _proof(results: Operation) -> list[tuple[str, int, int]]:
    """(what, before, after) of a deletion: documents and chunks first, then whatever else there was."""
    if results.kind != Operation.Kind.DELETION or "before" not in results.report:
        return []
    before, after = results.report["before"], results.report["after"]
    order = sorted(before, key=lambda noun: (_place(PROOF_FIRST, noun), noun))
    return [(noun, before[noun], after.get(noun, 0)) for noun in order]


@require_POST
def check(request: PageRequest) -> HttpResponse:
    """Have everything checked, or the collection that is named."""
    name = request.POST.get("collection", "")
    collection = find_or_404(Collection.objects.live(), name=name) if name else None
    return redirect("collections:operation", request_check(collection, actor=request.user).pk)
