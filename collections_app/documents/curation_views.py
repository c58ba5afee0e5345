"""Documents changed by hand on pages: many chosen in the table, or one by its form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.db.models import Sum
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.template.backends.utils import csrf_input
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.document_access import OPEN, resolve
from collections_app.access.readers import change_readers, readers_of
from collections_app.access.rules import READ, WRITE, needs
from collections_app.access.services import is_guarded
from collections_app.collections.views import find_collection, find_document
from collections_app.documents.bulk_changes import BulkChange, BulkOutcome, DocumentResult, change_documents
from collections_app.documents.document_tree import attached_to
from collections_app.documents.edits import TEXT_TYPES, edit_document, edit_text
from collections_app.documents.forms import (
    BulkLabelForm,
    DocumentForm,
    DocumentTextForm,
    ReadersForm,
    Selection,
    TitleForm,
)
from collections_app.documents.revisions.services import count_revisions
from collections_app.documents.selection import count_facets
from collections_app.domain.formats import counted
from collections_app.http.form_fields import MetadataField
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    field_of,
    next_address,
    render_page,
    submit_form,
    tell,
)
from collections_app.models import Collection, Document, TrashedDocument
from ragd.identity import can_be_stored

LISTED_MAX = 20
UNDONE_MAX = 50  # documents whose change has an undo
OPPOSITE = {"enable": "disable", "disable": "enable", "archive": "unarchive", "unarchive": "archive"}
REASONS_MAX = 3
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
    "enable": gettext_lazy("They are searched again."),
    "disable": gettext_lazy("They are kept, but not searched."),
    "archive": gettext_lazy("They are kept, not searched, and read-only until unarchived."),
    "unarchive": gettext_lazy("They are editable and searched again."),
    "reindex": gettext_lazy(
        "They are parsed and chunked again in the background. The current version stays searchable."
    ),
    "delete": gettext_lazy("They go to the trash, where they can be restored, and are deleted for good later."),
}


@needs(WRITE, methods="GET POST")
def change(request: PageRequest, name: str) -> HttpResponse:
    """Change the chosen documents; a GET only asks.

    What asks first: deleting, whatever is done to all that match, and taking out of results what somebody counts on.
    """
    collection = find_collection(name)
    if request.method == "GET":
        named = Selection(tuple(name for name in request.GET.getlist("doc_id") if can_be_stored(name)))
        return _confirm(request, collection, named, list(named.doc_ids), "delete")
    action = request.POST.get("action", "")
    back = next_address(request, collection_address(collection))
    with RefusalMessages(request):
        selection = Selection.read(request.POST)
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
    reasons = "; ".join(result.error for result in refused[:REASONS_MAX])
    if len(refused) > REASONS_MAX:
        reasons += gettext("; and %(count)s more") % {"count": format(len(refused) - REASONS_MAX, ",")}
    failed = gettext("%(documents)s not changed: %(reasons)s.")
    messages.warning(request, f"{message} {failed % {'documents': counted(len(refused), noun), 'reasons': reasons}}")


def _confirm(
    request: PageRequest, collection: Collection, selection: Selection, chosen: Sequence[str], action: str
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
    request: PageRequest, collection: Collection, selection: Selection, chosen: Sequence[str]
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


def _label(request: PageRequest, collection: Collection, selection: Selection, chosen: Sequence[str]) -> HttpResponse:
    """Tags and metadata of the chosen documents: the form first, then the changes."""
    form = BulkLabelForm(request.POST if request.POST.get("confirmed") else None)
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
    request: PageRequest, collection: Collection, selection: Selection, chosen: Sequence[str]
) -> HttpResponse:
    """Who may read the chosen documents: the form first, then the change."""
    form = ReadersForm(request.POST if request.POST.get("confirmed") else None)

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
    form = ReadersForm(request.POST) if request.method == "POST" else ReadersForm.of(present)

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
        form = DocumentTextForm(request.POST)
    else:
        form = DocumentTextForm(initial={"content": document.text, "expected_revision": document.revision})

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
    form = TitleForm(request.POST if request.method == "POST" else None, initial=initial)
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
    form = DocumentForm(request.POST) if request.method == "POST" else DocumentForm.of(document)
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
