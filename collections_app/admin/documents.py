"""Documents, their revisions, their chunks and the changes of those in the admin."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from collections_app.admin.base import ReadOnlyAdmin, is_list, page_link, per_collection
from collections_app.errors import ServiceError
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, NearDuplicate
from collections_app.services.chunks.chunk_edits import remove_overlay, set_chunk_enabled
from collections_app.services.documents.bulk_changes import BulkChange, BulkOutcome, change_documents
from collections_app.services.documents.edits import roll_back
from collections_app.services.documents.orphans import drop_orphans
from collections_app.templatetags.interface import counted
from ragd.errors import RagdError


class TagsForm(ActionForm):
    """The bar of actions with the tags that two of them need."""

    tags = forms.CharField(label="Tags:", required=False)


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "title", "collection", "enabled", "archived", "revisions", "chunk_count", "token_count", "media_type",
        "updated_at",
    )  # fmt: skip
    list_filter = ("enabled", ("archived_at", admin.EmptyFieldListFilter), "collection", "media_type")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "title", "source")
    date_hierarchy = "updated_at"
    ordering = ("-updated_at", "doc_id")
    action_form = TagsForm
    actions = (
        "reindex", "enable", "disable", "archive", "unarchive", "add_tags", "remove_tags", "roll_back_one",
        "delete_documents",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        rows = Document.objects.filter(collection__deleted_at__isnull=True)
        return rows.listed() if is_list(request) else rows

    @admin.display(description="archived", boolean=True, ordering="archived_at")
    def archived(self, document: Document) -> bool:
        return document.archived_at is not None

    @admin.display(description="revision", ordering="revision")
    def revisions(self, document: Document) -> SafeString:
        return page_link(str(document.revision), "collections:history", document.collection.name, document.doc_id)

    @admin.action(description="Re-index the selected documents", permissions=["manage"])
    def reindex(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        queued = self._change(request, rows, BulkChange("reindex"), "queued")
        self.message_user(request, f"{counted(queued, 'document')} queued for indexing again.", messages.SUCCESS)

    @admin.action(description="Enable the selected documents: they are retrieved again", permissions=["manage"])
    def enable(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._tell(request, self._change(request, rows, BulkChange("enable"), "changed"), "enabled")

    @admin.action(description="Disable the selected documents: kept, not retrieved", permissions=["manage"])
    def disable(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._tell(request, self._change(request, rows, BulkChange("disable"), "changed"), "disabled")

    @admin.action(description="Archive the selected documents: read-only, not retrieved", permissions=["manage"])
    def archive(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._tell(request, self._change(request, rows, BulkChange("archive"), "changed"), "archived")

    @admin.action(description="Take the selected documents out of the archive", permissions=["manage"])
    def unarchive(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._tell(request, self._change(request, rows, BulkChange("unarchive"), "changed"), "taken out of the archive")

    @admin.action(description="Add the tags to the selected documents", permissions=["manage"])
    def add_tags(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._retag(request, rows, "add_tags")

    @admin.action(description="Remove the tags from the selected documents", permissions=["manage"])
    def remove_tags(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._retag(request, rows, "remove_tags")

    @admin.action(description="Roll the selected documents back to the revision before", permissions=["manage"])
    def roll_back_one(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        def back(document: Document) -> None:
            stored = DocumentRevision.objects.of_document(document.collection_id, document.doc_id)
            numbers = stored.values_list("revision", flat=True)
            if not numbers:
                raise ServiceError("no earlier revision is kept", type="unknown_revision", status=404)
            roll_back(document.collection, document.doc_id, numbers[0], actor=request.user)

        self.do_each(request, rows.select_related("collection"), back, "rolled back")

    @admin.action(description="Delete the selected documents with chunks and files", permissions=["manage"])
    def delete_documents(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._tell(request, self._change(request, rows, BulkChange("delete"), "deleted"), "deleted")

    def _retag(self, request: HttpRequest, rows: QuerySet[Document], action: str) -> None:
        tags = tuple(tag for tag in request.POST.get("tags", "").split(",") if tag.strip())
        try:
            changed = self._change(request, rows, BulkChange(action, tags=tags).checked(), "changed")
        except RagdError as error:
            self.message_user(request, f"Write the tags beside the action, between commas: {error.message}")
            return
        self._tell(request, changed, "tagged")

    def _change(self, request: HttpRequest, rows: QuerySet[Document], change: BulkChange, done: str) -> int:
        """How many it was done to; each refusal is told."""

        def work(collection: Collection, ids: list[str]) -> int:
            outcome = change_documents(collection, change, ids, actor=request.user)
            self._tell_refusals(request, outcome)
            return outcome.count(done)

        return per_collection(rows, work)

    def _tell_refusals(self, request: HttpRequest, outcome: BulkOutcome) -> None:
        for result in outcome.results:
            if result.error:
                self.message_user(request, f"{result.doc_id}: {result.error}", messages.WARNING)

    def _tell(self, request: HttpRequest, count: int, done: str) -> None:
        self.message_user(request, f"{counted(count, 'document')} {done}.", messages.SUCCESS)


@admin.register(DocumentRevision)
class DocumentRevisionAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "revision", "collection", "title", "size_chars", "chunk_count", "reason", "replaced_by",
        "replaced_at",
    )  # fmt: skip
    list_filter = ("collection",)
    list_select_related = ("collection",)
    search_fields = ("doc_id", "title", "reason", "replaced_by")
    date_hierarchy = "replaced_at"
    ordering = ("-replaced_at", "-id")
    actions = ("roll_back", "drop_orphans")

    def get_queryset(self, request: HttpRequest) -> QuerySet[DocumentRevision]:
        rows = DocumentRevision.objects.filter(collection__deleted_at__isnull=True)
        return rows.listed() if is_list(request) else rows

    @admin.action(description="Roll the documents back to the selected revisions", permissions=["manage"])
    def roll_back(self, request: HttpRequest, rows: QuerySet[DocumentRevision]) -> None:
        def back(row: DocumentRevision) -> None:
            roll_back(row.collection, row.doc_id, row.revision, actor=request.user)

        self.do_each(request, rows.select_related("collection"), back, "rolled back to")

    @admin.action(description="Delete those whose document is gone", permissions=["manage"])
    def drop_orphans(self, request: HttpRequest, rows: QuerySet[DocumentRevision]) -> None:
        tell_orphans(self, request, rows)


def tell_orphans(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any, Any]) -> None:
    gone = per_collection(rows, lambda collection, ids: drop_orphans(collection, ids, actor=request.user))
    model_admin.message_user(request, f"{counted(gone, 'row')} of documents that are gone deleted.", messages.SUCCESS)


@admin.register(ChunkOverlay)
class ChunkOverlayAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "kind", "collection", "applies", "revision", "beginning", "created_by", "updated_at",
    )  # fmt: skip
    list_filter = ("kind", "applies", "collection")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "content", "anchor_text", "created_by")
    ordering = ("-updated_at", "-id")
    actions = ("undo", "drop_orphans")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ChunkOverlay]:
        return ChunkOverlay.objects.filter(collection__deleted_at__isnull=True)

    @admin.display(description="text")
    def beginning(self, overlay: ChunkOverlay) -> str:
        return shorten(overlay.content or overlay.anchor_text)

    @admin.action(description="Undo the selected changes", permissions=["manage"])
    def undo(self, request: HttpRequest, rows: QuerySet[ChunkOverlay]) -> None:
        def take_back(row: ChunkOverlay) -> None:
            remove_overlay(row.collection, row.doc_id, row.pk, actor=request.user)

        self.do_each(request, rows.select_related("collection"), take_back, "undone")

    @admin.action(description="Delete those whose document is gone", permissions=["manage"])
    def drop_orphans(self, request: HttpRequest, rows: QuerySet[ChunkOverlay]) -> None:
        tell_orphans(self, request, rows)


@admin.register(Chunk)
class ChunkAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "chunk_index", "collection", "enabled", "switched_off", "token_count", "revision", "beginning",
    )  # fmt: skip
    list_filter = ("enabled", "switched_off", "collection")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "content")
    ordering = ("collection_id", "doc_id", "chunk_index")
    exclude = ("embedding", "lexical", "fts")
    actions = ("disable", "enable")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Chunk]:
        return Chunk.objects.light().filter(collection__deleted_at__isnull=True)

    @admin.action(description="Disable the selected chunks: kept, not retrieved", permissions=["manage"])
    def disable(self, request: HttpRequest, rows: QuerySet[Chunk]) -> None:
        self._switch(request, rows, enabled=False)

    @admin.action(description="Enable the selected chunks: they are retrieved again", permissions=["manage"])
    def enable(self, request: HttpRequest, rows: QuerySet[Chunk]) -> None:
        self._switch(request, rows, enabled=True)

    def _switch(self, request: HttpRequest, rows: QuerySet[Chunk], *, enabled: bool) -> None:
        def switch(chunk: Chunk) -> None:
            set_chunk_enabled(chunk.collection, chunk.doc_id, chunk.chunk_index, enabled=enabled, actor=request.user)

        self.do_each(request, rows.select_related("collection"), switch, "enabled" if enabled else "disabled")

    @admin.display(description="content")
    def beginning(self, chunk: Chunk) -> str:
        return shorten(chunk.content)


@admin.register(NearDuplicate)
class NearDuplicateAdmin(ReadOnlyAdmin):
    list_display = ("doc_id", "chunk_index", "of_doc_id", "of_chunk_index", "share", "collection")
    list_filter = ("collection",)
    search_fields = ("doc_id", "of_doc_id")
    ordering = ("collection_id", "doc_id", "chunk_index")
    list_select_related = ("collection",)


def shorten(text: str) -> str:
    return f"{text[:80]}…" if len(text) > 80 else text
