"""Which documents came inside which: the attachments of a mail, the members of an archive.

The folders that slashes in document ids make: those that are open, with how many documents each holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from collections_app.models import Collection, Document
from ragd.identity import can_be_stored

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


OPEN_MAX = 12  # levels below the first that are opened at once
LISTED_MAX = 200  # folders of one level

# Of each open folder those right below it. "/" is followed by "0" in the collation of doc_id.
BELOW = """
SELECT path, name, count(*), bool_or(strpos(substr(rest, length(name) + 2), '/') > 0)
FROM (
    SELECT p.path, substr(d.doc_id, length(p.path) + 1) AS rest,
           split_part(substr(d.doc_id, length(p.path) + 1), '/', 1) AS name
    FROM unnest(%(paths)s::text[]) AS p (path)
    JOIN documents d ON d.collection_id = %(collection_id)s AND (d.state <> 'archived') = ANY(%(present)s)
        AND d.doc_id COLLATE "C" >= p.path
        AND (p.path = '' OR d.doc_id COLLATE "C" < left(p.path, -1) || '0')
) AS below
WHERE strpos(rest, '/') > 0
GROUP BY path, name
ORDER BY path, name COLLATE "C"
"""
PRESENT = {"archived": [False], "any": [True, False]}


@dataclass(slots=True)
class Folder:
    """path: what the ids in it begin with, with a slash at its end. total: documents in it at any depth.

    below: its folders, where it is open. more: how many of them are not listed.
    """

    path: str
    name: str
    total: int
    has_folders: bool
    is_open: bool = False
    below: list[Folder] = field(default_factory=list)
    more: int = 0


def folders_of(collection: Collection, path: str = "", *, state: str = "present", alone: bool = False) -> Folder:
    """The whole collection as a folder, with those above the path open and the path itself; alone: the path's own
    folders only. One query, whatever is in it. state: as `DocumentFilter` has it."""
    path = path if can_be_stored(path) else ""
    steps = path.split("/")[:-1][: OPEN_MAX if not alone else None]
    opened = ["", *("/".join(steps[: count + 1]) + "/" for count in range(len(steps)))]
    paths = [path] if alone else opened
    params: dict[str, Any] = {"collection_id": collection.pk, "paths": paths, "present": PRESENT.get(state, [True])}
    with connection.cursor() as cursor:
        cursor.execute(BELOW, params)
        rows = cursor.fetchall()
    found: dict[str, list[Folder]] = {each: [] for each in paths}
    for parent, name, total, has_folders in rows:
        found[parent].append(Folder(f"{parent}{name}/", name, total, has_folders))
    root = Folder(paths[0], "", 0, bool(found[paths[0]]), is_open=True)
    _hang(root, found, paths)
    return root


def _hang(folder: Folder, found: dict[str, list[Folder]], paths: Sequence[str]) -> None:
    """Put the folders that were found below those that are open. The open one is listed however many there are."""
    rest = folder
    for path in paths:
        listed = found[path]
        rest.below, rest.more = listed[:LISTED_MAX], max(len(listed) - LISTED_MAX, 0)
        following = next((each for each in listed if each.path in found), None)
        if following is None:
            return
        if following not in rest.below:
            rest.below.append(following)
            rest.more -= 1
        following.is_open = True
        rest = following
