"""What must not happen at once: two writes of one document, and any write to a collection that is going away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from collections_app.models import Collection
from ragd.errors import UnknownCollection

LOCK_DOCUMENT = "SELECT pg_advisory_xact_lock(hashtextextended(%(doc_id)s, %(collection_id)s))"

HOLD_COLLECTION = "SELECT id FROM collections WHERE id = %(collection_id)s AND deleted_at IS NULL FOR SHARE"

HOLD_DOCUMENT = """
SELECT d.id, d.content_hash, d.source_hash, d.revision, d.chunk_count, d.token_count, d.size_chars
FROM collections c
LEFT JOIN documents d ON d.collection_id = c.id AND d.doc_id = %(doc_id)s
WHERE c.id = %(collection_id)s AND c.deleted_at IS NULL
FOR SHARE OF c
"""

STORED_DOCUMENT = """
SELECT d.id, d.content_hash, d.source_hash, d.revision, d.chunk_count, d.token_count, d.size_chars
FROM documents d
WHERE d.collection_id = %(collection_id)s AND d.doc_id = %(doc_id)s
"""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """The facts of a stored document that decide whether it is written again."""

    pk: int
    content_hash: str
    source_hash: str
    revision: int
    chunk_count: int
    token_count: int
    size_chars: int


def lock_documents(collection: Collection, doc_ids: Iterable[str]) -> None:
    """Wait until nobody else writes these documents; held until the transaction ends.

    Raises UnknownCollection when the collection is being deleted; a deletion that comes later waits.
    """
    with connection.cursor() as cursor:
        for doc_id in sorted(set(doc_ids)):
            cursor.execute(LOCK_DOCUMENT, {"doc_id": doc_id, "collection_id": collection.pk})
        cursor.execute(HOLD_COLLECTION, {"collection_id": collection.pk})
        if cursor.fetchone() is None:
            raise _deleted(collection)


def lock_document(collection: Collection, doc_id: str) -> StoredDocument | None:
    """`lock_documents` for one, with what is stored of it now."""
    values: dict[str, int | str] = {"doc_id": doc_id, "collection_id": collection.pk}
    with connection.cursor() as cursor:
        cursor.execute(LOCK_DOCUMENT, values)
        cursor.execute(HOLD_DOCUMENT, values)
        row = cursor.fetchone()
    if row is None:
        raise _deleted(collection)
    return None if row[0] is None else StoredDocument(*row)


def find_stored(collection: Collection, doc_id: str) -> StoredDocument | None:
    """What is stored of a document at this moment, without waiting for anybody."""
    with connection.cursor() as cursor:
        cursor.execute(STORED_DOCUMENT, {"doc_id": doc_id, "collection_id": collection.pk})
        row = cursor.fetchone()
    return None if row is None else StoredDocument(*row)


def _deleted(collection: Collection) -> UnknownCollection:
    return UnknownCollection(f"collection {collection.name!r} was deleted meanwhile; nothing was written")
