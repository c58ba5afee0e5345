"""Documents changed by hand on pages: many chosen in the table, or one by its form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.db.models import Sum
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, ngettext, ngettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.domain.identity import can_be_stored
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    next_address,
    render_page,
    submit_form,
)
from collections_app.models import Collection, Document
from collections_app.policies import policy_for
from collections_app.services.documents.bulk_changes import BulkChange, BulkOutcome, DocumentResult, change_documents
from collections_app.services.documents.document_tree import attached_to
from collections_app.services.documents.edits import edit_document
from collections_app.services.documents.selection import count_facets
from collections_app.services.governance.delete_guards import is_guarded
from collections_app.services.indexing.revisions import count_revisions
from collections_app.views.collections import find_collection, find_document
from collections_app.views.forms.curation import BulkLabelForm, DocumentForm, Selection

LISTED_MAX = 20
REASONS_MAX = 3
SIMPLE = ("enable", "disable", "archive", "unarchive", "reindex", "delete")
WORDS = {
    "enable": gettext_lazy("Enable"),
    "disable": gettext_lazy("Disable"),
    "archive": gettext_lazy("Archive"),
    "unarchive": gettext_lazy("Unarchive"),
    "reindex": gettext_lazy("Re-index"),
    "delete": gettext_lazy("Delete"),
}
DONE = {
    "enable": ngettext_lazy("%(count)s document enabled.", "%(count)s documents enabled.", "count"),
    "disable": ngettext_lazy("%(count)s document disabled.", "%(count)s documents disabled.", "count"),
    "archive": ngettext_lazy("%(count)s document archived.", "%(count)s documents archived.", "count"),
    "unarchive": ngettext_lazy("%(count)s document unarchived.", "%(count)s documents unarchived.", "count"),
    "reindex": ngettext_lazy(
        "%(count)s document queued for re-indexing.", "%(count)s documents queued for re-indexing.", "count"
    ),
    "delete": ngettext_lazy("%(count)s document deleted.", "%(count)s documents deleted.", "count"),
    "label": ngettext_lazy("%(count)s document updated.", "%(count)s documents updated.", "count"),
}
EXPLAINED = {
    "enable": gettext_lazy("They are searched again."),
    "disable": gettext_lazy("They are kept, but not searched."),
    "archive": gettext_lazy("They are kept, not searched, and read-only until unarchived."),
    "unarchive": gettext_lazy("They are editable and searched again."),
    "reindex": gettext_lazy(
        "They are parsed and chunked again in the background. The current version stays searchable."
    ),
    "delete": gettext_lazy("This cannot be undone. To only exclude them from search, disable or archive them."),
}


@require_http_methods(["GET", "POST"])
def change(request: PageRequest, name: str) -> HttpResponse:
    """Change the chosen documents; a GET only asks.

    What asks first: deleting, whatever is done to all that match, and taking out of results what somebody counts on.
    """
    collection = find_collection(name)
    if request.method == "GET":
        named = Selection(tuple(name for name in request.GET.getlist("doc_id") if can_be_stored(name)))
        return _confirm(request, collection, named, list(named.doc_ids), "delete")
    selection = Selection.read(request.POST)
    action = request.POST.get("action", "")
    back = next_address(request, collection_address(collection))
    if action not in (*SIMPLE, "label") or (selection.filter is None and not selection.doc_ids):
        messages.warning(request, gettext("Select documents first."))
        return redirect(back)
    with RefusalMessages(request):
        chosen = selection.choose(collection)
        if action == "label":
            return _label(request, collection, selection, chosen)
        if not request.POST.get("confirmed") and (
            action == "delete"
            or selection.filter is not None
            or (action in ("disable", "archive") and is_guarded(collection, chosen))
        ):
            return _confirm(request, collection, selection, chosen, action)
        _tell(request, action, change_documents(collection, BulkChange(action), chosen, actor=request.user))
    return redirect(back)


def _tell(request: PageRequest, action: str, outcome: BulkOutcome) -> None:
    done = outcome.count("changed", "queued", "deleted")
    parts = [DONE[action] % {"count": done}]
    if chunks := outcome.removed.get("chunks", 0):
        parts.append(ngettext("%(count)s chunk deleted.", "%(count)s chunks deleted.", chunks) % {"count": chunks})
    refused = [result for result in outcome.results if result.status == "refused"]
    if unchanged := outcome.count("unchanged"):
        text = ngettext("%(count)s document unchanged.", "%(count)s documents unchanged.", unchanged)
        parts.append(text % {"count": unchanged})
    if unknown := outcome.count("unknown"):
        text = ngettext("%(count)s document no longer exists.", "%(count)s documents no longer exist.", unknown)
        parts.append(text % {"count": unknown})
    if not refused:
        messages.success(request, " ".join(parts))
        return
    text = ngettext(
        "%(count)s document not changed: %(reasons)s.", "%(count)s documents not changed: %(reasons)s.", len(refused)
    )
    reasons = [result.error for result in refused[:REASONS_MAX]]
    if len(refused) > REASONS_MAX:
        reasons.append(gettext("and %(count)s more") % {"count": len(refused) - REASONS_MAX})
    parts.append(text % {"count": len(refused), "reasons": "; ".join(reasons)})
    messages.warning(request, " ".join(parts))


def _confirm(
    request: PageRequest, collection: Collection, selection: Selection, chosen: Sequence[str], action: str
) -> HttpResponse:
    rows = Document.objects.filter(collection=collection, doc_id__in=chosen)
    context = _describe_chosen(request, collection, selection, chosen)
    if not context["documents"]:
        raise Http404("none of these documents is in the collection")
    context |= {
        "action": action,
        "word": WORDS[action],
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


@require_http_methods(["GET", "POST"])
def edit(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Title, tags, metadata and chunk policy of one document."""
    collection, document = find_document(name, doc_id)
    form = DocumentForm(request.POST) if request.method == "POST" else DocumentForm.of(document)
    form.suggest(policy_for(collection))

    def save() -> HttpResponse:
        expected = form.cleaned_data["expected_revision"]
        changes = form.changes(document)
        edited = edit_document(collection, doc_id, changes, expected_revision=expected, actor=request.user)
        saved = gettext("saved as revision %(revision)s.") % {"revision": edited.revision}
        done = gettext("no changes.") if edited.revision == document.revision else saved
        messages.success(request, f"{doc_id} {done}")
        return redirect("collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "document": document, "form": form, "part": "edit"}
    return response or render_page(request, "collections/edit_document.html", context, status=status)
