"""Collections in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.html import format_html
from django.utils.safestring import SafeString

from collections_app.admin.base import ReadOnlyAdmin, list_link, page_link, row_action
from collections_app.errors import ServiceError
from collections_app.http.downloads import download_response
from collections_app.models import Collection, Document
from collections_app.services.collections.deletion import record_deletion
from collections_app.services.collections.invariant_check import request_check
from collections_app.services.documents import documents as document_services
from collections_app.services.generations.recall_probes import submit_probe
from collections_app.services.jobs.cancellation import cancel_collection_jobs
from collections_app.services.jobs.queue import submit_index_build
from collections_app.services.jobs.retries import retry_collection_jobs
from collections_app.services.transfer.export import open_export
from ragd.errors import RagdError


@admin.register(Collection)
class CollectionAdmin(ReadOnlyAdmin):
    list_display = (
        "name", "embed_model", "embed_dims", "hybrid_enabled", "documents_shown", "chunks_shown", "index", "updated_at",
    )  # fmt: skip
    list_filter = ("hybrid_enabled", "embed_model", "language")
    search_fields = ("name", "description")
    ordering = ("name",)
    actions = (
        "reindex_all", "build_index", "probe_recall", "check_stored", "retry_failed", "cancel_jobs", "export",
        "delete_collections",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Collection]:
        return Collection.objects.live().with_counts()

    @admin.display(description="documents", ordering="document_total")
    def documents_shown(self, collection: Any) -> SafeString:
        return list_link("document", collection.document_total, collection__id__exact=collection.pk)

    @admin.display(description="chunks", ordering="chunk_total")
    def chunks_shown(self, collection: Any) -> SafeString:
        return list_link("chunk", collection.chunk_total, collection__id__exact=collection.pk)

    @admin.display(description="index")
    def index(self, collection: Collection) -> SafeString:
        generations = list_link("generation", collection.generation, collection__id__exact=collection.pk)
        change = page_link("build another", "collections:generations", collection.name)
        return format_html("generation {}, {}", generations, change)

    reindex_all = row_action(
        "Re-index all documents of the selected collections",
        lambda collection, user: len(document_services.reindex_documents(collection, _doc_ids(collection), actor=user)),
        "queued for indexing again",
        noun="document",
    )
    build_index = row_action(
        "Build the vector index of the selected collections",
        lambda collection, _: submit_index_build(collection) is not None,
        "queued; an index that is there stays",
        noun="build",
    )
    probe_recall = row_action(
        "Measure the recall of the selected collections",
        lambda collection, user: submit_probe(collection, actor=user),
        "being measured",
    )
    check_stored = row_action(
        "Check what is stored of the selected collections",
        lambda collection, user: request_check(collection, actor=user),
        "being checked",
    )
    retry_failed = row_action(
        "Retry what failed in the selected collections",
        lambda collection, user: retry_collection_jobs(collection, actor=user),
        "queued again",
        noun="job",
    )
    cancel_jobs = row_action(
        "Cancel every job of the selected collections",
        lambda collection, user: cancel_collection_jobs(collection, actor=user),
        "cancelled",
        noun="job",
    )

    @admin.action(description="Export the selected collection to one file")
    def export(self, request: HttpRequest, rows: QuerySet[Collection]) -> HttpResponseBase | None:
        chosen = list(rows)
        if len(chosen) != 1:
            self.message_user(request, "Choose one collection: each is a file of its own.", messages.WARNING)
            return None
        try:
            export = open_export(chosen[0], actor=request.user)
        except (ServiceError, RagdError) as error:
            self.message_user(request, error.message, messages.WARNING)
            return None
        return download_response(request, export, export.content_type, export.name)

    @admin.action(description="Delete the selected collections with everything in them", permissions=["manage"])
    def delete_collections(self, request: HttpRequest, rows: QuerySet[Collection]) -> None:
        for collection in rows:
            try:
                operation = record_deletion(collection, actor=request.user)
            except (ServiceError, RagdError) as error:
                self.message_user(request, f"{collection}: {error.message}", messages.WARNING)
                continue
            before = operation.report["before"]
            left = sum(operation.report["after"].values())
            proof = page_link("the proof", "collections:operation", operation.pk)
            text = f"Deleted {collection.name}: {before['documents']} documents, {before['chunks']} chunks."
            words = format_html("{} {} rows are left in any table: {}.", text, left, proof)
            self.message_user(request, words, messages.SUCCESS)


def _doc_ids(collection: Collection) -> list[str]:
    return list(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
