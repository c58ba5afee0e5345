"""A folder kept in step with a collection: compare by hashes, send what differs, delete what is named for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, IngestBatch, IngestJob
from collections_app.services.documents.documents import delete_documents
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes
from collections_app.services.indexing.stored_documents import lock_documents
from collections_app.services.uploads.upload_plan import Entry, UploadPlan, clean_prefix, plan_uploads
from collections_app.services.uploads.uploads import close_batch, count_outcomes, open_batch
from ragd.errors import InvalidInput

CHANGED = "it was changed after this sync began"
GONE = "it is not there any more"


@dataclass(frozen=True, slots=True)
class Sync:
    """What is to be done. batch: what the files are to be sent with; None for a dry run."""

    plan: UploadPlan
    batch: IngestBatch | None


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """The documents that went, attachments with them, and why others stayed."""

    deleted: list[str]
    kept: dict[str, str]


def open_sync(
    collection: Collection,
    manifest: Sequence[Entry],
    *,
    prefix: str = "",
    delete_missing: bool = False,
    on_clash: str = "replace",
    dry_run: bool = False,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    label: str = "",
    access: Codes | None = None,
    actor: audit.Actor = None,
) -> Sync:
    """Compare a folder with the documents under `prefix`, and open the batch that its files are sent with.

    manifest: every file of the folder; doc_id is its path in it. Nothing is deleted here: delete_missing lists what is
    missing, and `commit_sync` deletes what it is told. Raises InvalidInput for an empty manifest with delete_missing.
    """
    folder = clean_prefix(prefix)
    entries = [
        replace(entry, doc_id=folder + entry.doc_id, name=entry.name or entry.doc_id) if entry.doc_id else entry
        for entry in manifest
    ]
    plan = plan_uploads(
        collection,
        entries,
        on_clash=on_clash,
        delete_missing=delete_missing,
        prefix=folder,
        tags=tags,
        metadata=metadata,
        access=access,
    )
    if dry_run:
        return Sync(plan, None)
    with transaction.atomic():
        batch = open_batch(collection, kind=IngestBatch.Kind.SYNC, label=label or folder.rstrip("/"), actor=actor)
        count_outcomes(batch, [line.status for line in plan.lines if not line.is_sent and line.status != "deleted"])
    return Sync(plan, batch)


def commit_sync(
    collection: Collection, batch: IngestBatch, delete: Sequence[str] = (), *, actor: audit.Actor = None
) -> SyncOutcome:
    """Delete exactly these documents and close the batch. One that was changed since the batch was opened is kept.

    Raises ServiceError 409 for a batch that is no sync or is closed already.
    """
    if batch.kind != IngestBatch.Kind.SYNC:
        raise InvalidInput(f"batch {batch.pk} is no sync; begin one with POST .../sync", field="batch")
    requested = list(dict.fromkeys(delete))
    with transaction.atomic():
        lock_documents(collection, requested)  # before the batch, as a job of it does; what is read is what is deleted
        current = IngestBatch.objects.select_for_update().filter(pk=batch.pk).first()
        if current is None or not current.open:
            raise ServiceError("this sync is closed already; begin a new one", type="conflict", status=409)
        known = dict(
            Document.objects.filter(collection=collection, doc_id__in=requested).values_list("doc_id", "updated_at")
        )
        reasons = {doc_id: GONE for doc_id in requested if doc_id not in known}
        reasons |= {doc_id: CHANGED for doc_id, updated_at in known.items() if updated_at > current.created_at}
        coming = IngestJob.objects.active().filter(collection=collection, created_at__gt=current.created_at)
        reasons |= dict.fromkeys(coming.filter(doc_id__in=requested).values_list("doc_id", flat=True), CHANGED)
        doomed = [doc_id for doc_id in requested if doc_id not in reasons]
        if doomed:
            delete_documents(collection, doomed, actor=actor)
        count_outcomes(current, (), deleted=len(doomed))
        close_batch(current)
    return SyncOutcome(doomed, reasons)
