"""A document with what lies over its chunks, how one change of it is stored, and the chunks that it would make.

The chunks that are nearest to a chunk, by the vectors that searches compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from collections_app.audit import services
from collections_app.chunks.finding_scan import redacted_spans
from collections_app.chunks.overlays import ChunkSource, Overlay, hash_anchor, trace_sources
from collections_app.collections.models import key_label, name_actor
from collections_app.documents.services import RevisionConflictError, draft_of, get_document, retry_on_conflict
from collections_app.documents.stored_documents import (
    Cause,
    DocumentOverlays,
    StoredDocument,
    cut_spans,
    find_stored,
    note_applied,
    read_overlays,
    refuse_archived,
    refuse_stale,
)
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.ingestion import chunk_draft, in_current_index_version, ingest
from collections_app.index.stores import read_store
from collections_app.jobs.attempts import IngestOutcome
from collections_app.models import Chunk as StoredChunk
from collections_app.models import ChunkOverlay, Collection, Document
from ragd import telemetry
from ragd.search.vector_search import vector_candidates
from ragd.store.store import Store
from ragd.text.chunking import document_text
from ragd.types import Candidate, Chunk, ChunkPolicy, RetrievePlan

PROPOSED_CHARS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class ChunkChange:
    """What came of a change. chunk_index: where the chunk stands now, None when it is gone or the overlay waits.

    overlay_id: None when there is none any more. before: the overlay as it was, None for a new one. changed False: the
    chunk was like that already, and nothing was done.
    """

    doc_id: str
    revision: int
    chunk_index: int | None = None
    overlay_id: int | None = None
    before: Overlay | None = None
    changed: bool = True


@dataclass(frozen=True, slots=True)
class OverlayChange:
    """The overlays as they are to be. subject: the position of the one that changes, None when it goes.

    anchor_text: the text that the subject is laid over from now on, None: as before.
    """

    overlays: list[Overlay]
    subject: int | None = None
    anchor_text: str | None = None
    before: Overlay | None = None


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """One state of a document. spans, anchors: per chunk as the policy cut it; sources: per chunk as it is served."""

    document: Document
    overlays: list[Overlay]
    spans: list[tuple[int, int]]
    anchors: list[tuple[str, int]]
    sources: list[ChunkSource]

    @classmethod
    def read(cls, document: Document) -> DocumentSnapshot:
        """Raises ServiceError 409 for a document that keeps no text, of which nothing can be cut again."""
        if not document.text:
            raise ServiceError(
                f"{document.doc_id!r} was indexed as chunks and keeps no text, so its chunks cannot be changed here; "
                "send the changed chunks instead",
                type="no_text",
                field="doc_id",
            )
        overlays = read_overlays(document.collection_id, document.doc_id)
        spans = cut_spans(document)
        anchors = [(hash_anchor(document.text[start:end]), start) for start, end in spans]
        return cls(document, overlays, spans, anchors, trace_sources(anchors, overlays))

    def at(self, chunk_index: int) -> ChunkSource:
        """ServiceError 404 for a number that the document does not have."""
        if not 0 <= chunk_index < len(self.sources):
            raise UnknownError(
                "chunk",
                f"{self.document.doc_id!r} has the chunks 0 to {len(self.sources) - 1}, not {chunk_index}",
                field="chunk_index",
            )
        return self.sources[chunk_index]

    def position(self, overlay_id: int) -> int:
        """ServiceError 404."""
        for position, overlay in enumerate(self.overlays):
            if overlay.id == overlay_id:
                return position
        raise UnknownError(
            "overlay",
            f"{self.document.doc_id!r} has no change {overlay_id} of a chunk; it was undone, perhaps",
            field="overlay_id",
        )

    def original(self, anchor: int) -> str:
        """The text of a chunk as the policy cut it."""
        start, end = self.spans[anchor]
        return self.document.text[start:end]

    def same(self) -> OverlayChange:
        return OverlayChange(self.overlays)

    def with_new(self, kind: str, anchor: int | None, content: str = "") -> OverlayChange:
        """One overlay more, over the chunk `anchor` as it was cut; None: at the end of the document."""
        digest, start = self.anchors[anchor] if anchor is not None else ("", self.document.size_chars)
        made = Overlay(kind, digest, start, content)
        text = "" if anchor is None else self.original(anchor)
        return OverlayChange([*self.overlays, made], len(self.overlays), text)

    def with_content(self, position: int, content: str) -> OverlayChange:
        before = self.overlays[position]
        if before.content == content:
            return self.same()
        return OverlayChange(self._put(position, replace(before, content=content)), position, None, before)

    def with_anchor(self, position: int, anchor: int) -> OverlayChange:
        before = self.overlays[position]
        digest, start = self.anchors[anchor]
        moved = replace(before, anchor_hash=digest, start=start)
        return OverlayChange(self._put(position, moved), position, self.original(anchor), before)

    def without(self, position: int) -> OverlayChange:
        left = [overlay for index, overlay in enumerate(self.overlays) if index != position]
        return OverlayChange(left, None, None, self.overlays[position])

    def _put(self, position: int, overlay: Overlay) -> list[Overlay]:
        return [*self.overlays[:position], overlay, *self.overlays[position + 1 :]]


def _audited(overlay: Overlay | None) -> dict[str, Any] | None:
    """What the audit log keeps of a manual edit: its text as hash and length."""
    if overlay is None:
        return None
    return {"kind": overlay.kind, "content": overlay.content, "start_char": overlay.start}


class PendingOverlays(DocumentOverlays):
    """Overlays as they are to be. They are written in the transaction that stores the chunks they make."""

    def __init__(self, scene: DocumentSnapshot, change: OverlayChange, message: str, actor: services.Actor) -> None:
        super().__init__(scene.document.collection_id, scene.document.doc_id, change.overlays)
        self.scene, self.change, self.message, self.actor = scene, change, message, actor
        self.overlay_id: int | None = None

    def current(self, stored: StoredDocument | None) -> DocumentOverlays:
        """Itself: what it was made from must still be there. Raises RevisionConflictError."""
        present = read_overlays(self.collection_id, self.doc_id)
        if stored is None or stored.revision != self.scene.document.revision or present != self.scene.overlays:
            raise RevisionConflictError
        return self

    def settle(self, revision: int) -> None:
        stored = {overlay.id for overlay in self.listed}
        gone = [overlay.id for overlay in self.scene.overlays if overlay.id not in stored]
        ChunkOverlay.objects.filter(pk__in=gone).delete()
        listed = list(self.listed)
        if self.change.subject is not None:
            listed[self.change.subject] = self._write(listed[self.change.subject])
            self.overlay_id = listed[self.change.subject].id
        note_applied(listed, self.places, revision)
        before, after = self.change.before, None
        if self.change.subject is not None:
            after = listed[self.change.subject]
        services.record(
            self.actor,
            [self.scene.document],
            "chunk.change",
            self.message,
            before=_audited(before),
            after=_audited(after),
        )

    def _write(self, overlay: Overlay) -> Overlay:
        values: dict[str, Any] = {
            "kind": overlay.kind,
            "anchor_hash": overlay.anchor_hash,
            "start_char": overlay.start,
            "content": overlay.content,
            "created_by": name_actor(self.actor),
        }
        if self.change.anchor_text is not None:
            values["anchor_text"] = self.change.anchor_text
        row = ChunkOverlay(collection_id=self.collection_id, doc_id=self.doc_id)
        if overlay.id:
            row = ChunkOverlay.objects.get(pk=overlay.id)
        for name, value in values.items():
            setattr(row, name, value)
        row.save()
        return replace(overlay, id=row.pk)


def change_overlays(
    collection: Collection,
    doc_id: str,
    propose: Callable[[DocumentSnapshot], OverlayChange],
    message: str,
    *,
    revision: int | None = None,
    actor: services.Actor = None,
) -> ChunkChange:
    """Store what `propose` wants of the present state, with the chunks that it makes, as a new revision.

    It is asked again when somebody was faster. revision: the state that the caller saw; another one is refused with
    ServiceError 409. Raises what reading, `propose` and `ingest` raise.
    """

    def work() -> ChunkChange:
        document = get_document(collection, doc_id)
        _check_state(document, revision)
        scene = DocumentSnapshot.read(document)
        requested = propose(scene)
        if requested.overlays == scene.overlays:
            return ChunkChange(doc_id, document.revision, changed=False)
        proposal = PendingOverlays(scene, requested, message, actor)
        outcome = _store(collection, scene, proposal, Cause(message, name_actor(actor)))
        at = None if requested.subject is None else proposal.places.get(requested.subject)
        return ChunkChange(doc_id, outcome.revision, at, proposal.overlay_id, requested.before)

    return retry_on_conflict(doc_id, work, field="revision")


def _check_state(document: Document, revision: int | None) -> None:
    if document.archived:
        raise refuse_archived(document.doc_id)
    if revision is not None and revision != document.revision:
        raise refuse_stale("revision")


def _store(collection: Collection, scene: DocumentSnapshot, proposal: PendingOverlays, cause: Cause) -> IngestOutcome:
    document = scene.document
    policy = ChunkPolicy.from_dict(document.chunk_policy)

    def work() -> IngestOutcome:
        before = find_stored(collection, document.doc_id)
        return ingest(collection, draft_of(document), policy, before=before, cause=cause, overlays=proposal)

    asked_by = key_label(cause.by)
    with (
        redacted_spans(collection),
        telemetry.ingest_span(collection=collection.name, doc_id=document.doc_id, api_key=asked_by),
    ):
        return in_current_index_version(collection, work)


def chunks_after_edit(
    collection: Collection, doc_id: str, propose: Callable[[DocumentSnapshot], OverlayChange]
) -> list[Chunk]:
    """Those of a document whose single chunks are changed as `chunk_edits.propose_*` say; without vectors.

    Raises ServiceError 404, 409 (no text kept, or too long to be cut while somebody waits) and what `propose` raises.
    """
    document = _document(collection, doc_id)
    scene = DocumentSnapshot.read(document)
    overlays = DocumentOverlays(collection.pk, doc_id, propose(scene).overlays)
    return _cut(document, ChunkPolicy.from_dict(document.chunk_policy), overlays)


def chunks_by_policy(collection: Collection, doc_id: str, policy: ChunkPolicy) -> list[Chunk]:
    """Those of a document that another policy cuts, with the changes of single chunks that still apply over them."""
    document = _document(collection, doc_id)
    return _cut(document, policy, DocumentOverlays.read(collection.pk, doc_id))


def _document(collection: Collection, doc_id: str) -> Document:
    document = get_document(collection, doc_id)
    if not document.text:
        raise ServiceError(
            f"{doc_id!r} was indexed as chunks and keeps no text that could be cut again",
            type="no_text",
            field="doc_id",
        )
    if document.size_chars > PROPOSED_CHARS_MAX:
        raise ServiceError(
            f"{doc_id!r} has {document.size_chars} characters; documents of up to {PROPOSED_CHARS_MAX} are tried",
            type="too_large",
            field="doc_id",
        )
    return document


def _cut(document: Document, policy: ChunkPolicy, overlays: DocumentOverlays) -> list[Chunk]:
    draft = draft_of(document)
    return list(overlays.apply(chunk_draft(draft, document_text(draft.content), policy)))


NEIGHBOURS = 8
NEIGHBOURS_MAX = 100
WIDER = 8


@dataclass(frozen=True, slots=True)
class Neighbour:
    """rank counts from 1; score is the cosine similarity. same_document: it lies in the document of the chunk."""

    rank: int
    score: float
    candidate: Candidate
    same_document: bool


def nearest_chunks(
    collection: Collection, doc_id: str, chunk_index: int, *, k: int = NEIGHBOURS, other_documents: bool = False
) -> list[Neighbour]:
    """The k chunks nearest to a chunk, nearest first, ties by (doc_id, chunk_index); itself and disabled ones left out.

    Every vector is compared, as a search with exact "always" does. other_documents: only chunks of other documents.
    Raises ServiceError 404 for a chunk that is not there.
    """
    chunk = find_chunk(collection, doc_id, chunk_index)
    plan = RetrievePlan(mode="vector", k=1, exact="always")

    def read(store: Store) -> list[Candidate]:
        rows = min(k, NEIGHBOURS_MAX) + 1
        while True:
            nearest = vector_candidates(chunk.embedding, plan, store, True, rows=rows)
            others = [each for each in nearest if is_wanted(each)]
            if len(others) >= k or len(nearest) < rows:
                return others
            rows *= WIDER  # its own document is in the way

    def is_wanted(candidate: Candidate) -> bool:
        return candidate.doc_id != doc_id if other_documents else candidate.key != (doc_id, chunk_index)

    result = read_store(collection, read)
    return [
        Neighbour(rank, candidate.score, candidate, candidate.doc_id == doc_id)
        for rank, candidate in enumerate(result[:k], 1)
    ]


def find_chunk(collection: Collection, doc_id: str, chunk_index: int) -> StoredChunk:
    """With its vector. ServiceError 404."""
    result = None
    if "\x00" not in doc_id:
        rows = StoredChunk.objects.of(collection).filter(doc_id=doc_id, chunk_index=chunk_index)
        result = rows.defer("fts", "lexical", "tokens").first()
    if result is None:
        raise UnknownError(
            "chunk",
            f"collection {collection.name!r} has no chunk {chunk_index} of a document {doc_id!r}",
            field="chunk_index",
        )
    return result
