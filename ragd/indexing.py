"""index(): chunks and their vectors into the store, whole documents at a time, idempotent and atomic."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ragd import telemetry
from ragd.embedding import Embedder
from ragd.errors import DimensionMismatch, EmptyContent, GenerationChanged, InvalidInput
from ragd.postings import drop_postings, extend_postings
from ragd.store import REBAKE, REBAKE_LIMIT, SET_BAKED, Store, bake_length, cursor, execute, fetch_all
from ragd.types import Chunk, canonical_json

CONTENT_MAX_CHARS = 32_000
EMBED_BATCH = 64

EXISTING = """
SELECT doc_id, chunk_index, encode(sha256(convert_to(context || E'\\n' || content, 'UTF8')), 'hex'),
       start_char, end_char, tags, metadata::text
FROM {chunks}
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
"""

LOCK_STATS = """
SELECT serving FROM chunk_stats WHERE collection_id = %(collection_id)s AND generation = %(generation)s FOR UPDATE
"""

CREATE_STAGE = """
CREATE TEMP TABLE IF NOT EXISTS ragd_stage (
    doc_id text COLLATE "C", chunk_index integer, content text, start_char integer, end_char integer,
    context text, tags text[], metadata jsonb, token_count integer, embedding vector
) ON COMMIT DELETE ROWS
"""

CREATE_LEXEMES = """
CREATE TEMP TABLE IF NOT EXISTS ragd_lexemes (
    doc_id text COLLATE "C", chunk_index integer, sign integer, fts tsvector
) ON COMMIT DELETE ROWS
"""

EMPTY_STAGE = "DELETE FROM ragd_stage"
EMPTY_LEXEMES = "DELETE FROM ragd_lexemes"

COPY_STAGE = """
COPY ragd_stage (doc_id, chunk_index, content, start_char, end_char, context, tags, metadata, token_count, embedding)
FROM STDIN (FORMAT BINARY)
"""

ENSURE_DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id, tags)
SELECT DISTINCT ON (doc_id) %(collection_id)s, doc_id, tags FROM ragd_stage ORDER BY doc_id, chunk_index
ON CONFLICT (collection_id, doc_id) DO NOTHING
"""

TOUCH = """
UPDATE {chunks} c
SET start_char = s.start_char, end_char = s.end_char, tags = s.tags, metadata = s.metadata
FROM ragd_stage s
WHERE c.collection_id = %(collection_id)s AND c.doc_id = s.doc_id AND c.chunk_index = s.chunk_index
  AND s.embedding IS NULL
"""

# What is replaced, and the tail of documents that have become shorter; their words leave the statistics.
REMOVE = """
WITH sizes AS (
    SELECT * FROM unnest(%(doc_ids)s::text[], %(sizes)s::integer[]) AS listed (doc_id, size)
), gone AS (
    DELETE FROM {chunks} c
    USING sizes
    WHERE c.collection_id = %(collection_id)s AND c.doc_id = sizes.doc_id
      AND (c.chunk_index >= sizes.size OR EXISTS (
            SELECT 1 FROM ragd_stage s
            WHERE s.doc_id = c.doc_id AND s.chunk_index = c.chunk_index AND s.embedding IS NOT NULL))
    RETURNING c.doc_id, c.chunk_index, c.fts
)
INSERT INTO ragd_lexemes (doc_id, chunk_index, sign, fts) SELECT doc_id, chunk_index, -1, fts FROM gone
"""

PARSE = """
INSERT INTO ragd_lexemes (doc_id, chunk_index, sign, fts)
SELECT doc_id, chunk_index, 1, to_tsvector(%(language)s::regconfig, context || E'\\n' || content)
FROM ragd_stage
WHERE embedding IS NOT NULL
"""

COUNT_TERMS = """
INSERT INTO chunk_terms (collection_id, generation, term, chunk_count)
SELECT %(collection_id)s, %(generation)s, ragd_term(lexeme) AS term, sum(sign)
FROM ragd_lexemes, unnest(fts)
GROUP BY 3
HAVING sum(sign) <> 0
ORDER BY 3
ON CONFLICT (collection_id, generation, term) DO UPDATE SET chunk_count = chunk_terms.chunk_count + excluded.chunk_count
"""

COUNT_CHUNKS = """
UPDATE chunk_stats
SET chunk_count = chunk_count + %(added)s,
    length_total = length_total + (
        SELECT coalesce(sum(sign * cardinality(positions)), 0) FROM ragd_lexemes, unnest(fts))
WHERE collection_id = %(collection_id)s AND generation = %(generation)s
RETURNING chunk_count, length_total, length_baked
"""

INSERT_CHUNKS = """
INSERT INTO {chunks} (collection_id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata,
                    token_count, revision, enabled, embedding, fts, lexical)
SELECT %(collection_id)s, s.doc_id, s.chunk_index, s.content, s.start_char, s.end_char, s.context, s.tags, s.metadata,
       s.token_count, d.revision, d.enabled, s.embedding, l.fts, ragd_bm25(l.fts, %(length_baked)s)
FROM ragd_stage s
JOIN documents d ON d.collection_id = %(collection_id)s AND d.doc_id = s.doc_id
LEFT JOIN ragd_lexemes l ON l.sign = 1 AND l.doc_id = s.doc_id AND l.chunk_index = s.chunk_index
WHERE s.embedding IS NOT NULL
ORDER BY s.doc_id, s.chunk_index
"""

COUNT_DOCUMENTS = """
UPDATE documents d
SET chunk_count = listed.size
FROM unnest(%(doc_ids)s::text[], %(sizes)s::integer[]) AS listed (doc_id, size)
WHERE d.collection_id = %(collection_id)s AND d.doc_id = listed.doc_id AND d.chunk_count <> listed.size
"""

