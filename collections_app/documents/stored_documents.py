"""A document as it is stored: its facts, under a lock while it is written, and the changes of people to its chunks.

What must not happen at once are two writes of one document, and any write to a collection that is going away. Overlays
are read, laid over the chunks that are made, and noted where they found their anchor. Texts are gone through a piece at
a time, since whole copies of a large document cost more than it does.

Which documents came inside which: the attachments of a mail, the members of an archive.

The folders that slashes in document ids make: those that are open, with how many documents each holds.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.utils.translation import gettext

from collections_app.advisory_locks import LOCK_NAME, document_seed, lock_names, named
from collections_app.chunks import overlays
from collections_app.domain.rows import prepared
from collections_app.errors import ServiceError
from collections_app.index.embedding_checkpoints import Chunks
from collections_app.models import Chunk as StoredChunk
from collections_app.models import ChunkOverlay, Collection, Document
from ragd.errors import UnknownCollection
from ragd.identity import can_be_stored
from ragd.store.store import fetch_all

PIECE_CHARS = 1 << 20
LONG_CHARS = 1 << 20  # a text of more is handled in pieces throughout

HOLD_COLLECTION = "SELECT index_version FROM collections WHERE id = %(collection_id)s AND deleted_at IS NULL FOR SHARE"

HOLD_DOCUMENT = """
SELECT d.id, d.content_hash, d.source_hash, d.revision, d.chunk_count, d.token_count, d.size_chars,
       d.chunk_policy_stated, d.state = 'archived', d.language_stated
FROM collections c
LEFT JOIN documents d ON d.collection_id = c.id AND d.doc_id = %(name)s
WHERE c.id = %(collection_id)s AND c.deleted_at IS NULL
FOR SHARE OF c
"""

# One round trip; the second statement sees what was committed until the first one was through.
LOCK_AND_HOLD = f"{LOCK_NAME};{HOLD_DOCUMENT}"

STORED_DOCUMENT = """
SELECT d.id, d.content_hash, d.source_hash, d.revision, d.chunk_count, d.token_count, d.size_chars,
       d.chunk_policy_stated, d.state = 'archived', d.language_stated
FROM documents d
WHERE d.collection_id = %(collection_id)s AND d.doc_id = %(doc_id)s
"""

OVERLAYS = """
SELECT kind, anchor_hash, start_char, content, id FROM chunk_overlays
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s ORDER BY id
"""

# Where the chunks of a document stand, as the policy cut them: only what was added by hand has no length.
SPANS = """
SELECT start_char, end_char FROM {chunks}
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s AND end_char > start_char
ORDER BY chunk_index
"""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """The facts of a stored document that decide whether and how it is written again.

    policy_stated: the fields of its chunk policy that were stated for it alone. language_stated: of its text, "" nobody
    said any.
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
    language_stated: str = ""


def lock_documents(collection: Collection, doc_ids: Iterable[str]) -> None:
    """Wait until nobody else writes these documents; held until the transaction ends.

    `collection` is as it is stored then, also where another index version began to serve since it was read: its chunks
    are read and written by the name of their table. Raises UnknownCollection when it is being deleted; a deletion or a
    swap that comes later waits.
    """
    names = set(doc_ids)
    if names:
        lock_names(document_seed(collection.pk), names)
    with connection.cursor() as cursor:
        cursor.execute(HOLD_COLLECTION, {"collection_id": collection.pk})
        row = cursor.fetchone()
    if row is None:
        raise _deleted(collection)
    if row[0] != collection.index_version:
        collection.refresh_from_db()


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
    rows = fetch_all(prepared, STORED_DOCUMENT, {"doc_id": doc_id, "collection_id": collection.pk})
    return _stored(rows[0]) if rows else None


def _stored(row: Sequence[Any]) -> StoredDocument:
    pk, content_hash, source_hash, revision, chunk_count, token_count, size_chars, explicit, archived, language = row
    policy_stated = json.loads(explicit) if isinstance(explicit, str) else explicit
    facts = (pk, content_hash, source_hash, revision, chunk_count, token_count, size_chars)
    return StoredDocument(*facts, policy_stated, archived, language)


def refuse_archived(doc_id: str) -> ServiceError:
    """What whoever wants to change an archived document is told."""
    return ServiceError(
        f"{doc_id!r} is archived, so it is read-only; unarchive it first", type="archived", field="doc_id"
    )


def refuse_stale(field: str) -> ServiceError:
    """What whoever changes a document by an earlier revision is told. field: it names the revision."""
    message = gettext("Someone changed this document while you were editing. Reload it, then save again.")
    return ServiceError(message, field=field)


