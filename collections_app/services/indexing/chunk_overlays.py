"""The overlays of a document while its chunks are made: read, laid over, and noted where they found their anchor."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from collections_app.domain.overlays import (
    ADD,
    DISABLE,
    EDIT,
    MARK,
    OverlaidChunks,
    Overlay,
    apply_overlays,
    digest_overlays,
    hash_anchor,
    place_overlays,
)
from collections_app.models import Chunk as StoredChunk
from collections_app.models import ChunkOverlay, Document
from collections_app.services.indexing.document_locks import StoredDocument
from collections_app.services.indexing.embedding_checkpoints import Chunks
from ragd.store.store import fetch_all

READ = """
SELECT kind, anchor_hash, start_char, content, id FROM chunk_overlays
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s ORDER BY id
"""

# Where the chunks of a document stand, as the policy cut them: only what was added by hand has no length.
SPANS = """
SELECT start_char, end_char FROM chunks
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s AND end_char > start_char
ORDER BY chunk_index
"""


class DocumentOverlays:
    """The overlays of one document during one ingest or build, as they were read. None are the usual case."""

    def __init__(self, collection_id: int, doc_id: str, listed: Sequence[Overlay] = ()) -> None:
        self.collection_id, self.doc_id = collection_id, doc_id
        self.listed = tuple(listed)
        self.laid = OverlaidChunks(())

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
        return digest_overlays(self.listed) if self.listed else []

    def apply(self, chunks: Chunks) -> Chunks:
        """See `apply_overlays`; which apply is remembered for `settle`. None listed: the same chunks."""
        self.laid = apply_overlays(list(chunks), self.listed) if self.listed else OverlaidChunks(())
        return self.laid.chunks if self.listed else chunks

    def current(self, stored: StoredDocument | None) -> DocumentOverlays:
        """These, or what they are by now. The caller holds the lock on the document; stored: what it finds there."""
        now = tuple(read_overlays(self.collection_id, self.doc_id)) if stored is not None else self.listed
        return self if now == self.listed else DocumentOverlays(self.collection_id, self.doc_id, now)

    def settle(self, revision: int) -> None:
        """Inside the transaction that stores the chunks of this revision: note which overlays apply."""
        note_applied(self.listed, self.laid.places, revision)


def read_overlays(collection_id: int, doc_id: str) -> list[Overlay]:
    """In the order in which they were made."""
    rows = fetch_all(connection, READ, {"collection_id": collection_id, "doc_id": doc_id})
    return [Overlay(*row) for row in rows]


def overlays_of_chunk(chunk: StoredChunk, original: str) -> list[Overlay]:
    """What lies over one stored chunk, without reading the rest of its document. original: its text as it was cut.

    Of several chunks of equal text that were changed alike, the change that was made nearest to this one is meant.
    """
    added = chunk.metadata.get(MARK) == ADD
    digest, result = hash_anchor(original), {}
    for overlay in sorted(
        read_overlays(chunk.collection_id, chunk.doc_id),
        key=lambda overlay: abs(overlay.start - chunk.start_char),
        reverse=True,
    ):
        if added:
            mine = overlay.kind == ADD and overlay.content == chunk.content
        elif overlay.kind == EDIT:
            mine = overlay.anchor_hash == digest and overlay.content == chunk.content
        else:
            mine = overlay.kind == DISABLE and overlay.anchor_hash == digest and chunk.switched_off
        if mine:
            result[overlay.kind] = overlay
    return list(result.values())


def note_applied(listed: Sequence[Overlay], applying: object, revision: int) -> None:
    """applying: the positions in `listed` of those whose anchor is there; the others are kept and wait for it."""
    positions = set(applying)  # type: ignore[call-overload]
    for applies in (True, False):
        ids = [overlay.id for index, overlay in enumerate(listed) if overlay.id and (index in positions) is applies]
        if ids:
            ChunkOverlay.objects.filter(pk__in=ids).update(applies=applies, revision=revision)


def note_all_applied(collection_id: int) -> None:
    """For a collection in which another generation serves since now, cut by another policy perhaps."""
    names = ChunkOverlay.objects.filter(collection_id=collection_id).order_by("doc_id").values_list("doc_id", flat=True)
    for doc_id in list(names.distinct()):
        document = Document.objects.filter(collection_id=collection_id, doc_id=doc_id).first()
        if document is not None:
            listed = read_overlays(collection_id, doc_id)
            note_applied(listed, place_overlays(anchors_of(document), listed), document.revision)


def cut_spans(collection_id: int, doc_id: str) -> list[tuple[int, int]]:
    """(start, end) of the stored chunks of a document as the policy cut them, in order."""
    params = {"collection_id": collection_id, "doc_id": doc_id}
    return [(start, end) for start, end in fetch_all(connection, SPANS, params)]


def anchors_of(document: Document) -> list[tuple[str, int]]:
    """(hash_anchor, start) of the stored chunks of a document as the policy cut them, in order."""
    positions = cut_spans(document.collection_id, document.doc_id)
    return [(hash_anchor(document.text[start:end]), start) for start, end in positions]
