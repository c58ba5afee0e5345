"""Sections 1.1.4, 2.3 and 3: what is stored, once, whole documents at a time, and the schema that keeps it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ragd
from ragd.conformance.golden import Bench, SimHashEmbedder, keys, make_chunks, retrieve_keys, rule
from ragd.conformance.report import Cases
from ragd.store import tables
from ragd.store.store import Store, execute, fetch_all, partition_name
from ragd.types import MODES, Filters, RetrievePlan, Vector

LONG = ("apples grow on trees", "pears grow on trees too", "walnuts fall in autumn", "grapes hang on vines")
SHORT = LONG[:2]
UNIQUE_VIOLATION = "23505"

INSERT_AGAIN = """
INSERT INTO {chunks} (collection_id, doc_id, chunk_index, content, embedding)
VALUES (%(collection_id)s, 'fruit', 0, 'another text', %(embedding)s::vector)
"""

# columns of the library's tables: type, collation, NOT NULL
COLUMNS = """
SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), coalesce(l.collname, ''), a.attnotnull
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.oid = ANY (ARRAY['collections', 'documents', 'chunks']::regclass[]) AND a.attnum > 0 AND NOT a.attisdropped
"""

# indexes of one collection's chunks: access method and operator classes
INDEXES = """
SELECT m.amname, o.opcname, x.indisunique
FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_am m ON m.oid = i.relam
CROSS JOIN unnest(x.indclass::oid[]) AS class (oid)
JOIN pg_opclass o ON o.oid = class.oid
WHERE x.indrelid = to_regclass(%(partition)s) AND x.indisvalid
"""


class BrokenEmbedder(SimHashEmbedder):
    """Fails at the second text."""

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        raise ragd.EmbedderError("the embedder is gone", kind="test", retryable=False)


@rule("1.1.4", "indexing the same chunks again changes nothing")
def is_idempotent(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("twice")
    chunks = make_chunks("fruit", *LONG, tags=("a", "b"), metadata={"n": 1, "deep": {"x": [1, None]}})
    first = ragd.index(chunks, store)
    before = bench.rows(store)
    second = ragd.index(list(reversed(chunks)), store)
    cases.equal("first time", first, {"written": 4, "unchanged": 0, "deleted": 0, "embedded": 4})
    cases.equal("second time", second, {"written": 0, "unchanged": 4, "deleted": 0, "embedded": 0})
    cases.equal("rows", bench.rows(store), before)
    cases.equal("no chunks at all", ragd.index([], store), {"written": 0, "unchanged": 0, "deleted": 0, "embedded": 0})
    cases.equal("rows after nothing", bench.rows(store), before)


@rule("1.1.4", "(collection_id, doc_id, chunk_index) is unique")
def keys_are_unique(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("unique")
    ragd.index(make_chunks("fruit", LONG[0]), store)
    outcome = "it was written"
    with bench.undone():
        try:
            sql = INSERT_AGAIN.format(chunks=store.collection.partition)
            vector = str([1.0] * store.collection.embed_dims)
            execute(bench.connection, sql, {"collection_id": store.collection.id, "embedding": vector})
        except Exception as error:  # of psycopg or Django, by the connection; the library knows no Django
            if tables.sqlstate(error) != UNIQUE_VIOLATION:
                raise
            outcome = "refused as a duplicate"
    cases.equal("a second row with the same key", outcome, "refused as a duplicate")
    other = bench.make_store("unique-too")
    ragd.index(make_chunks("fruit", LONG[0]), other)
    cases.equal("the same key in another collection", bench.rows(other), bench.rows(store))
    twice = [*make_chunks("fruit", LONG[0]), *make_chunks("fruit", LONG[1])]
    cases.refused("twice in one call", lambda: ragd.index(twice, store), field="chunk_index", error=ragd.InvalidInput)


@rule("1.1.4", "replacing a document is whole: no stale chunk, word or vector stays")
def replaces_whole_documents(bench: Bench, cases: Cases) -> None:
    store, fresh = bench.make_store("replaced"), bench.make_store("fresh")
    other = make_chunks("other", "bread and butter", "tea and bread")
    ragd.index([*make_chunks("fruit", *LONG), *other], store)
    counts = ragd.index(make_chunks("fruit", *SHORT), store)
    ragd.index([*make_chunks("fruit", *SHORT), *other], fresh)
    cases.equal("counts", counts, {"written": 0, "unchanged": 2, "deleted": 2, "embedded": 0})
    cases.equal("rows like those of a fresh collection", bench.rows(store), bench.rows(fresh))
    for query in ("walnuts in autumn", "pears and trees", "bread", "grapes"):
        for mode in MODES:
            plan = RetrievePlan(mode=mode, exact="always")
            got, expected = (
                [(item.key, item.score) for item in ragd.retrieve(query, plan, position)] for position in (store, fresh)
            )
            cases.equal(f"{mode}: {query!r}", got, expected)
    ragd.index(make_chunks("fruit", *LONG), store)
    ragd.index(make_chunks("fruit", *LONG), fresh)
    cases.equal("grown again", bench.rows(store), bench.rows(fresh))


@rule("1.1.4", "an index that fails leaves the old version whole and searchable")
def keeps_the_old_version(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("kept")
    ragd.index(make_chunks("fruit", *LONG), store)
    before = bench.rows(store)
    broken = Store(bench.connection, "kept", BrokenEmbedder())
    outcome = "no error"
    with bench.undone():
        try:
            ragd.index(make_chunks("fruit", "a new text", "and another"), broken)
        except ragd.EmbedderError:
            outcome = "EmbedderError"
    cases.equal("a failing embedder", outcome, "EmbedderError")
    cases.equal("rows", bench.rows(store), before)
    cases.equal("search", retrieve_keys("walnuts", store, mode="lexical"), ["fruit#2"])


@rule("1.1.4", "chunks that are unbound, gapped, blank or beyond their document are refused")
def refuses_half_documents(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("refusing")
    whole = make_chunks("fruit", *LONG)
    error = ragd.InvalidInput
    unbound = ragd.chunk(LONG[0], ragd.ChunkPolicy())
    cases.refused("no doc_id", lambda: ragd.index(unbound, store), field="doc_id", error=error)
    cases.refused("no first chunk", lambda: ragd.index(whole[1:], store), field="chunk_index", error=error)
    gapped = [whole[0], whole[2]]
    cases.refused("a gap", lambda: ragd.index(gapped, store), field="chunk_index", error=error)
    blank = make_chunks("fruit", " ")
    cases.refused("blank", lambda: ragd.index(blank, store), field="content", error=ragd.EmptyContent)
    cases.equal("nothing was written", bench.rows(store), [])


@rule("2.3", "the order in which documents came changes no result")
def order_of_arrival_is_nothing(bench: Bench, cases: Cases) -> None:
    texts = {f"d{n}": f"{LONG[n % 4]} and number {n} too" for n in range(24)}
    forth, back = bench.make_store("forth"), bench.make_store("back")
    for store, names in ((forth, sorted(texts)), (back, sorted(texts, reverse=True))):
        for name in names:
            ragd.index(make_chunks(name, texts[name]), store)
    for query in ("apples and pears", "number 7", "walnuts on vines"):
        for mode in MODES:
            plan = RetrievePlan(mode=mode, exact="always", k=24)
            got, expected = (
                [(item.key, item.score) for item in ragd.retrieve(query, plan, store)] for store in (back, forth)
            )
            cases.equal(f"{mode}: {query!r}", got, expected)


@rule("2.3", "collections do not see each other")
def collections_are_apart(bench: Bench, cases: Cases) -> None:
    left, right = bench.make_store("left"), bench.make_store("right")
    ragd.index(make_chunks("fruit", *LONG), left)
    before = _results(left)
    ragd.index(make_chunks("fruit", "apples apples apples", "pears"), right)
    ragd.index(make_chunks("nuts", *LONG), right)
    cases.equal("results", _results(left), before)
    candidates = keys(ragd.retrieve("apples", RetrievePlan(mode="lexical"), left))
    cases.equal("lexical list", candidates, ["fruit#0"])


@rule("3", "the tables carry the contract")
def schema_carries_the_contract(bench: Bench, cases: Cases) -> None:
    columns = {name: rest for name, *rest in fetch_all(bench.connection, COLUMNS)}
    for name, expected in {
        "collections.embed_model": ["text", "default", True],
        "collections.embed_dims": ["integer", "", True],
        "documents.doc_id": ["text", "C", True],
        "documents.tags": ["text[]", "default", True],
        "documents.metadata": ["jsonb", "", True],
        "chunks.doc_id": ["text", "C", True],
        "chunks.chunk_index": ["integer", "", True],
        "chunks.content": ["text", "default", True],
        "chunks.tags": ["text[]", "default", True],
        "chunks.metadata": ["jsonb", "", True],
    }.items():
        cases.equal(name, columns.get(name), expected)
    embedding = columns.get("chunks.embedding", [""])[0]
    cases.equal("chunks.embedding", embedding.split(".")[-1].split("(")[0], "vector")
    tables.apply_schema(bench.connection)
    again = {name: rest for name, *rest in fetch_all(bench.connection, COLUMNS)}
    cases.equal("the schema applied again", again, columns)


@rule("3", "HNSW with cosine on the vectors, GIN on words and tags, a unique key")
def indexes_are_there(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("indexed")
    ragd.index(make_chunks("fruit", *LONG), store)
    store.build_vector_index()
    cases.holds("the index is used once built", store.state().vector_index, expected="ready", got="not there")
    rows: list[Any] = fetch_all(bench.connection, INDEXES, {"partition": store.collection.partition})
    for expected in (
        ("hnsw", "vector_cosine_ops"),
        ("gin", "tsvector_ops"),
        ("gin", "array_ops"),
        ("btree", "text_ops"),
    ):
        present = [row for row in rows if row[:2] == expected]
        cases.holds(" ".join(expected), bool(present), expected="an index", got=f"only {sorted(set(rows))}")
    unique = any(row[2] for row in rows)
    cases.holds("unique key", unique, expected="a unique index", got="none")


def _results(store: Store) -> list[Any]:
    plans = [RetrievePlan(mode=mode, exact="always", filters=Filters()) for mode in MODES]
    return [[(item.key, item.score) for item in ragd.retrieve("apples trees", plan, store)] for plan in plans]


VIOLATIONS = {"23514": "refused by a check", "23503": "refused without its document"}

INSERT_CHUNK = """
INSERT INTO {table} (collection_id, doc_id, chunk_index, content, embedding)
VALUES (%(collection_id)s, %(doc_id)s, 99, 'text', %(embedding)s::vector)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A table that holds the chunks of one document, "fruit", and how many dimensions its vectors have."""

    moment: str
    table: str
    collection_id: int
    dims: int
    is_distributed: bool


@rule("3", "the schema refuses a vector of other dimensions: in what serves, what is built, after a swap and back")
def dimensions_hold(bench: Bench, cases: Cases) -> None:
    for place in _places(bench, "fixed"):
        for given in (place.dims, place.dims + 1):
            expected = "written" if given == place.dims else "refused by a check"
            cases.equal(f"{place.moment}: {given} of {place.dims}", _insert(bench, place, "fruit", given), expected)


@rule("3", "the schema refuses a chunk without its document: in what serves, what is built, after a swap and back")
def chunks_have_documents(bench: Bench, cases: Cases) -> None:
    for place in _places(bench, "owned"):
        cases.equal(f"{place.moment}: with it", _insert(bench, place, "fruit", place.dims), "written")
        if place.is_distributed:
            continue  # the documents are on another node: the library refuses it, and a check of the server finds it
        outcome = _insert(bench, place, "nobody", place.dims)
        cases.equal(f"{place.moment}: without", outcome, "refused without its document")


def _places(bench: Bench, name: str) -> Iterator[Place]:
    """A collection with a second index version of other dimensions, before it is swapped in, after, and after the way
    back; at each moment `chunks` and both tables."""
    connection = bench.connection
    specs = {number: tables.IndexVersionSpec(name, number + 2, True, "simple", ragd.ChunkPolicy()) for number in (1, 2)}
    made = tables.create_collection(
        connection, name=name, embed_model=name, embed_dims=3, language="simple", placement=bench.placement
    )
    store = Store(connection, made)
    ragd.index(make_chunks("fruit", "apples", embedding=[1.0] * 3), store)
    away = store.collection.is_distributed
    tables.create_index_version(connection, made, 4)
    ragd.index(
        make_chunks("fruit", "apples", embedding=[1.0] * 4), tables.open_index_version(connection, made, 2, specs[2])
    )
    for moment, serving in (("built", 1), ("swapped in", 2), ("swapped back", 1)):
        tables.swap_index_version(connection, made, serving, specs[serving])
        if not away:
            yield Place(f"{moment}, chunks", "chunks", made, specs[serving].embed_dims, False)
        for number, spec in specs.items():
            yield Place(f"{moment}, index version {number}", partition_name(made, number), made, spec.embed_dims, away)


def _insert(bench: Bench, place: Place, doc_id: str, dims: int) -> str:
    """ "written", or which rule refused it; nothing stays. Raises what else went wrong."""
    values: dict[str, Any] = {"collection_id": place.collection_id, "doc_id": doc_id, "embedding": str([1.0] * dims)}
    with bench.undone():
        try:
            execute(bench.connection, INSERT_CHUNK.format(table=place.table), values)
        except Exception as error:  # of psycopg or Django, by the connection; the library knows no Django
            if (code := tables.sqlstate(error)) not in VIOLATIONS:
                raise
            return VIOLATIONS[code]
    return "written"
