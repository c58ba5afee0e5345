"""Rows of chunks into and out of an index version's table, with the statistics that move along. `indexing` decides
which.

New rows go by binary COPY straight into the table. The words of a slice of chunks are parsed by the database in one
statement; BM25 weights are computed from them here, as ragd_bm25() does, because the mean length they depend on is
only known when every chunk of the slice has been parsed.

One chunk as a row of PostgreSQL's binary COPY format.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ragd.models.folder_embedder import LEARNED_SCALE
from ragd.store.analysis import EVERYBODY, PARSED, learned_terms, parse_params
from ragd.store.postings import WEIGHT_MAX, drop_postings, extend_postings
from ragd.store.store import (
    REBAKE,
    REBAKE_LIMIT,
    RESTRICTED,
    SEGMENTS,
    SET_BAKED,
    Segment,
    Store,
    array_text,
    bake_length,
    cursor,
    execute,
    fetch_all,
)
from ragd.types import Chunk, canonical_json

# of a document: revision, whether it is enabled, its number of chunks, who may read it
DocumentRow = tuple[int, bool, int, Sequence[int]]


def binary_row(
    chunk: Chunk, collection_id: bytes, document: DocumentRow, fts: bytes | None, lexical: bytes | None
) -> bytes:
    """The columns of COPY_CHUNKS in order."""
    revision, enabled, _, access = document
    values = (
        collection_id,
        chunk.doc_id.encode(),
        struct.pack("!i", chunk.chunk_index),
        chunk.content.encode(),
        struct.pack("!i", chunk.start),
        struct.pack("!i", chunk.end),
        chunk.context.encode(),
        _array(chunk.tags),
        _jsonb(chunk.metadata),
        _jsonb(chunk.attributes),
        struct.pack("!i", len(chunk.content.split())),
        struct.pack("!i", revision),
        b"\x01" if enabled and chunk.enabled else b"\x00",
        b"\x00" if chunk.enabled else b"\x01",
        None if chunk.embedding is None else _vector(chunk.embedding),
        fts,
        lexical,
        _integers(access),
        chunk.tokens,
    )
    parts = [struct.pack("!h", len(values))]
    parts += [b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in values]
    return b"".join(parts)


def _jsonb(values: Mapping[str, Any]) -> bytes:
    return b"\x01" + (canonical_json(dict(values)).encode() if values else b"{}")


def _array(texts: Sequence[str]) -> bytes:
    if not texts:
        return struct.pack("!iii", 0, 0, 25)
    encoded = [text.encode() for text in texts]
    header = struct.pack("!iiiii", 1, 0, 25, len(encoded), 1)
    return header + b"".join(struct.pack("!i", len(text)) + text for text in encoded)


def _integers(values: Sequence[int]) -> bytes:
    return struct.pack("!iiiii", 1, 0, 20, len(values), 1) + b"".join(struct.pack("!iq", 8, value) for value in values)


def _vector(vector: Sequence[float]) -> bytes:
    return struct.pack("!hh", len(vector), 0) + np.asarray(vector, dtype=">f4").tobytes()


PARSED_AT_ONCE = 500
COPY_BYTES = 1 << 16
TERMS_AT_ONCE = 50_000
LEXICAL_DIMS = 1_000_000_000
LEARNED_MAX = WEIGHT_MAX - 1e-6  # in single precision it stays below WEIGHT_MAX

READ_DOCUMENTS = """
SELECT doc_id, revision, enabled, chunk_count, access FROM documents
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
"""

READ_LISTS = """
SELECT doc_id, access FROM document_access WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
"""

INSERT_DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id, tags)
SELECT %(collection_id)s, doc_id, tags
FROM jsonb_to_recordset(%(rows)s::jsonb) AS listed (doc_id text, tags text[])
ON CONFLICT (collection_id, doc_id) DO NOTHING
"""

COUNT_DOCUMENTS = """
UPDATE documents d
SET chunk_count = listed.size
FROM unnest(%(doc_ids)s::text[], %(sizes)s::integer[]) AS listed (doc_id, size)
WHERE d.collection_id = %(collection_id)s AND d.doc_id = listed.doc_id AND d.chunk_count <> listed.size
"""

