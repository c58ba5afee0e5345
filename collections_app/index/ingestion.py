"""One document from its text to its stored chunks, in stages: chunk, overlay, embed, and store in one transaction.

A document of any length goes the same way, in batches: see `embedding_checkpoints`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from pydantic_core import to_json

import ragd
from collections_app.access.context import elevated
from collections_app.access.document_access import Codes, require_readable, settle_list
from collections_app.access.permissions import EVERYBODY, Permission
from collections_app.documents.files import drop_unused_pages, store_pages
from collections_app.documents.revisions.services import keep_revision
from collections_app.documents.stored_documents import (
    LONG_CHARS,
    UNSTATED,
    Cause,
    DocumentOverlays,
    StoredDocument,
    count_words,
    give_back_memory,
    hash_text,
    lock_document,
    refuse_archived,
    size_utf8,
    text_pieces,
)
from collections_app.domain.rows import prepared
from collections_app.endpoints.providers import ingest_embedder
from collections_app.index.embedding_checkpoints import CutChunks, EmbeddedChunks, EmbeddingCheckpoints, KnownVectors
from collections_app.index.stores import open_store, stores_tokens
from collections_app.jobs.attempts import IngestOutcome
from collections_app.models import Collection, Document
from ragd import telemetry
from ragd.errors import EmptyContent, IndexVersionChanged
from ragd.normalization import has_visible
from ragd.readers import PageLayout
from ragd.store.analysis import own_language_of
from ragd.store.chunk_writer import DocumentRow
from ragd.store.indexing import index_stream
from ragd.store.store import cursor, execute, fetch_all
from ragd.text.chunking import document_text, iter_bound, iter_chunks, segment_spans
from ragd.text.languages import AUTO, detect_language
from ragd.text.structure import Structure
from ragd.types import Chunk, ChunkPolicy, Segment, canonical_json

Result = TypeVar("Result")

COLLECTION_FIELDS = tuple(field.attname for field in Collection._meta.concrete_fields)
STORED_FIELDS = (
    "title", "tags", "metadata", "file_metadata", "source", "media_type", "text", "size_chars", "token_count",
    "chunk_count", "content_hash", "source_hash", "page_map", "cell_map", "segments", "chunk_policy", "warnings",
    "revision", "language", "language_stated", "updated_at",
)  # fmt: skip
WRITTEN_FIELDS = ("collection_id", "doc_id", "created_at", *STORED_FIELDS)
WRITE_ROW = f"""
INSERT INTO documents ({", ".join(WRITTEN_FIELDS)})
SELECT {", ".join(WRITTEN_FIELDS)} FROM jsonb_populate_record(NULL::documents, %(row)s::jsonb)
ON CONFLICT (collection_id, doc_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in STORED_FIELDS)}
RETURNING revision, enabled, chunk_count, access
"""  # noqa: S608  (constants)

MAKE_TEXT = "CREATE TEMPORARY TABLE ragd_text (content text) ON COMMIT DROP"
COPY_TEXT = "COPY ragd_text FROM STDIN (FORMAT BINARY)"
SET_TEXT = """
UPDATE documents SET text = (SELECT content FROM ragd_text)
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s
"""
DROP_TEXT = "DROP TABLE ragd_text"


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to become a document.

    content: text, or segments in order. page_map: (start, end, label) in characters of the text. cell_map: which of its
    lines show rows of a spreadsheet (`ragd.text.tables.Cells`). file_metadata: what the file says of itself; it decides
    no chunk. layout: where words stand on pages; (): as it is stored for the text. language: what the
    text is said to be in (ISO 639-1); "": it is found; None: what was said of the stored document stays.
    found_language: what was found. access: who may read it; None: as its metadata say, or as it is.
    """

    doc_id: str
    content: str | Sequence[Segment]
    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    file_metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    media_type: str = "text/plain"
    source_hash: str = ""
    page_map: Sequence[Sequence[Any]] = ()
    cell_map: Sequence[Sequence[Any]] = ()
    warnings: Sequence[str] = ()
    layout: Sequence[PageLayout] = ()
    language: str | None = None
    found_language: str = ""
    access: Codes | None = None


class Progress(Protocol):
    """Who watches an ingest. Every method may raise to stop it; what was stored before stays."""

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0) -> None: ...

    def advance(self, done: int, total: int) -> None:
        """After each batch of embeddings: how many of how many are there."""

    def check(self) -> None:
        """Now and then while chunks are stored."""


