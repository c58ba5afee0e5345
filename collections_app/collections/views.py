"""Collections: the list, making one, its settings, its statistics, its end.

Whole collections as files, seen in a browser: export, import, and what became of them; proofs and checks too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.db.models import Max, OuterRef, Subquery
from django.db.models.fields.json import KT
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext

from collections_app.access.context import current_access, using_access
from collections_app.access.rules import ADMINISTER, READ, WRITE, needs
from collections_app.access.services import access_of_user
from collections_app.chunks.policies import resolve_policy
from collections_app.collections import deletion, forms, services
from collections_app.collections.export import open_export
from collections_app.collections.import_stage import request_import
from collections_app.collections.invariants import request_check
from collections_app.collections.retention_periods import kept_for
from collections_app.http.downloads import download_response
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    next_address,
    render_page,
    submit_form,
    tell,
)
from collections_app.index.builder import index_progress
from collections_app.index.measurements import measurements_of, submit_measurement
from collections_app.index.stores import embedder_for
from collections_app.jobs.operations import cancel_operation, may_cancel, recent_transfers
from collections_app.models import Collection, Document, IngestJob, Operation
from collections_app.templatetags.interface import THEMES

YEAR_S = 365 * 24 * 3600
SWITCHER_ROWS = 30
CREATED_WITH = ("name", "title", "description", "hybrid_enabled", "language", "embed_model", "embed_dims", "open_role")


def find_collection(name: str) -> Collection:
    """The live collection of that name with its counts, or 404."""
    return find_or_404(Collection.objects.live().with_counts(), name=name)


def find_document(name: str, doc_id: str) -> tuple[Collection, Document]:
    """(the live collection of that name with its counts, its document as lists show it), or 404."""
    collection = find_collection(name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    document.collection = collection
    return collection, document


@needs(None, methods="GET")
def list_collections(request: PageRequest) -> HttpResponse:
    documents = Document.objects.filter(collection=OuterRef("pk")).order_by().values("collection")
    newest = documents.annotate(at=Max("updated_at"))
    rows = Collection.objects.live().by_name().with_counts().annotate(changed_at=Subquery(newest.values("at")[:1]))
    return render_page(request, "collections/list.html", {"collections": rows, "trash": _find_trashed(request)})


def _find_trashed(request: PageRequest) -> list[Collection]:
    """Of the collections in the trash those that they may restore, with counts, newest first."""
    with using_access(access_of_user(request.user, in_trash=True)):
        rows = Collection.objects.trashed(timezone.now()).with_counts().order_by("-deleted_at").defer("trash")
        return [row for row in rows.annotate(by=KT("trash__by")) if current_access().may(ADMINISTER, row.pk)]


@needs(None, methods="GET POST")
def trash(request: PageRequest, pk: int = 0) -> HttpResponse:
    """The deleted collections that they administered. A POST restores one of them; do=purge deletes it for good."""
    rows = _find_trashed(request)
    if request.method == "GET":
        context = {"collections": rows, "kept_days": kept_for("trash_days")}
        return render_page(request, "collections/trashed_collections.html", context)
    collection = next((row for row in rows if row.pk == pk), None)
    if collection is None:
        raise Http404(gettext("This collection is not in the trash any more."))
    with RefusalMessages(request), using_access(access_of_user(request.user, in_trash=True)):
        if request.POST.get("do") == "purge":
            deletion.purge_trashed(collection, actor=request.user)
            messages.success(request, gettext("%(name)s deleted for good.") % {"name": collection.label})
        else:
            deletion.restore_collection(collection, actor=request.user)
            messages.success(request, gettext("%(name)s restored.") % {"name": collection.label})
            return redirect("collections:detail", collection.name)
    return redirect(reverse("collections:list", query={"view": "trash"}))


@needs(WRITE, everywhere=True, methods="GET POST")
def create(request: PageRequest) -> HttpResponse:
    form = forms.CollectionForm(request.POST or None)
    model, dims = services.default_model()
    form.suggest(resolve_policy({}, embedder_for(model, dims).window))  # where the collection states nothing

    def save() -> HttpResponse:
        options = {name: form.cleaned_data[name] for name in CREATED_WITH}
        options["placement"] = form.cleaned_data.get("placement") or None
        collection = services.create_collection(**options, chunk_policy=form.chunk_policy(), actor=request.user)
        messages.success(request, gettext("Collection %(name)s created. Add documents.") % {"name": collection.label})
        return redirect("collections:upload", collection.name)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "collections/create.html", {"form": form}, status=status)


@needs(WRITE, methods="GET POST")
def settings(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    explicit = collection.retention | collection.security
    stated = {name: getattr(collection, name) for name in forms.SAID}
    form = forms.CollectionSettingsForm(request.POST or None, initial=explicit | stated)
    form.suggest_retention()

    def save() -> HttpResponse:
        services.update_collection(collection, changes=form.changes(), actor=request.user)
        return tell(request, gettext("Settings saved."), "collections:settings", name)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "form": form, "tab": "settings", **recent_transfers(collection.name)}
    return response or render_page(request, "collections/settings.html", context, status=status)


def describe_statistics(collection: Collection) -> dict[str, Any]:
    """What its first page shows below the documents where it is asked for."""
    result = services.collection_statistics(collection)
    lengths = result["chunk_lengths"]
    checks = Operation.objects.filter(kind=Operation.Kind.CHECK, subject__in=("", collection.name))
    return {
        "statistics": result,
        "index_build": index_progress(collection, collection.index_version),
        "lengths": None if lengths is None else services.Histogram(**lengths),
        "growth": result["growth"],
        "growth_totals": [week["documents"] for week in result["growth"]],
        "check": checks.first(),
        "measurements": measurements_of(collection),
        "measuring": IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.MEASURE).first(),
    }


@needs(READ, WRITE, methods="POST")
def measure(request: PageRequest, name: str) -> HttpResponse:
    with RefusalMessages(request):
        submit_measurement(find_collection(name), actor=request.user)
        messages.success(request, gettext("Measurement started."))
    return redirect(reverse("collections:detail", args=[name]) + "?show=statistics#measurements")


@needs(ADMINISTER, methods="GET POST")
def delete(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    form = forms.DeleteCollectionForm(request.POST or None, name=collection.name)
    if request.method == "POST" and form.is_valid():
        if deletion.trash_collection(collection, actor=request.user):
            messages.success(request, gettext("%(name)s is in the trash.") % {"name": collection.label})
            return redirect("collections:list")
        with RefusalMessages(request):  # it is invisible already; maintenance goes on with its rows
            proof = deletion.record_deletion(collection, actor=request.user)
            messages.success(request, gettext("Collection %(name)s deleted.") % {"name": name})
            if current_access().may(ADMINISTER):  # else the proof is of a collection that is not theirs any more
                return redirect("collections:operation", proof.pk)
        return redirect("collections:list")
    status = 422 if request.method == "POST" else 200
    context = {"collection": collection, "form": form, "held": deletion.count_rows(collection.pk)}
    context["kept_days"] = 0 if collection.is_personal else kept_for("trash_days")
    return render_page(request, "collections/delete.html", context, status=status)


@needs(None, methods="GET")
def switcher(request: PageRequest) -> HttpResponse:
    rows = Collection.objects.live().by_name()[:SWITCHER_ROWS]
    return render_page(request, "collections/switcher.html", {"collections": rows})


@needs(None, methods="POST")
@login_not_required
def choose_theme(request: HttpRequest) -> HttpResponse:
    """Remember light, dark or system for a year; anything else is taken as system."""
    chosen = request.POST.get("theme", "")
    response = redirect(next_address(request, "operations:home"))
    response.set_cookie("theme", chosen if chosen in THEMES else "system", max_age=YEAR_S, samesite="Lax")
    return response


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
    form = forms.ImportForm(request.POST or None, request.FILES or None)

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