TOUCH = """
UPDATE {chunks} c
SET start_char = s.start_char, end_char = s.end_char, tags = s.tags, metadata = s.metadata,
    attributes = s.attributes, switched_off = s.switched_off,
    enabled = s.enabled
FROM jsonb_to_recordset(%(rows)s::jsonb)
     AS s (doc_id text, chunk_index integer, start_char integer, end_char integer, tags text[], metadata jsonb,
           attributes jsonb, switched_off boolean, enabled boolean)
WHERE c.collection_id = %(collection_id)s AND c.doc_id = s.doc_id COLLATE "C" AND c.chunk_index = s.chunk_index
"""

# Rows that stay as they are belong to the present revision of their document too. An index version that does not serve
# may hold them as they were before the document was enabled or disabled.
STAMP = """
UPDATE {chunks} c SET revision = listed.revision, enabled = listed.enabled AND NOT c.switched_off
FROM unnest(%(doc_ids)s::text[], %(revisions)s::integer[], %(enabled)s::boolean[]) AS listed (doc_id, revision, enabled)
WHERE c.collection_id = %(collection_id)s AND c.doc_id = listed.doc_id COLLATE "C"
  AND (c.revision <> listed.revision OR c.enabled <> (listed.enabled AND NOT c.switched_off))
"""

# What is replaced, and the tail of documents that have become shorter; their words leave the statistics.
REMOVE = """
WITH gone AS (
    DELETE FROM {chunks} c
    USING unnest(%(doc_ids)s::text[], %(numbers)s::integer[]) AS listed (doc_id, chunk_index)
    WHERE c.collection_id = %(collection_id)s AND c.doc_id = listed.doc_id COLLATE "C"
      AND c.chunk_index = listed.chunk_index
    RETURNING c.fts, c.access
), words AS (
    SELECT counted.term, count(*) AS chunks, sum(counted.places) AS length
    FROM gone, ragd_counted(fts, access) AS counted
    GROUP BY counted.term
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM gone WHERE 1 = ANY (access)),
       coalesce(array_agg(term), '{{}}'), coalesce(array_agg(chunks), '{{}}'), coalesce(sum(length), 0)
FROM words
"""

REMOVE_DOCUMENTS = REMOVE.replace(
    "USING unnest(%(doc_ids)s::text[], %(numbers)s::integer[]) AS listed (doc_id, chunk_index)\n    ", ""
).replace(
    """c.doc_id = listed.doc_id COLLATE "C"
      AND c.chunk_index = listed.chunk_index""",
    "c.doc_id = ANY(%(doc_ids)s)",
)
REMOVE_TAILS = REMOVE.replace("%(numbers)s", "%(sizes)s").replace(
    "c.chunk_index = listed.chunk_index", "c.chunk_index >= listed.chunk_index"
)

PARSE = f"""
SELECT tsvectorsend(parsed.fts), words.terms, words.counts,
       CASE WHEN named.prefix <> '' THEN ragd_term('{RESTRICTED}' || named.prefix) END
FROM {PARSED}
CROSS JOIN LATERAL (SELECT ragd_prefix(parsed.fts) AS prefix OFFSET 0) AS named
CROSS JOIN LATERAL (
    SELECT array_agg(ragd_term(named.prefix || lexeme)) AS terms,
           array_agg(coalesce(cardinality(positions), 0)) AS counts
    FROM unnest(parsed.fts)
) AS words
ORDER BY given.place
"""  # noqa: S608  (constants of the library)

# Of a sparse encoder's terms the lexemes instead of the counts, which are 0.
PARSE_LEARNED = PARSE.replace("words.counts", "words.lexemes").replace(
    "array_agg(coalesce(cardinality(positions), 0)) AS counts", "array_agg(lexeme) AS lexemes"
)

COUNT_TERMS = """
INSERT INTO chunk_terms (collection_id, index_version, term, chunk_count)
SELECT %(collection_id)s, %(index_version)s, term, change
FROM unnest(%(terms)s::integer[], %(changes)s::bigint[]) AS counted (term, change)
ON CONFLICT (collection_id, index_version, term)
DO UPDATE SET chunk_count = chunk_terms.chunk_count + excluded.chunk_count
"""