class Unwatched:
    """The progress of an ingest that its caller waits for."""

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0) -> None: ...
    def advance(self, done: int, total: int) -> None: ...
    def check(self) -> None: ...


# Called inside the transaction that stores the document, as its last steps, in order; one that raises undoes it all.
CommitHook = Callable[[IngestOutcome], None]


def ingest(
    collection: Collection,
    draft: Draft,
    policy: ChunkPolicy,
    *,
    progress: Progress | None = None,
    on_commit: Sequence[CommitHook] = (),
    before: StoredDocument | None = None,
    fresh: bool = False,
    force: bool = False,
    cause: Cause = UNSTATED,
    overlays: DocumentOverlays | None = None,
    checkpoints: EmbeddingCheckpoints | None = None,
    revision: int = 1,
    known_in: Sequence[str] = (),
) -> IngestOutcome:
    """Make the document what the draft says. The same content, title, tags, metadata and policy: nothing is stored.

    on_commit: called also then. before: what was stored of it, as `find_stored` told. fresh: embed every chunk, also
    those whose text the document had before. force: write all chunks anew even when nothing changed. cause: what is
    written on the revision that is replaced. overlays: what is laid over the chunks; None: those that are stored.
    checkpoints: where vectors are kept that another run could take over. revision: the number of a document that is
    not there. known_in: a table with vectors of its texts, without token vectors, for a document that is not there.
    Raises ServiceError 409 for an archived document, EmptyContent, IndexVersionChanged when another index version than
    `collection` says began to serve meanwhile (see `in_current_index_version`), and what chunking, embedding, the hooks
    and the database raise; the previous version then stays whole.
    """
    progress = progress or Unwatched()
    if before is None:
        require_readable(collection, [draft.doc_id])
    if before is not None and before.archived:
        raise refuse_archived(draft.doc_id)
    text = document_text(draft.content)
    if not has_visible(text):
        raise EmptyContent(
            f"the document {draft.doc_id!r} has no text after normalization; send some text", field="content"
        )
    if draft.language is None:
        draft = replace(draft, language=before.language_stated if before is not None else "")
    if not draft.language:
        draft = replace(draft, found_language=find_language(collection, text))
    overlays = overlays or DocumentOverlays.of(collection.pk, draft.doc_id, before)
    digest = hash_content(collection, draft, text, policy, overlays.digest)
    if before is not None and before.content_hash == digest and not force:
        return _unchanged(collection, draft, before, on_commit)
    if len(text) > LONG_CHARS:
        give_back_memory()  # what reading it took
    progress.enter("chunk", chars=len(text))
    cut = chunk_draft(draft, text, policy)
    laid = overlays.apply(cut)
    progress.enter("embed", chunks_total=len(laid))
    tables = known_in if before is None else (collection.chunks_table,)
    with_tokens = not (before is None and known_in) and stores_tokens(collection.pk, collection.embed_model)
    known = KnownVectors(collection.pk, [draft.doc_id], () if fresh or force else tables, with_tokens=with_tokens)
    embedded = embed(collection, EmbeddedChunks(laid, checkpoints), known, progress)
    progress.enter("store", chunks_total=len(laid))
    require_readable(collection, [draft.doc_id])
    with elevated(Permission.WRITE, collection.pk), transaction.atomic():
        stored = lock_document(collection, draft.doc_id)
        if stored is not None and stored.archived:
            raise refuse_archived(draft.doc_id)
        store = _open_same(collection)
        current = overlays.current(stored)
        if current is not overlays:  # changed while the chunks were embedded
            overlays, embedded = current, embedded.over(current.apply(cut))
            digest = hash_content(collection, draft, text, policy, overlays.digest)
        _settle_list(collection, draft)
        if stored is not None and stored.content_hash == digest and not force:
            outcome = _outcome(stored)  # somebody stored the same meanwhile
        else:
            document = _document(collection, draft, text, digest, policy, stored)
            if stored is None:
                document.revision = revision
            outcome = _store(document, embedded, store, stored, cause=cause, anew=force, check=progress.check)
            if draft.layout:
                store_pages(collection.pk, draft.doc_id, hash_text(text), draft.layout)
            if stored is not None:
                drop_unused_pages(collection.pk, [draft.doc_id])
            overlays.settle(outcome.revision)
        embedded.vectors.drop()
        for hook in on_commit:
            hook(outcome)
    return outcome


