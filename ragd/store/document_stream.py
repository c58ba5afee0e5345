"""index_document(): one large document into the store, its chunks taken from a stream and never all in memory.

What is stored is what index() stores. Both replace a document inside the caller's transaction; this one reads, removes
and writes a few hundred rows at a time, and keeps of the rest only how many rows hold which term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.store.chunk_writer import (
    COUNT_DOCUMENTS,
    Change,
    apply_change,
    copy_rows,
    count_words,
    parse_words,
    read_documents,
    rebake,
    remove_chunks,
    stamp_revisions,
    touch_chunks,
)
from ragd.store.indexing import (
    EXISTING,
    Key,
    Row,
    changed_chunks,
    check_chunk,
    lock_statistics,
    read_rows,
    with_vectors,
)
from ragd.store.postings import extend_postings
from ragd.store.store import REBAKE_LIMIT, Store, bake_length, execute, fetch_all
from ragd.types import Chunk

PIECE = 500  # chunks that are in memory at a time

EXISTING_PIECE = EXISTING + "  AND chunk_index >= %(first)s AND chunk_index < %(end)s\n"

TAIL = """
SELECT chunk_index FROM {chunks}
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND chunk_index >= %(first)s
ORDER BY chunk_index LIMIT %(most)s
"""

STATISTICS = """
SELECT chunk_count, length_total, length_baked FROM chunk_stats
WHERE collection_id = %(collection_id)s AND generation = %(generation)s
"""


def index_document(
    chunks: Iterable[Chunk],
    store: Store,
    *,
    anew: bool = False,
    on_piece: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Make one document consist of exactly these chunks, as index() would, whatever their number.

    chunks: bound, of one document, numbered 0, 1, ... in order; they are taken PIECE at a time, and once. One without
    `embedding` is embedded with the store's embedder if its text is not stored at its place, while other writers of
    the collection wait: give the vectors along where that takes long. anew: every row is written, also where nothing
    changed. on_piece(done) is called after each piece with the chunks so far; what it raises passes through. No chunks:
    nothing is done.

    Returns and raises what index() does. Runs in the caller's transaction, so a failure leaves the previous version.
    """
    with telemetry.store_span(chunks_count=0) as span:
        counts = _Replacement(store, anew=anew).run(_pieces(chunks), on_piece)
        telemetry.record_counts(span, chunks_count=counts["written"] + counts["unchanged"])
    return counts


class _Replacement:
    """One document on its way into the store; the statistics move at the end."""

    def __init__(self, store: Store, *, anew: bool) -> None:
        self.store, self.anew = store, anew
        self.change = Change()
        self.counts = {"written": 0, "unchanged": 0, "deleted": 0, "embedded": 0}
        self.documents: Mapping[str, tuple[int, bool, int]] = {}
        self.scope: dict[str, Any] = {}
        self.baked: float | None = None  # by which the weights of new rows are computed; None before the first
        self.inserted = 0

    def run(self, pieces: Iterator[list[Chunk]], on_piece: Callable[[int], None] | None) -> dict[str, int]:
        done = 0
        for piece in pieces:
            if not done:
                self._begin(piece)
            self._write(piece, done)
            done += len(piece)
            if on_piece is not None:
                on_piece(done)
        if done:
            self._remove_tail(done)
            self._settle(done)
        return self.counts

    def _begin(self, piece: Sequence[Chunk]) -> None:
        lock_statistics(self.store)
        self.scope = {**self.store.scope, "doc_ids": [piece[0].doc_id]}
        ((self.rows_before, self.length_before, self.baked_before),) = fetch_all(
            self.store.connection, STATISTICS, self.store.scope
        )
        self.documents = read_documents(piece[:1], self.store, self.scope)

    def _write(self, piece: Sequence[Chunk], first: int) -> None:
        existing = self._existing(first, first + len(piece))
        known: Mapping[Key, Row] = {} if self.anew else existing
        ready, embedded = with_vectors(changed_chunks(piece, known), known, self.store)
        fresh = sorted((chunk for chunk in ready if chunk.embedding is not None), key=lambda chunk: chunk.chunk_index)
        touch_chunks([chunk for chunk in ready if chunk.embedding is None], self.store)
        keys = [(chunk.doc_id, chunk.chunk_index) for chunk in fresh]
        remove_chunks([key for key in keys if key in existing], self.store, self.change)
        self._insert(fresh)
        self.counts["written"] += len(ready)
        self.counts["unchanged"] += len(piece) - len(ready)
        self.counts["embedded"] += embedded

    def _existing(self, first: int, end: int) -> dict[Key, Row]:
        sql = EXISTING_PIECE.format(chunks=self.store.collection.partition)
        return read_rows(self.store, sql, self.scope | {"first": first, "end": end})

    def _insert(self, fresh: Sequence[Chunk]) -> None:
        if not fresh:
            return
        words = parse_words(fresh, self.store) if self.store.collection.hybrid_enabled else None
        count_words(words, len(fresh), self.change)
        self.change.gather()
        copy_rows(fresh, self.store, self.documents, words, self._bake())
        self.inserted += len(fresh)

    def _bake(self) -> float:
        """The first piece says what the mean length will be; in nearly every document it stays on the same step."""
        if self.baked is None:
            self.baked = float(self.baked_before)
            wanted = self._wanted()
            if wanted != self.baked and self._may_rebake():
                rebake(self.store, wanted)
                self.baked = wanted
        return self.baked

    def _wanted(self) -> float:
        count = self.rows_before + self.change.rows
        return bake_length((self.length_before + self.change.length) / count) if count else 1.0

    def _may_rebake(self) -> bool:
        return self.store.collection.hybrid_enabled and self.rows_before <= REBAKE_LIMIT

    def _remove_tail(self, size: int) -> None:
        """The chunks that the document has no more."""
        doc_id = self.scope["doc_ids"][0]
        params = self.scope | {"first": size, "most": PIECE}
        while rows := fetch_all(self.store.connection, TAIL.format(chunks=self.store.collection.partition), params):
            remove_chunks([(doc_id, number) for (number,) in rows], self.store, self.change)
            self.change.gather()
            self.counts["deleted"] += len(rows)

    def _settle(self, size: int) -> None:
        """Statistics, weights by the final mean length, postings, the rows' revision, the document's count of them."""
        if self.inserted < size:
            stamp_revisions(self.store, self.scope)
        if self.change.rows or self.change.terms:
            count, _, baked = apply_change(self.change, self.store)
            if self._wanted() != baked and self._may_rebake():
                rebake(self.store, self._wanted())
            if self.store.collection.hybrid_enabled:
                extend_postings(self.store, count)
        if self.store.serving:
            execute(self.store.connection, COUNT_DOCUMENTS, self.scope | {"sizes": [size]})


def _pieces(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """PIECE chunks at a time, checked: of one document, numbered without gaps, none without text or too long."""
    stream = iter(chunks)
    doc_id, number = None, 0
    while piece := list(islice(stream, PIECE)):
        for chunk in piece:
            check_chunk(chunk)
            doc_id = chunk.doc_id if doc_id is None else doc_id
            if (chunk.doc_id, chunk.chunk_index) != (doc_id, number):
                raise InvalidInput(
                    f"chunk {number} of {doc_id!r} was expected, not chunk {chunk.chunk_index} of {chunk.doc_id!r}; "
                    "pass the chunks of one document in order",
                    field="chunk_index" if chunk.doc_id == doc_id else "doc_id",
                )
            number += 1
        yield piece
