"""Collections of any size from a seeded generator: Zipfian texts with clustered vectors, loaded in bulk.

The words of a text are drawn with a probability of 1 / (rank + 10) from 200,000 made-up ones, 60 to 150 for a chunk, so
that the commonest is in more than half of the chunks and one in seven is in fewer than one of 10,000. Vectors scatter
around 1,000 centres. The same number gives the same chunk, whatever the size of its collection.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import psycopg

from ragd.store.postings import extend_postings
from ragd.store.schema import apply_schema
from ragd.store.store import Store, bake_length, execute, fetch_all
from ragd.store.tables import create_collection

VOCABULARY = 200_000
RANK_OFFSET = 10
LENGTHS = (60, 151)
CENTRES = 1_000
SPREAD = 0.6
BLOCK = 10_000
CHUNKS_PER_DOCUMENT = 10
WORKERS = 2
MODEL = "given"
TAGS = {"half": 2, "tenth": 10, "hundredth": 100, "thousandth": 1_000}

STAGE = "CREATE TEMP TABLE stage (number integer, content text, words integer, embedding vector)"
COPY_STAGE = "COPY stage FROM STDIN (FORMAT BINARY)"

INSERT = """
INSERT INTO {chunks} (id, collection_id, doc_id, chunk_index, content, end_char, tags,
                      token_count, embedding, fts, lexical)
SELECT nextval(pg_get_serial_sequence('chunks', 'id')), %(collection_id)s, 'd' || number / %(each)s, number %% %(each)s,
       content, length(content),
       ARRAY(SELECT tag FROM unnest(%(tags)s::text[], %(steps)s::integer[]) AS t (tag, step) WHERE number %% step = 0),
       words, embedding, fts, ragd_bm25(fts, %(length_baked)s)
FROM (SELECT *, to_tsvector('simple', content) AS fts FROM stage OFFSET 0) AS parsed
ORDER BY number
"""

DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id, chunk_count)
SELECT %(collection_id)s, 'd' || number, %(each)s FROM generate_series(0, %(documents)s - 1) AS number
"""

TERMS = """
INSERT INTO chunk_terms (collection_id, generation, term, chunk_count)
SELECT %(collection_id)s, %(generation)s, ragd_term(word), sum(held)
FROM unnest(%(words)s::text[], %(held)s::bigint[]) AS counted (word, held)
WHERE held > 0
GROUP BY 3
"""

STATS = """
UPDATE chunk_stats SET chunk_count = %(chunks)s, open_count = %(chunks)s, length_total = %(length_total)s,
                       length_baked = %(length_baked)s
WHERE collection_id = %(collection_id)s AND generation = %(generation)s
"""

INDEX_NAMES = "SELECT indexdef FROM pg_indexes WHERE tablename = %(table)s AND indexdef LIKE '%% USING gin %%'"


@dataclass(frozen=True)
class Block:
    """Consecutive chunks: their first number, word ranks one after the other, and how many each has."""

    first: int
    ranks: np.ndarray
    lengths: np.ndarray


class GivenEmbedder:
    """Knows the vectors of the queries that it was given, and no other text."""

    model, system, window = MODEL, "ragd.bench", None
    server_address: str | None = None
    server_port: int | None = None

    def __init__(self, vectors: dict[str, np.ndarray], dims: int) -> None:
        self.vectors, self.dims = vectors, dims

    def embed(self, texts: Sequence[str]) -> list[Any]:
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> Any:
        return self.vectors[text]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


