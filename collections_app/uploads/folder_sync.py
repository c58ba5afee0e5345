"""A folder kept in step with a collection: compare by hashes, send what differs, delete what is named for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from collections_app.audit import services
from collections_app.documents.services import delete_documents
from collections_app.documents.stored_documents import lock_documents
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, IngestBatch, IngestJob
from collections_app.uploads.options import NOTHING_STATED, IngestOptions
from collections_app.uploads.plan import Entry, UploadPlan, clean_prefix, plan_uploads
from collections_app.uploads.services import close_batch, count_outcomes, open_batch
from ragd.errors import InvalidInput

CHANGED = "it was changed after this sync began"
GONE = "it is not there any more"


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """The documents that went, attachments with them, and why others stayed."""

    deleted: list[str]
    kept: dict[str, str]


def plan_folder(
    collection: Collection,
    manifest: Sequence[Entry],
    options: IngestOptions = NOTHING_STATED,
    *,
    prefix: str = "",
    delete_missing: bool = False,
) -> UploadPlan:
    """Compare a folder with the documents under `prefix`; nothing is written.

    manifest: every file of the folder; doc_id is its path in it. Raises InvalidInput for an empty manifest with
    delete_missing.
    """
    folder = clean_prefix(prefix)
    entries = [
        replace(entry, doc_id=folder + entry.doc_id, name=entry.name or entry.doc_id) if entry.doc_id else entry
        for entry in manifest
    ]
    return plan_uploads(collection, entries, options, delete_missing=delete_missing, prefix=folder)


def open_sync(
    collection: Collection, plan: UploadPlan, options: IngestOptions, *, label: str = "", actor: services.Actor = None
) -> UploadPlan:
    """Open the batch that the files of the plan are sent with, and keep its options there. Nothing is deleted before
    `commit_sync` names it."""
    stated = options.cleaned()
    with transaction.atomic():
        batch = open_batch(collection, kind=IngestBatch.Kind.SYNC, label=label, options=stated, actor=actor)
        count_outcomes(batch, [line.status for line in plan.lines if not line.is_sent and line.status != "deleted"])
    return replace(plan, batch=batch)


def commit_sync(
    collection: Collection, batch: IngestBatch, delete: Sequence[str] = (), *, actor: services.Actor = None
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
            raise ServiceError("this sync is closed already; begin a new one")
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
