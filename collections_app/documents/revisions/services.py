"""Earlier revisions of documents: kept in the transaction that replaces them, read back, dropped.

A text that stays as it is over several revisions is stored once: a revision whose text the next one still has keeps
none of its own, and neither does one whose chunks the next one still has. What it lacks is read from the first later
revision that has it, or from the document. The oldest are dropped first, so what an earlier one needs is always there.

What no revision tells of, written down in the transaction that changes it: switches, deletions, index versions.

Two revisions of a document compared: their fields and their chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Subquery, Value
from django.db.models.functions import Coalesce, Substr

from collections_app.chunks.overlays import MARK
from collections_app.chunks.policies import policy_of
from collections_app.collections.models import Actor, name_actor
from collections_app.collections.retention_periods import kept_for
from collections_app.documents.revisions.differences import ChunkDifference, FieldChange, compare_chunks, compare_fields
from collections_app.documents.stored_documents import UNSTATED, Cause, DocumentOverlays, StoredDocument, hash_text
from collections_app.errors import ServiceError, UnknownError
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, StateChange, StoredPage
from ragd.store.store import execute, fetch_all
from ragd.text.chunking import document_text, iter_bound, iter_chunks
from ragd.types import ChunkPolicy, Segment

# Numbers that were used before stand for a document that was deleted past this module.
DROP = """
DELETE FROM document_revisions
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
  AND EXISTS (
    SELECT FROM documents d
    WHERE d.collection_id = %(collection_id)s AND d.doc_id = document_revisions.doc_id
      AND (document_revisions.revision >= d.revision OR document_revisions.revision <= d.revision - %(kept)s)
  )
"""

# A chunk's content is left out where it is a slice of the text, as all are that no overlay made: those carry its mark.
# (To compare every chunk with its slice would take time that grows with the square of the text's length.)
KEEP = """
{own}INSERT INTO document_revisions
    (collection_id, doc_id, revision, title, tags, metadata, file_metadata, source, media_type, text, size_chars,
     content_hash, source_hash, page_map, cell_map, segments, chunk_policy, warnings, chunk_count, chunks, made_at,
     replaced_at, replaced_by, reason)
SELECT d.collection_id, d.doc_id, d.revision, d.title, d.tags, d.metadata, d.file_metadata, d.source, d.media_type,
       CASE WHEN {same_text} THEN '' ELSE d.text END,
       d.size_chars, d.content_hash, d.source_hash, d.page_map, d.cell_map, d.segments, d.chunk_policy, d.warnings,
       d.chunk_count, {chunks}, d.updated_at, clock_timestamp(), %(replaced_by)s, %(reason)s
FROM documents d
WHERE d.collection_id = %(collection_id)s AND d.doc_id = ANY(%(doc_ids)s)
"""

SAME_TEXT = "encode(sha256(convert_to(d.text, 'UTF8')), 'hex') = %(text_hash)s"

# They are read first of all: on a cluster they are elsewhere, and a statement joins nothing with what is elsewhere.
OWN = """
WITH own AS MATERIALIZED (
    SELECT doc_id, jsonb_agg(jsonb_build_object(
        'index', chunk_index, 'start', start_char, 'end', end_char, 'context', context, 'enabled', NOT switched_off,
        'content', CASE WHEN attributes ? %(mark)s OR length(content) <> end_char - start_char
                   OR doc_id IN (SELECT doc_id FROM documents WHERE collection_id = %(collection_id)s
                                 AND doc_id = ANY(%(doc_ids)s) AND size_chars = 0) THEN content END
    ) ORDER BY chunk_index) AS chunks
    FROM {table} WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) GROUP BY doc_id
)
"""
OWN_CHUNKS = "coalesce((SELECT own.chunks FROM own WHERE own.doc_id = d.doc_id), '[]')"


# What edits by hand changed, each as it was before and after; a document without any gives no row.
HAND_EDITS = """
SELECT r.title, r.metadata::text, coalesce(n.title, d.title), coalesce(n.metadata, d.metadata)::text,
       d.title, d.metadata::text
