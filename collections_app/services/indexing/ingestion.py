"""One document from its text to its stored chunks: hash, chunk, embed outside any transaction, store in one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.db import transaction

import ragd
from collections_app.domain.texts import LONG_CHARS, count_words, give_back_memory, hash_text
from collections_app.models import Chunk, Collection, Document
from collections_app.services.endpoints.providers import ingest_embedder
from collections_app.services.indexing.chunk_overlays import DocumentOverlays, with_vectors_of
from collections_app.services.indexing.document_locks import StoredDocument, lock_document, refuse_archived
from collections_app.services.indexing.embedding_checkpoints import EmbeddingCheckpoints, SpooledCheckpoints
from collections_app.services.indexing.large_documents import (
    Chunks,
    KnownVectors,
    LargeCut,
    LargeEmbedding,
    gather_chunks,
    write_text,
)
from collections_app.services.indexing.revisions import UNSTATED, Cause, keep_revision
from collections_app.stores import open_store
from ragd import telemetry
from ragd.errors import EmptyContent, GenerationChanged
from ragd.store.document_stream import index_document
from ragd.store.indexing import delete_document_chunks, embed_chunks
from ragd.text.chunking import document_text, iter_bound, iter_chunks, segment_spans
from ragd.types import Chunk as LibraryChunk
from ragd.types import ChunkPolicy, Segment, canonical_json

Result = TypeVar("Result")

COLLECTION_FIELDS = tuple(field.attname for field in Collection._meta.concrete_fields)
STORED_FIELDS = (
    "title", "tags", "metadata", "source", "media_type", "text", "size_chars", "token_count", "chunk_count",
    "content_hash", "source_hash", "page_map", "segments", "chunk_policy", "warnings", "revision", "updated_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to become a document.

    content: text, or segments in order. page_map: (start, end, label) in characters of the text.
    """

    doc_id: str
    content: str | Sequence[Segment]
    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    media_type: str = "text/plain"
    source_hash: str = ""
    page_map: Sequence[Sequence[Any]] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """What a document is after its ingest. chunks_written: chunks that it consists of; tokens_estimated: its words."""

    chunks_written: int
    tokens_estimated: int
    unchanged: bool
    revision: int
    chars: int = 0


class Progress(Protocol):
    """Who watches an ingest. Every method may raise to stop it; what was stored before stays."""

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0) -> None: ...

    def advance(self, done: int, total: int) -> None:
        """After each batch of embeddings: how many of how many are there."""

    def finish(self, outcome: IngestOutcome) -> None:
        """Inside the transaction that stores the document, as its last step."""


def ingest(
    collection: Collection,
    draft: Draft,
    policy: ChunkPolicy,
    progress: Progress,
    *,
    before: StoredDocument | None = None,
    fresh: bool = False,
    force: bool = False,
    cause: Cause = UNSTATED,
    overlays: DocumentOverlays | None = None,
    kept: EmbeddingCheckpoints | None = None,
) -> IngestOutcome:
    """Make the document what the draft says. The same content, title, tags, metadata and policy: nothing is done.

    before: what was stored of it, as `find_stored` told. fresh: embed every chunk, also those whose text the document
    had before. force: write all chunks anew even when nothing changed. cause: what is written on the revision that is
    replaced, and kept. overlays: what is laid over the chunks; None: those that are stored. kept: where the vectors of
    a large document are while it is under way, those that an earlier run left there included; None: in a file.
    Raises ServiceError 409 for an archived document, EmptyContent, GenerationChanged when another generation than
    `collection` says began to serve meanwhile (see `in_current_generation`), and what chunking, embedding and the
    database raise; the previous version then stays whole.
    """
    if before is not None and before.archived:
        raise refuse_archived(draft.doc_id)
    text = document_text(draft.content)
    if not text.strip():
        raise EmptyContent(
            f"the document {draft.doc_id!r} has no text after normalization; send some text", field="content"
        )
    overlays = overlays or DocumentOverlays.of(collection.pk, draft.doc_id, before)
    digest = hash_content(collection, draft, text, policy, overlays.digest)
    if before is not None and before.content_hash == digest and not force:
        return _unchanged(draft, before, progress)
    if len(text) > LONG_CHARS:
        give_back_memory()  # what reading it took
    progress.enter("chunk", chars=len(text))
    cut = cut_draft(draft, text, policy)
    laid = cut if isinstance(cut, LargeCut) and not overlays.listed else overlays.apply(list(cut))
    progress.enter("embed", chunks_total=len(laid))
    fresh = fresh or force or before is None
    chunks: Sequence[LibraryChunk] | LargeEmbedding
    if isinstance(cut, LargeCut):
        chunks = _embed_large(collection, draft.doc_id, laid, progress, kept or SpooledCheckpoints(), fresh=fresh)
    else:
        chunks = _embed(collection, draft.doc_id, list(laid), progress, fresh=fresh)
    progress.enter("store", chunks_total=len(chunks) if isinstance(chunks, LargeEmbedding) else 0)
    with transaction.atomic():
        stored = lock_document(collection, draft.doc_id)
        if stored is not None and stored.archived:
            raise refuse_archived(draft.doc_id)
        store = _open_same(collection)
        current = overlays.current(stored)
        if current is not overlays:  # changed while the chunks were embedded
            overlays, chunks = current, _reapply(chunks, current.apply(list(cut)))
            digest = hash_content(collection, draft, text, policy, overlays.digest)
        if stored is not None and stored.content_hash == digest and not force:
            outcome = _outcome(stored)  # somebody stored the same meanwhile
        else:
            document = _document(collection, draft, text, digest, policy, stored)
            if stored is not None and stored.revision != document.revision:
                keep_revision(collection, stored, draft.doc_id, text=text, cause=cause)
            document.chunk_count = len(chunks)
            outcome = _store(document, chunks, store, force=force)
            overlays.settle(document.revision)
        if isinstance(chunks, LargeEmbedding):
            chunks.kept.drop()
        progress.finish(outcome)
    return outcome


