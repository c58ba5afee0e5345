"""Documents, their revisions, their chunks and the changes of those in the admin."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from collections_app.admin.base import (
    ERASE,
    MANAGE,
    Action,
    CollectionRowsAdmin,
    ReadOnlyAdmin,
    is_list,
    page_link,
    per_collection,
    row_action,
)
from collections_app.admin.form_pages import form_page
from collections_app.admin.uploading import DocumentsForm, upload_page
from collections_app.domain.access_lists import UNRESTRICTED, StatedAccess
from collections_app.errors import ServiceError
from collections_app.http.page_requests import find_or_404, whole_number
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, NearDuplicate
from collections_app.services.chunks.chunk_edits import remove_overlay, set_chunk_enabled
from collections_app.services.documents.bulk_changes import BulkChange, change_documents
from collections_app.services.documents.edits import edit_document, roll_back
from collections_app.services.documents.orphans import drop_orphans
from collections_app.services.governance.document_access import resolve
from collections_app.views.forms.curation import DocumentForm
from ragd.errors import RagdError
from ragd.store.placement import count_nodes

CHOSEN = "collection__id__exact"  # how Django names the filter by collection


class TagsForm(ActionForm):
    """The bar of actions with what some of them need: tags, and the names of who may read."""

    tags = forms.CharField(label=gettext_lazy("Tags:"), required=False)
    groups = forms.CharField(label=gettext_lazy("Groups:"), required=False)
    people = forms.CharField(label=gettext_lazy("People:"), required=False)


def bulk_action(description: str, name: str, done: str, *, status: str = "changed", permission: str = MANAGE) -> Action:
    """An action that makes the `BulkChange` of that name; the message counts the results of that status."""

    @admin.action(description=description, permissions=[permission])
    def run(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Document]) -> None:
        tags = tuple(tag for tag in request.POST.get("tags", "").split(",") if tag.strip())
        try:
            change = BulkChange(name, tags=tags if name.endswith("tags") else ()).checked()
        except RagdError as error:
            model_admin.message_user(request, f"Write the tags beside the action, between commas: {error.message}")
            return

        def work(collection: Collection, ids: list[str]) -> int:
            outcome = change_documents(collection, change, ids, actor=request.user)
            for result in outcome.results:
                if result.error:
                    model_admin.message_user(request, f"{result.doc_id}: {result.error}", messages.WARNING)
            return outcome.count(status)

        model_admin.tell(request, per_collection(rows, work), "document", done)

    return run


@admin.action(description="Delete those whose document is gone", permissions=[ERASE])
def delete_orphans(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
    gone = per_collection(rows, lambda collection, ids: drop_orphans(collection, ids, actor=request.user))
    model_admin.tell(request, gone, "row", "of documents that are gone deleted")


def _names(request: HttpRequest, field: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in request.POST.get(field, "").split(",") if name.strip())


def _change_readers(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Document], done: str) -> None:
    """Let only the groups and people of the bar read the documents; without names, as `done` says, everybody."""
    stated = UNRESTRICTED
    if done == "restricted":
        stated = StatedAccess(True, _names(request, "people"), _names(request, "groups"))

    def work(collection: Collection, ids: list[str]) -> int:
        try:
            change = BulkChange("set_access", access=resolve(collection, stated))
        except RagdError as error:
            model_admin.message_user(request, f"{collection.name}: {error.message}", messages.WARNING)
            return 0
        outcome = change_documents(collection, change, ids, actor=request.user)
        for result in outcome.results:
            if result.error:
                model_admin.message_user(request, f"{result.doc_id}: {result.error}", messages.WARNING)
        return outcome.count("changed")

    model_admin.tell(request, per_collection(rows, work), "document", done)


@admin.action(description="Restrict the selected documents to the groups and people", permissions=[MANAGE])
def restrict(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Document]) -> None:
    _change_readers(model_admin, request, rows, "restricted")


@admin.action(description="Let everybody of the collection read the selected documents", permissions=[MANAGE])
def open_to_all(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Document]) -> None:
    _change_readers(model_admin, request, rows, "opened")


def _roll_back_one(document: Document, user: Any) -> None:
    stored = DocumentRevision.objects.of_document(document.collection_id, document.doc_id)
    numbers = stored.values_list("revision", flat=True)
    if not numbers:
        raise ServiceError("no earlier revision is kept", type="unknown_revision", status=404)
    roll_back(document.collection, document.doc_id, numbers[0], actor=user)


def _enable_chunk(chunk: Chunk, user: Any, *, enabled: bool) -> None:
    set_chunk_enabled(chunk.collection, chunk.doc_id, chunk.chunk_index, enabled=enabled, actor=user)


@admin.register(Document)
class DocumentAdmin(CollectionRowsAdmin):
    list_display = (
        "doc_id", "title", "collection", "enabled", "archived", "revisions", "chunk_count", "token_count", "media_type",
        "updated_at",
    )  # fmt: skip
    list_filter = ("enabled", ("archived_at", admin.EmptyFieldListFilter), "collection", "media_type", "language")
    search_fields = ("doc_id", "title", "source")
    date_hierarchy = "updated_at"
    ordering = ("-updated_at", "doc_id")
    action_form = TagsForm
    addable = True
    fieldsets = (
        (None, {"fields": ("doc_id", "title", "collection", "tags", "metadata", "enabled", "archived_at")}),
        ("Language", {"fields": ("language", "language_stated")}),
        ("From the file", {"fields": ("file_metadata",)}),
        ("Content", {"fields": ("chunk_count", "token_count", "size_chars", "revisions", "warnings", "beginning")}),
        ("Chunking policy", {"fields": ("chunk_policy", "chunk_policy_stated")}),
        ("Origin", {"fields": ("source", "media_type", "source_hash", "content_hash", "created_at", "updated_at")}),
    )
    actions = (
        "reindex", "enable", "disable", "archive", "unarchive", "add_tags", "remove_tags", "restrict", "open_to_all",
        "roll_back_one",
        "delete_documents",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.listed() if is_list(request) else rows

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.edit_view)
        return [path("<path:object_id>/edit/", view, name="collections_app_document_edit"), *super().get_urls()]

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        tools = [("Open", reverse("collections:document", args=[obj.collection.name, obj.doc_id]))]
        if self.may_change(request):
            tools.append(("Edit", reverse("admin:collections_app_document_edit", args=[obj.pk])))
        return tools

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """Files into a collection that is chosen here."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return upload_page(self, request, DocumentsForm)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Title, tags, language and metadata, as the document's page has them."""
        if not self.may_change(request):
            raise PermissionDenied
        rows = self.get_queryset(request).select_related("collection")
        document = find_or_404(rows, pk=whole_number(object_id) or 0)
        form = DocumentForm(request.POST) if request.method == "POST" else DocumentForm.of(document)

        def save() -> HttpResponse:
            expected = form.cleaned_data["expected_revision"]
            edited = edit_document(
                document.collection, document.doc_id, form.changes(document), expected_revision=expected,
                actor=request.user,
            )  # fmt: skip
            self.message_user(request, f"{edited.doc_id} is at revision {edited.revision}.", messages.SUCCESS)
            return redirect("admin:collections_app_document_change", document.pk)

        return form_page(self, request, form, save, title="Edit", submit="Save", original=document)

    @admin.display(description="text")
    def beginning(self, document: Document) -> str:
        return shorten(document.text)

    @admin.display(description="archived", boolean=True, ordering="archived_at")
    def archived(self, document: Document) -> bool:
        return document.archived_at is not None

    @admin.display(description="revision", ordering="revision")
    def revisions(self, document: Document) -> SafeString:
        return page_link(str(document.revision), "collections:history", document.collection.name, document.doc_id)

    reindex = bulk_action("Re-index the selected documents", "reindex", "queued for indexing again", status="queued")
    enable = bulk_action("Enable the selected documents: they are retrieved again", "enable", "enabled")
    disable = bulk_action("Disable the selected documents: kept, not retrieved", "disable", "disabled")
    archive = bulk_action("Archive the selected documents: read-only, not retrieved", "archive", "archived")
    unarchive = bulk_action("Take the selected documents out of the archive", "unarchive", "taken out of the archive")
    add_tags = bulk_action("Add the tags to the selected documents", "add_tags", "tagged")
    remove_tags = bulk_action("Remove the tags from the selected documents", "remove_tags", "tagged")
    restrict = restrict
    open_to_all = open_to_all
    roll_back_one = row_action("Roll the selected documents back to the revision before", _roll_back_one, "rolled back")
    delete_documents = bulk_action(
        "Delete the selected documents with chunks and files", "delete", "deleted", status="deleted", permission=ERASE
    )