FROM document_revisions r
JOIN documents d ON d.collection_id = r.collection_id AND d.doc_id = r.doc_id
LEFT JOIN document_revisions n
  ON n.collection_id = r.collection_id AND n.doc_id = r.doc_id AND n.revision = r.revision + 1
WHERE r.collection_id = %(collection_id)s AND r.doc_id = %(doc_id)s AND r.reason = ANY(%(reasons)s)
ORDER BY r.revision
"""

EDIT, BULK_EDIT = "edit", "bulk edit"


@dataclass(frozen=True, slots=True)
class RevisionChunk:
    """One chunk of a revision; start and end in characters of its text. enabled: not switched off by itself."""

    index: int
    start: int
    end: int
    content: str
    context: str
    enabled: bool


def revisions_kept(collection: Collection) -> int:
    """How many earlier revisions of each document are kept."""
    explicit = collection.retention.get("revisions")
    return kept_for("revisions") if explicit is None else int(explicit)


def keep_revision(
    collection: Collection, stored: StoredDocument, doc_id: str, *, text: str, cause: Cause = UNSTATED
) -> None:
    """Keep what is stored of a document, which is about to be replaced, and drop what is then too old.

    text: that of the state which follows. The caller holds the document's lock and the transaction.
    """
    text_hash = hash_text(text) if len(text) == stored.size_chars else ""
    _keep(collection, [doc_id], cause, keep_sql(collection, SAME_TEXT), text_hash)


def keep_labels(collection: Collection, doc_ids: Sequence[str], cause: Cause) -> None:
    """`keep_revision` for documents of which only tags and metadata change: text and chunks stay where they are."""
    _keep(collection, doc_ids, cause, KEEP.format(own="", same_text="true", chunks="'[]'"), "")


def keep_sql(collection: Collection, same_text: str) -> str:
    """KEEP with the chunks that serve; same_text: the condition under which the text is left out."""
    return KEEP.format(own=OWN.format(table=collection.chunks_table), same_text=same_text, chunks=OWN_CHUNKS)


def _keep(collection: Collection, doc_ids: Sequence[str], cause: Cause, sql: str, text_hash: str) -> None:
    stored = revisions_kept(collection)
    values = {
        "collection_id": collection.pk,
        "doc_ids": list(doc_ids),
        "kept": stored,
        "reason": cause.reason,
        "replaced_by": cause.by,
        "text_hash": text_hash,
        "mark": MARK,
    }
    execute(connection, DROP, values)
    if stored:
        execute(connection, sql, values)


def hand_edits(collection_id: int, doc_id: str) -> tuple[str, dict[str, Any]]:
    """(title, metadata fields) of a document that were set by hand and still hold: a file with other content, which
    would bring its own, leaves them. "" and {} where there are none, or their revisions are kept no longer."""
    params = {"collection_id": collection_id, "doc_id": doc_id, "reasons": [EDIT, BULK_EDIT]}
    title = ""
    fields: dict[str, Any] = {}
    for old_title, old, new_title, new, present_title, present in fetch_all(connection, HAND_EDITS, params):
        before, after, now = json.loads(old), json.loads(new), json.loads(present)
        changed = {key for key in after if key not in before or before[key] != after[key]}
        fields |= {key: now[key] for key in changed if key in now}
        title = present_title if new_title != old_title else title
    return title, fields


def drop_history(collection: Collection, doc_ids: Sequence[str]) -> dict[str, int]:
    """Remove every earlier revision, overlay and page of documents that are being deleted; returns how many of the
    first two went."""
    gone = {"collection_id": collection.pk, "doc_id__in": list(doc_ids)}
    overlays, _ = ChunkOverlay.objects.filter(**gone).delete()
    StoredPage.objects.filter(**gone)._raw_delete("default")
    return {"revisions": DocumentRevision.objects.filter(**gone)._raw_delete("default"), "overlays": overlays}


def find_revision(document: Document, number: int) -> DocumentRevision:
    """An earlier revision, without its text, maps and chunks; ServiceError 404 where it is the present one or gone."""
    rows = DocumentRevision.objects.listed().of_document(document.collection_id, document.doc_id)
    record = rows.filter(revision=number).first()
    if record is None:
        known = "it is the present one" if number == document.revision else "it never was, or is kept no longer"
        raise UnknownError(
            "revision",
            f"revision {number} of {document.doc_id!r} is not among its earlier ones: {known}",
            field="revision",
        )
    return record


def present_revision(document: Document) -> DocumentRevision:
    """The present state in the shape of a revision, unsaved; made_at is when it was last changed."""
    same = (
        "collection_id", "doc_id", "revision", "title", "tags", "metadata", "file_metadata", "source", "media_type",
        "size_chars", "content_hash", "source_hash", "chunk_policy", "warnings", "chunk_count",
    )  # fmt: skip
    values = {name: getattr(document, name) for name in same}
    return DocumentRevision(**values, made_at=document.updated_at)


def any_revision(document: Document, number: int) -> DocumentRevision:
    """The present state or an earlier one. ServiceError 404."""
    return present_revision(document) if number == document.revision else find_revision(document, number)


def has_present_text(document: Document, number: int) -> bool:
    """Whether an earlier revision that is kept has the text which the document still has: places in it are the same."""
    later = DocumentRevision.objects.filter(
        collection_id=document.collection_id, doc_id=document.doc_id, revision__gte=number
    )
    return not later.exclude(text="", size_chars__gt=0).exists()


def revision_text(document: Document, number: int, start: int = 0, end: int | None = None) -> str:
    """text[start:end] of a revision, cut in the database by one statement; end None: to its end. ServiceError 404 when
    the document went since it was read, or this reader may read it no more."""
    cut = Substr("text", Value(start + 1), None if end is None else max(end - start, 0))
    later = DocumentRevision.objects.filter(
        collection_id=document.collection_id, doc_id=document.doc_id, revision__gte=number
    ).order_by("revision")
    own = later.exclude(text="", size_chars__gt=0).annotate(passage=cut).values("passage")[:1]
    rows = Document.objects.filter(pk=document.pk).annotate(passage=Coalesce(Subquery(own), cut))
    found = rows.values_list("passage", flat=True).first()
    if found is None:
        raise _gone(document)
    return str(found)


def _gone(document: Document) -> ServiceError:
    message = f"the document {document.doc_id!r}, or this revision of it, was deleted or restricted meanwhile"
    return UnknownError("document", message, field="doc_id")


def revision_chunks(document: Document, number: int) -> list[RevisionChunk]:
    """The chunks of a revision in order, those of the present one as they are served now."""
    if (cut := _cut_again(document, number)) is not None:
        return cut
    stored = _stored_chunks(document, number)
    if stored is None:
        return _present_chunks(document)
    lacking = any(each["content"] is None for each in stored)
    text = revision_text(document, number) if lacking else ""
    return [
        RevisionChunk(
            each["index"],
            each["start"],
            each["end"],
            text[each["start"] : each["end"]] if each["content"] is None else each["content"],
            each["context"],
            each["enabled"],
        )
        for each in stored
    ]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where one chunk of a revision stands in its text, in characters."""

    index: int
    start: int
    end: int


