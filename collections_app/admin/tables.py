"""The rows of collections_app in the admin: one line for each model."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import EmptyFieldListFilter
from django.db.models import Model
from django.urls import reverse

from collections_app.access.api_keys import revoke_key
from collections_app.admin.base import ERASE, Listing, register, row_action
from collections_app.collections.deletion import record_deletion
from collections_app.documents.services import drop_orphans, drop_unneeded_uploads, reindex_documents
from collections_app.index.services import cancel_index_version, drop_index_version
from collections_app.jobs.recovery import (
    cancel_job,
    cancel_jobs,
    retry_job,
    retry_jobs,
)
from collections_app.models import (
    ApiKey,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    FetchedSource,
    FetchHost,
    IdempotencyRecord,
    IndexVersion,
    IndexVersionDocument,
    IngestBatch,
    IngestJob,
    ModelSetting,
    NearDuplicate,
    Operation,
    Provider,
    Report,
    RoleGrant,
    Upload,
    WorkerHeartbeat,
)


def _reindex(collection: Collection, user: Any) -> int:
    doc_ids = Document.objects.filter(collection=collection).values_list("doc_id", flat=True)
    return len(reindex_documents(collection, list(doc_ids), actor=user))


delete_orphans = row_action(
    "Delete those whose document is gone",
    lambda row, user: drop_orphans(row.collection, [row.doc_id], actor=user),
    "of documents that are gone deleted", name="drop_orphans", noun="row", permission=ERASE,
)  # fmt: skip

TABLE: dict[type[Model], Listing] = {
    Collection: Listing(
        columns=("name", "embed_model", "embed_dims", "hybrid_enabled", "language", "index_version", "updated_at"),
        filters=("hybrid_enabled", "embed_model", "language"),
        search=("name", "description"),
        order=("name",),
        page=lambda row: reverse("collections:detail", args=[row.name]),
        actions=(
            row_action(
                "Re-index all documents of the selected collections", _reindex, "queued for indexing again",
                name="reindex_all", noun="document",
            ),
            row_action(
                "Retry what failed in the selected collections",
                lambda row, user: retry_jobs(row, actor=user), "queued again",
                name="retry_failed", noun="job",
            ),
            row_action(
                "Cancel every job of the selected collections",
                lambda row, user: cancel_jobs(row, actor=user), "cancelled", name="cancel_jobs", noun="job",
            ),
            row_action(
                "Delete the selected collections with everything in them",
                lambda row, user: record_deletion(row, actor=user), "deleted",
                name="delete_collections", permission=ERASE,
            ),
        ),
    ),
    DocumentRevision: Listing(
        columns=("doc_id", "revision", "collection", "title", "size_chars", "reason", "replaced_by", "replaced_at"),
        filters=("collection",),
        search=("doc_id", "title", "reason", "replaced_by"),
        order=("-replaced_at", "-id"),
        dates="replaced_at",
        hidden=("text", "page_map", "cell_map", "segments", "chunks"),
        page=lambda row: reverse("collections:document", args=[row.collection.name, row.doc_id]) + "?view=history",
        actions=(delete_orphans,),
    ),
    ChunkOverlay: Listing(
        columns=("doc_id", "kind", "collection", "applies", "revision", "content", "created_by", "updated_at"),
        filters=("kind", "applies", "collection"),
        search=("doc_id", "content", "anchor_text", "created_by"),
        order=("-updated_at", "-id"),
        actions=(delete_orphans,),
    ),
    NearDuplicate: Listing(
        columns=("doc_id", "chunk_index", "of_doc_id", "of_chunk_index", "share", "collection"),
        filters=("collection",),
        search=("doc_id", "of_doc_id"),
        order=("collection_id", "doc_id", "chunk_index"),
    ),
    FetchedSource: Listing(
        columns=("address", "kind", "size_bytes", "etag", "checked_at"),
        filters=("kind",),
        search=("address", "document__doc_id"),
        order=("-checked_at", "-pk"),
    ),
    FetchHost: Listing(columns=("host", "next_at", "asked_at"), search=("host",), order=("-asked_at", "host")),
    Upload: Listing(
        columns=("name", "doc_id", "collection", "media_type", "size_bytes", "created_at"),
        filters=("collection", "media_type"),
        search=("name", "doc_id", "sha256"),
        order=("-created_at", "-id"),
        actions=(
            row_action(
                "Delete those that no document and no job needs",
                lambda row, user: drop_unneeded_uploads([row], actor=user), "deleted; the others are needed",
                name="drop_unneeded", noun="file", permission=ERASE,
            ),
        ),
    ),
    IngestJob: Listing(
        columns=(
            "doc_id", "kind", "collection", "state", "stage", "chunks_done", "attempts", "error_type", "created_at",
            "finished_at",
        ),
        filters=("state", "kind", "stage", "error_type", "collection"),
        search=("doc_id", "source", "error"),
        order=("-created_at", "-id"),
        dates="created_at",
        actions=(
            row_action(
                "Retry the selected jobs", lambda row, user: retry_job(row, actor=user), "queued again", name="retry"
            ),
            row_action(
                "Cancel the selected jobs", lambda row, user: cancel_job(row, actor=user), "cancelled", name="cancel"
            ),
        ),
    ),
    IngestBatch: Listing(
        columns=(
            "label", "kind", "collection", "submitted", "unchanged", "skipped", "rejected", "deleted", "open",
            "created_by", "created_at",
        ),
        filters=("kind", "open", "collection"),
        search=("label", "created_by"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=lambda row: reverse("collections:batch", args=[row.collection.name, row.pk]),
        actions=(
            row_action(
                "Retry what failed of the selected batches", lambda row, user: retry_jobs(row, actor=user),
                "queued again", name="retry_failed", noun="job",
            ),
            row_action(
                "Cancel what is left of the selected batches", lambda row, user: cancel_jobs(row, actor=user),
                "cancelled", name="cancel", noun="job",
            ),
        ),
    ),
    IndexVersion: Listing(
        columns=(
            "number", "collection", "state", "documents_done", "documents_total", "embed_model", "embed_dims",
            "language", "created_at", "swapped_at",
        ),
        filters=("state", "embed_model", "collection"),
        search=("hash", "embed_model"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=lambda row: reverse("collections:index_versions", args=[row.collection.name]),
        actions=(
            row_action(
                "Cancel the selected index builds",
                lambda row, user: cancel_index_version(row, actor=user),
                "cancelled",
                name="cancel",
            ),
            row_action(
                "Delete the selected inactive index versions", lambda row, user: drop_index_version(row, actor=user),
                "deleted", name="drop", permission=ERASE,
            ),
        ),
    ),
    IndexVersionDocument: Listing(
        columns=("doc_id", "index_version", "revision", "enabled", "chunk_count"),
        filters=("enabled",),
        search=("doc_id",),
        order=("index_version_id", "doc_id"),
    ),
    Operation: Listing(
        columns=("kind", "subject", "state", "findings", "error", "created_by", "created_at", "finished_at"),
        filters=("kind", "state"),
        search=("subject", "created_by", "error"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=lambda row: reverse("collections:operation", args=[row.pk]),
    ),
    ApiKey: Listing(
        columns=(
            "label", "prefix", "scopes", "user", "collections", "status", "created_at", "last_used_at", "expires_at",
        ),
        filters=(("revoked_at", EmptyFieldListFilter),),
        search=("label", "prefix"),
        order=("-created_at", "-id"),
        actions=(
            row_action(
                "Revoke the selected keys for good", lambda row, user: revoke_key(row, actor=user), "revoked",
                name="revoke",
            ),
        ),
    ),
    RoleGrant: Listing(
        columns=("user", "group", "role", "collection_id", "created_by", "created_at"),
        filters=("role",),
        search=("user__username", "group__name"),
    ),
    ModelSetting: Listing(
        columns=("name", "purpose", "preset", "base_url", "model", "dims", "is_default", "updated_at"),
        filters=("purpose", "preset"),
        search=("name", "model", "base_url"),
        page=lambda row: reverse("collections:models", query={"view": "edit", "pk": row.pk}),
    ),
    Provider: Listing(columns=("name", "failures", "open_until", "error", "failed_at"), search=("name", "error")),
    Report: Listing(columns=("name", "made_at")),
    WorkerHeartbeat: Listing(
        columns=("name", "host", "pid", "job", "jobs_done", "memory_mb", "started_at", "beat_at"),
        filters=("host",),
        search=("name",),
    ),
    IdempotencyRecord: Listing(
        columns=("key", "owner", "status", "created_at"),
        filters=("status",),
        search=("key",),
        order=("-created_at", "-id"),
        hidden=("response",),
    ),
}  # fmt: skip

register(TABLE)
