"""How long what a collection has outlived is kept: earlier revisions, deleted documents, and stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from collections_app.models import Collection, StoredPage
from collections_app.services.indexing.page_layouts import drop_unused_pages
from collections_app.services.indexing.state_changes import forget_deleted
from ragd.errors import InvalidInput
from ragd.store.store import execute

LIMITS = {"revisions": 1_000, "runs_days": 36_500, "deleted_days": 36_500}
BATCH = 500

# the oldest first: an earlier revision may need a later one to be read
DROP_OLD_REVISIONS = """
DELETE FROM document_revisions WHERE id IN (
    SELECT r.id FROM document_revisions r
    JOIN documents d ON d.collection_id = r.collection_id AND d.doc_id = r.doc_id
    WHERE r.collection_id = %(collection)s AND r.revision < d.revision - %(kept)s
    ORDER BY r.revision, r.id LIMIT %(batch)s)
"""


def check_retention(values: Mapping[str, Any] | None) -> dict[str, int]:
    """What a collection states: revisions kept per document, days that runs and deleted documents are kept.

    0 days keep runs for ever and deleted documents not at all; None is unstated.

    Raises InvalidInput naming the field.
    """
    selected: dict[str, int] = {}
    for name, value in (values or {}).items():
        if name not in LIMITS:
            raise InvalidInput(f"retention has no field {name!r}; it has {', '.join(LIMITS)}", field="retention")
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LIMITS[name]:
            raise InvalidInput(f"{name} must be a whole number from 0 to {LIMITS[name]}, not {value!r}", field=name)
        selected[name] = value
    return selected


def effective_retention(collection: Collection) -> dict[str, int]:
    """What holds for a collection: its own numbers, else the server's."""
    usual = {
        "revisions": settings.RAGD_REVISIONS_KEPT,
        "runs_days": settings.RAGD_RUN_RETENTION_DAYS,
        "deleted_days": settings.RAGD_DELETED_KEPT_DAYS,
    }
    return usual | {name: value for name, value in collection.retention.items() if value is not None}


def drop_old_revisions() -> int:
    """Remove what is more than is kept, of every live collection, in batches; returns how many went.

    A write drops what is too old of its own document; this finds the rest after the number was lowered.
    """
    gone = 0
    for collection in Collection.objects.live().by_name():
        params = {"collection": collection.pk, "kept": effective_retention(collection)["revisions"], "batch": BATCH}
        before = gone
        while went := execute(connection, DROP_OLD_REVISIONS, params):
            gone += went
        if gone > before:
            names = StoredPage.objects.filter(collection=collection).values_list("doc_id", flat=True).distinct()
            drop_unused_pages(collection.pk, names)
    return gone


def drop_deleted_documents() -> int:
    """Give up what is kept of documents that were deleted too long ago, in every live collection; returns how many."""
    now = timezone.now()
    return sum(forget_deleted(collection, now) for collection in Collection.objects.live().by_name())
