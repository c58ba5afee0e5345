"""One document changed by hand: title, tags, metadata, chunk policy, state; and brought back to an earlier revision.

Tags and metadata of many documents, changed without cutting or embedding anything anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection, transaction

from collections_app.access.context import elevated, require
from collections_app.access.document_access import list_by_metadata
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.chunks.finding_scan import redacted_spans
from collections_app.chunks.overlays import MARK
from collections_app.chunks.policies import check_policy, policy_of, window_of
from collections_app.collections.models import key_label, name_actor
from collections_app.documents import stored_documents
from collections_app.documents.files import drop_stale_uploads
from collections_app.documents.revisions.services import EDIT, find_revision, keep_labels, revision_maps, revision_text
from collections_app.documents.services import (
    State,
    change_state,
    draft_of,
    get_document,
    require_unchanged,
    retry_on_conflict,
    state_of,
)
from collections_app.errors import ServiceError
from collections_app.index.ingestion import Draft, hash_decisive, in_current_index_version, ingest
from collections_app.index.stores import open_store
from collections_app.jobs.attempts import IngestOutcome
from collections_app.jobs.models import ACTIVE_STATES
from collections_app.models import Collection, Document, IngestJob, Upload
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import check_doc_id, check_language, clean_metadata, clean_tags, clean_title
from ragd.store.indexing import lock_statistics
from ragd.store.store import execute, fetch_all
from ragd.types import ChunkPolicy, canonical_json

# What chunk() and bind() say of a chunk; there they win over the document's metadata.
OWN_KEYS = frozenset(("headings", "segment_start", "segment_end", "t_start", "t_end", "page", MARK))

DECISIVE = """
SELECT d.id, d.title, d.tags, d.metadata::text, d.revision, d.content_hash, d.language_stated,
       encode(sha256(convert_to(d.text, 'UTF8')), 'hex'), d.segments::text, d.page_map::text, d.cell_map::text,
       d.chunk_policy::text,
       EXISTS (SELECT FROM chunk_overlays o WHERE o.collection_id = d.collection_id AND o.doc_id = d.doc_id)
FROM documents d WHERE d.id = ANY(%(ids)s)
"""

WRITE = """
UPDATE documents d
SET tags = s.tags, metadata = s.metadata, content_hash = s.content_hash, revision = s.revision,
    updated_at = clock_timestamp()
FROM jsonb_to_recordset(%(rows)s::jsonb)
     AS s (id bigint, tags text[], metadata jsonb, content_hash text, revision integer)
WHERE d.id = s.id
"""

WRITE_CHUNKS = """
UPDATE {chunks} c
SET tags = s.tags, metadata = (c.metadata - s.gone) || s.put, revision = s.revision
FROM jsonb_to_recordset(%(rows)s::jsonb) AS s (doc_id text, tags text[], gone text[], put jsonb, revision integer)
WHERE c.collection_id = %(collection_id)s AND c.doc_id = s.doc_id COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class Labels:
    """What a document is to be labelled with; pk is the row's."""

    pk: int
    doc_id: str
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]