COUNT_CHUNKS = f"""
UPDATE chunk_stats
SET chunk_count = chunk_count + %(added)s, open_count = open_count + %(opened)s,
    length_total = length_total + %(length)s
WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s
RETURNING chunk_count, open_count, length_total, length_baked, {SEGMENTS}
"""  # noqa: S608  (constants of the library)

COUNT_BOTH = f"WITH terms AS ({COUNT_TERMS}) {COUNT_CHUNKS}"

COPY_CHUNKS = """
COPY {chunks} (collection_id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata,
               attributes, token_count, revision, enabled, switched_off, embedding, fts, lexical, access, tokens)
FROM STDIN (FORMAT BINARY)
"""

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Change:
    """What a write does to the statistics: rows won or lost, and of the open ones their number, summed length (in
    lexemes) and rows per term."""

    rows: int = 0
    open_rows: int = 0
    length: int = 0
    terms: list[Ints] = field(default_factory=list)
    changes: list[Ints] = field(default_factory=list)

    def add(self, rows: int, open_rows: int, length: int, terms: Ints, changes: Ints) -> None:
        self.rows += rows
        self.open_rows += open_rows
        self.length += length
        self.terms.append(terms)
        self.changes.append(changes)

    def gather(self) -> None:
        """Bring what was added into one entry per term, so that many additions take no more room than their terms."""
        terms, changes = self.per_term()
        self.terms, self.changes = [terms], [changes]

    def per_term(self) -> tuple[Ints, Ints]:
        """Terms in ascending order, each once, with how many rows hold it more than before; none where that is 0."""
        if not self.terms:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        terms, positions = np.unique(np.concatenate(self.terms), return_inverse=True)
        changes = np.zeros(len(terms), np.int64)
        np.add.at(changes, positions, np.concatenate(self.changes))
        return terms[changes != 0], changes[changes != 0]


@dataclass(frozen=True, slots=True)
class Words:
    """The parsed words of a slice of chunks: fts[i] in tsvector's binary form, sizes[i] of the terms with counts.

    A count of 0 is a lexeme without places: it is counted among the chunks that hold it and weighs nothing, but for
    the weights that a sparse encoder gives the terms (learned).
    """

    fts: list[bytes]
    sizes: Ints
    terms: Ints
    counts: Ints
    restricted: list[int | None]  # the one term that each counts with an access list, None where it is none
    learned: npt.NDArray[np.float64] | None = None


def touch_chunks(chunks: Sequence[Chunk], store: Store, documents: Mapping[str, DocumentRow]) -> None:
    """New offsets, tags, metadata, attributes and switches for rows whose text stays."""
    rows = [
        {
            "doc_id": chunk.doc_id,
            "chunk_index": chunk.chunk_index,
            "start_char": chunk.start,
            "end_char": chunk.end,
            "tags": list(chunk.tags),
            "metadata": dict(chunk.metadata),
            "attributes": dict(chunk.attributes),
            "switched_off": not chunk.enabled,
            "enabled": chunk.enabled and documents[chunk.doc_id][1],
        }
        for chunk in chunks
    ]
    if rows:
        sql = TOUCH.format(chunks=store.collection.partition)
        execute(store.connection, sql, {**store.scope, "rows": canonical_json(rows)})


def stamp_states(store: Store, scope: Mapping[str, Any]) -> None:
    """Let every chunk of the documents in `scope` name the revision given there, and be enabled as given there."""
    execute(store.connection, STAMP.format(chunks=store.collection.partition), dict(scope))


def remove_chunks(keys: Sequence[tuple[str, int]], store: Store, change: Change) -> None:
    """Delete these rows; what they leave in the statistics is added to `change`."""
    if keys:
        params = {**store.scope, "doc_ids": [key[0] for key in keys], "numbers": [key[1] for key in keys]}
        _remove(REMOVE, params, store, change)


def remove_documents(doc_ids: Sequence[str], store: Store, change: Change) -> int:
    """Delete every row of these documents; returns how many there were."""
    return _remove(REMOVE_DOCUMENTS, {**store.scope, "doc_ids": list(doc_ids)}, store, change)


