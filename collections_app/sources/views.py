"""Forms of a source, and of a list of addresses.

Sources of a collection: the list, adding and changing one, its history, its end.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.forms import BoundField
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, ngettext

from collections_app.access.document_access import Codes, resolve
from collections_app.access.rules import WRITE, needs
from collections_app.collections.forms import AccessFields, IntakeFields
from collections_app.collections.views import find_collection
from collections_app.domain.formats import counted
from collections_app.http.form_fields import LinesField, TagsField
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    RefusalMessages,
    field_of,
    find_or_404,
    page_of,
    render_page,
    run_action,
    submit_form,
    tell,
)
from collections_app.models import Collection, Operation, Source, SourceChange
from collections_app.sources import records
from collections_app.sources.kinds.protocol import BaseSource, Field
from collections_app.sources.kinds.registry import source_kinds
from collections_app.sources.source_jobs import UrlEntry, read_list
from collections_app.sources.sync import count_changes, find_run, request_run
from ragd.errors import InvalidInput

SCHEDULES: tuple[tuple[int, str | Promise], ...] = (
    (0, gettext_lazy("By hand")),
    (1, gettext_lazy("Every minute")),
    (15, gettext_lazy("Every 15 minutes")),
    (60, gettext_lazy("Hourly")),
    (360, gettext_lazy("Every 6 hours")),
    (1440, gettext_lazy("Daily")),
    (10080, gettext_lazy("Weekly")),
)
USUAL_SCHEDULE = 1440


def schedule_words(minutes: int) -> str:
    """How often, such as "Hourly"."""
    known = dict(SCHEDULES)
    if minutes in known:
        return str(known[minutes])
    return ngettext("Every %(n)s minute", "Every %(n)s minutes", minutes) % {"n": minutes}


class SourceForm(AccessFields, forms.Form):
    """Of one kind. row: the source to be changed."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    schedule = forms.TypedChoiceField(label=gettext_lazy("Sync"), coerce=int, initial=USUAL_SCHEDULE)
    keep_missing = forms.BooleanField(
        label=gettext_lazy("Keep documents that the source no longer has"), required=False
    )
    enabled = forms.BooleanField(label=gettext_lazy("Sync on schedule"), required=False, initial=True)
    doc_prefix = forms.CharField(
        label=gettext_lazy("Folder in the collection"),
        max_length=400,
        required=False,
        help_text=gettext_lazy("Put before the ID of each document."),
    )
    tags = TagsField(label=gettext_lazy("Tags"), required=False, help_text=gettext_lazy("Separated by commas."))

    def __init__(self, data: Any = None, *, kind: type[BaseSource], row: Source | None = None) -> None:
        stored = row.settings if row is not None else {}
        initial: dict[str, Any] = records.complete_settings(kind, stored)
        if row is None:
            initial["name"] = str(kind.title)
        else:
            initial |= {name: getattr(row, name) for name in ("name", "schedule", "keep_missing", "enabled", "tags")}
            initial["doc_prefix"] = row.prefix.rstrip("/")
        super().__init__(data, initial=initial)
        self.kind, self.row = kind, row
        field_of(self, "schedule", forms.TypedChoiceField).choices = _schedules(row)
        self.own_names = [each.name for each in kind.fields]
        for each in kind.fields:
            self.fields[each.name] = _form_field(each, has_secret=row is not None and bool(row.secret))
        if any(each.kind == "secret" and not each.required for each in kind.fields) and row is not None and row.secret:
            self.fields["forget_secret"] = forms.BooleanField(label=gettext("Remove the stored secret"), required=False)
            self.own_names.append("forget_secret")

    def own_fields(self) -> list[BoundField]:
        """Those of the kind, in its order."""
        return [self[name] for name in self.own_names]

    def values(self, access: Codes | None) -> records.SourceValues:
        """What the service takes. access: as it was stated; None: as it is."""
        data = self.cleaned_data
        secret: str | None = None
        stated: dict[str, Any] = {}
        for each in self.kind.fields:
            if each.kind == "secret":
                secret = data[each.name] or ("" if data.get("forget_secret") else None)
            else:
                stated[each.name] = data[each.name]
        if access is None and self.row is not None and self.row.access is not None:
            access = tuple(self.row.access)
        return records.SourceValues(
            kind=self.kind.kind,
            name=data["name"],
            settings=stated,
            secret=secret,
            prefix=data["doc_prefix"],
            tags=data["tags"],
            access=access,
            schedule=data["schedule"],
            keep_missing=data["keep_missing"],
            enabled=data["enabled"],
        )


