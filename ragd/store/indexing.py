"""index(): chunks and their vectors into the store, whole documents at a time, idempotent and atomic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragd import telemetry
from ragd.errors import DimensionMismatch, EmptyContent, GenerationChanged, InvalidInput
from ragd.models.embedding import Embedder
from ragd.store.chunk_writer import Change, remove_chunks, remove_documents, stamp_revisions, touch_chunks, write_chunks
from ragd.store.store import Store, fetch_all
from ragd.types import Chunk, canonical_json

CONTENT_MAX_CHARS = 32_000
EMBED_BATCH = 64

EXISTING = """
SELECT doc_id, chunk_index, encode(sha256(convert_to(context || E'\\n' || content, 'UTF8')), 'hex'),
       start_char, end_char, tags, metadata::text, switched_off
FROM {chunks}
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
"""

LOCK_STATS = """
SELECT serving FROM chunk_stats WHERE collection_id = %(collection_id)s AND generation = %(generation)s FOR UPDATE
"""

Key = tuple[str, int]
Row = tuple[str, int, int, tuple[str, ...], Mapping[str, Any], bool]  # digest, start, end, tags, metadata, enabled


def index(chunks: Sequence[Chunk], store: Store) -> dict[str, int]:
    """Make the documents of `chunks` consist of exactly these chunks.

    chunks: bound, every document whole (chunk_index 0..n-1, any order). A chunk's `embedding` is used when it is given;
    the rest is embedded with the store's embedder, and only where context or content changed. Chunks that a document
    no longer has are removed. Documents that are not named are untouched; an empty list does nothing.

    Returns {"written", "unchanged", "deleted", "embedded"} in chunks; "written" counts changed tags, metadata and
    offsets too. Runs in the caller's transaction, so a failure leaves the previous version whole. Call `embed_chunks`
    before, outside of it, where embedding takes long.

    Raises InvalidInput (unbound, duplicate or missing index), EmptyContent, DimensionMismatch, EmbedderError.
    """
    documents = _group(chunks)
    if not documents:
        return {"written": 0, "unchanged": 0, "deleted": 0, "embedded": 0}
    scope: dict[str, Any] = {
        **store.scope,
        "doc_ids": list(documents),
        "sizes": [len(members) for members in documents.values()],
    }
    ordered = [chunk for members in documents.values() for chunk in members]
    existing: dict[Key, Row] | None = None
    ready: list[Chunk] = []
    embedded = 0
    if any(chunk.embedding is None for chunk in ordered):  # embedding takes long: not under the lock
        existing = _existing(store, scope)
        ready, embedded = with_vectors(changed_chunks(ordered, existing), existing, store)
    with telemetry.store_span(chunks_count=len(ordered)):
        lock_statistics(store)
        current = _existing(store, scope)
        if current != existing:  # not read before, or somebody wrote these documents while we embedded
            ready, more = with_vectors(changed_chunks(ordered, current), current, store)
            embedded += more
        gone = [(doc_id, number) for doc_id, number in current if number >= len(documents[doc_id])]
        _write(ready, gone, current, scope, store)
    return {
        "written": len(ready),
        "unchanged": len(ordered) - len(ready),
        "deleted": len(gone),
        "embedded": embedded,
    }


def _write(
    ready: Sequence[Chunk], gone: Sequence[Key], current: Mapping[Key, Row], scope: Mapping[str, Any], store: Store
) -> None:
    """Swap the rows. ready: chunks with a vector are written, those without keep their row's text and vector."""
    fresh = [chunk for chunk in ready if chunk.embedding is not None]
    fresh.sort(key=lambda chunk: (chunk.doc_id.encode(), chunk.chunk_index))
    touch_chunks([chunk for chunk in ready if chunk.embedding is None], store)
    replaced = [(chunk.doc_id, chunk.chunk_index) for chunk in fresh] if current else []
    change = Change()
    remove_chunks([*gone, *(key for key in replaced if key in current)], store, change)
    if fresh or gone:
        write_chunks(fresh, store, change, scope)
    if len(fresh) < sum(scope["sizes"]):
        stamp_revisions(store, scope)


def delete_document_chunks(doc_ids: Sequence[str], store: Store) -> int:
    """Remove every chunk of these documents and their share of the statistics; returns how many chunks went."""
    names = sorted(set(doc_ids))
    if not names:
        return 0
    scope = {**store.scope, "doc_ids": names, "sizes": [0] * len(names)}
    lock_statistics(store)
    change = Change()
    removed = remove_documents(names, store, change)
    write_chunks([], store, change, scope)
    return removed


def lock_statistics(store: Store) -> None:
    """Wait until nobody else writes this generation. Raises GenerationChanged when another one serves by now."""
    rows = fetch_all(store.connection, LOCK_STATS, store.scope)
    if not rows:
        store.state()  # says what is gone: the generation or the collection
    if rows != [(store.serving,)]:
        now = "serves no longer" if store.serving else "serves by now"
        raise GenerationChanged(
            f"generation {store.collection.generation} of {store.collection.name!r} {now}; open the store again"
        )