def remove_tails(store: Store, scope: Mapping[str, Any], change: Change) -> int:
    """Delete the rows of the documents in `scope` from their size on; returns how many there were."""
    return _remove(REMOVE_TAILS, dict(scope), store, change)


def _remove(sql: str, params: dict[str, Any], store: Store, change: Change) -> int:
    ((rows, open_rows, terms, chunks, length),) = fetch_all(
        store.connection, sql.format(chunks=store.collection.partition), params
    )
    change.add(-int(rows), -int(open_rows), -int(length), np.array(terms, np.int64), -np.array(chunks, np.int64))
    return int(rows)


def read_documents(chunks: Sequence[Chunk], store: Store, scope: Mapping[str, Any]) -> dict[str, DocumentRow]:
    """doc_id -> its row; one is made for a document that has none.

    Of a store with `document_states` they are those, and `documents` is left alone. Where the chunks go to another node
    no trigger there locks the document and says who may read it; here it stays until the end of the transaction.
    """
    if store.document_states is not None:
        lists = dict(fetch_all(store.connection, READ_LISTS, dict(scope)))
        names = {each.doc_id for each in chunks}
        return {name: (*store.document_states[name], 0, lists.get(name, EVERYBODY)) for name in names}
    locked = READ_DOCUMENTS + "FOR KEY SHARE" if store.collection.is_distributed else READ_DOCUMENTS
    known: dict[str, DocumentRow] = {row[0]: row[1:] for row in fetch_all(store.connection, locked, dict(scope))}
    missing = {chunk.doc_id: chunk for chunk in reversed(chunks) if chunk.doc_id not in known}
    if missing:
        listed = [{"doc_id": doc_id, "tags": list(chunk.tags)} for doc_id, chunk in missing.items()]
        execute(store.connection, INSERT_DOCUMENTS, {**scope, "rows": canonical_json(listed)})
        known |= {row[0]: row[1:] for row in fetch_all(store.connection, locked, {**scope, "doc_ids": list(missing)})}
    return known


def parse_words(chunks: Sequence[Chunk], store: Store) -> Words:
    """The words of these chunks as the lexical index has them."""
    fts: list[bytes] = []
    terms: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    restricted: list[int | None] = []
    weights: list[float] = []
    learned = learned_terms(chunks, store)
    for first in range(0, len(chunks), PARSED_AT_ONCE):
        part = slice(first, first + PARSED_AT_ONCE)
        given = None if learned is None else learned[part]
        params: dict[str, Any] = {**parse_params(chunks[part], store, given)}
        rows = fetch_all(store.connection, PARSE if given is None else PARSE_LEARNED, params)
        for place, (parsed, its_terms, its_counts, marker) in enumerate(rows):
            fts.append(bytes(parsed))
            restricted.append(marker)
            sizes.append(len(its_terms or ()))
            terms += its_terms or ()
            if given is None:
                counts += its_counts or ()
            else:
                weights += [given[place][lexeme] for lexeme in its_counts or ()]
                counts += [0] * len(its_counts or ())
    made = np.array(sizes, np.int64), np.array(terms, np.int64), np.array(counts, np.int64), restricted
    return Words(fts, *made, None if learned is None else np.array(weights))


def count_words(words: Words | None, access: Sequence[Sequence[int]], change: Change) -> None:
    """Add rows with these words to the change, as ragd_counted() does; None: the collection counts no words. access:
    who may read each row."""
    is_open = np.array([EVERYBODY[1] in readers for readers in access], bool)
    if words is None:
        change.rows, change.open_rows = change.rows + len(access), change.open_rows + int(is_open.sum())
        return
    counted = np.repeat(is_open, words.sizes)
    markers = [term for term, opened in zip(words.restricted, is_open, strict=True) if term is not None and not opened]
    terms = np.concatenate([words.terms[counted], np.array(markers, np.int64)])
    length = int(words.counts[counted].sum())
    change.add(len(access), int(is_open.sum()), length, terms, np.ones(len(terms), np.int64))


def settle_statistics(change: Change, store: Store) -> None:
    """Move the statistics along; then the weights by the mean length that comes of it, and the postings."""
    rows, count, total, baked, segments = _apply(change, store)
    if store.collection.hybrid_enabled:
        is_kept = follow_length(store, count - change.open_rows, count, total, baked) == baked
        extend_postings(store, rows, segments if is_kept else [])