def in_current_generation(collection: Collection, work: Callable[[], Result]) -> Result:
    """Do the work, and once more, with `collection` read again, when another generation began to serve in between."""
    try:
        return work()
    except GenerationChanged:
        current = Collection.objects.live().filter(pk=collection.pk).first()
        if current is None:
            raise
        for field in COLLECTION_FIELDS:
            setattr(collection, field, getattr(current, field))
        return work()


def _open_same(collection: Collection) -> ragd.Store:
    """The store to write what was chunked and embedded for `collection`. The caller holds the lock on the document."""
    store = open_store(collection)
    if store.collection.generation != collection.generation:
        raise GenerationChanged(
            f"generation {store.collection.generation} of {collection.name!r} began to serve meanwhile; nothing was "
            "written. Send the document again"
        )
    return store


def hash_content(
    collection: Collection, draft: Draft, text: str, policy: ChunkPolicy, overlays: Sequence[Any] = ()
) -> str:
    """SHA-256 of what decides the chunks and their vectors. overlays: `DocumentOverlays.digest`."""
    segments = None if isinstance(draft.content, str) else segment_spans(draft.content)
    return hash_decisive(
        collection,
        text_hash=hash_text(text),
        segments=segments,
        pages=draft.page_map,
        title=draft.title,
        tags=draft.tags,
        metadata=draft.metadata,
        policy=policy.as_dict(),
        overlays=overlays,
    )


def hash_decisive(
    collection: Collection,
    *,
    text_hash: str,
    segments: Sequence[Any] | None,
    pages: Sequence[Sequence[Any]],
    title: str,
    tags: Sequence[str],
    metadata: Mapping[str, Any],
    policy: Mapping[str, Any],
    overlays: Sequence[Any] = (),
) -> str:
    """`hash_content` from the parts. text_hash: SHA-256 of the text, hex; segments: None where it came as a text."""
    decisive: dict[str, Any] = {
        "text": text_hash,
        "segments": segments,
        "pages": [list(entry) for entry in pages],
        "title": title,
        "tags": list(tags),
        "metadata": dict(metadata),
        "policy": dict(policy),
        "model": [collection.embed_model, collection.embed_dims],
    }
    if overlays:
        decisive["overlays"] = list(overlays)
    return hashlib.sha256(canonical_json(decisive).encode()).hexdigest()


def _unchanged(draft: Draft, before: StoredDocument, progress: Progress) -> IngestOutcome:
    outcome = _outcome(before)
    with transaction.atomic():
        if before.source_hash != draft.source_hash:
            Document.objects.filter(pk=before.pk).update(source_hash=draft.source_hash, source=draft.source)
        progress.finish(outcome)
    return outcome


def _outcome(stored: StoredDocument) -> IngestOutcome:
    """Of an ingest that changed nothing."""
    return IngestOutcome(stored.chunk_count, stored.token_count, True, stored.revision, chars=stored.size_chars)


def split_draft(draft: Draft, text: str, policy: ChunkPolicy) -> list[LibraryChunk]:
    """The document's chunks, bound, without vectors. text: the normalized text of the draft's content."""
    return list(cut_draft(draft, text, policy))