def embed_chunks(
    chunks: Sequence[Chunk],
    embedder: Embedder,
    *,
    batch_size: int = EMBED_BATCH,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[Chunk]:
    """The same chunks with their vectors, in order. Chunks that have one keep it.

    on_batch(done, total) is called after each batch, for progress; what it raises (a cancellation) passes through.
    """
    done = list(chunks)
    waiting = [place for place, chunk in enumerate(done) if chunk.embedding is None]
    for first in range(0, len(waiting), batch_size):
        places = waiting[first : first + batch_size]
        vectors = embedder.embed([done[place].embed_text for place in places])
        for place, vector in zip(places, vectors, strict=True):
            done[place] = replace(done[place], embedding=vector)
        if on_batch is not None:
            on_batch(min(first + batch_size, len(waiting)), len(waiting))
    return done


def check_chunk(chunk: Chunk) -> None:
    """Raises InvalidInput or EmptyContent for a chunk that cannot be stored by itself."""
    if not chunk.doc_id:
        raise InvalidInput("a chunk without doc_id cannot be indexed; bind() the chunks first", field="doc_id")
    if not chunk.content.strip():
        raise EmptyContent(f"chunk {chunk.chunk_index} of {chunk.doc_id!r} has no text", field="content")
    if len(chunk.content) > CONTENT_MAX_CHARS:
        raise InvalidInput(
            f"a chunk holds at most {CONTENT_MAX_CHARS} characters; chunk {chunk.chunk_index} of "
            f"{chunk.doc_id!r} has {len(chunk.content)}. Use a policy with smaller chunks.",
            field="content",
        )


def _group(chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    """doc_id -> its chunks in order. Checks what index() promises to refuse."""
    documents: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        check_chunk(chunk)
        documents.setdefault(chunk.doc_id, []).append(chunk)
    for doc_id, members in documents.items():
        members.sort(key=lambda member: member.chunk_index)
        if [member.chunk_index for member in members] != list(range(len(members))):
            raise InvalidInput(
                f"the chunks of {doc_id!r} must be numbered 0 to {len(members) - 1} without gaps or repeats; "
                "pass the whole document",
                field="chunk_index",
            )
    return documents


def _existing(store: Store, scope: Mapping[str, Any]) -> dict[Key, Row]:
    return read_rows(store, EXISTING.format(chunks=store.collection.partition), scope)


def read_rows(store: Store, sql: str, params: Mapping[str, Any]) -> dict[Key, Row]:
    """What is stored of documents, by EXISTING or a statement with its columns: enough to tell what has changed."""
    rows = fetch_all(store.connection, sql, dict(params))
    return {
        (doc_id, number): (digest, start, end, tuple(tags), json.loads(metadata), not off)
        for doc_id, number, digest, start, end, tags, metadata, off in rows
    }


def changed_chunks(chunks: Sequence[Chunk], existing: Mapping[Key, Row]) -> list[Chunk]:
    """Those that are not stored as they are."""
    if not existing:
        return list(chunks)
    return [chunk for chunk in chunks if existing.get((chunk.doc_id, chunk.chunk_index)) != _row(chunk)]


def _row(chunk: Chunk) -> Row:
    metadata = json.loads(canonical_json(dict(chunk.metadata)))
    return (_digest(chunk), chunk.start, chunk.end, tuple(chunk.tags), metadata, chunk.enabled)


def _digest(chunk: Chunk) -> str:
    return hashlib.sha256(f"{chunk.context}\n{chunk.content}".encode()).hexdigest()


def with_vectors(changed: Sequence[Chunk], existing: Mapping[Key, Row], store: Store) -> tuple[list[Chunk], int]:
    """Vectors for what changed in text; None where only tags, metadata or offsets did. Returns (chunks, embedded)."""
    ready: list[Chunk] = []
    missing: list[Chunk] = []
    for chunk in changed:
        before = existing.get((chunk.doc_id, chunk.chunk_index))
        if before is not None and before[0] == _digest(chunk):
            ready.append(replace(chunk, embedding=None))
        elif chunk.embedding is not None:
            ready.append(chunk)
        else:
            missing.append(chunk)
    if missing:
        if store.embedder is None:
            raise InvalidInput(
                "these chunks carry no embedding and the store has no embedder; give one of the two", field="embedding"
            )
        ready += embed_chunks(missing, store.embedder)
    for chunk in ready:
        if chunk.embedding is not None and len(chunk.embedding) != store.collection.embed_dims:
            raise DimensionMismatch(
                f"collection {store.collection.name!r} holds vectors of {store.collection.embed_dims} dimensions; "
                f"chunk {chunk.chunk_index} of {chunk.doc_id!r} came with {len(chunk.embedding)}",
                field="embedding",
            )
    return ready, len(missing)
