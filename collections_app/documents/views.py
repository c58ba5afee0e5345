"""Documents of a collection: the table, the trash, and a text that is written by hand.

Documents changed by hand on pages: many chosen in the table, or one by its form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.db.models import Sum
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.template.backends.utils import csrf_input
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.document_access import OPEN, change_readers, name_readers, readers_of, resolve
from collections_app.access.rules import READ, WRITE, needs
from collections_app.access.services import is_guarded
from collections_app.chunks.policies import policy_for
from collections_app.collections.forms import TextForm
from collections_app.collections.retention_periods import kept_for
from collections_app.collections.views import find_collection, find_document
from collections_app.documents import filters, forms
from collections_app.documents.bulk_changes import (
    BulkChange,
    BulkOutcome,
    DocumentFilter,
    DocumentResult,
    Facet,
    change_documents,
    count_facets,
    read_filter,
)
from collections_app.documents.edits import TEXT_TYPES, edit_document, edit_text
from collections_app.documents.revisions.services import count_revisions
from collections_app.documents.services import empty_trash, ingest_text, restore_documents
from collections_app.documents.stored_documents import attached_to, folders_of
from collections_app.domain.formats import counted, file_type, language_name
from collections_app.http.form_fields import FILTER_ATTRS, FilterInput, MetadataField
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    field_of,
    next_address,
    page_of,
    render_page,
    submit_form,
    tell,
    whole_number,
)
from collections_app.jobs.views import active_jobs
from collections_app.models import Collection, Document, IngestJob, TrashedDocument
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored

DOCUMENTS_PER_PAGE = 50
FOLDERS = "collections/parts/folders_filter.html"
FAILED = "failed"  # as a state in the address: files that failed, in place of documents
DOCUMENT_FILTER_EXAMPLE = "title starts with 'Annual' and metadata.year >= 2024"
DOCUMENTS = ListKind(
    "documents",
    gettext_lazy("document,documents"),
    gettext_lazy("ID, title or source"),
    sorts=forms.DOCUMENT_SORTS,
    views="documents",
)
FAILED_FILES = replace(DOCUMENTS, noun=gettext_lazy("file,files"), sorts={})
REASONS_MAX = 3  # of refusals that are told
FAILED_SHOWN = 5  # above the documents


@needs(READ, WRITE, methods="GET")
def list_documents(request: PageRequest, name: str) -> HttpResponse:
    """The documents table, with files that failed above; archived ones are shown when they are asked for. No rows under
    a filter that is wrong."""
    collection = find_collection(name)
    wrong = ""
    try:
        document_filter = read_filter(request.GET)
        matching = document_filter.rows(collection)
    except InvalidInput as error:
        rest = request.GET.copy()
        del rest["filter"]
        wrong, document_filter, matching = error.message, read_filter(rest), Document.objects.none()
    failed = IngestJob.objects.filter(collection=collection).unresolved().matching(document_filter.q).newest()
    failed_only = request.GET.get("state") == FAILED
    failed_total = failed.count()
    holds_documents = bool(collection.totals["documents"])  # type: ignore[attr-defined]  # as find_collection counts
    tree = folders_of(collection, document_filter.folder, state=document_filter.state)
    chips = _filters(collection, document_filter, failed_total)
    chips += [Filter("folder", gettext("Folder"), free=True, template=FOLDERS)] if tree.below else []
    chips += [_expression(name, request.GET.get("filter", ""), wrong)]
    kind = FAILED_FILES if failed_only else DOCUMENTS
    jobs = active_jobs(collection)  # before the rows: the end of a job that is counted here shows them again
    listing = list_page(request, kind, failed.listed() if failed_only else matching.listed().with_original(), chips)
    if not failed_only:
        name_readers(listing.page.object_list)
    is_narrow = failed_only or listing.page.number > 1 or document_filter != DocumentFilter(q=document_filter.q)
    context = (
        listing.context()
        | jobs
        | {
            "collection": collection,
            "tab": "documents",
            "refreshes": True,
            "is_wrong": bool(wrong),
            "wanted": document_filter,
            "carried": document_filter.as_params(forms.FILTER_PREFIX),
            "failed_only": failed_only,
            "failed_files": listing.page if failed_only else [] if is_narrow else failed.listed()[:FAILED_SHOWN],
            "failed_total": failed_total,
            "is_blank": not (listing.is_narrowed or failed_total or holds_documents),
            "present_policy": policy_for(collection).as_dict(),
            "folders": tree,
        }
    )
    parts = {"documents": "collections/parts/documents.html"}
    return render_page(request, "collections/documents.html", context, parts=parts, status=422 if wrong else 200)


def _filters(collection: Collection, document_filter: DocumentFilter, failed: int) -> list[Filter]:
    """The chips with as many values as there are, each with how many documents it leaves."""
    facets = count_facets(collection, document_filter)
    states = {facet.value: facet.count for facet in facets["states"]} | {FAILED: failed}
    states[""] = states["present"]
    words = {
        "": gettext("Not archived"), "enabled": gettext("Active"), "disabled": gettext("Disabled"),
        "archived": gettext("Archived"), FAILED: gettext("Failed"), "any": gettext("All"),
    }  # fmt: skip
    access = {"restricted": gettext("Restricted"), "open": gettext("Everybody")}
    return [
        Filter("state", gettext("State"), [(value, word, states[value]) for value, word in words.items()]),
        Filter("type", gettext("Type"), _spelled(facets["media_types"], file_type), free=True),
        Filter("tag", gettext("Tag"), _spelled(facets["tags"], str), many=True, free=True),
        Filter("language", gettext("Language"), _spelled(facets["languages"], language_name), free=True),
        Filter("access", gettext("Readers"), _spelled(facets["access"], access.__getitem__)),
    ]


def _spelled(facets: list[Facet], spell: Callable[[str], str]) -> list[tuple[str, str, int]]:
    return [(each.value, spell(each.value), each.count) for each in facets]


@needs(READ, methods="GET")
def folders(request: PageRequest, name: str) -> HttpResponse:
    """The folders right below the one that `parent` names, for a list of documents with these filters."""
    collection = find_collection(name)
    parent, state = request.GET.get("parent", ""), request.GET.get("state", "present")
    context = {
        "collection": collection,
        "folder": folders_of(collection, parent, state=state, alone=True),
        "wanted": {"folder": request.GET.get("folder", "")},
    }
    return render_page(request, "collections/parts/folders.html", context)


def _expression(collection: str, text: str, wrong: str) -> Filter:
    """The chip of a typed filter over documents. wrong: what is wrong with its text."""
    marks = {"aria-invalid": "true", "aria-describedby": "filter-error"} if wrong else {}
    widget = FilterInput({**FILTER_ATTRS, "class": "input mono", "placeholder": DOCUMENT_FILTER_EXAMPLE, **marks})
    widget.collection, widget.of_documents = collection, True
    extra = {"input": widget.render("filter", text, {"id": "id_filter"}), "wrong": wrong}
    return Filter("filter", gettext("Expression"), free=True, extra=extra)


@needs(WRITE, methods="GET POST")
def trash(request: PageRequest, name: str) -> HttpResponse:
    """What was deleted and can be restored, newest first. A POST restores it, or deletes it for good; all=on: all of
    it."""
    collection = find_collection(name)
    rows = TrashedDocument.objects.filter(collection=collection).listed().newest()
    if request.method == "GET":
        context = {
            "collection": collection,
            "tab": "trash",
            "page": page_of(request, rows, DOCUMENTS_PER_PAGE),
            "kept_days": kept_for("trash_days"),
        }
        return render_page(request, "collections/trash.html", context)
    chosen = [number for text in request.POST.getlist("id") if (number := whole_number(text)) is not None]
    ids = list(rows.values_list("pk", flat=True)) if request.POST.get("all") else chosen
    noun = gettext("document,documents")
    with RefusalMessages(request):
        if request.POST.get("action") == "purge" and not request.POST.get("confirmed"):
            return render_page(request, "collections/empty_trash.html", {"collection": collection, "ids": ids})
        if request.POST.get("action") == "purge":
            gone = empty_trash(collection, ids, actor=request.user)
            messages.success(request, gettext("%(documents)s deleted for good.") % {"documents": counted(gone, noun)})
        elif ids:
            restored = restore_documents(collection, ids, actor=request.user)
            if restored.done:
                done = counted(len(restored.done), noun)
                messages.success(request, gettext("%(documents)s restored.") % {"documents": done})
            for reason in list(restored.refused.values())[:REASONS_MAX]:
                messages.error(request, reason)
        else:
            messages.warning(request, gettext("Select documents first."))
    return redirect(next_address(request, reverse("collections:detail", args=[name], query={"view": "trash"})))


@needs(READ, methods="GET")
def filter_completions(request: PageRequest) -> HttpResponse:
    """What may stand next in a typed filter, as the options of its field. field: the parameter that holds the text;
    of=documents: for a list of documents; of=keys: the fields of metadata alone."""
    query = request.GET
    collection = Collection.objects.live().filter(name=query.get("collection", "").replace("\x00", "")).first()
    text = query.get(query.get("field", "filter"), "")
    if query.get("of") == "keys":
        words = filters.metadata_keys(collection) if collection else []
    else:
        words = filters.complete(collection, text, of_documents=query.get("of") == "documents")
    return render(request, "components/options.html", {"completions": words})


@needs(READ, methods="GET")
def filter_builder(request: PageRequest) -> HttpResponse:
    """A typed filter as rows. field: the parameter that holds its text, id: the id of its input, of and collection: as
    for `filter_completions`. With built=1 the rows hold, and the text that they state goes along; drop: one less."""
    query = request.GET
    collection = Collection.objects.live().filter(name=query.get("collection", "").replace("\x00", "")).first()
    of_documents = query.get("of") == "documents"
    shown: tuple[str, list[filters.FilterRow]] | None = filters.rows_of_filter(
        query.get(query.get("field", "filter"), "")
    )
    expression, wrong = None, ""
    if query.get("built"):
        columns = (query.getlist(f"row-{part}") for part in ("field", "op", "value"))
        rows = [filters.FilterRow(*row) for row in zip(*columns, strict=False)]
        dropped = whole_number(query.get("drop"))
        kept = [row for place, row in enumerate(rows) if row.field and place != dropped]
        shown = query.get("row-join", "and"), kept
        try:
            expression = filters.filter_of_rows(*shown)
        except InvalidInput as error:
            wrong = error.message
    asked = {name: query.get(name, "") for name in ("field", "id", "of", "collection")}
    context = asked | {
        "address": reverse("collections:filter-builder", query=asked),
        "join": shown[0] if shown else "",
        "rows": [(row, _offered(collection, row.field)) for row in (*shown[1], filters.FilterRow())] if shown else None,
        "fields": filters.offered_fields(collection, of_documents=of_documents),
        "expression": expression,
        "wrong": wrong,
    }
    return render(request, "components/filter_builder.html", context)


def _offered(collection: Collection | None, field: str) -> list[str]:
    return [filters.write_value(field, value) for value in filters.values_of(collection, field)]


@needs(WRITE, methods="GET POST")
def write_text(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    form = TextForm(request.POST or None)
    field_of(form, "metadata", MetadataField).complete_in(name)

    def save() -> HttpResponse:
        data = {name: form.cleaned_data[name] for name in ("doc_id", "title", "content", "tags", "metadata")}
        data |= {"language": form.cleaned_data["language"] or None, "access": resolve(collection, form.stated_access())}
        doc_id = data.pop("doc_id")
        outcome = ingest_text(collection, doc_id, data.pop("content"), source="page", actor=request.user, **data)
        values = {"doc_id": doc_id, "chunks": counted(outcome.chunks_written, gettext("chunk,chunks"))}
        message = (
            gettext("%(doc_id)s: no changes.") if outcome.unchanged else gettext("%(doc_id)s indexed: %(chunks)s.")
        )
        return tell(request, message % values, "collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "form": form, "tab": "documents"}
    return response or render_page(request, "collections/text.html", context, status=status)


LISTED_MAX = 20
UNDONE_MAX = 50  # documents whose change has an undo
OPPOSITE = {"enable": "disable", "disable": "enable", "archive": "unarchive", "unarchive": "archive"}
SHOWN_REASONS = 3
SIMPLE = ("enable", "disable", "archive", "unarchive", "reindex", "delete")
WORDS = {
    "enable": (gettext_lazy("Enable"), gettext_lazy("%(documents)s enabled.")),
    "disable": (gettext_lazy("Disable"), gettext_lazy("%(documents)s disabled.")),
    "archive": (gettext_lazy("Archive"), gettext_lazy("%(documents)s archived.")),
    "unarchive": (gettext_lazy("Unarchive"), gettext_lazy("%(documents)s unarchived.")),
    "reindex": (gettext_lazy("Re-index"), gettext_lazy("%(documents)s queued for re-indexing.")),
    "delete": (gettext_lazy("Delete"), gettext_lazy("%(documents)s deleted with %(chunks)s.")),
}
EXPLAINED = {
    "enable": gettext_lazy("Enabled documents are searched again."),
    "disable": gettext_lazy("Disabled documents are kept, but not searched."),
    "archive": gettext_lazy("Archived documents are kept, not searched, and read-only until unarchived."),
    "unarchive": gettext_lazy("Unarchived documents are editable and searched again."),
    "reindex": gettext_lazy(
        "The text is parsed and chunked again in the background. The current version stays searchable."
    ),
    "delete": gettext_lazy(
        "Deleted documents go to the trash, where they can be restored until they are deleted for good."
    ),
}


@needs(WRITE, methods="GET POST")
def change(request: PageRequest, name: str) -> HttpResponse:
    """Change the chosen documents; a GET only asks.

    What asks first: deleting, whatever is done to all that match, and taking out of results what somebody counts on.
    """
    collection = find_collection(name)
    if request.method == "GET":
        named = forms.Selection(tuple(name for name in request.GET.getlist("doc_id") if can_be_stored(name)))
        return _confirm(request, collection, named, list(named.doc_ids), "delete")
    action = request.POST.get("action", "")
    back = next_address(request, collection_address(collection))
    with RefusalMessages(request):
        selection = forms.Selection.read(request.POST)
        if action not in (*SIMPLE, "label", "access") or (selection.filter is None and not selection.doc_ids):
            messages.warning(request, gettext("Select documents first."))
            return redirect(back)
        chosen = selection.choose(collection)
        if action == "label":
            return _label(request, collection, selection, chosen)
        if action == "access":
            return _restrict(request, collection, selection, chosen)
        if not request.POST.get("confirmed") and (
            action == "delete"
            or selection.filter is not None
            or (action in ("disable", "archive") and is_guarded(collection, chosen))
        ):
            return _confirm(request, collection, selection, chosen, action)
        bulk_change = BulkChange(action, to_trash=action == "delete")
        _tell(request, action, change_documents(collection, bulk_change, chosen, actor=request.user), collection)
    if action == "delete" and back != collection_address(collection) and not request.POST.get("all_matching"):
        back = _away_from(collection, chosen, back)
    return redirect(back)


def _away_from(collection: Collection, gone: Sequence[str], back: str) -> str:
    """Not back to the page of a document that is gone."""
    pages = {reverse("collections:document", args=[collection.name, doc_id]) for doc_id in gone[:UNDONE_MAX]}
    return collection_address(collection) if back.partition("?")[0] in pages else back


def _undo(request: PageRequest, collection: Collection, action: str, outcome: BulkOutcome) -> SafeString | str:
    """A button that takes the change back, while it is of few enough documents; "" where there is none."""
    done = [result.doc_id for result in outcome.results if result.status in ("changed", "deleted")]
    if not done or len(done) > UNDONE_MAX:
        return ""
    if action == "delete":
        newest = TrashedDocument.objects.filter(collection=collection, doc_id__in=done).order_by("doc_id", "-pk")
        fields = [("id", str(pk)) for pk in newest.distinct("doc_id").values_list("pk", flat=True)]
        address = reverse("collections:detail", args=[collection.name], query={"view": "trash"})
    elif action in OPPOSITE:
        fields = [("action", OPPOSITE[action]), *(("doc_id", doc_id) for doc_id in done)]
        address = reverse("collections:detail", args=[collection.name], query={"view": "change"})
    else:
        return ""
    fields.append(("next", next_address(request, collection_address(collection))))
    inputs = format_html_join("", '<input type="hidden" name="{}" value="{}">', fields)
    return format_html(
        '<form method="post" action="{}" class="row" data-undo>{}{}<button type="submit" class="button small">{}'
        "</button></form>",
        address, csrf_input(request), inputs, gettext("Undo"),
    ) if len(fields) > 1 else ""  # fmt: skip


def _tell(request: PageRequest, action: str, outcome: BulkOutcome, collection: Collection | None = None) -> None:
    done = outcome.count("changed", "queued", "deleted")
    noun = gettext("document,documents")
    statement = WORDS[action][1] if action in WORDS else gettext("%(documents)s updated.")
    message = statement % {
        "documents": counted(done, noun),
        "chunks": counted(outcome.removed.get("chunks", 0), gettext("chunk,chunks")),
    }
    refused = [result for result in outcome.results if result.status == "refused"]
    if unchanged := outcome.count("unchanged"):
        message += " " + gettext("%(documents)s unchanged.") % {"documents": counted(unchanged, noun)}
    if unknown := outcome.count("unknown"):
        message += " " + gettext("%(documents)s not found.") % {"documents": counted(unknown, noun)}
    if not refused:
        undo = _undo(request, collection, action, outcome) if collection is not None else ""
        messages.success(request, format_html("{} {}", message, undo) if undo else message)
        return
    reasons = "; ".join(result.error for result in refused[:SHOWN_REASONS])
    if len(refused) > SHOWN_REASONS:
        reasons += gettext("; and %(count)s more") % {"count": format(len(refused) - SHOWN_REASONS, ",")}
    failed = gettext("%(documents)s not changed: %(reasons)s.")
    messages.warning(request, f"{message} {failed % {'documents': counted(len(refused), noun), 'reasons': reasons}}")


def _confirm(
    request: PageRequest, collection: Collection, selection: forms.Selection, chosen: Sequence[str], action: str
) -> HttpResponse:
    rows = Document.objects.filter(collection=collection, doc_id__in=chosen)
    context = _describe_chosen(request, collection, selection, chosen)
    if not context["documents"]:
        raise Http404("none of these documents is in the collection")
    context |= {
        "action": action,
        "word": WORDS[action][0],
        "explained": EXPLAINED[action],
        "total": rows.count(),
        "chunk_total": rows.aggregate(total=Sum("chunk_count"))["total"] or 0,
        "attached": attached_to(collection, chosen) if action == "delete" else [],
        "revision_total": count_revisions(collection.pk, chosen) if action == "delete" else 0,
    }
    return render_page(request, "collections/change_documents.html", context)


def _describe_chosen(
    request: PageRequest, collection: Collection, selection: forms.Selection, chosen: Sequence[str]
) -> dict[str, Any]:
    """What both pages that ask back tell of the chosen documents, of which the first are listed."""
    rows = Document.objects.filter(collection=collection, doc_id__in=chosen)
    return {
        "collection": collection,
        "documents": list(rows.listed().by_doc_id()[:LISTED_MAX]),
        "total": len(chosen),
        "more": max(len(chosen) - LISTED_MAX, 0),
        "matching": selection.filter is not None,
        "hidden_fields": selection.hidden_fields(len(chosen)),
        "next": next_address(request, collection_address(collection)),
    }


def _label(
    request: PageRequest, collection: Collection, selection: forms.Selection, chosen: Sequence[str]
) -> HttpResponse:
    """Tags and metadata of the chosen documents: the form first, then the changes."""
    form = forms.BulkLabelForm(request.POST if request.POST.get("confirmed") else None)
    field_of(form, "metadata", MetadataField).complete_in(collection.name)

    def save() -> HttpResponse:
        outcomes = [change_documents(collection, each, chosen, actor=request.user) for each in form.changes()]
        _tell(request, "label", _joined(outcomes))
        return redirect(next_address(request, collection_address(collection)))

    response, status = submit_form(request, form, save) if form.is_bound else (None, 200)
    present_tags = count_facets(collection, selection.filter)["tags"] if selection.filter else []
    context = _describe_chosen(request, collection, selection, chosen) | {"form": form, "present_tags": present_tags}
    return response or render_page(request, "collections/label_documents.html", context, status=status)


def _joined(outcomes: Sequence[BulkOutcome]) -> BulkOutcome:
    """Of several changes to the same documents: what is worth telling of each."""
    order = ("unknown", "refused", "changed", "unchanged")
    best: dict[str, DocumentResult] = {}
    for outcome in outcomes:
        for result in outcome.results:
            known = best.get(result.doc_id)
            if known is None or order.index(result.status) < order.index(known.status):
                best[result.doc_id] = result
    return BulkOutcome(list(best.values()))


def collection_address(collection: Collection) -> str:
    return reverse("collections:detail", args=[collection.name])


def _restrict(
    request: PageRequest, collection: Collection, selection: forms.Selection, chosen: Sequence[str]
) -> HttpResponse:
    """Who may read the chosen documents: the form first, then the change."""
    form = forms.ReadersForm(request.POST if request.POST.get("confirmed") else None)

    def save() -> HttpResponse:
        codes = resolve(collection, form.stated_access())
        change = BulkChange("set_access", access=codes)
        _tell(request, "access", change_documents(collection, change, chosen, actor=request.user))
        return redirect(next_address(request, collection_address(collection)))

    response, status = submit_form(request, form, save) if form.is_bound else (None, 200)
    context = _describe_chosen(request, collection, selection, chosen) | {"form": form}
    return response or render_page(request, "collections/restrict_documents.html", context, status=status)


@needs(READ, WRITE, methods="GET POST")
def readers(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Who may read one document; a change goes back to its page."""
    collection, document = find_document(name, doc_id)
    present = readers_of(collection, document)
    form = forms.ReadersForm(request.POST) if request.method == "POST" else forms.ReadersForm.of(present)

    def save() -> HttpResponse:
        codes = resolve(collection, form.stated_access()) or OPEN
        changed = change_readers(collection, [document.doc_id], codes, actor=request.user)
        message = gettext("%(doc_id)s: access changed.") if changed else gettext("%(doc_id)s: no changes.")
        return tell(request, message % {"doc_id": doc_id}, "collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "document": document, "form": form, "readers": present, "part": "readers"}
    return response or render_page(request, "collections/readers.html", context, status=status)


@needs(WRITE, methods="GET POST")
def edit_content(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The text of a document of text; what is saved is a new revision."""
    collection, document = find_document(name, doc_id)
    if request.method == "POST":
        form = forms.DocumentTextForm(request.POST)
    else:
        form = forms.DocumentTextForm(initial={"content": document.text, "expected_revision": document.revision})

    def save() -> HttpResponse:
        data = form.cleaned_data
        text, expected = data["content"].replace("\r\n", "\n"), data["expected_revision"]
        outcome = edit_text(collection, doc_id, text, expected_revision=expected, actor=request.user)
        message = (
            gettext("%(doc_id)s: no changes.")
            if outcome.unchanged
            else gettext("%(doc_id)s saved as revision %(revision)s.")
        )
        messages.success(request, message % {"doc_id": doc_id, "revision": outcome.revision})
        return redirect("collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "document": document, "form": form, "part": "edit-text"}
    return response or render_page(request, "collections/edit_text.html", context, status=status)


@needs(WRITE, methods="GET POST")
def rename(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The title of one document, from its page and from lists; back to where it was asked for."""
    collection, document = find_document(name, doc_id)
    initial = {"title": document.title, "expected_revision": document.revision}
    form = forms.TitleForm(request.POST if request.method == "POST" else None, initial=initial)
    back = next_address(request, reverse("collections:document", args=[name, doc_id]))

    def save() -> HttpResponse:
        title, expected = form.cleaned_data["title"], form.cleaned_data["expected_revision"]
        edited = edit_document(collection, doc_id, {"title": title}, expected_revision=expected, actor=request.user)
        return tell(request, gettext("%(doc_id)s is called %(name)s.") % {"doc_id": doc_id, "name": edited.name}, back)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "document": document, "form": form, "next": back}
    return response or render_page(request, "collections/rename_document.html", context, status=status)


@needs(WRITE, methods="GET POST")
def edit(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Title, tags, language and metadata of one document."""
    collection, document = find_document(name, doc_id)
    form = forms.DocumentForm(request.POST) if request.method == "POST" else forms.DocumentForm.of(document)
    field_of(form, "metadata", MetadataField).complete_in(name)

    def save() -> HttpResponse:
        expected = form.cleaned_data["expected_revision"]
        changes = form.changes(document)
        edited = edit_document(collection, doc_id, changes, expected_revision=expected, actor=request.user)
        is_same = edited.revision == document.revision
        message = (
            gettext("%(doc_id)s: no changes.") if is_same else gettext("%(doc_id)s saved as revision %(revision)s.")
        )
        messages.success(request, message % {"doc_id": doc_id, "revision": edited.revision})
        return redirect("collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    is_text = document.media_type in TEXT_TYPES and document.size_chars > 0
    context = {"collection": collection, "document": document, "form": form, "part": "edit", "is_text": is_text}
    return response or render_page(request, "collections/edit_document.html", context, status=status)
