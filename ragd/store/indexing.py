"""index(): chunks and their vectors into the store, whole documents at a time, idempotent and atomic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ragd import telemetry
from ragd.errors import EmptyContent, IndexVersionChanged, InvalidInput
from ragd.models.late_interaction import embed_texts
from ragd.normalization import has_visible
from ragd.store import chunk_writer
from ragd.store.analysis import same_analysis
from ragd.store.store import Store, execute, fetch_all
from ragd.text.windows import check_vector
from ragd.types import Chunk, Embedder, canonical_json

CONTENT_MAX_CHARS = 32_000
EMBED_BATCH = 64
SLICE = 10_000  # chunks of a list that are written at a time
PIECE = 500  # chunks of a stream that are in memory at a time

STORED_COLUMNS = """
SELECT c.doc_id, c.chunk_index, encode(sha256(convert_to(c.context || E'\\n' || c.content, 'UTF8')), 'hex'),
       c.start_char, c.end_char, c.tags, c.metadata::text, c.switched_off, c.attributes::text
FROM {chunks} c
"""

EXISTING = f"""{STORED_COLUMNS}
WHERE c.collection_id = %(collection_id)s AND c.doc_id = ANY(%(doc_ids)s)
"""

EXISTING_PIECE = f"""{STORED_COLUMNS}
JOIN unnest(%(doc_ids)s::text[], %(firsts)s::integer[], %(ends)s::integer[]) AS listed (doc_id, first, stop)
  ON c.doc_id = listed.doc_id COLLATE "C" AND c.chunk_index BETWEEN listed.first AND listed.stop