def revision_places(document: Document, number: int) -> list[ChunkPlace]:
    """The places of a revision's chunks, in order; its text is read only to cut it again."""
    if (cut := _cut_again(document, number)) is not None:
        return [ChunkPlace(each.index, each.start, each.end) for each in cut]
    stored = _stored_chunks(document, number)
    if stored is not None:
        return [ChunkPlace(each["index"], each["start"], each["end"]) for each in stored]
    rows = Chunk.objects.of_document(document).values_list("chunk_index", "start_char", "end_char")
    return [ChunkPlace(*row) for row in rows]


def _cut_again(document: Document, number: int) -> list[RevisionChunk] | None:
    """The chunks of a revision that shares those of a later state, where another index version cut that anew since.

    None where the shared ones are right, or no text is kept. What people changed in chunks is laid over those that were
    shared with the present state; what it was in a state that is past, nobody knows any more.
    """
    shared = DocumentRevision.objects.of_document(document.collection_id, document.doc_id)
    own = shared.filter(revision=number).defer("text").first()
    if own is None or own.chunks or not own.chunk_count or not own.chunk_policy:
        return None
    holders = shared.filter(revision__gt=number).exclude(chunks=[], chunk_count__gt=0).order_by("revision")
    held_by = holders.values_list("chunk_policy", flat=True).first()
    holding = document.chunk_policy if held_by is None else held_by
    if not holding or holding == own.chunk_policy:
        return None
    text = revision_text(document, number)
    if not text:
        return None
    spans = [Segment(text[start:end], t_start, t_end) for start, end, t_start, t_end in own.segments]
    content = spans if spans and document_text(spans) == text else text
    cut = iter_bound(
        iter_chunks(content, ChunkPolicy.from_dict(own.chunk_policy)),
        doc_id=document.doc_id,
        title=own.title,
        page_map=[(start, end, label) for start, end, label in own.page_map],
    )
    overlays = DocumentOverlays(document.collection_id, document.doc_id)
    if held_by is None:
        overlays = DocumentOverlays.read(document.collection_id, document.doc_id)
    made = overlays.apply(list(cut))
    return [
        RevisionChunk(each.chunk_index, each.start, each.end, each.content, each.context, each.enabled) for each in made
    ]