def _deleted(collection: Collection) -> UnknownCollection:
    return UnknownCollection(f"collection {collection.name!r} was deleted meanwhile; nothing was written")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a document was changed, in a few words, and who did it."""

    reason: str = ""
    by: str = ""


UNSTATED = Cause()


class DocumentOverlays:
    """The overlays of one document during one ingest or build, as they were read. None are the usual case."""

    def __init__(self, collection_id: int, doc_id: str, listed: Sequence[overlays.Overlay] = ()) -> None:
        self.collection_id, self.doc_id = collection_id, doc_id
        self.listed = tuple(listed)
        self.places: Mapping[int, int] = {}

    @classmethod
    def of(cls, collection_id: int, doc_id: str, stored: StoredDocument | None) -> DocumentOverlays:
        """Those of a document that is stored; one that is not has none."""
        return cls.read(collection_id, doc_id) if stored is not None else cls(collection_id, doc_id)

    @classmethod
    def read(cls, collection_id: int, doc_id: str) -> DocumentOverlays:
        return cls(collection_id, doc_id, read_overlays(collection_id, doc_id))

    @property
    def digest(self) -> list[list[str | int]]:
        """For the hash of the document's content; [] without overlays."""
        return overlays.digest_overlays(self.listed) if self.listed else []

    def apply(self, chunks: Chunks) -> Chunks:
        """See `apply_overlays`; which apply is remembered for `settle`. None listed: the same chunks."""
        if not self.listed:
            return chunks
        laid = overlays.apply_overlays(list(chunks), self.listed)
        self.places = laid.places
        return laid.chunks

    def current(self, stored: StoredDocument | None) -> DocumentOverlays:
        """These, or what they are by now. The caller holds the lock on the document; stored: what it finds there."""
        now = tuple(read_overlays(self.collection_id, self.doc_id)) if stored is not None else self.listed
        return self if now == self.listed else DocumentOverlays(self.collection_id, self.doc_id, now)

    def settle(self, revision: int) -> None:
        """Inside the transaction that stores the chunks of this revision: note which overlays apply."""
        note_applied(self.listed, self.places, revision)


def read_overlays(collection_id: int, doc_id: str) -> list[overlays.Overlay]:
    """In the order in which they were made."""
    rows = fetch_all(connection, OVERLAYS, {"collection_id": collection_id, "doc_id": doc_id})
    return [overlays.Overlay(*row) for row in rows]


def overlays_of_chunk(chunk: StoredChunk, original: str) -> list[overlays.Overlay]:
    """What lies over one stored chunk, without reading the rest of its document. original: its text as it was cut.

    Of several chunks of equal text that were changed alike, the change that was made nearest to this one is meant.
    """
    added = chunk.attributes.get(overlays.MARK) == overlays.ADD
    digest, result = overlays.hash_anchor(original), {}
    for overlay in sorted(
        read_overlays(chunk.collection_id, chunk.doc_id),
        key=lambda overlay: abs(overlay.start - chunk.start_char),
        reverse=True,
    ):
        if added:
            mine = overlay.kind == overlays.ADD and overlay.content == chunk.content
        elif overlay.kind == overlays.EDIT:
            mine = overlay.anchor_hash == digest and overlay.content == chunk.content
        else:
            mine = overlay.kind == overlays.DISABLE and overlay.anchor_hash == digest and chunk.switched_off
        if mine:
            result[overlay.kind] = overlay
    return list(result.values())


def note_applied(listed: Sequence[overlays.Overlay], applying: Container[int], revision: int) -> None:
    """applying: the positions in `listed` of those whose anchor is there; the others are kept and wait for it."""
    for applies in (True, False):
        ids = [overlay.id for index, overlay in enumerate(listed) if overlay.id and (index in applying) is applies]
        if ids:
            ChunkOverlay.objects.filter(pk__in=ids).update(applies=applies, revision=revision)


def note_all_applied(collection_id: int) -> None:
    """For a collection in which another index version serves since now, cut by another policy perhaps."""
    names = ChunkOverlay.objects.filter(collection_id=collection_id).order_by("doc_id").values_list("doc_id", flat=True)
    for doc_id in list(names.distinct()):
        document = Document.objects.filter(collection_id=collection_id, doc_id=doc_id).first()
        if document is not None:
            listed = read_overlays(collection_id, doc_id)
            note_applied(listed, overlays.place_overlays(anchors_of(document), listed), document.revision)


def cut_spans(document: Document) -> list[tuple[int, int]]:
    """(start, end) of the stored chunks of a document as the policy cut them, in order."""
    params = {"collection_id": document.collection_id, "doc_id": document.doc_id}
    sql = SPANS.format(chunks=document.collection.chunks_table)
    return [(start, end) for start, end in fetch_all(connection, sql, params)]


def anchors_of(document: Document) -> list[tuple[str, int]]:
    """(hash_anchor, start) of the stored chunks of a document as the policy cut them, in order."""
    positions = cut_spans(document)
    return [(overlays.hash_anchor(document.text[start:end]), start) for start, end in positions]


def text_pieces(text: str) -> Iterator[str]:
    """The text in pieces of PIECE_CHARS characters; one that is short comes as it is."""
    if len(text) <= PIECE_CHARS:
        yield text
        return
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]


def hash_text(text: str) -> str:
    """SHA-256 (hex) of its UTF-8."""
    digest = hashlib.sha256()
    for piece in text_pieces(text):
        digest.update(piece.encode())
    return digest.hexdigest()


def count_words(text: str) -> int:
    """len(text.split())."""
    words, inside = 0, False
    for piece in text_pieces(text):
        if not piece:
            continue
        words += len(piece.split()) - (inside and not piece[0].isspace())
        inside = not piece[-1].isspace()
    return words


def size_utf8(text: str) -> int:
    """len(text.encode())."""
    return sum(len(piece.encode()) for piece in text_pieces(text))


def give_back_memory() -> None:
    """Return what is free to the operating system, where the C library can: pieces of a long text leave holes."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


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