@lru_cache
def vocabulary() -> list[str]:
    """Distinct made-up words, the commonest first."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]
    draw = random.Random(1)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(draw.choices(syllables, k=draw.randint(2, 4)))] = None
    return list(words)


@lru_cache
def cumulated() -> np.ndarray:
    shares = 1 / (np.arange(VOCABULARY) + 1 + RANK_OFFSET)
    return np.cumsum(shares / shares.sum())


def block_lengths(number: int) -> np.ndarray:
    return np.random.default_rng((7, number)).integers(*LENGTHS, BLOCK)


def make_block(number: int) -> Block:
    lengths = block_lengths(number)
    drawn = np.random.default_rng((8, number)).random(int(lengths.sum()))
    ranks = np.minimum(np.searchsorted(cumulated(), drawn), VOCABULARY - 1)
    return Block(number * BLOCK, ranks, lengths)


def block_texts(block: Block) -> Iterator[str]:
    words, start = vocabulary(), 0
    chosen = [words[rank] for rank in block.ranks.tolist()]
    for length in block.lengths.tolist():
        yield " ".join(chosen[start : start + length])
        start += length


def make_vectors(seed: tuple[int, int], count: int, dims: int) -> np.ndarray:
    centres = np.random.default_rng(9).standard_normal((CENTRES, dims))
    draw = np.random.default_rng(seed)
    vectors = centres[draw.integers(0, CENTRES, count)] + SPREAD * draw.standard_normal((count, dims))
    unit: np.ndarray = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def make_queries(count: int, dims: int) -> dict[str, np.ndarray]:
    """Questions of 2 to 8 words of one text each, as common as words are in texts, and their vectors."""
    draw, block = random.Random(3), make_block(99_999)
    texts = [text for text, _ in zip(block_texts(block), range(count), strict=False)]
    questions = [" ".join(draw.sample(sorted(set(text.split())), draw.randint(2, 8))) for text in texts]
    return dict(zip(questions, make_vectors((11, 0), count, dims), strict=True))


def load(connection: psycopg.Connection, url: str, name: str, size: int, dims: int) -> dict[str, float]:
    """Make the collection with all its indexes but the HNSW one; returns the seconds of each step.

    The rows do not go through index(): texts are parsed and weighed by the database, in WORKERS connections, and the
    GIN indexes are built afterwards. `size` is a multiple of BLOCK.
    """
    apply_schema(connection)
    collection = create_collection(connection, name=name, embed_model=MODEL, embed_dims=dims, language="simple")
    connection.commit()
    store = Store(connection, collection)
    took: dict[str, float] = {}
    table = store.collection.partition
    indexes = [row[0] for row in fetch_all(connection, INDEX_NAMES, {"table": table})]
    for definition in indexes:
        execute(connection, f"DROP INDEX {definition.split()[2]}")
    connection.commit()
    blocks = size // BLOCK
    total = int(sum(block_lengths(number).sum() for number in range(blocks)))
    baked = bake_length(total / size)
    documents = {"documents": size // CHUNKS_PER_DOCUMENT, "each": CHUNKS_PER_DOCUMENT}
    execute(connection, DOCUMENTS, store.scope | documents)
    connection.commit()
    began = time.perf_counter()
    with ProcessPoolExecutor(WORKERS) as pool:
        jobs = [pool.submit(load_block, url, collection, table, number, dims, baked) for number in range(blocks)]
        held = sum((job.result() for job in jobs), np.zeros(VOCABULARY, dtype=np.int64))
    took["rows"] = time.perf_counter() - began
    params = {**store.scope, "chunks": size, "length_total": total, "length_baked": baked}
    params |= {"words": vocabulary(), "held": held.tolist()}
    began = time.perf_counter()
    for statement in (TERMS, STATS):
        execute(connection, statement, params)
    connection.commit()
    took["statistics"] = time.perf_counter() - began
    for definition in indexes:
        began = time.perf_counter()
        tune_builds(connection)
        execute(connection, definition)
        connection.commit()
        took[definition.split()[2].rpartition("_")[2]] = time.perf_counter() - began
    began = time.perf_counter()
    extend_postings(store, size)
    connection.commit()
    took["postings"] = time.perf_counter() - began
    return took


def load_block(url: str, collection: int, table: str, number: int, dims: int, baked: float) -> np.ndarray:
    """Write one block; returns in how many of its chunks each word is."""
    block = make_block(number)
    vectors = make_vectors((10, number), BLOCK, dims).astype(">f4")
    values = {"collection_id": collection, "each": CHUNKS_PER_DOCUMENT, "length_baked": baked}
    values |= {"tags": list(TAGS), "steps": list(TAGS.values())}
    with psycopg.connect(url) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(STAGE)
        with connection.cursor() as cursor, cursor.copy(COPY_STAGE) as copy:
            copy.write(b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0))
            for place, text in enumerate(block_texts(block)):
                content, vector = text.encode(), struct.pack("!hh", dims, 0) + vectors[place].tobytes()
                copy.write(struct.pack("!hiii", 4, 4, block.first + place, len(content)) + content)
                copy.write(struct.pack("!iii", 4, int(block.lengths[place]), len(vector)) + vector)
            copy.write(struct.pack("!h", -1))
        connection.execute(INSERT.format(chunks=table), values)
    owners = np.repeat(np.arange(BLOCK, dtype=np.int64), block.lengths)
    pairs = np.unique(owners * VOCABULARY + block.ranks)
    return np.bincount(pairs % VOCABULARY, minlength=VOCABULARY)


def tune_builds(connection: psycopg.Connection) -> None:
    connection.execute("SET maintenance_work_mem = '2GB'")
    connection.execute("SET max_parallel_maintenance_workers = 2")