def touches_chunk_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether keys differ that a chunk may have of its own, so that only cutting it anew tells what stands there."""
    return any(before.get(key) != after.get(key) or (key in before) != (key in after) for key in OWN_KEYS)


def relabel(
    collection: Collection, requested: Sequence[Labels], cause: stored_documents.Cause, *, actor: services.Actor = None
) -> list[str]:
    """Give the documents these tags and metadata; returns the ids of those that changed, each now a new revision.

    Statements are as many for one document as for many. The caller holds the documents' locks and the transaction,
    has refused archived ones, and knows that no key of OWN_KEYS changes (`touches_chunk_keys`). Content hashes go
    along, so that the same file is still unchanged.
    """
    require(Permission.WRITE, collection.pk)
    rows = {row[0]: row for row in fetch_all(connection, DECISIVE, {"ids": [labels.pk for labels in requested]})}
    documents, chunks = [], []
    previous: dict[int, dict[str, Any]] = {}
    for labels in requested:
        _, title, tags, metadata, revision, digest, language, text_hash, segments, pages, cells, policy, overlaid = (
            rows[labels.pk]
        )
        before = json.loads(metadata)
        if (tuple(tags), before) == (labels.tags, dict(labels.metadata)):
            continue
        overlays = stored_documents.DocumentOverlays.read(collection.pk, labels.doc_id).digest if overlaid else ()
        if digest:
            digest = hash_decisive(
                collection,
                text_hash=text_hash,
                segments=json.loads(segments) or None,
                pages=json.loads(pages),
                cells=json.loads(cells),
                title=title,
                tags=labels.tags,
                metadata=labels.metadata,
                policy=json.loads(policy),
                overlays=overlays,
                language=language,
            )
        shared = {"tags": list(labels.tags), "revision": revision + 1}
        gone = [key for key in before if key not in labels.metadata]
        put = {key: value for key, value in labels.metadata.items() if key not in before or before[key] != value}
        previous[labels.pk] = {"tags": list(tags), "metadata": before}
        documents.append(shared | {"id": labels.pk, "metadata": dict(labels.metadata), "content_hash": digest})
        chunks.append(shared | {"doc_id": labels.doc_id, "gone": gone, "put": put})
    if documents:
        names = [row["doc_id"] for row in chunks]
        keep_labels(collection, names, cause)
        with elevated(Permission.WRITE, collection.pk):
            store = open_store(collection)
            lock_statistics(store)  # whoever writes chunks of many documents waits for its turn
            execute(connection, WRITE, {"rows": canonical_json(documents)})
            execute(
                connection,
                WRITE_CHUNKS.format(chunks=store.collection.partition),
                {"collection_id": collection.pk, "rows": canonical_json(chunks)},
            )
        for labels in sorted(requested, key=lambda each: each.doc_id) if collection.access_from else ():
            list_by_metadata(collection, labels.doc_id, labels.metadata)
        changed = Document.objects.listed().filter(pk__in=[row["id"] for row in documents])
        following = {row["id"]: {"tags": row["tags"], "metadata": row["metadata"]} for row in documents}
        services.record(
            actor,
            list(changed),
            services.CHANGE,
            f"{cause.reason}: tags or metadata",
            before=lambda document: differing(previous[document.pk], following[document.pk])[0],
            after=lambda document: differing(previous[document.pk], following[document.pk])[1],
        )
    return [row["doc_id"] for row in chunks]


__all__ = ["EDITABLE", "OWN_KEYS", "edit_document", "edit_text", "rewrite_document", "roll_back"]
TEXT_TYPES = ("text/plain", "text/markdown")  # whose text is the file
EDITED = {"chunk_policy": "chunk_policy_stated", "language": "language_stated"}  # field -> where it is kept

EDITABLE = ("title", "tags", "metadata", "language", "chunk_policy", "state")
FILE_KINDS = (IngestJob.Kind.FILE, IngestJob.Kind.FETCH)  # they bring labels of their own
WRITE_KINDS = (*FILE_KINDS, IngestJob.Kind.REINDEX)


def edit_document(
    collection: Collection,
    doc_id: str,
    changes: Mapping[str, Any],
    *,
    expected_revision: int | None = None,
    actor: services.Actor = None,
) -> Document:
    """Change the fields that `changes` names (EDITABLE) and return the document as it is then.

    tags and metadata replace what is there; nothing is embedded for them. A title is part of what is embedded, so
    every chunk is embedded anew; a language ("" to have it found)
    decides the words of keyword search; of another chunk_policy ({} for the collection's) the chunks that differ are.
    expected_revision: refuse (409) when the document has changed since that one. Raises ServiceError 404, 409 for
    anything but another state on an archived document and for content while a file is ingested for it,
    InvalidInput, EmbedderError.
    """
    require(Permission.WRITE, collection.pk)
    requested = _check(collection, changes)
    document = get_document(collection, doc_id)
    if expected_revision is not None and expected_revision != document.revision:
        raise stored_documents.refuse_stale("expected_revision")
    state = requested.get("state")
    if document.archived and state in (None, State.ARCHIVED) and set(requested) - {"state"}:
        raise stored_documents.refuse_archived(doc_id)
    if document.archived and state in (State.ENABLED, State.DISABLED):
        with transaction.atomic():  # what is to be disabled is retrieved at no moment
            change_state(collection, [doc_id], "unarchived", actor=actor)
            if state == State.DISABLED:
                change_state(collection, [doc_id], state, actor=actor)
    _edit_content(collection, doc_id, requested, actor)
    if state is not None:
        change_state(collection, [doc_id], state, actor=actor)
    return get_document(collection, doc_id)


def _check(collection: Collection, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes as they are kept."""
    if unknown := set(changes) - set(EDITABLE):
        name = sorted(unknown)[0]
        raise InvalidInput(f"{name} cannot be changed; what can is {', '.join(EDITABLE)}", field=name)
    requested = dict(changes)
    if "title" in requested:
        requested["title"] = clean_title(requested["title"] or "")
    if "tags" in requested:
        requested["tags"] = clean_tags(requested["tags"])
    if "metadata" in requested:
        requested["metadata"] = clean_metadata(requested["metadata"])
    if "language" in requested:
        requested["language"] = check_language(requested["language"])
    if "chunk_policy" in requested:
        requested["chunk_policy"] = check_policy(requested["chunk_policy"], window_of(collection))
    if "state" in requested and requested["state"] not in State.values:
        raise InvalidInput(f"state must be one of {', '.join(State.values)}", field="state")
    return requested


def _edit_content(collection: Collection, doc_id: str, requested: Mapping[str, Any], actor: services.Actor) -> None:
    fields = {
        name: requested[name] for name in ("title", "tags", "metadata", "language", "chunk_policy") if name in requested
    }
    if not fields:
        return
    _refuse_busy(collection, doc_id, FILE_KINDS)
    if not fields.keys() & {"title", "language", "chunk_policy"}:
        with transaction.atomic():
            stored_documents.lock_documents(collection, [doc_id])
            document = get_document(collection, doc_id)
            if document.archived:  # by somebody else, since the edit began
                raise stored_documents.refuse_archived(doc_id)
            metadata = fields.get("metadata", document.metadata)
            if not touches_chunk_keys(document.metadata, metadata):
                labels = Labels(document.pk, doc_id, tuple(fields.get("tags", document.tags)), metadata)
                relabel(collection, [labels], stored_documents.Cause(EDIT, name_actor(actor)), actor=actor)
                return
    rewrite_document(collection, doc_id, fields, actor=actor)


def rewrite_document(
    collection: Collection, doc_id: str, fields: Mapping[str, Any], *, actor: services.Actor = None
) -> IngestOutcome:
    """Cut the document anew with other fields (title, tags, metadata, language, chunk_policy, checked). Equal texts
    keep their vectors.

    What somebody else wrote meanwhile is kept: the change is then made to that. ServiceError 409 when that happens
    again and again.
    """
    require(Permission.WRITE, collection.pk)

    def work() -> IngestOutcome:
        return in_current_index_version(collection, lambda: _rewrite(collection, doc_id, fields, actor))

    return retry_on_conflict(doc_id, work)


def _rewrite(collection: Collection, doc_id: str, fields: Mapping[str, Any], actor: services.Actor) -> IngestOutcome:
    document = get_document(collection, doc_id)
    if not document.text:
        raise _without_text(doc_id)
    before = stored_documents.find_stored(collection, doc_id)  # read last: what equals an older state is not unchanged
    explicit = fields.get("chunk_policy")
    draft = replace(
        draft_of(document),
        **{name: fields[name] for name in ("title", "tags", "metadata", "language") if name in fields},
    )
    if explicit is None:
        policy = (
            ChunkPolicy.from_dict(document.chunk_policy) if document.chunk_policy else policy_of(collection, before)
        )
    else:
        policy = policy_of(collection, replace(before, policy_stated=explicit) if before else None)

    def note_policy(_: IngestOutcome) -> None:
        if explicit is not None:
            rows = Document.objects.filter(collection=collection, doc_id=doc_id)
            rows.update(chunk_policy_stated=dict(explicit))

    asked_by = key_label(name_actor(actor))
    with redacted_spans(collection), telemetry.ingest_span(collection=collection.name, doc_id=doc_id, api_key=asked_by):
        outcome = ingest(
            collection,
            draft,
            policy,
            on_commit=[note_policy, require_unchanged(document)],
            before=before,
            cause=stored_documents.Cause(EDIT, name_actor(actor)),
        )
    if not outcome.unchanged:
        now = get_document(collection, doc_id)
        was, is_now = ({name: getattr(row, EDITED.get(name, name)) for name in fields} for row in (document, now))
        message = f"edited {', '.join(sorted(fields))}"
        services.record(actor, [document], services.CHANGE, message, before=was, after=is_now)
    return outcome


def edit_text(
    collection: Collection,
    doc_id: str,
    text: str,
    *,
    expected_revision: int | None = None,
    actor: services.Actor = None,
) -> IngestOutcome:
    """Make the text of a document of type text or Markdown this one, as a new revision; all else of it stays.

    Its original is dropped, since it says something else. Chunks of equal text keep their vectors. Raises what
    `edit_document` raises, and ServiceError 409 for a document of another type.
    """
    require(Permission.WRITE, collection.pk)
    document = get_document(collection, doc_id)
    if expected_revision is not None and expected_revision != document.revision:
        raise stored_documents.refuse_stale("expected_revision")
    if document.media_type not in TEXT_TYPES or document.segments:
        raise ServiceError(
            f"{doc_id!r} is no plain text or Markdown; upload a new version of its file",
            type="no_text",
            field="content",
        )
    _refuse_unwritable(collection, document)

    def work() -> IngestOutcome:
        before = stored_documents.find_stored(collection, doc_id)
        draft = replace(draft_of(document), content=text, page_map=(), cell_map=(), source_hash="")
        return ingest(
            collection,
            draft,
            policy_of(collection, before),
            on_commit=[
                require_unchanged(document, any_revision=True),
                lambda _: drop_stale_uploads(collection.pk, doc_id),
            ],
            before=before,
            cause=stored_documents.Cause(EDIT, name_actor(actor)),
        )

    asked_by = key_label(name_actor(actor))
    with redacted_spans(collection), telemetry.ingest_span(collection=collection.name, doc_id=doc_id, api_key=asked_by):
        outcome = in_current_index_version(collection, work)
    if not outcome.unchanged:
        before, after = state_of(document), state_of(get_document(collection, doc_id))
        services.record(actor, [document], services.CHANGE, "edited the text", before=before, after=after)
    return outcome


def roll_back(collection: Collection, doc_id: str, number: int, *, actor: services.Actor = None) -> IngestOutcome:
    """Make the document what its revision `number` was; the present state becomes an earlier revision in turn.

    Its chunks are cut from the old text by the policy that holds for the document now; texts that are there already
    keep their vectors. A revision with the present content changes nothing. Raises ServiceError 404 (unknown document
    or revision) and 409 (archived, being ingested right now, or a revision without a text).
    """
    require(Permission.WRITE, collection.pk)

    doc_id = check_doc_id(doc_id)

    def work() -> IngestOutcome:
        document = get_document(collection, doc_id)
        _refuse_unwritable(collection, document)
        draft = _draft_of_revision(document, number)
        before = stored_documents.find_stored(collection, doc_id)  # read last, as in `_rewrite`

        def keep_source(_: IngestOutcome) -> None:
            """No job writes the document at the same time, and no file but its own is kept."""
            _refuse_busy(collection, doc_id)
            files = Upload.objects.of_document(collection.pk, doc_id).filter(sha256=draft.source_hash)
            drop_stale_uploads(collection.pk, doc_id, keep=files.values_list("pk", flat=True).first() or 0)

        return ingest(
            collection,
            draft,
            policy_of(collection, before),
            on_commit=[require_unchanged(document, any_revision=True), keep_source],
            before=before,
            cause=stored_documents.Cause(f"rollback to {number}", name_actor(actor)),
        )

    asked_by = key_label(name_actor(actor))
    with redacted_spans(collection), telemetry.ingest_span(collection=collection.name, doc_id=doc_id, api_key=asked_by):
        outcome = retry_on_conflict(doc_id, lambda: in_current_index_version(collection, work))
    if not outcome.unchanged:
        document = get_document(collection, doc_id)
        services.record(
            actor,
            [document],
            "document.rollback",
            f"rolled back to revision {number}",
            after={"revision": document.revision, "content_hash": document.content_hash},
        )
    return outcome


def _draft_of_revision(document: Document, number: int) -> Draft:
    revision = find_revision(document, number)
    revision.text = revision_text(document, number)
    if not revision.text:
        raise _without_text(document.doc_id)
    for name, value in revision_maps(document, number).items():
        setattr(revision, name, value)
    return draft_of(revision)


def is_busy(collection: Collection, doc_id: str) -> bool:
    """Whether a job that writes the document is queued or running."""
    return bool(find_busy(collection, [doc_id]))


def find_busy(collection: Collection, doc_ids: Sequence[str], kinds: Sequence[str] = WRITE_KINDS) -> set[str]:
    """Which of these documents a job of these kinds is about to write."""
    rows = IngestJob.objects.filter(collection=collection, doc_id__in=doc_ids, kind__in=kinds, state__in=ACTIVE_STATES)
    return set(rows.values_list("doc_id", flat=True))


def _refuse_unwritable(collection: Collection, document: Document) -> None:
    if document.archived:
        raise stored_documents.refuse_archived(document.doc_id)
    _refuse_busy(collection, document.doc_id)


def _refuse_busy(collection: Collection, doc_id: str, kinds: Sequence[str] = WRITE_KINDS) -> None:
    if find_busy(collection, [doc_id], kinds):
        raise refuse_busy(doc_id)


def refuse_busy(doc_id: str) -> ServiceError:
    """What whoever wants to change a document is told while a job is about to write it."""
    return ServiceError(
        f"{doc_id!r} is being ingested right now; wait until its job has ended, or cancel it",
        type="being_ingested",
        field="doc_id",
    )


def _without_text(doc_id: str) -> ServiceError:
    return ServiceError(
        f"{doc_id!r} came in as chunks without a text, so it cannot be re-chunked; send it as text first",
        type="no_text",
        field="doc_id",
    )