def cut_draft(draft: Draft, text: str, policy: ChunkPolicy) -> list[LibraryChunk] | LargeCut:
    """`split_draft`, without holding the chunks of a large document."""
    pages = [(start, end, label) for start, end, label in draft.page_map]

    def read() -> Iterator[LibraryChunk]:
        return iter_bound(
            iter_chunks(draft.content, policy),
            doc_id=draft.doc_id,
            title=draft.title,
            tags=draft.tags,
            metadata=draft.metadata,
            page_map=pages,
        )

    with telemetry.chunk_span(size_chars=len(text), kind=policy.kind) as span:
        chunks = gather_chunks(read)
        telemetry.record_counts(span, chunks_count=len(chunks))
    return chunks


def _embed(
    collection: Collection, doc_id: str, chunks: Sequence[LibraryChunk], progress: Progress, *, fresh: bool
) -> list[LibraryChunk]:
    """The chunks with their vectors. Unless fresh, a text that the document had before keeps its vector."""
    known = {} if fresh else _known_vectors(collection, doc_id)
    prepared = [
        replace(chunk, embedding=known[chunk.embed_text]) if chunk.embed_text in known else chunk for chunk in chunks
    ]
    kept = sum(1 for chunk in prepared if chunk.embedding is not None)
    return embed_chunks(
        prepared,
        ingest_embedder(collection.embed_model, collection.embed_dims),
        batch_size=settings.RAGD_EMBED_BATCH_SIZE,
        on_batch=lambda done, _: progress.advance(kept + done, len(prepared)),
    )


def _embed_large(
    collection: Collection,
    doc_id: str,
    chunks: Chunks,
    progress: Progress,
    kept: EmbeddingCheckpoints,
    *,
    fresh: bool,
) -> LargeEmbedding:
    """`_embed`, batch by batch, without what an earlier run of the same job has embedded."""
    embedding = LargeEmbedding(chunks, kept, settings.RAGD_EMBED_BATCH_SIZE)
    embedding.fill(
        ingest_embedder(collection.embed_model, collection.embed_dims),
        KnownVectors(collection.pk, doc_id, () if fresh else ("chunks",)),
        lambda done: progress.advance(done, len(embedding)),
    )
    return embedding


def _reapply(
    embedded: Sequence[LibraryChunk] | LargeEmbedding, chunks: Sequence[LibraryChunk]
) -> Sequence[LibraryChunk] | LargeEmbedding:
    if isinstance(embedded, LargeEmbedding):
        return embedded.over(chunks)
    return with_vectors_of(embedded, chunks)


def _known_vectors(collection: Collection, doc_id: str) -> dict[str, Any]:
    rows: Iterable[tuple[str, str, Any]] = Chunk.objects.filter(collection_id=collection.pk, doc_id=doc_id).values_list(
        "context", "content", "embedding"
    )
    return {f"{context}\n{content}" if context else content: vector for context, content, vector in rows}


def _document(
    collection: Collection, draft: Draft, text: str, digest: str, policy: ChunkPolicy, stored: StoredDocument | None
) -> Document:
    """The row to be written."""
    return Document(
        collection=collection,
        doc_id=draft.doc_id,
        title=draft.title,
        tags=list(draft.tags),
        metadata=dict(draft.metadata),
        source=draft.source,
        media_type=draft.media_type,
        text=text,
        size_chars=len(text),
        token_count=count_words(text),
        content_hash=digest,
        source_hash=draft.source_hash,
        page_map=[list(entry) for entry in draft.page_map],
        segments=[] if isinstance(draft.content, str) else segment_spans(draft.content),
        chunk_policy=policy.as_dict(),
        warnings=list(draft.warnings),
        revision=_next_revision(stored, digest),
    )


def _next_revision(stored: StoredDocument | None, digest: str) -> int:
    if stored is None:
        return 1
    return stored.revision if stored.content_hash == digest else stored.revision + 1


def _store(
    document: Document, chunks: Sequence[LibraryChunk] | LargeEmbedding, store: ragd.Store, *, force: bool
) -> IngestOutcome:
    """Write the row and its chunks. The caller holds the document's lock and the transaction."""
    _write_row(document)
    if isinstance(chunks, LargeEmbedding):
        index_document(chunks, store, anew=force, on_piece=lambda done: chunks.kept.check())
    else:
        if force:
            delete_document_chunks([document.doc_id], store)
        ragd.index(chunks, store)
    return IngestOutcome(len(chunks), document.token_count, False, document.revision, chars=document.size_chars)


def _write_row(document: Document) -> None:
    text = document.text
    if is_long := len(text) > LONG_CHARS:
        document.text = ""
    Document.objects.bulk_create(
        [document], update_conflicts=True, unique_fields=["collection", "doc_id"], update_fields=STORED_FIELDS
    )
    if is_long:
        write_text(document.collection_id, document.doc_id, text)
