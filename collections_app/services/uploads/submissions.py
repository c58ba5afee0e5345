"""Batches: what was asked for in one go, also when it comes in many small requests."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable

from django.db.models import F

from collections_app.advisory_locks import lock_names, named, submission_seed, try_lock
from collections_app.domain.identity import clean_line
from collections_app.errors import ServiceError
from collections_app.models import Collection, IngestBatch
from collections_app.services.governance import audit
from collections_app.services.indexing.document_locks import lock_documents

LABEL_MAX_CHARS = 200


def open_batch(
    collection: Collection, *, kind: str = IngestBatch.Kind.UPLOAD, label: str = "", actor: audit.Actor = None
) -> IngestBatch:
    """A batch that more may be added to, until `close_batch`."""
    return IngestBatch.objects.create(
        collection=collection,
        kind=kind,
        label=clean_line(label[:LABEL_MAX_CHARS]),
        open=True,
        created_by=audit.name_actor(actor),
    )


def close_batch(batch: IngestBatch) -> None:
    """Nothing more comes. Closing twice is fine."""
    IngestBatch.objects.filter(pk=batch.pk).update(open=False)
    batch.open = False


def require_open(batch: IngestBatch) -> None:
    """ServiceError 409 when a batch was closed or cancelled. After `count_outcomes`: then it stays as it is found."""
    if not IngestBatch.objects.filter(pk=batch.pk, open=True).exists():
        raise ServiceError(
            f"batch {batch.pk} is closed or was cancelled, so nothing is added to it; send the files without it",
            type="batch_closed",
            status=409,
            field="batch",
        )


def find_batch(collection: Collection, batch_id: uuid.UUID | str) -> IngestBatch:
    """A batch of this collection, or ServiceError 404."""
    try:
        record = IngestBatch.objects.filter(collection=collection, pk=uuid.UUID(str(batch_id))).first()
    except ValueError:
        record = None
    if record is None:
        raise ServiceError(
            f"collection {collection.name!r} has no batch {str(batch_id)[:80]!r}; use the batch_id of its first answer",
            type="unknown_batch",
            status=404,
            field="batch",
        )
    record.collection = collection
    return record


def count_outcomes(batch: IngestBatch, statuses: Iterable[str], *, deleted: int = 0) -> None:
    """Add to the batch's counts, as the last write of a transaction: others wait for the row."""
    counts = Counter(statuses)
    IngestBatch.objects.filter(pk=batch.pk).update(
        submitted=F("submitted") + counts.total(),
        skipped=F("skipped") + counts["skipped"],
        unchanged=F("unchanged") + counts["unchanged"],
        rejected=F("rejected") + counts["rejected"],
        deleted=F("deleted") + deleted,
    )


def lock_doc_ids(collection: Collection, doc_ids: Iterable[str]) -> None:
    """Wait until nobody else submits these documents, until the transaction ends.

    Raises UnknownCollection when the collection is being deleted.
    """
    lock_names(submission_seed(collection.pk), doc_ids)
    lock_documents(collection, [])


def try_lock_doc_id(collection: Collection, doc_id: str) -> bool:
    """Whether nobody else submits this document now; if so nobody will, until the transaction ends."""
    return try_lock(named(submission_seed(collection.pk), doc_id))
