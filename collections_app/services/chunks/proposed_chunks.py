"""The chunks that a document would have after a change that nobody has made yet."""

from __future__ import annotations

from collections.abc import Callable

from collections_app.errors import ServiceError
from collections_app.models import Collection, Document
from collections_app.services.chunks.document_snapshot import DocumentSnapshot, OverlayChange
from collections_app.services.documents.documents import draft_of, get_document
from collections_app.services.indexing.ingestion import chunk_draft
from collections_app.services.indexing.stored_documents import DocumentOverlays
from ragd.text.chunking import document_text
from ragd.types import Chunk, ChunkPolicy

PROPOSED_CHARS_MAX = 2_000_000


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
            status=409,
            field="doc_id",
        )
    if document.size_chars > PROPOSED_CHARS_MAX:
        raise ServiceError(
            f"{doc_id!r} has {document.size_chars} characters; documents of up to {PROPOSED_CHARS_MAX} are tried",
            type="too_large",
            status=409,
            field="doc_id",
        )
    return document


def _cut(document: Document, policy: ChunkPolicy, overlays: DocumentOverlays) -> list[Chunk]:
    draft = draft_of(document)
    return list(overlays.apply(chunk_draft(draft, document_text(draft.content), policy)))