WHERE c.collection_id = %(collection_id)s
"""

LOCK_STATS = """
SELECT serving, open_count, length_total, length_baked FROM chunk_stats
WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s FOR UPDATE
"""

Key = tuple[str, int]
# digest, start, end, tags, metadata, enabled, attributes
Row = tuple[str, int, int, tuple[str, ...], Mapping[str, Any], bool, Mapping[str, Any]]

NONE: Mapping[str, chunk_writer.DocumentRow] = {}
COUNTS = ("written", "unchanged", "deleted", "embedded")


def index(chunks: Sequence[Chunk], store: Store) -> dict[str, int]:
    """Make the documents of `chunks` consist of exactly these chunks.

    chunks: bound, every document whole (chunk_index 0..n-1, any order). A chunk's `embedding` is used when it is given;
    the rest is embedded with the store's embedder, and only where context or content changed. Chunks that a document
    no longer has are removed. Documents that are not named are untouched; an empty list does nothing.

    Returns {"written", "unchanged", "deleted", "embedded"} in chunks; "written" counts changed tags, metadata,
    attributes and offsets too. Runs in the caller's transaction, so a failure leaves the previous version whole. Call
    `embed_chunks` before, outside of it, where embedding takes long.

    Raises, before anything is written, InvalidInput (unbound, duplicate or missing index, a vector that is zero, NaN or
    infinite), EmptyContent, DimensionMismatch, EmbedderError.
    """
    if not chunks:
        return dict.fromkeys(COUNTS, 0)
    ordered = sorted(chunks, key=lambda chunk: (chunk.doc_id.encode(), chunk.chunk_index))
    ready, embedded = _embed_missing(list(_checked(ordered, store)), store)  # embedding takes long: not under the lock
    counts = _Replacement(store).run(ready, SLICE)
    counts["embedded"] += embedded
    return counts


def index_stream(
    chunks: Iterable[Chunk],
    store: Store,
    *,
    anew: bool = False,
    new: Mapping[str, chunk_writer.DocumentRow] = NONE,
    between: Callable[[], None] | None = None,
) -> dict[str, int]:
    """index() for chunks that are taken one after the other, whatever their number: PIECE are in memory at a time.

    chunks: bound, one document after the other, each numbered 0, 1, ... in order. One without `embedding` is embedded
    with the store's embedder if its text is not stored at its place, while other writers of the collection wait: give
    the vectors along where that takes long. anew: every row is written, also where nothing changed. new: what the
    caller has just written of documents without chunks, so that nothing is looked for. between() is called between two
    pieces; what it raises passes through. No chunks: nothing is done.

    Returns and raises what index() does. Runs in the caller's transaction, so a failure leaves the previous version.
    """
    return _Replacement(store, anew=anew, new=new).run(_checked(chunks, store), PIECE, between)


class _Replacement:
    """Documents on their way into the store, some chunks at a time; the statistics move at the end."""

    def __init__(self, store: Store, *, anew: bool = False, new: Mapping[str, chunk_writer.DocumentRow] = NONE) -> None:
        self.store, self.anew, self.new = store, anew, new
        self.change = chunk_writer.Change()
        self.counts = dict.fromkeys(COUNTS, 0)
        self.documents = dict(new)
        self.sizes: dict[str, int] = {}
        self.baked: float | None = None  # by which the weights of new rows are computed; None before the first
        self.inserted = 0
        self.longer: set[str] = set()  # documents of which a chunk is stored after those that came so far

    def run(self, chunks: Iterable[Chunk], size: int, between: Callable[[], None] | None = None) -> dict[str, int]:
        """Take `size` chunks at a time; returns what index() does."""
        stream = iter(chunks)
        with telemetry.stage(telemetry.STORE, chunks_count=0) as span:
            while piece := list(islice(stream, size)):
                if not self.sizes:
                    self.rows_before, self.length_before, self.baked_before = lock_statistics(self.store)
                elif between is not None:
                    between()
                self._write(piece)
            if self.sizes:
                self._settle()
            telemetry.record_counts(span, chunks_count=sum(self.sizes.values()))
        return self.counts

    def _write(self, piece: Sequence[Chunk]) -> None:
        self._read_documents(piece)
        existing = self._existing(piece)
        known: Mapping[Key, Row] = {} if self.anew else existing
        ready, embedded = with_vectors(changed_chunks(piece, known), known, self.store)
        chunk_writer.touch_chunks([chunk for chunk in ready if chunk.embedding is None], self.store, self.documents)
        fresh = [chunk for chunk in ready if chunk.embedding is not None]
        fresh.sort(key=lambda chunk: (chunk.doc_id.encode(), chunk.chunk_index))
        keys = [(chunk.doc_id, chunk.chunk_index) for chunk in fresh] if existing else []
        chunk_writer.remove_chunks([key for key in keys if key in existing], self.store, self.change)
        self._insert(fresh)
        self.counts["written"] += len(ready)
        self.counts["unchanged"] += len(piece) - len(ready)
        self.counts["embedded"] += embedded

    def _read_documents(self, piece: Sequence[Chunk]) -> None:
        """The rows of the documents that begin in this piece, made where there are none."""
        first = {chunk.doc_id: chunk for chunk in reversed(piece) if chunk.doc_id not in self.documents}
        if first:
            scope = {**self.store.scope, "doc_ids": list(first)}
            self.documents |= chunk_writer.read_documents(list(first.values()), self.store, scope)

    def _existing(self, piece: Sequence[Chunk]) -> dict[Key, Row]:
        """What is stored at the places of these chunks, and of each document the one after them."""
        firsts = {chunk.doc_id: self.sizes.get(chunk.doc_id, 0) for chunk in piece}
        self.sizes |= {chunk.doc_id: chunk.chunk_index + 1 for chunk in piece}
        if self.new.keys() >= firsts.keys():
            return {}
        ends = [self.sizes[doc_id] for doc_id in firsts]
        params = {"doc_ids": list(firsts), "firsts": list(firsts.values()), "ends": ends}
        existing = _read_rows(self.store, EXISTING_PIECE, self.store.scope | params)
        self.longer = (self.longer - firsts.keys()) | {name for name in firsts if (name, self.sizes[name]) in existing}
        return existing

    def _insert(self, fresh: Sequence[Chunk]) -> None:
        if not fresh:
            return
        words = chunk_writer.parse_words(fresh, self.store) if self.store.collection.hybrid_enabled else None
        chunk_writer.count_words(words, [self.documents[chunk.doc_id][3] for chunk in fresh], self.change)
        self.change.gather()
        chunk_writer.copy_rows(fresh, self.store, self.documents, words, self._bake())
        self.inserted += len(fresh)

    def _bake(self) -> float:
        """The first piece says what the mean length will be; in nearly every document it stays on the same step."""
        if self.baked is None:
            self.baked = self.baked_before
            if self.store.collection.hybrid_enabled:
                count, length = self.rows_before + self.change.open_rows, self.length_before + self.change.length
                self.baked = chunk_writer.follow_length(self.store, self.rows_before, count, length, self.baked)
        return self.baked

    def _settle(self) -> None:
        """What documents have no more goes; then statistics, weights, postings, revisions and the documents' counts."""
        sizes = list(self.sizes.values())
        scope = {**self.store.scope, "doc_ids": list(self.sizes), "sizes": sizes}
        if self.longer or self.anew:
            self.counts["deleted"] = chunk_writer.remove_tails(self.store, scope, self.change)
        if self.inserted < sum(sizes):
            revisions, enabled, *_ = zip(*(self.documents[doc_id] for doc_id in self.sizes), strict=True)
            chunk_writer.stamp_states(self.store, scope | {"revisions": list(revisions), "enabled": list(enabled)})
        if self.inserted or self.counts["deleted"]:
            chunk_writer.settle_statistics(self.change, self.store)
        if self.store.serving and any(self.documents[doc_id][2] != size for doc_id, size in self.sizes.items()):
            execute(self.store.connection, chunk_writer.COUNT_DOCUMENTS, scope)


