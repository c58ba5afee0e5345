"""What must not happen at once: two writes of one document, and any write to a collection that is going away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from collections_app.advisory_locks import LOCK_NAME, document_seed, lock_names, named
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.errors import UnknownCollection

HOLD_COLLECTION = "SELECT id FROM collections WHERE id = %(collection_id)s AND deleted_at IS NULL FOR SHARE"

HOLD_DOCUMENT = """
SELECT d.id, d.content_hash, d.source_hash, d.revision, d.chunk_count, d.token_count, d.size_chars,
       d.chunk_policy_stated, d.archived_at IS NOT NULL
FROM collections c
LEFT JOIN documents d ON d.collection_id = c.id AND d.doc_id = %(name)s
WHERE c.id = %(collection_id)s AND c.deleted_at IS NULL
FOR SHARE OF c
"""

# One round trip; the second statement sees what was committed until the first one was through.
LOCK_AND_HOLD = f"{LOCK_NAME};{HOLD_DOCUMENT}"

STORED_DOCUMENT = """
SELECT d.id, d.content_hash, d.source_hash, d.revision, d.chunk_count, d.token_count, d.size_chars,
       d.chunk_policy_stated, d.archived_at IS NOT NULL
FROM documents d
WHERE d.collection_id = %(collection_id)s AND d.doc_id = %(doc_id)s
"""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """The facts of a stored document that decide whether and how it is written again.

    policy_stated: the fields of its chunk policy that were stated for it alone.
    """

    pk: int
    content_hash: str
    source_hash: str
    revision: int
    chunk_count: int
    token_count: int
    size_chars: int
    policy_stated: Mapping[str, Any] = field(default_factory=dict)
    archived: bool = False


def lock_documents(collection: Collection, doc_ids: Iterable[str]) -> None:
    """Wait until nobody else writes these documents; held until the transaction ends.

    Raises UnknownCollection when the collection is being deleted; a deletion that comes later waits.
    """
    names = set(doc_ids)
    if names:
        lock_names(document_seed(collection.pk), names)
    with connection.cursor() as cursor:
        cursor.execute(HOLD_COLLECTION, {"collection_id": collection.pk})
        if cursor.fetchone() is None:
            raise _deleted(collection)


def lock_document(collection: Collection, doc_id: str) -> StoredDocument | None:
    """`lock_documents` for one, with what is stored of it now."""
    values = {**named(document_seed(collection.pk), doc_id).params, "collection_id": collection.pk}
    with connection.cursor() as cursor:
        cursor.execute(LOCK_AND_HOLD, values)
        cursor.nextset()
        row = cursor.fetchone()
    if row is None:
        raise _deleted(collection)
    return None if row[0] is None else _stored(row)


def find_stored(collection: Collection, doc_id: str) -> StoredDocument | None:
    """What is stored of a document at this moment, without waiting for anybody."""
    with connection.cursor() as cursor:
        cursor.execute(STORED_DOCUMENT, {"doc_id": doc_id, "collection_id": collection.pk})
        row = cursor.fetchone()
    return None if row is None else _stored(row)


def _stored(row: Sequence[Any]) -> StoredDocument:
    pk, content_hash, source_hash, revision, chunk_count, token_count, size_chars, explicit, archived = row
    policy_stated = json.loads(explicit) if isinstance(explicit, str) else explicit
    facts = (pk, content_hash, source_hash, revision, chunk_count, token_count, size_chars)
    return StoredDocument(*facts, policy_stated, archived)


def refuse_archived(doc_id: str) -> ServiceError:
    """What whoever wants to change an archived document is told."""
    return ServiceError(
        f"{doc_id!r} is archived, so it is read-only; unarchive it first", type="archived", status=409, field="doc_id"
    )


def _deleted(collection: Collection) -> UnknownCollection:
    return UnknownCollection(f"collection {collection.name!r} was deleted meanwhile; nothing was written")
