"""Which documents came inside which: the attachments of a mail, the members of an archive."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection

from collections_app.models import Collection, Document

PARENT = "parent"
LEVELS_MAX = 10

# Under the parent's own folder, so that the index on doc_id finds them: "/" is followed by "0" in the collation.
CHILDREN = """
SELECT d.doc_id
FROM unnest(%(parents)s::text[]) AS p (doc_id)
JOIN documents d ON d.collection_id = %(collection_id)s
    AND d.doc_id COLLATE "C" >= p.doc_id || '/' AND d.doc_id COLLATE "C" < p.doc_id || '0'
WHERE d.metadata ->> 'parent' = p.doc_id
UNION
SELECT j.doc_id
FROM ingest_jobs j
WHERE j.collection_id = %(collection_id)s AND j.state IN ('queued', 'running') AND j.kind IN ('file', 'archive')
  AND j.metadata ->> 'parent' = ANY(%(parents)s)
"""

OWNERS = """
SELECT doc_id, metadata ->> 'parent'
FROM documents
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND metadata ->> 'parent' IS NOT NULL
UNION
SELECT doc_id, origin ->> 'of'
FROM ingest_jobs
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND origin ->> 'type' = 'member'
"""


def attachments_of(collection: Collection, doc_ids: Iterable[str]) -> list[str]:
    """The documents, and those on their way, that were attached to these, in order; not those attached to them."""
    parents = sorted(set(doc_ids))
    if not parents:
        return []
    with connection.cursor() as cursor:
        cursor.execute(CHILDREN, {"collection_id": collection.pk, "parents": parents})
        return sorted(doc_id for (doc_id,) in cursor.fetchall())


def with_attachments(collection: Collection, doc_ids: Iterable[str]) -> list[str]:
    """These documents, and all that was attached to them, at any depth; each once, in order."""
    known: set[str] = set(doc_ids)
    level = known
    for _ in range(LEVELS_MAX):
        level = set(attachments_of(collection, level)) - known
        if not level:
            break
        known |= level
    return sorted(known)


def attached_to(collection: Collection, doc_ids: Iterable[str]) -> list[str]:
    """What goes when these are deleted, besides these, in order."""
    named = set(doc_ids)
    return [doc_id for doc_id in with_attachments(collection, named) if doc_id not in named]


def owners_of(collection: Collection, doc_ids: Iterable[str]) -> dict[str, frozenset[str]]:
    """Per document the mails and archives that it came in, at any depth; a document that came by itself is left out."""
    owners: dict[str, set[str]] = {}
    above: dict[str, set[str]] = {}
    level = set(doc_ids)
    requested = set(level)
    for _ in range(LEVELS_MAX):
        if not level:
            break
        with connection.cursor() as cursor:
            cursor.execute(OWNERS, {"collection_id": collection.pk, "doc_ids": sorted(level)})
            for doc_id, owner in cursor.fetchall():
                above.setdefault(doc_id, set()).add(owner)
        level = {owner for doc_id in level for owner in above.get(doc_id, ())} - set(above)
    for doc_id in requested & set(above):
        result: set[str] = set()
        rest = [doc_id]
        while rest:
            new = above.get(rest.pop(), set()) - result
            result |= new
            rest += new
        owners[doc_id] = result
    return {doc_id: frozenset(result) for doc_id, result in owners.items()}


def parent_of(document: Document) -> str:
    """The mail that a document was attached to, "" for any other document."""
    parent = document.metadata.get(PARENT)
    return parent if isinstance(parent, str) and document.doc_id.startswith(f"{parent}/") else ""
