"""How long data is kept, of a collection and of the server; earlier revisions and deleted documents go by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.utils import timezone

from collections_app.audit import services
from collections_app.collections.retention_periods import PERIODS, KeptFor, find_period, kept_for
from collections_app.documents.files import drop_unused_pages
from collections_app.documents.revisions.services import forget_deleted
from collections_app.endpoints.server_settings import change_settings
from collections_app.models import Collection, StateChange, StoredPage
from ragd.errors import InvalidInput
from ragd.store.store import execute, fetch_all

LIMITS = {period.key: period.most for period in PERIODS.values() if period.of_collection}
BATCH = 500

# the oldest first: an earlier revision may need a later one to be read
DROP_OLD_REVISIONS = """
DELETE FROM document_revisions WHERE id IN (
    SELECT r.id FROM document_revisions r
    JOIN documents d ON d.collection_id = r.collection_id AND d.doc_id = r.doc_id
    WHERE r.collection_id = %(collection)s AND r.revision < d.revision - %(kept)s
    ORDER BY r.revision, r.id LIMIT %(batch)s)
"""
COUNT_OLD_REVISIONS = """
SELECT count(*) FROM document_revisions r
JOIN documents d ON d.collection_id = r.collection_id AND d.doc_id = r.doc_id
JOIN collections c ON c.id = r.collection_id AND c.deleted_at IS NULL
WHERE r.revision < d.revision - coalesce((c.retention ->> 'revisions')::int, %(kept)s)
"""
COUNT_DELETED_DOCUMENTS = """
SELECT count(*) FROM state_changes s JOIN collections c ON c.id = s.collection_id AND c.deleted_at IS NULL
WHERE s.kind = %(kind)s AND s.kept IS NOT NULL
  AND s.made_at < %(now)s - make_interval(days => coalesce((c.retention ->> 'deleted_days')::int, %(days)s))
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
    usual = {name: kept_for(name) for name in LIMITS}
    return usual | {name: value for name, value in collection.retention.items() if value is not None}


def overriding(key: str) -> dict[str, int]:
    """Collections with a value of their own for it, by name."""
    rows = Collection.objects.live().by_name().values_list("name", "retention")
    return {name: int(retention[key]) for name, retention in rows if retention.get(key) is not None}


def set_period(key: str, value: int | None, *, actor: services.Actor) -> KeptFor:
    """Set how long the server keeps one kind of data; None: the default again. Returns what holds now.

    For administrators of all collections. Raises ServiceError: 422 with the field `value`, 409 where the environment
    states it; KeyError for a key that is not in PERIODS.
    """
    period = PERIODS[key]
    if value is not None and not 0 <= value <= period.most:
        raise InvalidInput(
            f"{period.variable} must be a whole number from 0 to {period.most}, not {value}", field="value"
        )
    change_settings({period.variable: value}, {}, actor=actor)
    return find_period(key)


def count_old_revisions(kept: int) -> int:
    """How many `drop_old_revisions` would remove if the server kept so many."""
    return int(fetch_all(connection, COUNT_OLD_REVISIONS, {"kept": kept})[0][0])


def count_deleted_documents(days: int) -> int:
    """How many `drop_deleted_documents` would give up if the server kept them so long."""
    values = {"now": timezone.now(), "kind": StateChange.Kind.DELETED.value, "days": days}
    return int(fetch_all(connection, COUNT_DELETED_DOCUMENTS, values)[0][0])


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