@admin.register(DocumentRevision)
class DocumentRevisionAdmin(CollectionRowsAdmin):
    list_display = (
        "doc_id", "revision", "collection", "title", "size_chars", "chunk_count", "reason", "replaced_by",
        "replaced_at",
    )  # fmt: skip
    list_filter = ("collection",)
    search_fields = ("doc_id", "title", "reason", "replaced_by")
    date_hierarchy = "replaced_at"
    ordering = ("-replaced_at", "-id")
    actions = ("roll_back", "drop_orphans")

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.listed() if is_list(request) else rows

    roll_back = row_action(
        "Roll the documents back to the selected revisions",
        lambda row, user: roll_back(row.collection, row.doc_id, row.revision, actor=user),
        "rolled back to",
    )
    drop_orphans = delete_orphans


@admin.register(ChunkOverlay)
class ChunkOverlayAdmin(CollectionRowsAdmin):
    internal = True
    list_display = (
        "doc_id", "kind", "collection", "applies", "revision", "beginning", "created_by", "updated_at",
    )  # fmt: skip
    list_filter = ("kind", "applies", "collection")
    search_fields = ("doc_id", "content", "anchor_text", "created_by")
    ordering = ("-updated_at", "-id")
    actions = ("undo", "drop_orphans")

    @admin.display(description="text")
    def beginning(self, overlay: ChunkOverlay) -> str:
        return shorten(overlay.content or overlay.anchor_text)

    undo = row_action(
        "Undo the selected changes",
        lambda row, user: remove_overlay(row.collection, row.doc_id, row.pk, actor=user),
        "undone",
    )
    drop_orphans = delete_orphans


