"""The stock admin over every model; what an action changes goes through the services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from collections_app.errors import ServiceError
from collections_app.models import (
    ApiKey,
    Chunk,
    Collection,
    Document,
    Generation,
    GenerationDocument,
    IdempotencyRecord,
    IngestJob,
    StoredProbe,
    Upload,
    WorkerHeartbeat,
)
from collections_app.services import collections as collection_services
from collections_app.services import documents as document_services
from collections_app.services import generations as generation_services
from collections_app.services import jobs as job_services
from collections_app.services import keys as key_services

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Rows that services write: looked at here, changed only by actions."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def may_change(self, request: HttpRequest) -> bool:
        """Whether the user may run actions that change rows of this model."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    has_manage_permission = may_change


@admin.register(Collection)
class CollectionAdmin(ReadOnlyAdmin):
    list_display = (
        "name",
        "embed_model",
        "embed_dims",
        "hybrid_enabled",
        "documents_shown",
        "chunks_shown",
        "updated_at",
    )
    list_filter = ("hybrid_enabled", "embed_model", "language")
    search_fields = ("name", "description")
    ordering = ("name",)
    actions = ("reindex_all", "delete_collections")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Collection]:
        return Collection.objects.live().with_counts()

    @admin.display(description="documents", ordering="document_total")
    def documents_shown(self, collection: Any) -> SafeString:
        return _link("document", collection.document_total, collection__id__exact=collection.pk)

    @admin.display(description="chunks", ordering="chunk_total")
    def chunks_shown(self, collection: Any) -> SafeString:
        return _link("chunk", collection.chunk_total, collection__id__exact=collection.pk)

    @admin.action(description="Re-index all documents of the selected collections", permissions=["manage"])
    def reindex_all(self, request: HttpRequest, rows: QuerySet[Collection]) -> None:
        queued = 0
        for collection in rows:
            ids = Document.objects.filter(collection=collection).values_list("doc_id", flat=True)
            queued += len(document_services.reindex_documents(collection, ids, actor=request.user))
        self.message_user(request, f"{queued} documents are queued for indexing again.", messages.SUCCESS)

    @admin.action(description="Delete the selected collections with everything in them", permissions=["manage"])
    def delete_collections(self, request: HttpRequest, rows: QuerySet[Collection]) -> None:
        for collection in rows:
            counts = collection_services.delete_collection(collection, actor=request.user)["before"]
            text = f"Deleted {collection.name}: {counts['documents']} documents, {counts['chunks']} chunks."
            self.message_user(request, text, messages.SUCCESS)


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "title", "collection", "enabled", "revision", "chunk_count", "token_count", "media_type",
        "updated_at",
    )  # fmt: skip
    list_filter = ("enabled", "collection", "media_type")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "title", "source")
    date_hierarchy = "updated_at"
    ordering = ("-updated_at", "doc_id")
    actions = ("reindex", "enable", "disable", "delete_documents")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        rows = Document.objects.filter(collection__deleted_at__isnull=True)
        return rows.listed() if _is_list(request) else rows

    @admin.action(description="Re-index the selected documents", permissions=["manage"])
    def reindex(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        queued = _per_collection(
            rows, lambda collection, ids: len(document_services.reindex_documents(collection, ids, actor=request.user))
        )
        self.message_user(request, f"{queued} documents are queued for indexing again.", messages.SUCCESS)

    @admin.action(description="Enable the selected documents: they are retrieved again", permissions=["manage"])
    def enable(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._switch(request, rows, enabled=True)

    @admin.action(description="Disable the selected documents: kept, not retrieved", permissions=["manage"])
    def disable(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        self._switch(request, rows, enabled=False)

    def _switch(self, request: HttpRequest, rows: QuerySet[Document], *, enabled: bool) -> None:
        def switch(collection: Collection, ids: list[str]) -> int:
            return document_services.set_documents_enabled(collection, ids, enabled=enabled, actor=request.user)

        changed = _per_collection(rows, switch)
        self.message_user(request, f"{changed} documents {'enabled' if enabled else 'disabled'}.", messages.SUCCESS)

    @admin.action(description="Delete the selected documents with chunks and files", permissions=["manage"])
    def delete_documents(self, request: HttpRequest, rows: QuerySet[Document]) -> None:
        def delete(collection: Collection, ids: list[str]) -> int:
            return document_services.delete_documents(collection, ids, actor=request.user)["documents"]

        self.message_user(request, f"{_per_collection(rows, delete)} documents deleted.", messages.SUCCESS)


@admin.register(Chunk)
class ChunkAdmin(ReadOnlyAdmin):
    list_display = ("doc_id", "chunk_index", "collection", "enabled", "token_count", "revision", "beginning")
    list_filter = ("enabled", "collection")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "content")
    ordering = ("collection_id", "doc_id", "chunk_index")
    exclude = ("embedding", "lexical", "fts")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Chunk]:
        return Chunk.objects.light().filter(collection__deleted_at__isnull=True)

    @admin.display(description="content")
    def beginning(self, chunk: Chunk) -> str:
        return f"{chunk.content[:80]}…" if len(chunk.content) > 80 else chunk.content


@admin.register(IngestJob)
class IngestJobAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "kind", "collection", "state", "stage", "progress", "attempts", "error_type", "created_at",
        "finished_at",
    )  # fmt: skip
    list_filter = ("state", "kind", "stage", "error_type", "collection")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "source", "error")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("retry", "cancel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[IngestJob]:
        return IngestJob.objects.filter(collection__deleted_at__isnull=True)

    @admin.display(description="chunks")
    def progress(self, job: IngestJob) -> str:
        return f"{job.chunks_done} of {job.chunks_total}" if job.chunks_total else "–"

    @admin.action(description="Retry the selected jobs", permissions=["manage"])
    def retry(self, request: HttpRequest, rows: QuerySet[IngestJob]) -> None:
        self._each(request, rows, job_services.retry_job, "queued again")

    @admin.action(description="Cancel the selected jobs", permissions=["manage"])
    def cancel(self, request: HttpRequest, rows: QuerySet[IngestJob]) -> None:
        self._each(request, rows, job_services.cancel_job, "cancelled")

    def _each(self, request: HttpRequest, rows: QuerySet[IngestJob], change: Callable[..., Any], done: str) -> None:
        changed = 0
        for job in rows:
            try:
                change(job, actor=request.user)
                changed += 1
            except ServiceError as error:
                self.message_user(request, f"{job}: {error.message}", messages.WARNING)
        self.message_user(request, f"{changed} jobs {done}.", messages.SUCCESS)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys are made by POST /v1/api-keys or `manage.py ragd`, which show the secret once, and never deleted."""

    list_display = (
        "label",
        "prefix",
        "scope",
        "limited_to",
        "status_shown",
        "created_at",
        "last_used_at",
        "expires_at",
    )
    list_filter = ("scope", ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("label", "prefix")
    ordering = ("-created_at", "-id")
    exclude = ("key_hash",)
    actions = ("revoke",)

    @admin.display(description="collections")
    def limited_to(self, key: ApiKey) -> str:
        return ", ".join(key.collections) or "all"

    @admin.display(description="status")
    def status_shown(self, key: ApiKey) -> str:
        return key.status

    @admin.action(description="Revoke the selected keys for good", permissions=["manage"])
    def revoke(self, request: HttpRequest, rows: QuerySet[ApiKey]) -> None:
        for key in rows:
            key_services.revoke_key(key, actor=request.user)
        self.message_user(request, f"{len(rows)} keys revoked.", messages.SUCCESS)


@admin.register(Upload)
class UploadAdmin(ReadOnlyAdmin):
    list_display = ("name", "doc_id", "collection", "media_type", "size_bytes", "created_at")
    list_filter = ("collection", "media_type")
    list_select_related = ("collection",)
    search_fields = ("name", "doc_id", "sha256")
    ordering = ("-created_at", "-id")
    exclude = ("content",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Upload]:
        return Upload.objects.listed().filter(collection__deleted_at__isnull=True)


@admin.register(Generation)
class GenerationAdmin(ReadOnlyAdmin):
    """What each collection's index was, is and is to be."""

    list_display = (
        "number", "collection", "state", "progress", "embed_model", "embed_dims", "language", "short_hash",
        "created_at", "swapped_at",
    )  # fmt: skip
    list_filter = ("state", "embed_model", "collection")
    list_select_related = ("collection",)
    search_fields = ("hash", "embed_model")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("activate", "cancel", "drop")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Generation]:
        return Generation.objects.filter(collection__deleted_at__isnull=True)

    @admin.display(description="documents")
    def progress(self, generation: Generation) -> str:
        return f"{generation.documents_done} of {generation.documents_total}" if generation.documents_total else "–"

    @admin.display(description="hash", ordering="hash")
    def short_hash(self, generation: Generation) -> str:
        return generation.hash[:12]

    @admin.action(description="Let the selected generations serve, once caught up", permissions=["manage"])
    def activate(self, request: HttpRequest, rows: QuerySet[Generation]) -> None:
        self._each(request, rows, generation_services.activate_generation, "asked to serve")

    @admin.action(description="Cancel the work on the selected generations", permissions=["manage"])
    def cancel(self, request: HttpRequest, rows: QuerySet[Generation]) -> None:
        self._each(request, rows, generation_services.cancel_generation, "cancelled")

    @admin.action(description="Drop the selected generations that do not serve", permissions=["manage"])
    def drop(self, request: HttpRequest, rows: QuerySet[Generation]) -> None:
        self._each(request, rows, generation_services.drop_generation, "dropped")

    def _each(self, request: HttpRequest, rows: QuerySet[Generation], change: Callable[..., Any], done: str) -> None:
        changed = 0
        for generation in rows:
            try:
                change(generation, actor=request.user)
                changed += 1
            except ServiceError as error:
                self.message_user(request, f"{generation.collection}: {error.message}", messages.WARNING)
        self.message_user(request, f"{changed} generations {done}.", messages.SUCCESS)


