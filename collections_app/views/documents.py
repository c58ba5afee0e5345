"""Documents of a collection: the table, the trash, and a text that is written by hand."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.domain.formats import counted
from collections_app.http.list_views import read_views
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    field_of,
    next_address,
    page_of,
    render_page,
    submit_form,
    whole_number,
)
from collections_app.models import Collection, Document, IngestJob, TrashedDocument
from collections_app.policies import policy_for
from collections_app.retention_periods import kept_for
from collections_app.services.documents.documents import ingest_text
from collections_app.services.documents.filters.completions import complete, metadata_keys, offered_fields, values_of
from collections_app.services.documents.filters.rows import FilterRow, filter_of_rows, rows_of_filter, write_value
from collections_app.services.documents.folders import folders_of
from collections_app.services.documents.readers import name_readers
from collections_app.services.documents.selection import DocumentFilter, count_facets
from collections_app.services.documents.trash import empty_trash, restore_documents
from collections_app.services.governance.document_access import resolve
from collections_app.views.collections import find_collection
from collections_app.views.forms.collections import TextForm
from collections_app.views.forms.curation import DOCUMENT_SORTS, filter_of_address
from collections_app.views.forms.fields import FILTER_ATTRS, FilterInput
from collections_app.views.forms.metadata import MetadataField
from collections_app.views.jobs import active_jobs
from ragd.errors import InvalidInput

DOCUMENTS_PER_PAGE = 50
FAILED = "failed"  # as a state in the address: files that failed, in place of documents
DOCUMENT_FILTER_EXAMPLE = "title starts with 'Annual' and metadata.year >= 2024"
REASONS_MAX = 3  # of refusals that are told
FAILED_SHOWN = 5  # above the documents


@require_GET
def list_documents(request: PageRequest, name: str) -> HttpResponse:
    """The documents table, with files that failed above; archived ones are shown when they are asked for. No rows under
    a filter that is wrong."""
    collection = find_collection(name)
    wrong = ""
    try:
        document_filter = filter_of_address(request.GET)
        matching = document_filter.rows(collection)
    except InvalidInput as error:
        rest = request.GET.copy()
        del rest["filter"]
        wrong, document_filter, matching = error.message, filter_of_address(rest), Document.objects.none()
    sort = request.GET.get("sort", "")
    sort = sort if sort in DOCUMENT_SORTS else "-updated"
    rows = matching.listed().with_original().order_by(*DOCUMENT_SORTS[sort])
    failed = IngestJob.objects.filter(collection=collection).unresolved().matching(document_filter.q).newest()
    failed_only = request.GET.get("state") == FAILED
    page = page_of(request, failed.listed() if failed_only else rows, DOCUMENTS_PER_PAGE)
    if not failed_only:
        name_readers(page.object_list)
    beside = failed_only or page.number > 1 or document_filter != DocumentFilter(q=document_filter.q)
    context = {
        "collection": collection,
        "tab": "documents",
        "wanted": document_filter,
        "sort": sort,
        "page": page,
        "failed_only": failed_only,
        "failed_files": page if failed_only else [] if beside else failed.listed()[:FAILED_SHOWN],
        "failed_total": failed.count(),
        "is_filtered": document_filter.narrows or failed_only or bool(wrong),
        "wrong_filter": wrong,
        "expression": expression_field(name, request.GET.get("filter", ""), is_wrong=bool(wrong)),
        "present_policy": policy_for(collection).as_dict(),
        "facets": count_facets(collection, document_filter),
        "list_views": read_views(request, "documents"),
        "folders": folders_of(collection, document_filter.folder, state=document_filter.state),
    } | active_jobs(collection)
    parts = {"documents": "collections/parts/documents.html"}
    return render_page(request, "collections/documents.html", context, parts=parts, status=422 if wrong else 200)


@require_GET
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


def expression_field(collection: str, text: str, *, is_wrong: bool) -> SafeString:
    """The input for a typed filter over documents."""
    marks = {"aria-invalid": "true", "aria-describedby": "filter-error"} if is_wrong else {}
    widget = FilterInput({**FILTER_ATTRS, "class": "input mono", "placeholder": DOCUMENT_FILTER_EXAMPLE, **marks})
    widget.collection, widget.of_documents = collection, True
    return widget.render("filter", text, {"id": "id_filter"})


@require_http_methods(["GET", "POST"])
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
    return redirect(next_address(request, reverse("collections:trash", args=[name])))


@require_GET
def filter_completions(request: PageRequest) -> HttpResponse:
    """What may stand next in a typed filter, as the options of its field. field: the parameter that holds the text;
    of=documents: for a list of documents; of=keys: the fields of metadata alone."""
    query = request.GET
    collection = Collection.objects.live().filter(name=query.get("collection", "").replace("\x00", "")).first()
    text = query.get(query.get("field", "filter"), "")
    if query.get("of") == "keys":
        words = metadata_keys(collection) if collection else []
    else:
        words = complete(collection, text, of_documents=query.get("of") == "documents")
    return render(request, "components/options.html", {"completions": words})


@require_GET
def filter_builder(request: PageRequest) -> HttpResponse:
    """A typed filter as rows. field: the parameter that holds its text, id: the id of its input, of and collection: as
    for `filter_completions`. With built=1 the rows hold, and the text that they state goes along; drop: one less."""
    query = request.GET
    collection = Collection.objects.live().filter(name=query.get("collection", "").replace("\x00", "")).first()
    of_documents = query.get("of") == "documents"
    shown: tuple[str, list[FilterRow]] | None = rows_of_filter(query.get(query.get("field", "filter"), ""))
    expression, wrong = None, ""
    if query.get("built"):
        columns = (query.getlist(f"row-{part}") for part in ("field", "op", "value"))
        rows = [FilterRow(*row) for row in zip(*columns, strict=False)]
        dropped = whole_number(query.get("drop"))
        kept = [row for place, row in enumerate(rows) if row.field and place != dropped]
        shown = query.get("row-join", "and"), kept
        try:
            expression = filter_of_rows(*shown)
        except InvalidInput as error:
            wrong = error.message
    asked = {name: query.get(name, "") for name in ("field", "id", "of", "collection")}
    context = asked | {
        "address": f"{reverse('collections:filter-builder')}?{urlencode(asked)}",
        "join": shown[0] if shown else "",
        "rows": [(row, _offered(collection, row.field)) for row in (*shown[1], FilterRow())] if shown else None,
        "fields": offered_fields(collection, of_documents=of_documents),
        "expression": expression,
        "wrong": wrong,
    }
    return render(request, "components/filter_builder.html", context)


def _offered(collection: Collection | None, field: str) -> list[str]:
    return [write_value(field, value) for value in values_of(collection, field)]


@require_http_methods(["GET", "POST"])
def write_text(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    form = TextForm(request.POST or None)
    field_of(form, "metadata", MetadataField).complete_in(name)

    def save() -> HttpResponse:
        data = {name: form.cleaned_data[name] for name in ("doc_id", "title", "content", "tags", "metadata")}
        data |= {
            "language": form.cleaned_data["language"] or None,
            "access": resolve(collection, form.stated_access()),
        }
        doc_id = data.pop("doc_id")
        outcome = ingest_text(collection, doc_id, data.pop("content"), source="page", actor=request.user, **data)
        values = {"doc_id": doc_id, "chunks": counted(outcome.chunks_written, gettext("chunk,chunks"))}
        message = (
            gettext("%(doc_id)s: no changes.") if outcome.unchanged else gettext("%(doc_id)s indexed: %(chunks)s.")
        )
        messages.success(request, message % values)
        return redirect("collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "form": form, "tab": "documents"}
    return response or render_page(request, "collections/text.html", context, status=status)
