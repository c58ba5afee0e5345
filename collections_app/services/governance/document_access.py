"""Access lists of documents: who of those that may read a collection may read a document of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connection, transaction

from collections_app.access_context import elevated
from collections_app.domain.permissions import Permission
from collections_app.models import Collection
from collections_app.services.governance.access import principals_of
from ragd.store.store import execute

NARROW = """
INSERT INTO document_access (collection_id, doc_id, access)
SELECT %(collection)s, doc_id, %(access)s FROM unnest(%(doc_ids)s::text[]) AS doc_id ORDER BY doc_id
ON CONFLICT (collection_id, doc_id) DO UPDATE SET access = excluded.access, changed_at = now()
WHERE document_access.access <> excluded.access
"""
WIDEN = "DELETE FROM document_access WHERE collection_id = %(collection)s AND doc_id = ANY(%(doc_ids)s)"


def set_access(
    collection: Collection, doc_ids: Sequence[str], *, users: Iterable[int] = (), groups: Iterable[int] = ()
) -> int:
    """Let these alone read the documents, beside the administrators; returns how many lists changed.

    users, groups: their ids. A document need not be there yet: its list waits for it. Raises Forbidden for who may not
    write in the collection.
    """
    values = {"collection": collection.pk, "doc_ids": list(doc_ids), "access": principals_of(users, groups)}
    with elevated(Permission.WRITE, collection.pk), transaction.atomic():
        return execute(connection, NARROW, values)


def widen(collection: Collection, doc_ids: Sequence[str]) -> int:
    """Let everybody who may read the collection read the documents; returns how many had a list."""
    with elevated(Permission.WRITE, collection.pk), transaction.atomic():
        return execute(connection, WIDEN, {"collection": collection.pk, "doc_ids": list(doc_ids)})