class DeleteSourceForm(forms.Form):
    with_documents = forms.BooleanField(label=gettext_lazy("Also delete the documents that it brought"), required=False)


def _schedules(row: Source | None) -> list[tuple[int, str]]:
    listed = [(minutes, str(label)) for minutes, label in SCHEDULES]
    if row is not None and row.schedule not in dict(listed):
        listed.append((row.schedule, schedule_words(row.schedule)))
    return listed


def _form_field(each: Field, *, has_secret: bool) -> forms.Field:
    shared: dict[str, Any] = {"label": each.label, "help_text": each.help, "required": each.required}
    if each.kind == "switch":
        return forms.BooleanField(**shared | {"required": False})
    if each.kind == "number":
        return forms.IntegerField(**shared, min_value=each.minimum, max_value=each.maximum)
    if each.kind == "choice":
        return forms.ChoiceField(**shared | {"required": True}, choices=each.choices)
    if each.kind == "lines":
        return LinesField(**shared, widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}))
    if each.kind == "secret":
        if has_secret:
            shared |= {"required": False, "help_text": gettext("One is stored. Leave this empty to keep it.")}
        widget = forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False)
        return forms.CharField(**shared, widget=widget)
    return forms.CharField(**shared, widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}))


LIST_MAX_BYTES = 5_000_000


class UrlsForm(AccessFields, IntakeFields):
    either = ("urls", "file")  # one of them is required, so neither is shown as optional

    urls = forms.CharField(
        label=gettext_lazy("URLs"),
        required=False,
        help_text=gettext_lazy("One per line (http or https)."),
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false", "data-send": True}),
    )
    file = forms.FileField(
        label=gettext_lazy("Or a file with URLs"),
        required=False,
        help_text=gettext_lazy("Text with one URL per line, or CSV with a column url (optional: doc_id, title)."),
        widget=forms.FileInput(attrs={"accept": ".txt,.csv,text/plain,text/csv"}),
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        try:
            self._entries = self._read(data)
        except InvalidInput as error:
            self.add_error("urls", error.message)
        return data

    def _read(self, values: dict[str, Any]) -> list[UrlEntry]:
        file = values.get("file")
        if file is None:
            return read_list(values.get("urls", ""))
        if file.size > LIST_MAX_BYTES:
            raise InvalidInput("the list has more than 5 MB; send it in parts")
        listed = read_list(file.read().decode("utf-8-sig", "replace"))
        return listed + (read_list(values["urls"]) if values.get("urls", "").strip() else [])

    def entries(self) -> list[UrlEntry]:
        """The addresses of a valid form, those of the file first."""
        return self._entries


RUNS_PER_PAGE = 20
CHANGES_PER_PAGE = 50


@needs(WRITE, methods="GET")
def list_page(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    unfinished = Operation.objects.filter(source=OuterRef("pk"), finished_at=None)
    rows = [_shown(row) for row in records.list_sources(collection).annotate(is_running=Exists(unfinished))]
    context = {"collection": collection, "tab": "sources", "sources": rows}
    return render_page(request, "sources/list.html", context, parts={"sources": "sources/parts/list.html"})


@needs(WRITE, methods="GET POST")
def add(request: PageRequest, name: str) -> HttpResponse:
    """First the choice of a kind, then its form."""
    collection = find_collection(name)
    key = request.GET.get("kind", "")
    if not key:
        context = {"collection": collection, "tab": "sources", "kinds": source_kinds().values()}
        context["unready"] = [] if settings.RAGD_SOURCE_FOLDERS else ["folder"]
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
        saved = records.save_source(collection, values, row=row, actor=request.user)
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
        "documents": len(records.brought_documents(row)),
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
    gone = records.delete_source(row, with_documents="with_documents" in request.POST, actor=request.user)
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
    row.where = kind.describe(records.complete_settings(kind, row.settings)) if kind else ""
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