Key = tuple[str, int]
Row = tuple[str, int, int, tuple[str, ...], Mapping[str, Any]]  # digest, start, end, tags, metadata


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
    existing = _existing(store, scope)
    ready, embedded = _with_vectors(_changed(ordered, existing), existing, store)
    with telemetry.store_span(chunks_count=len(ordered)):
        _lock(store)
        current = _existing(store, scope)
        if current != existing:  # somebody wrote these documents while we embedded
            ready, more = _with_vectors(_changed(ordered, current), current, store)
            embedded += more
        removed = sum(1 for doc_id, number in current if number >= len(documents[doc_id]))
        if ready or removed:
            _write(ready, scope, store)
    return {
        "written": len(ready),
        "unchanged": len(ordered) - len(ready),
        "deleted": removed,
        "embedded": embedded,
    }


def delete_document_chunks(doc_ids: Sequence[str], store: Store) -> int:
    """Remove every chunk of these documents and their share of the statistics; returns how many chunks went."""
    names = sorted(set(doc_ids))
    if not names:
        return 0
    scope = {**store.scope, "doc_ids": names, "sizes": [0] * len(names)}
    _lock(store)
    return _write([], scope, store)


def _lock(store: Store) -> None:
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


def _group(chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    """doc_id -> its chunks in order. Checks what index() promises to refuse."""
    documents: dict[str, list[Chunk]] = {}
    for chunk in chunks:
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
    rows = fetch_all(store.connection, EXISTING.format(chunks=store.collection.partition), dict(scope))
    return {
        (doc_id, number): (digest, start, end, tuple(tags), json.loads(metadata))
        for doc_id, number, digest, start, end, tags, metadata in rows
    }


def _changed(chunks: Sequence[Chunk], existing: Mapping[Key, Row]) -> list[Chunk]:
    return [chunk for chunk in chunks if existing.get((chunk.doc_id, chunk.chunk_index)) != _row(chunk)]


def _row(chunk: Chunk) -> Row:
    metadata = json.loads(canonical_json(dict(chunk.metadata)))
    return (_digest(chunk), chunk.start, chunk.end, tuple(chunk.tags), metadata)


def _digest(chunk: Chunk) -> str:
    return hashlib.sha256(f"{chunk.context}\n{chunk.content}".encode()).hexdigest()


def _with_vectors(changed: Sequence[Chunk], existing: Mapping[Key, Row], store: Store) -> tuple[list[Chunk], int]:
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


def _write(ready: Sequence[Chunk], scope: Mapping[str, Any], store: Store) -> int:
    """Swap the rows and move the statistics along; returns how many rows were removed."""
    connection, hybrid, table = store.connection, store.collection.hybrid_enabled, store.collection.partition
    params = {**scope, "language": store.collection.language}
    for statement in (CREATE_STAGE, CREATE_LEXEMES, EMPTY_STAGE, EMPTY_LEXEMES):
        execute(connection, statement)
    _copy(connection, ready)
    execute(connection, ENSURE_DOCUMENTS, params)
    if any(chunk.embedding is None for chunk in ready):
        execute(connection, TOUCH.format(chunks=table), params)
    removed = execute(connection, REMOVE.format(chunks=table), params)
    if hybrid:
        execute(connection, PARSE, params)
        execute(connection, COUNT_TERMS, params)
    added = sum(1 for chunk in ready if chunk.embedding is not None) - removed
    ((count, total, baked),) = fetch_all(connection, COUNT_CHUNKS, params | {"added": added})
    wanted = bake_length(total / count) if count else 1.0
    if hybrid and wanted != baked and count - added <= REBAKE_LIMIT:
        execute(connection, REBAKE.format(chunks=table), params | {"length_baked": wanted})
        execute(connection, SET_BAKED, params | {"length_baked": wanted})
        drop_postings(store)
        baked = wanted
    execute(connection, INSERT_CHUNKS.format(chunks=table), params | {"length_baked": baked})
    if hybrid:
        extend_postings(store, count)
    if store.serving:  # documents say what is served
        execute(connection, COUNT_DOCUMENTS, params)
    return removed


def _copy(connection: Any, chunks: Sequence[Chunk]) -> None:
    """Rows in PostgreSQL's binary COPY format: a text vector would cost more than the whole rest of the write."""
    if not chunks:
        return
    with cursor(connection) as open_cursor, open_cursor.copy(COPY_STAGE) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0))
        for chunk in chunks:
            copy.write(_binary_row(chunk))
        copy.write(struct.pack("!h", -1))


def _binary_row(chunk: Chunk) -> bytes:
    values = (
        chunk.doc_id.encode(),
        struct.pack("!i", chunk.chunk_index),
        chunk.content.encode(),
        struct.pack("!i", chunk.start),
        struct.pack("!i", chunk.end),
        chunk.context.encode(),
        _binary_array(chunk.tags),
        b"\x01" + canonical_json(dict(chunk.metadata)).encode(),
        struct.pack("!i", len(chunk.content.split())),
        None if chunk.embedding is None else _binary_vector(chunk.embedding),
    )
    parts = [struct.pack("!h", len(values))]
    parts += [struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values]
    return b"".join(parts)


def _binary_array(texts: Sequence[str]) -> bytes:
    if not texts:
        return struct.pack("!iii", 0, 0, 25)
    encoded = [text.encode() for text in texts]
    header = struct.pack("!iiiii", 1, 0, 25, len(encoded), 1)
    return header + b"".join(struct.pack("!i", len(text)) + text for text in encoded)


def _binary_vector(vector: Sequence[float]) -> bytes:
    return struct.pack("!hh", len(vector), 0) + np.asarray(vector, dtype=">f4").tobytes()
