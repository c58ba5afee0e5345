"""Sources of a collection: the list, adding and changing one, its history, its end."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext

from collections_app.access.document_access import resolve
from collections_app.access.rules import WRITE, needs
from collections_app.collections.views import find_collection
from collections_app.domain.formats import counted
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    RefusalMessages,
    find_or_404,
    page_of,
    render_page,
    run_action,
    submit_form,
    tell,
)
from collections_app.models import Collection, Operation, Source, SourceChange
from collections_app.sources.forms import DeleteSourceForm, SourceForm, schedule_words
from collections_app.sources.kinds.protocol import BaseSource
from collections_app.sources.kinds.registry import source_kinds
from collections_app.sources.records import (
    brought_documents,
    complete_settings,
    delete_source,
    list_sources,
    save_source,
)
from collections_app.sources.runs import count_changes, find_run, request_run

RUNS_PER_PAGE = 20
CHANGES_PER_PAGE = 50


@needs(WRITE, methods="GET")
def list_page(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    unfinished = Operation.objects.filter(source=OuterRef("pk"), finished_at=None)
    rows = [_shown(row) for row in list_sources(collection).annotate(is_running=Exists(unfinished))]
    context = {"collection": collection, "tab": "sources", "sources": rows}
    return render_page(request, "sources/list.html", context, parts={"sources": "sources/parts/list.html"})


@needs(WRITE, methods="GET POST")
def add(request: PageRequest, name: str) -> HttpResponse:
    """First the choice of a kind, then its form."""
    collection = find_collection(name)
    key = request.GET.get("kind", "")
    if not key:
        context = {"collection": collection, "tab": "sources", "kinds": source_kinds().values()}
        return render_page(request, "sources/kinds.html", context)
    return _edit(request, collection, _kind(key), None)


@needs(WRITE, methods="GET POST")
def edit(request: PageRequest, name: str, pk: int) -> HttpResponse:
    collection, row = _find(name, pk)
    return _edit(request, collection, _kind(row.kind), row)


def _edit(request: PageRequest, collection: Collection, kind: type[BaseSource], row: Source | None) -> HttpResponse:
    form = SourceForm(request.POST or None, kind=kind, row=row)

    def save() -> HttpResponse:
        values = form.values(resolve(collection, form.stated_access()))
        saved = save_source(collection, values, row=row, actor=request.user)
        if request.POST.get("do") in ("preview", "sync"):
            with RefusalMessages(request):
                run = request_run(saved, dry_run=request.POST["do"] == "preview", actor=request.user)
                return redirect("collections:source-run", collection.name, run.pk)
        messages.success(request, gettext("%(name)s saved.") % {"name": saved.name})
        return redirect("collections:source", collection.name, saved.pk)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "tab": "sources", "form": form, "kind": kind, "source": row}
    return response or render_page(request, "sources/edit.html", context, status=status)


@needs(WRITE, methods="GET POST")
def source(request: PageRequest, name: str, pk: int) -> HttpResponse:
    """What it is, how it fares, its syncs. do=sync, preview, agree, with the run whose held deletions are agreed to,
    or delete, with_documents= with what it brought."""
    collection, row = _find(name, pk)
    if request.method == "POST":
        acts: Acts = {do: partial(_sync, request, collection, row) for do in ("sync", "preview", "agree")}
        return run_action(request, {**acts, "delete": partial(_delete, request, row)}, request.path)
    page = page_of(request, row.runs.all(), RUNS_PER_PAGE)
    active = row.runs.filter(finished_at=None).first()
    held = None if active or not row.waits else row.runs.filter(report__dry_run=False, report__held__gt=0).first()
    context = {
        "collection": collection,
        "tab": "sources",
        "source": _shown(row),
        "page": page,
        "active": active,
        "held": held,
        "facts": _facts(row),
        "documents": len(brought_documents(row)),
        "form": DeleteSourceForm(),
    }
    return render_page(request, "sources/source.html", context, parts={"source": "sources/parts/source.html"})


def _sync(request: PageRequest, collection: Collection, row: Source) -> HttpResponse:
    do = request.POST["do"]
    agreed = find_run(collection, request.POST.get("run", "")) if do == "agree" else None
    run = request_run(row, dry_run=do == "preview", agreed_run=agreed, actor=request.user)
    return redirect("collections:source-run", collection.name, run.pk)


def _delete(request: PageRequest, row: Source) -> HttpResponse:
    name, title = row.collection.name, row.name
    gone = delete_source(row, with_documents="with_documents" in request.POST, actor=request.user)
    message = gettext("%(name)s deleted.") % {"name": title}
    if gone:
        documents = counted(gone, gettext("document,documents"))
        message += " " + gettext("%(documents)s deleted.") % {"documents": documents}
    return tell(request, message, "collections:sources", name)


@needs(WRITE, methods="GET")
def source_run(request: PageRequest, name: str, sync_id: UUID) -> HttpResponse:
    """One sync or preview: how far it is, what it changed."""
    collection = find_collection(name)
    run = find_or_404(Operation.objects.filter(source__collection=collection), pk=sync_id)
    source = Source.objects.get(runs=run)
    if run.is_running:
        run.report |= count_changes(run)
    chosen = request.GET.get("change", "")
    rows = run.changes.all()
    kinds = SourceChange.Kind
    if chosen in kinds.values:
        rows = rows.filter(kind=chosen)
    totals = [(kind, kinds(kind).label, run.report[kind]) for kind in kinds.values]
    context = {
        "collection": collection,
        "tab": "sources",
        "run": run,
        "source": source,
        "page": page_of(request, rows, CHANGES_PER_PAGE),
        "chosen": chosen,
        "filters": [(kind, label, total) for kind, label, total in totals if total],
        "may_agree": run.report["held"] and source.waits and not run.report["dry_run"] and not run.is_running,
    }
    return render_page(request, "sources/run.html", context, parts={"source-run": "sources/parts/run.html"})


def _find(name: str, pk: int) -> tuple[Collection, Source]:
    collection = find_collection(name)
    row = find_or_404(Source.objects.filter(collection=collection), pk=pk)
    row.collection = collection
    return collection, row


def _kind(key: str) -> type[BaseSource]:
    kind = source_kinds().get(key)
    if kind is None:
        raise Http404("no such kind of source is installed")
    return kind


def _shown(row: Any) -> Any:
    """With what people read: the kind's title, where it is, how often it is synced."""
    kind = source_kinds().get(row.kind)
    row.kind_title = kind.title if kind else row.kind
    row.where = kind.describe(complete_settings(kind, row.settings)) if kind else ""
    row.schedule_words = schedule_words(row.schedule)
    return row


def _facts(row: Source) -> list[tuple[Any, Any]]:
    """(label, value) of the settings that are not empty."""
    kind = source_kinds().get(row.kind)
    if kind is None:
        return []
    facts: list[tuple[Any, Any]] = []
    for each in kind.fields:
        value = row.settings.get(each.name, each.default)
        if each.kind == "secret":
            value = gettext("stored") if row.secret else ""
        elif each.kind == "switch":
            value = gettext("yes") if value else gettext("no")
        elif each.kind == "choice":
            value = dict(each.choices).get(value, value)
        elif each.kind == "lines":
            value = ", ".join(value)
        if value != "":
            facts.append((each.label, value))
    return facts