def _apply(change: Change, store: Store) -> tuple[int, int, int, float, list[Segment]]:
    """Returns rows, open rows, their summed length, the mean length that weights are computed with, and the segments of
    the postings."""
    terms, changes = change.per_term()
    params: dict[str, Any] = {**store.scope, "added": change.rows, "opened": change.open_rows, "length": change.length}
    first = 0
    while True:
        part = slice(first, first + TERMS_AT_ONCE)
        params |= {"terms": array_text(terms[part].tolist()), "changes": array_text(changes[part].tolist())}
        first += TERMS_AT_ONCE
        if first >= len(terms):
            break
        execute(store.connection, COUNT_TERMS, params)
    ((rows, count, total, baked, segments),) = fetch_all(store.connection, COUNT_BOTH, params)
    return int(rows), int(count), int(total), float(baked), [Segment(*each) for each in segments]


def follow_length(store: Store, rows_before: int, count: int, total: int, baked: float) -> float:
    """The mean length to compute weights with, of `count` open rows with `total` words.

    Where it is another than that of the stored weights, and there were few rows before, they are computed anew; where
    there were many they stay as they are, and so does the length.
    """
    length = bake_length(total / count) if count else 1.0
    if length == baked or rows_before > REBAKE_LIMIT:
        return baked
    params = {**store.scope, "length_baked": length}
    execute(store.connection, REBAKE.format(chunks=store.collection.partition), params)
    execute(store.connection, SET_BAKED, params)
    drop_postings(store)
    return length


def lexical_weights(words: Words, mean: float) -> list[bytes]:
    """What ragd_bm25() makes of each chunk, in sparsevec's binary form: dimensions, entries, 0, places, weights.

    Learned weights are scaled by LEARNED_SCALE and never above what BM25 can reach, so that postings hold both alike.
    """
    rows = np.repeat(np.arange(len(words.sizes)), words.sizes)
    order = np.lexsort((words.terms, rows))
    if words.learned is None:
        order = order[words.counts[order] > 0]
    rows, terms, counts = rows[order], words.terms[order], words.counts[order]
    totals = np.zeros(len(words.sizes))
    np.add.at(totals, rows, counts)
    starts = np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (np.diff(terms, prepend=-1) != 0))
    rows, terms = rows[starts], terms[starts]
    if words.learned is None:
        tf = np.add.reduceat(counts, starts).astype(np.float64)
        weights = (tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * totals[rows] / mean))).astype(">f4")
    else:
        summed = np.add.reduceat(words.learned[order], starts)
        weights = np.minimum(summed * LEARNED_SCALE, LEARNED_MAX).astype(">f4")
    positions = (terms - 1).astype(">i4")
    edges = np.searchsorted(rows, np.arange(len(words.sizes) + 1)).tolist()
    return [
        struct.pack("!iii", LEXICAL_DIMS, end - start, 0)
        + positions[start:end].tobytes()
        + weights[start:end].tobytes()
        for start, end in itertools.pairwise(edges)
    ]


def copy_rows(
    chunks: Sequence[Chunk], store: Store, documents: Mapping[str, DocumentRow], words: Words | None, baked: float
) -> None:
    """Rows in PostgreSQL's binary COPY format: a text vector would cost more than the whole rest of the write."""
    if not chunks:
        return
    lexical: Sequence[bytes | None] = [None] * len(chunks) if words is None else lexical_weights(words, baked)
    fts: Sequence[bytes | None] = [None] * len(chunks) if words is None else words.fts
    sql = COPY_CHUNKS.format(chunks=store.collection.partition)
    collection_id = struct.pack("!q", store.collection.id)
    with cursor(store.connection) as opened, opened.copy(sql) as copy:
        waiting = bytearray(b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0))
        for chunk, its_fts, its_lexical in zip(chunks, fts, lexical, strict=True):
            waiting += binary_row(chunk, collection_id, documents[chunk.doc_id], its_fts, its_lexical)
            if len(waiting) >= COPY_BYTES:
                copy.write(bytes(waiting))
                waiting.clear()
        copy.write(bytes(waiting) + struct.pack("!h", -1))