def _stored_chunks(document: Document, number: int) -> list[dict[str, Any]] | None:
    """As they are kept by the revision or by the first later one that has them; None: the document still has them."""
    if number >= document.revision:
        return None
    rows = DocumentRevision.objects.filter(
        collection_id=document.collection_id, doc_id=document.doc_id, revision__gte=number
    )
    stored = rows.exclude(chunks=[], chunk_count__gt=0).order_by("revision")
    record: list[dict[str, Any]] | None = stored.values_list("chunks", flat=True).first()
    return record


def _present_chunks(document: Document) -> list[RevisionChunk]:
    rows = Chunk.objects.of_document(document).only(
        "chunk_index", "start_char", "end_char", "content", "context", "switched_off"
    )
    return [
        RevisionChunk(row.chunk_index, row.start_char, row.end_char, row.content, row.context, not row.switched_off)
        for row in rows
    ]


def revision_maps(document: Document, number: int) -> Mapping[str, Any]:
    """page_map and segments of an earlier revision. ServiceError 404 as for `revision_text`."""
    rows = DocumentRevision.objects.of_document(document.collection_id, document.doc_id).filter(revision=number)
    found = rows.values("page_map", "segments").first()
    if found is None:
        raise _gone(document)
    return found


def count_revisions(collection_id: int, doc_ids: Sequence[str]) -> int:
    """How many earlier revisions these documents have."""
    sql = "SELECT count(*) FROM document_revisions WHERE collection_id = %(id)s AND doc_id = ANY(%(doc_ids)s)"
    ((total,),) = fetch_all(connection, sql, {"id": collection_id, "doc_ids": list(doc_ids)})
    return int(total)


Kind = StateChange.Kind
NO_LIMIT = 2**31 - 1

# A new array for each document: the rows of its earlier revisions and its last state, which `KEEP` has put there.
RECORD_DELETED = """
INSERT INTO state_changes
    (collection_id, kind, doc_id, document_id, enabled_before, number, began_at, kept, made_at, made_by)
SELECT d.collection_id, 'deleted', d.doc_id, d.id, d.enabled, d.revision, d.created_at,
       CASE WHEN %(keeps)s THEN (
           SELECT jsonb_agg(to_jsonb(r) - 'id' - 'collection_id' ORDER BY r.revision) FROM document_revisions r
           WHERE r.collection_id = d.collection_id AND r.doc_id = d.doc_id) END,
       clock_timestamp(), %(by)s
FROM documents d WHERE d.collection_id = %(collection_id)s AND d.doc_id = ANY(%(doc_ids)s)
"""