@admin.register(GenerationDocument)
class GenerationDocumentAdmin(ReadOnlyAdmin):
    list_display = ("doc_id", "generation", "revision", "enabled", "chunk_count")
    list_filter = ("enabled",)
    list_select_related = ("generation",)
    search_fields = ("doc_id",)
    ordering = ("generation_id", "doc_id")


@admin.register(StoredProbe)
class StoredProbeAdmin(ReadOnlyAdmin):
    list_display = (
        "collection", "generation", "chunk_count", "k", "recall", "filtered_recall", "index_ms", "exact_ms",
        "created_at",
    )  # fmt: skip
    list_filter = ("collection",)
    list_select_related = ("collection",)
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredProbe]:
        return StoredProbe.objects.filter(collection__deleted_at__isnull=True)


@admin.register(WorkerHeartbeat)
class WorkerHeartbeatAdmin(ReadOnlyAdmin):
    list_display = ("name", "host", "pid", "job", "jobs_done", "memory_mb", "started_at", "beat_at")
    list_filter = ("host",)
    search_fields = ("name",)


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(ReadOnlyAdmin):
    list_display = ("key", "owner", "status", "created_at")
    list_filter = ("status",)
    search_fields = ("key",)
    ordering = ("-created_at", "-id")
    exclude = ("response",)


def _is_list(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and str(match.url_name).endswith("_changelist")


def _per_collection(rows: QuerySet[Document], work: Callable[[Collection, list[str]], int]) -> int:
    """Call `work` once per collection with the ids of its documents; the sum of what it returns."""
    groups: dict[Collection, list[str]] = defaultdict(list)
    for document in rows.select_related("collection"):
        groups[document.collection].append(document.doc_id)
    return sum(work(collection, ids) for collection, ids in groups.items())


def _link(model: str, count: int, **query: Any) -> SafeString:
    address = reverse(f"admin:collections_app_{model}_changelist", query=query)
    return format_html('<a href="{}">{}</a>', address, count)
