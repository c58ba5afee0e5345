"""Documents and chunks in the admin: files are uploaded, rows enabled, disabled, indexed again and deleted."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy

from collections_app.admin.base import ERASE, MANAGE, Action, Listing, ReadOnlyAdmin, register, row_action
from collections_app.chunks.edits import set_chunk_enabled
from collections_app.collections.forms import FileFields
from collections_app.documents.bulk_changes import BulkChange, change_documents
from collections_app.http.form_fields import FilesField
from collections_app.http.page_requests import field_of, submit_form, whole_number
from collections_app.models import Chunk, Collection, Document
from collections_app.uploads.services import UploadOutcome, submit_uploads
from ragd.store.placement import count_nodes

CHOSEN = "collection__id__exact"  # how Django names the filter by collection
TOLD_FILES = 20
NOTE = "Tags and metadata that are left empty stay as they are. A ZIP or TAR is unpacked; each file is a document."


class FilesForm(FileFields):
    """Files, what is said about them, and the collection that they go to."""

    collection = forms.ModelChoiceField(label=gettext_lazy("Collection"), queryset=Collection.objects.none())
    uploads = FilesField(label=gettext_lazy("Files"), help_text=gettext_lazy("One or many."))
    field_order = ("collection", "uploads")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field_of(self, "collection", forms.ModelChoiceField).queryset = Collection.objects.live().by_name()


class DocumentAdmin(ReadOnlyAdmin):
    """Documents; "Add" uploads files."""

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return request.user.has_perm("collections_app.add_document")

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """The form, then the page of the batch that the files came to."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = FilesForm(request.POST or None, request.FILES or None)

        def save() -> HttpResponse:
            collection, files = form.cleaned_data["collection"], form.cleaned_data["uploads"]
            outcomes = submit_uploads(collection, files, form.options(), actor=request.user)
            batch = outcomes[0].batch
            assert batch is not None  # a submission makes one
            self._tell_of(request, [each for each in outcomes if each.status != "queued"])
            return redirect("collections:batch", collection.name, batch.pk)

        response, status = submit_form(request, form, save)
        context = {**self.admin_site.each_context(request), "title": "Upload files", "opts": self.opts, "form": form}
        return response or TemplateResponse(request, "admin/upload.html", context | {"note": NOTE}, status=status)

    def _tell_of(self, request: HttpRequest, outcomes: list[UploadOutcome]) -> None:
        """Name the files that needed no job; those that were rejected first, their errors stand nowhere else."""
        outcomes.sort(key=lambda each: each.status != "rejected")
        lines = [f"{each.name}: {each.status} ({each.error or each.reason})" for each in outcomes[:TOLD_FILES]]
        if left := len(outcomes) - len(lines):
            lines.append(f"and {left} more")
        if lines:
            self.message_user(request, "; ".join(lines), messages.WARNING)


def bulk_action(description: str, name: str, done: str, *, status: str = "changed", permission: str = MANAGE) -> Action:
    """Return an action that makes the `BulkChange` of that name; its message counts the results of that status."""

    @admin.action(description=description, permissions=[permission])
    def run(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Document]) -> None:
        groups: dict[int, list[str]] = defaultdict(list)
        for collection_id, doc_id in rows.values_list("collection_id", "doc_id"):
            groups[collection_id].append(doc_id)
        count = 0
        for collection in Collection.objects.live().filter(pk__in=groups):
            outcome = change_documents(collection, BulkChange(name), groups[collection.pk], actor=request.user)
            for result in outcome.results:
                if result.error:
                    model_admin.message_user(request, f"{result.doc_id}: {result.error}", messages.WARNING)
            count += outcome.count(status)
        model_admin.tell(request, count, done)

    run.__name__ = name
    return run


class ChunkAdmin(ReadOnlyAdmin):
    """Chunks of the chosen collection by its table, wherever that is; else all that the coordinator holds."""

    def get_queryset(self, request: HttpRequest) -> Any:
        collection = _chosen_collection(request)
        if collection is None:
            return super().get_queryset(request).light()
        return Chunk.objects.of(collection).light().order_by(*self.listing.order).prefetch_related("collection")

    def get_list_select_related(self, request: HttpRequest) -> tuple[str, ...]:
        """Without a join of the chosen collection: rows of nodes allow none to who is bound by row policies."""
        return self.list_select_related if _chosen_collection(request) is None else ()

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if _chosen_collection(request) is None and count_nodes(connection):
            self.message_user(request, "Chunks on nodes are listed by collection: choose one.", messages.INFO)
        return super().changelist_view(request, extra_context)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        collection = _chosen_collection(request)
        answer = super().render_change_form(request, context, *args, **kwargs)
        if collection is not None and "row_actions_address" in context:
            context["row_actions_address"] += f"?{CHOSEN}={collection.pk}"
        return answer


def _chosen_collection(request: HttpRequest) -> Collection | None:
    """The one that the list of rows is filtered by, or was when it led to a row's page; the only one, which Django
    offers no filter for."""
    query = QueryDict(request.GET.get("_changelist_filters", "")).dict() | request.GET.dict()
    live = Collection.objects.live()
    if CHOSEN in query:
        return live.filter(pk=whole_number(query[CHOSEN]) or 0).first()
    first = list(live[:2])
    return first[0] if len(first) == 1 else None


def _enable_chunk(chunk: Chunk, user: Any, *, enabled: bool) -> None:
    set_chunk_enabled(chunk.collection, chunk.doc_id, chunk.chunk_index, enabled=enabled, actor=user)


DOCUMENTS = Listing(
    columns=(
        "doc_id", "title", "collection", "state", "revision", "chunk_count", "token_count",
        "media_type", "updated_at",
    ),
    filters=("state", "collection", "media_type", "language"),
    search=("doc_id", "title", "source"),
    order=("-updated_at", "doc_id"),
    dates="updated_at",
    hidden=("text", "page_map", "cell_map", "segments", "access"),
    page=lambda row: reverse("collections:document", args=[row.collection.name, row.doc_id]),
    actions=(
        bulk_action("Re-index the selected documents", "reindex", "queued for indexing again", status="queued"),
        bulk_action("Enable the selected documents: they are retrieved again", "enable", "enabled"),
        bulk_action("Disable the selected documents: kept, not retrieved", "disable", "disabled"),
        bulk_action(
            "Delete the selected documents with chunks and files", "delete", "deleted", status="deleted",
            permission=ERASE,
        ),
    ),
)  # fmt: skip
CHUNKS = Listing(
    columns=("doc_id", "chunk_index", "collection", "enabled", "switched_off", "token_count", "revision", "content"),
    filters=("enabled", "switched_off", "collection"),
    search=("doc_id", "content"),
    order=("collection_id", "doc_id", "chunk_index"),
    hidden=("access",),
    actions=(
        row_action(
            "Disable the selected chunks: kept, not retrieved", partial(_enable_chunk, enabled=False), "disabled",
            name="disable",
        ),
        row_action(
            "Enable the selected chunks: they are retrieved again", partial(_enable_chunk, enabled=True), "enabled",
            name="enable",
        ),
    ),
)  # fmt: skip

register({Document: DOCUMENTS}, DocumentAdmin)
register({Chunk: CHUNKS}, ChunkAdmin)