@admin.register(Chunk)
class ChunkAdmin(CollectionRowsAdmin):
    list_display = (
        "doc_id", "chunk_index", "collection", "enabled", "switched_off", "token_count", "revision", "beginning",
    )  # fmt: skip
    list_filter = ("enabled", "switched_off", "collection")
    search_fields = ("doc_id", "content")
    ordering = ("collection_id", "doc_id", "chunk_index")
    exclude = ("embedding", "lexical", "fts")
    actions = ("disable", "enable")

    def get_queryset(self, request: HttpRequest) -> Any:
        """Of the collection that is chosen by its table, wherever that is; else of all that the coordinator holds."""
        collection = _chosen_collection(request)
        if collection is None:
            return super().get_queryset(request).light()
        return Chunk.objects.of(collection).light().order_by(*self.ordering)

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

    disable = row_action(
        "Disable the selected chunks: kept, not retrieved", partial(_enable_chunk, enabled=False), "disabled"
    )
    enable = row_action(
        "Enable the selected chunks: they are retrieved again", partial(_enable_chunk, enabled=True), "enabled"
    )

    @admin.display(description="content")
    def beginning(self, chunk: Chunk) -> str:
        return shorten(chunk.content)


@admin.register(NearDuplicate)
class NearDuplicateAdmin(CollectionRowsAdmin):
    internal = True
    list_display = ("doc_id", "chunk_index", "of_doc_id", "of_chunk_index", "share", "collection")
    list_filter = ("collection",)
    search_fields = ("doc_id", "of_doc_id")
    ordering = ("collection_id", "doc_id", "chunk_index")


def _chosen_collection(request: HttpRequest) -> Collection | None:
    """The one that the list of rows is filtered by, or was when it led to a row's page; the only one, which Django
    offers no filter for."""
    query = QueryDict(request.GET.get("_changelist_filters", "")).dict() | request.GET.dict()
    live = Collection.objects.live()
    if CHOSEN in query:
        return live.filter(pk=whole_number(query[CHOSEN]) or 0).first()
    first = list(live[:2])
    return first[0] if len(first) == 1 else None


def shorten(text: str) -> str:
    return f"{text[:80]}…" if len(text) > 80 else text