def in_current_index_version(collection: Collection, work: Callable[[], Result]) -> Result:
    """Do the work, and once more, with `collection` read again, when another index version began to serve in
    between."""
    try:
        return work()
    except IndexVersionChanged:
        current = Collection.objects.live().filter(pk=collection.pk).first()
        if current is None:
            raise
        for field in COLLECTION_FIELDS:
            setattr(collection, field, getattr(current, field))
        return work()


def _open_same(collection: Collection) -> ragd.Store:
    """The store to write what was chunked and embedded for `collection`. The caller holds the lock on the document."""
    store = open_store(collection, over=prepared)
    if store.collection.index_version != collection.index_version:
        raise IndexVersionChanged(
            f"index version {store.collection.index_version} of {collection.name!r} began to serve meanwhile; nothing"
            " was written. Send the document again"
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
        cells=draft.cell_map,
        title=draft.title,
        tags=draft.tags,
        metadata=draft.metadata,
        policy=policy.as_dict(),
        overlays=overlays,
        language=draft.language or "",
    )


def hash_decisive(
    collection: Collection,
    *,
    text_hash: str,
    segments: Sequence[Any] | None,
    pages: Sequence[Sequence[Any]],
    cells: Sequence[Sequence[Any]] = (),
    title: str,
    tags: Sequence[str],
    metadata: Mapping[str, Any],
    policy: Mapping[str, Any],
    overlays: Sequence[Any] = (),
    language: str = "",
) -> str:
    """`hash_content` from the parts. text_hash: SHA-256 of the text, hex; segments: None where it came as a text;
    language: what was said of it."""
    decisive: dict[str, Any] = {
        "text": text_hash,
        "segments": segments,
        "pages": [list(entry) for entry in pages],
        "title": title,
        "tags": sorted(tags),  # a set
        "metadata": _as_stored(dict(metadata)),
        "policy": dict(policy),
        "model": [collection.embed_model, collection.embed_dims],
    }
    if cells:
        decisive["cells"] = [list(entry) for entry in cells]
    if overlays:
        decisive["overlays"] = list(overlays)
    if language:
        decisive["language"] = language
    return hashlib.sha256(canonical_json(decisive).encode()).hexdigest()


