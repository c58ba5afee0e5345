"""Whole collections as files, seen in a browser: export, import, and what became of them; proofs and checks too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect

from collections_app.access.rules import ADMINISTER, READ, WRITE, needs
from collections_app.collections.export import open_export
from collections_app.collections.forms import ImportForm
from collections_app.collections.import_stage import request_import
from collections_app.collections.invariants import request_check
from collections_app.http.downloads import download_response
from collections_app.http.page_requests import PageRequest, RefusalMessages, find_or_404, render_page, submit_form
from collections_app.jobs.operations import cancel_operation, may_cancel, recent_transfers
from collections_app.models import Collection, Operation

PROOF_FIRST = ("documents", "chunks", "chunk_tables")
COUNTS_FIRST = ("documents", "chunks", "sources", "revisions", "overlays")


@needs(WRITE, methods="POST")
def export(request: PageRequest, name: str) -> HttpResponseBase:
    """The download; the page that asked for it stays."""
    collection = find_or_404(Collection.objects.live(), name=name)
    with RefusalMessages(request):
        file = open_export(collection, actor=request.user)
        return download_response(request, file, file.content_type, file.name, reading=None)
    return redirect("collections:settings", name)


@needs(READ, WRITE, methods="GET")
def strip(request: PageRequest, name: str) -> HttpResponse:
    """How exports and imports of the collection fare, asked for again and again by its settings page."""
    collection = find_or_404(Collection.objects.live(), name=name)
    context = {"collection": collection, **recent_transfers(name)}
    return render_page(request, "collections/parts/transfers.html", context)


@needs(WRITE, everywhere=True, methods="GET POST")
def import_file(request: PageRequest) -> HttpResponse:
    """A file is looked at while the browser waits; a worker imports what it holds, followed on the operation's page."""
    form = ImportForm(request.POST or None, request.FILES or None)

    def save() -> HttpResponse:
        data = form.cleaned_data
        options = {field: data[field] or None for field in ("name", "embed_model", "embed_dims")}
        requested = request_import(data["file"], **options, replace=data["replace"], actor=request.user)
        return redirect("collections:operation", requested.pk)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "collections/import.html", {"form": form}, status=status)


@needs(None, methods="GET POST")
def operation(request: PageRequest, operation_id: UUID) -> HttpResponse:
    """How far an operation is, and what came of it; a POST cancels it."""
    result = get_object_or_404(Operation.objects.select_related("source__collection"), pk=operation_id)
    if request.method == "POST":
        with RefusalMessages(request):
            cancel_operation(result, actor=request.user)
        return redirect("collections:operation", operation_id)
    if result.source is not None:
        return redirect("collections:source-run", result.source.collection.name, operation_id)
    collection = Collection.objects.live().filter(name=result.subject).first() if result.subject else None
    context = {
        "operation": result,
        "collection": collection,
        "proof": _proof(result),
        "counts": _counts(result),
        "may_cancel": may_cancel(result, actor=request.user),
    }
    parts = {"operation": "collections/parts/operation.html"}
    return render_page(request, "collections/operation.html", context, parts=parts)


def _counts(results: Operation) -> list[tuple[str, int]]:
    """(what, how many) of an export or import, documents and chunks first."""
    counts = results.report.get("counts", {})
    return [(noun, counts[noun]) for noun in _ordered(counts, COUNTS_FIRST)]


def _ordered(nouns: Iterable[str], first: Sequence[str]) -> list[str]:
    """Those of `first` in its order, then the others by name."""
    return sorted(nouns, key=lambda noun: (first.index(noun) if noun in first else len(first), noun))


def _proof(results: Operation) -> list[tuple[str, int, int]]:
    """(what, before, after) of a deletion: documents and chunks first, then whatever else there was."""
    if results.kind != Operation.Kind.DELETION or "before" not in results.report:
        return []
    before, after = results.report["before"], results.report["after"]
    return [(noun, before[noun], after.get(noun, 0)) for noun in _ordered(before, PROOF_FIRST)]


@needs(ADMINISTER, everywhere=True, methods="POST")
def check(request: PageRequest) -> HttpResponse:
    """Have everything checked, or the collection that is named."""
    name = request.POST.get("collection", "")
    collection = find_or_404(Collection.objects.live(), name=name) if name else None
    return redirect("collections:operation", request_check(collection, actor=request.user).pk)
