"""What is left when its document has gone: earlier revisions, changes to chunks, files. Removed when asked for."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from collections_app.models import ChunkOverlay, Collection, Document, DocumentRevision, Upload
from collections_app.services.governance import audit
from collections_app.services.indexing.stored_documents import lock_documents

NEEDED_BY_JOBS = ("queued", "running", "failed", "quarantined")


def drop_orphans(collection: Collection, doc_ids: Sequence[str], *, actor: audit.Actor = None) -> int:
    """Delete revisions of and changes to documents that are not there; those that are keep theirs. Returns how many."""
    with transaction.atomic():
        lock_documents(collection, doc_ids)
        present = Document.objects.filter(collection=collection, doc_id__in=doc_ids).values_list("doc_id", flat=True)
        gone = sorted(set(doc_ids) - set(present))
        revisions, _ = DocumentRevision.objects.filter(collection=collection, doc_id__in=gone).delete()
        overlays, _ = ChunkOverlay.objects.filter(collection=collection, doc_id__in=gone).delete()
        if removed := revisions + overlays:
            words = f"deleted {revisions} revisions and {overlays} changes of chunks whose documents are gone"
            audit.record(actor, [collection], audit.DELETION, words)
    return removed


def drop_unneeded_uploads(uploads: Sequence[Upload], *, actor: audit.Actor = None) -> int:
    """Delete the files among these that are no document's source and that no job may need again; returns how many."""
    gone = [upload for upload in uploads if _is_unneeded(upload)]
    with transaction.atomic():
        audit.record(actor, gone, audit.DELETION, "deleted a file that nothing needs")
        Upload.objects.filter(pk__in=[upload.pk for upload in gone]).delete()
    return len(gone)


def _is_unneeded(upload: Upload) -> bool:
    if upload.jobs.filter(state__in=NEEDED_BY_JOBS).exists():
        return False
    owners = Document.objects.filter(
        collection_id=upload.collection_id, doc_id=upload.doc_id, source_hash=upload.sha256
    )
    return not owners.exists()