def deleted_kept_days(collection: Collection) -> int:
    """For how many days the content of deleted documents is kept; 0: it goes with them."""
    explicit = collection.retention.get("deleted_days")
    return kept_for("deleted_days") if explicit is None else int(explicit)


def record_switches(collection: Collection, documents: Iterable[Document], kind: str, actor: Actor) -> None:
    """That these documents, as they were read, are enabled, disabled, archived or unarchived now."""
    StateChange.objects.bulk_create(
        StateChange(
            collection=collection,
            kind=kind,
            doc_id=document.doc_id,
            document_id=document.pk,
            enabled_before=document.enabled,
            made_by=name_actor(actor),
        )
        for document in documents
    )


def record_deletions(collection: Collection, doc_ids: Sequence[str], actor: Actor) -> None:
    """That these documents are about to be deleted, with what is kept of them. Before the first of their rows goes."""
    values = {
        "collection_id": collection.pk,
        "doc_ids": list(doc_ids),
        "by": name_actor(actor),
        "keeps": deleted_kept_days(collection) > 0,
        "reason": Kind.DELETED.value,
        "replaced_by": name_actor(actor),
        "kept": NO_LIMIT,
        "mark": MARK,
        "text_hash": "",
    }
    if values["keeps"]:
        execute(connection, DROP, values)
        execute(connection, keep_sql(collection, "false"), values)
    execute(connection, RECORD_DELETED, values)
    if values["keeps"]:
        last = DocumentRevision.objects.filter(collection_id=collection.pk, doc_id__in=list(doc_ids))
        last.filter(reason=Kind.DELETED.value)._raw_delete("default")


def record_serving(collection: Collection, before: int, by: str) -> None:
    """That another index version than `before` is active from now on."""
    StateChange.objects.create(collection=collection, kind=Kind.SERVING, number=before, made_by=by)


def record_beginning(collection: Collection) -> None:
    """That nothing is known of the collection before this moment."""
    StateChange.objects.create(collection=collection, kind=Kind.RECORDED)


def forget_deleted(collection: Collection, now: datetime) -> int:
    """Give up the content of documents that were deleted longer ago than it is kept; returns of how many."""
    until = now - timedelta(days=deleted_kept_days(collection))
    rows = StateChange.objects.filter(collection=collection, kind=Kind.DELETED, kept__isnull=False, made_at__lt=until)
    return rows.update(kept=None)


COMPARED_MAX_CHARS = 60_000_000
FIELDS = ("title", "tags", "metadata", "file_metadata", "source", "media_type", "chunk_policy", "warnings")


@dataclass(frozen=True, slots=True)
class Difference:
    """From `before` to `after`, both as revisions without their texts."""

    before: DocumentRevision
    after: DocumentRevision
    fields: list[FieldChange]
    chunks: ChunkDifference


def compare_revisions(document: Document, before: int, after: int) -> Difference:
    """What differs between two revisions, either of which may be the present one, in either order of numbers.

    Raises ServiceError 404 for one that is not kept, 413 when both texts together have more than 60 million characters.
    """
    old, new = any_revision(document, before), any_revision(document, after)
    size = old.size_chars + new.size_chars
    if size > COMPARED_MAX_CHARS:
        raise ServiceError(
            f"the two revisions have {size} characters together; at most {COMPARED_MAX_CHARS} are compared. "
            "Read them one by one",
            type="too_large",
            status=413,
        )
    chunks = compare_chunks(revision_chunks(document, before), revision_chunks(document, after))
    return Difference(old, new, compare_fields(_fields(old), _fields(new)), chunks)


def _fields(revision: DocumentRevision) -> Mapping[str, Any]:
    return {name: getattr(revision, name) for name in FIELDS}


def rollback_changes(collection: Collection, document: Document, revision: DocumentRevision) -> list[FieldChange]:
    """How the policy that a rollback would cut by differs from that of the revision; then its chunks may too."""
    return compare_fields(dict(revision.chunk_policy), policy_of(collection, document).as_dict())
