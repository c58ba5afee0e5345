"""Documents of a collection: the table, the trash, and a text that is written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.document_access import resolve
from collections_app.access.readers import name_readers
from collections_app.access.rules import READ, WRITE, needs
from collections_app.chunks.policies import policy_for
from collections_app.collections.forms import TextForm
from collections_app.collections.retention_periods import kept_for
from collections_app.collections.views import find_collection
from collections_app.documents.document_tree import folders_of
from collections_app.documents.filters import (
    FilterRow,
    complete,
    filter_of_rows,
    metadata_keys,
    offered_fields,
    rows_of_filter,
    values_of,
    write_value,
)
from collections_app.documents.forms import DOCUMENT_SORTS, FILTER_PREFIX
from collections_app.documents.selection import DocumentFilter, Facet, count_facets, read_filter
from collections_app.documents.services import ingest_text
from collections_app.documents.trash import empty_trash, restore_documents
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

DOCUMENTS_PER_PAGE = 50
FOLDERS = "collections/parts/folders_filter.html"
FAILED = "failed"  # as a state in the address: files that failed, in place of documents
DOCUMENT_FILTER_EXAMPLE = "title starts with 'Annual' and metadata.year >= 2024"
DOCUMENTS = ListKind(
    "documents",
    gettext_lazy("document,documents"),
    gettext_lazy("ID, title or source"),
    sorts=DOCUMENT_SORTS,
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
    listing = list_page(request, kind, failed.listed() if failed_only else matching.listed().with_original(), chips)
    if not failed_only:
        name_readers(listing.page.object_list)
    is_narrow = failed_only or listing.page.number > 1 or document_filter != DocumentFilter(q=document_filter.q)
    context = (
        listing.context()
        | active_jobs(collection)
        | {
            "collection": collection,
            "tab": "documents",
            "wanted": document_filter,
            "carried": document_filter.as_params(FILTER_PREFIX),
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
        words = metadata_keys(collection) if collection else []
    else:
        words = complete(collection, text, of_documents=query.get("of") == "documents")
    return render(request, "components/options.html", {"completions": words})


@needs(READ, methods="GET")
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
        "address": reverse("collections:filter-builder", query=asked),
        "join": shown[0] if shown else "",
        "rows": [(row, _offered(collection, row.field)) for row in (*shown[1], FilterRow())] if shown else None,
        "fields": offered_fields(collection, of_documents=of_documents),
        "expression": expression,
        "wrong": wrong,
    }
    return render(request, "components/filter_builder.html", context)


def _offered(collection: Collection | None, field: str) -> list[str]:
    return [write_value(field, value) for value in values_of(collection, field)]


@needs(WRITE, methods="GET POST")
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
        return tell(request, message % values, "collections:document", name, doc_id)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "form": form, "tab": "documents"}
    return response or render_page(request, "collections/text.html", context, status=status)