def delete_document_chunks(doc_ids: Sequence[str], store: Store) -> int:
    """Remove every chunk of these documents and their share of the statistics; returns how many chunks went."""
    names = sorted(set(doc_ids))
    if not names:
        return 0
    scope = {**store.scope, "doc_ids": names, "sizes": [0] * len(names)}
    lock_statistics(store)
    change = chunk_writer.Change()
    removed = chunk_writer.remove_documents(names, store, change)
    chunk_writer.settle_statistics(change, store)
    if store.serving:
        execute(store.connection, chunk_writer.COUNT_DOCUMENTS, scope)
    return removed


def lock_statistics(store: Store) -> tuple[int, int, float]:
    """Wait until nobody else writes this index version; returns its open chunks, their summed length, and the mean
    length that weights are computed with. Raises IndexVersionChanged when another one serves by now.
    """
    rows = fetch_all(store.connection, LOCK_STATS, store.scope)
    if not rows:
        store.state()  # says what is gone: the index version or the collection
    serving, count, length, baked = rows[0] if rows else (None, 0, 0, 1.0)
    if serving != store.serving:
        now = "serves no longer" if store.serving else "serves by now"
        raise IndexVersionChanged(
            f"index version {store.collection.index_version} of {store.collection.name!r} {now}; open the store again"
        )
    return int(count), int(length), float(baked)