def _as_stored(value: Any) -> Any:
    """JSON whose equal numbers look alike, as the database compares them: 1.0 is 1."""
    if isinstance(value, dict):
        return {name: _as_stored(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_stored(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _settle_list(collection: Collection, draft: Draft) -> None:
    settle_list(
        collection, draft.doc_id, stated=draft.access, metadata=draft.metadata, file_metadata=draft.file_metadata
    )


def _unchanged(
    collection: Collection, draft: Draft, before: StoredDocument, on_commit: Sequence[CommitHook]
) -> IngestOutcome:
    outcome = _outcome(before)
    with transaction.atomic():
        if draft.access is not None or collection.access_from:
            lock_document(collection, draft.doc_id)
            _settle_list(collection, draft)
        if before.source_hash != draft.source_hash:
            Document.objects.filter(pk=before.pk).update(
                source_hash=draft.source_hash, source=draft.source, file_metadata=dict(draft.file_metadata)
            )
        for hook in on_commit:
            hook(outcome)
    return outcome


def _outcome(stored: StoredDocument) -> IngestOutcome:
    """Of an ingest that changed nothing."""
    return IngestOutcome(stored.chunk_count, stored.token_count, True, stored.revision, chars=stored.size_chars)


def chunk_draft(draft: Draft, text: str, policy: ChunkPolicy) -> CutChunks:
    """The document's chunks, bound, without vectors. text: the normalized text of the draft's content."""
    pages = [(start, end, label) for start, end, label in draft.page_map]
    structure = structure_of(draft, text)
    language = language_of(draft, text)

    def cut() -> Iterator[Chunk]:
        chunks = iter_bound(
            iter_chunks(draft.content, policy),
            doc_id=draft.doc_id,
            title=draft.title,
            tags=draft.tags,
            metadata=draft.metadata,
            page_map=pages,
            structure=structure,
        )
        return with_language(chunks, language)

    with telemetry.stage(telemetry.CHUNK, size_chars=len(text), kind=policy.kind) as span:
        chunks = CutChunks(cut)
        telemetry.record_counts(span, chunks_count=len(chunks))
    return chunks


def structure_of(draft: Draft, text: str) -> Structure:
    """What decides the attributes of the draft's chunks. text: the normalized text of its content."""
    return Structure(
        text,
        page_map=[(start, end, label) for start, end, label in draft.page_map],
        cell_map=[(start, end, sheet, columns, rows) for start, end, sheet, columns, rows in draft.cell_map],
        is_transcript=not isinstance(draft.content, str),
        media_type=draft.media_type,
        file_metadata=draft.file_metadata,
    )


def language_of(draft: Draft, text: str) -> str:
    """The ISO 639-1 code of the document's text: what was said of it, else what is found; "" unknown."""
    return draft.language or draft.found_language or detect_language(text)


def find_language(collection: Collection, text: str) -> str:
    """What the text is in, where it is in doubt what the collection is in: by the documents that everybody may read, so
    that hidden ones change nothing."""
    if collection.language != AUTO:
        return detect_language(text)
    return detect_language(text, partial(own_language_of, prepared, collection.pk, collection.index_version))


def with_language(chunks: Iterable[Chunk], language: str) -> Iterator[Chunk]:
    """The chunks with the document's language among their attributes; unchanged where it is not known."""
    if not language:
        return iter(chunks)
    return (replace(chunk, attributes={**chunk.attributes, "language": language}) for chunk in chunks)


def embed(collection: Collection, chunks: EmbeddedChunks, known: KnownVectors, progress: Progress) -> EmbeddedChunks:
    """The same chunks, with vectors by the collection's model; a text that is known keeps its vector."""
    chunks.embed(
        ingest_embedder(collection.embed_model, collection.embed_dims, known.with_tokens),
        known,
        batch_size=settings.RAGD_EMBED_BATCH_SIZE,
        advance=lambda done: progress.advance(done, len(chunks)),
    )
    return chunks


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
        file_metadata=dict(draft.file_metadata),
        language=language_of(draft, text),
        language_stated=draft.language or "",
        source=draft.source,
        media_type=draft.media_type,
        text=text,
        size_chars=len(text),
        token_count=count_words(text),
        content_hash=digest,
        source_hash=draft.source_hash,
        page_map=[list(entry) for entry in draft.page_map],
        cell_map=[list(entry) for entry in draft.cell_map],
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
    document: Document,
    chunks: EmbeddedChunks,
    store: ragd.Store,
    stored: StoredDocument | None,
    *,
    cause: Cause,
    anew: bool,
    check: Callable[[], None],
) -> IngestOutcome:
    """Write the row and its chunks, and keep what they replace. The caller holds the lock and the transaction."""
    if stored is not None and stored.revision != document.revision:
        keep_revision(document.collection, stored, document.doc_id, text=document.text, cause=cause)
    document.chunk_count = len(chunks)
    written = _write_row(document)
    new = {document.doc_id: written} if stored is None else {}
    index_stream(chunks, store, anew=anew, new=new, between=check)
    is_open = EVERYBODY in written[3]
    return IngestOutcome(len(chunks), document.token_count, False, document.revision, document.size_chars, is_open)


def _write_row(document: Document) -> DocumentRow:
    text = document.text
    if is_long := len(text) > LONG_CHARS:
        document.text = ""
    document.updated_at = timezone.now()
    row = to_json({name: getattr(document, name) for name in WRITTEN_FIELDS})
    ((revision, enabled, chunk_count, access),) = fetch_all(prepared, WRITE_ROW, {"row": row.decode()})
    if is_long:
        write_text(document.collection_id, document.doc_id, text)
    return revision, enabled, chunk_count, access


def write_text(collection_id: int, doc_id: str, text: str) -> None:
    """Set the text of a document's row, sent in pieces: one parameter would be copied several times on its way."""
    execute(connection, MAKE_TEXT)
    with cursor(connection) as opened, opened.copy(COPY_TEXT) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + struct.pack("!iihi", 0, 0, 1, size_utf8(text)))
        for piece in text_pieces(text):
            copy.write(piece.encode())
        copy.write(struct.pack("!h", -1))
    execute(connection, SET_TEXT, {"collection_id": collection_id, "doc_id": doc_id})
    execute(connection, DROP_TEXT)