def embed_chunks(
    chunks: Sequence[Chunk],
    embedder: Embedder,
    *,
    batch_size: int = EMBED_BATCH,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[Chunk]:
    """The same chunks with their vectors, in order, of a TokenEmbedder with their token vectors too. Chunks that have a
    vector keep it.

    on_batch(done, total) is called after each batch, for progress; what it raises (a cancellation) passes through.
    """
    done = list(chunks)
    waiting = [position for position, chunk in enumerate(done) if chunk.embedding is None]
    for first in range(0, len(waiting), batch_size):
        positions = waiting[first : first + batch_size]
        encoded = embed_texts([done[position].embed_text for position in positions], embedder)
        for position, (vector, tokens) in zip(positions, encoded, strict=True):
            done[position] = replace(done[position], embedding=vector, tokens=tokens)
        if on_batch is not None:
            on_batch(min(first + batch_size, len(waiting)), len(waiting))
    return done


def check_chunk(chunk: Chunk) -> None:
    """Raises InvalidInput or EmptyContent for a chunk that cannot be stored by itself."""
    if not chunk.doc_id:
        raise InvalidInput("a chunk without doc_id cannot be indexed; bind() the chunks first", field="doc_id")
    if not has_visible(chunk.content):
        raise EmptyContent(f"chunk {chunk.chunk_index} of {chunk.doc_id!r} has no text", field="content")
    if len(chunk.content) > CONTENT_MAX_CHARS:
        raise InvalidInput(
            f"a chunk holds at most {CONTENT_MAX_CHARS} characters; chunk {chunk.chunk_index} of "
            f"{chunk.doc_id!r} has {len(chunk.content)}. Use a policy with smaller chunks.",
            field="content",
        )


def check_embedding(chunk: Chunk, store: Store) -> None:
    """Raises DimensionMismatch or InvalidInput for a vector that the store's collection cannot be searched by."""
    if chunk.embedding is not None:
        name = f"the vector of chunk {chunk.chunk_index} of {chunk.doc_id!r}"
        check_vector(chunk.embedding, store.collection.embed_dims, name)


def _checked(chunks: Iterable[Chunk], store: Store) -> Iterator[Chunk]:
    """The same chunks: documents numbered without gaps, one after the other, no chunk without text or too long, and
    every vector fit to be searched."""
    ended: set[str] = set()
    doc_id, number = "", 0
    for chunk in chunks:
        check_chunk(chunk)
        check_embedding(chunk, store)
        if chunk.doc_id != doc_id:
            ended.add(doc_id)
            doc_id, number = chunk.doc_id, 0
        if chunk.chunk_index != number or doc_id in ended:
            raise InvalidInput(
                f"chunk {number} of {doc_id!r} was expected, not chunk {chunk.chunk_index}; number the chunks of a "
                "document from 0 without gaps or repeats, and pass the whole document",
                field="chunk_index",
            )
        number += 1
        yield chunk


def _embed_missing(chunks: list[Chunk], store: Store) -> tuple[list[Chunk], int]:
    """The chunks, with vectors where there is none and the text is not stored at its place; and how many got one."""
    if all(chunk.embedding is not None for chunk in chunks):
        return chunks, 0
    existing = read_existing([chunk.doc_id for chunk in chunks], store)
    ready, embedded = with_vectors(changed_chunks(chunks, existing), existing, store)
    made = {(chunk.doc_id, chunk.chunk_index): chunk for chunk in ready if chunk.embedding is not None}
    return [made.get((chunk.doc_id, chunk.chunk_index), chunk) for chunk in chunks], embedded


def read_existing(doc_ids: Iterable[str], store: Store) -> dict[Key, Row]:
    """What is stored of documents: enough to tell what has changed."""
    params = {**store.scope, "doc_ids": sorted(set(doc_ids))}
    return _read_rows(store, EXISTING, params)


def _read_rows(store: Store, sql: str, params: Mapping[str, Any]) -> dict[Key, Row]:
    rows = fetch_all(store.connection, sql.format(chunks=store.collection.partition), dict(params))
    return {
        (doc_id, number): (digest, start, end, tuple(tags), json.loads(metadata), not off, json.loads(attributes))
        for doc_id, number, digest, start, end, tags, metadata, off, attributes in rows
    }


def changed_chunks(chunks: Sequence[Chunk], existing: Mapping[Key, Row]) -> list[Chunk]:
    """Those that are not stored as they are."""
    if not existing:
        return list(chunks)
    return [chunk for chunk in chunks if existing.get((chunk.doc_id, chunk.chunk_index)) != _row(chunk)]


def _row(chunk: Chunk) -> Row:
    metadata, attributes = (json.loads(canonical_json(dict(each))) for each in (chunk.metadata, chunk.attributes))
    return (_digest(chunk), chunk.start, chunk.end, tuple(chunk.tags), metadata, chunk.enabled, attributes)


def _digest(chunk: Chunk) -> str:
    return hashlib.sha256(f"{chunk.context}\n{chunk.content}".encode()).hexdigest()


def with_vectors(changed: Sequence[Chunk], existing: Mapping[Key, Row], store: Store) -> tuple[list[Chunk], int]:
    """Vectors for what changed in text; None where only labels, places or offsets did. Returns (chunks, embedded)."""
    ready: list[Chunk] = []
    missing: list[Chunk] = []
    for chunk in changed:
        before = existing.get((chunk.doc_id, chunk.chunk_index))
        if before is not None and before[0] == _digest(chunk) and same_analysis(chunk.attributes, before[-1], store):
            ready.append(replace(chunk, embedding=None, tokens=None))
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
        check_embedding(chunk, store)
    return ready, len(missing)
