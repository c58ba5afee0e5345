"""Typed filters: random ones on every search path, and latency by selectivity with and without indexes on the JSON.

Run: python -m tests.benchmarks.bench_typed_filters [--rows 100000] [--filters 10000] [--parts paths,latency,indexes]

Paths: each random filter is judged in Python and in SQL over a sample of chunks, and searched by an exact scan, through
the HNSW index, by scoring all keyword rows and over packed postings, in as many processes as --workers says. Every
chunk that comes must pass in Python; both keyword paths must give the same rows; of the HNSW index the share of the
exact results is told. For the first filters the exact list is compared with one that is computed in Python alone.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
import psycopg

from ragd import RetrievePlan, index, retrieve
from ragd.conditions import Condition, matches, parse_condition
from ragd.search.candidates import passing, ranked, scope
from ragd.search.lexical_search import read_query, scanned_rows
from ragd.search.pruned_search import pruned_rows
from ragd.search.vector_search import read_state, vector_candidates, vector_list
from ragd.store.postings import build_postings
from ragd.store.store import Store, fetch_all
from ragd.store.tables import create_collection
from ragd.types import Candidate, Chunk, Filters
from tests.benchmarks.bench_peers import running_database
from tests.typed_filters import random_filter, random_record

DIMS = 32
ASKED = 100
K = 10
SAMPLED = 300
WHOLE = 20  # filters of each process that are judged over every chunk in Python
TOLD = 500
PER_DOCUMENT = 5  # as tests.typed_filters makes them
VOCABULARY = [f"word{number}" for number in range(2_000)]
CHANGED = 2_000

Record = Mapping[str, Any]

SET_DOCUMENTS = """
UPDATE documents d SET title = n.title, media_type = n.media_type, language = n.language,
    created_at = n.created_at, updated_at = n.updated_at
FROM new_documents n WHERE n.doc_id = d.doc_id
"""
SAMPLE = """
SELECT doc_id, chunk_index FROM {chunks} WHERE collection_id = %(collection_id)s AND id = ANY(%(ids)s) AND {passing}
"""
SAMPLED_IDS = "SELECT id, doc_id, chunk_index FROM {chunks} WHERE id %% %(every)s = 0"
PATHS = ("sample", "exact", "HNSW", "keyword rows", "packed")
SIZE = "SELECT pg_relation_size(%(name)s::regclass)"
SHARES = {"0.1 %": 1, "1 %": 10, "10 %": 100, "50 %": 500, "100 %": 1000}  # of the numbers 0 to 999


class Given:
    """An embedder whose query "7 words" is the seventh of the given vectors."""

    model, dims, window, system = "given", DIMS, None, "benchmark"
    server_address = server_port = None

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def embed(self, texts: Any) -> Any:
        raise NotImplementedError("the chunks bring their vectors")

    def embed_query(self, text: str) -> Any:
        return self.asked[int(text.split()[0])]

    def count_tokens(self, text: str) -> int:
        return 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6, help="no more filters are tried after so many")
    parser.add_argument("--parts", default="paths,latency,indexes")
    arguments = parser.parse_args()
    until = time.time() + 60 * arguments.minutes
    with running_database() as (url, _), psycopg.connect(url) as connection:
        store = load(connection, make_vectors(arguments.rows, 1), make_vectors(ASKED, 2))
        if "latency" in arguments.parts:
            latency(connection, store, arguments.queries)
        if "indexes" in arguments.parts:
            indexes(connection, store, arguments.queries)
        if "paths" in arguments.parts:
            paths(url, arguments.rows, arguments.filters, arguments.workers, until)


def make_vectors(count: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    axes = np.random.default_rng(99).normal(size=(8, DIMS))
    vectors = generator.normal(size=(count, 8)) @ axes + 0.4 * generator.normal(size=(count, DIMS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make_records(rows: int) -> dict[tuple[str, int], Record]:
    chance, records = random.Random(4), {}
    for number in range(rows):
        record = random_record(chance, number)
        drawn = chance.randrange(1000)
        record["metadata"] |= {"number": drawn, "label": f"label {drawn}", "day": f"{2000 + drawn % 25}-05-01"}
        record["attributes"] |= {"slide": drawn, "sheet": f"sheet {drawn}"}
        record["tags"] = [*record["tags"], f"tag {drawn}"]
        records[record["doc_id"], number % PER_DOCUMENT] = record
    return records


def load(connection: psycopg.Connection[Any], vectors: Any, asked: Any) -> Store:
    create_collection(connection, name="typed", embed_model="given", embed_dims=DIMS)
    store, records = Store(connection, "typed", Given(asked)), make_records(len(vectors))
    words = random.Random(5)
    weights = [1 / (place + 5) for place in range(len(VOCABULARY))]
    began = time.perf_counter()
    chunks = []
    for number, (key, record) in enumerate(records.items()):
        text = " ".join(words.choices(VOCABULARY, weights, k=25))
        tags, metadata, attributes = tuple(record["tags"]), record["metadata"], record["attributes"]
        chunks.append(Chunk(*key, text, 0, len(text), tags, metadata, embedding=vectors[number], attributes=attributes))
    index(chunks, store)
    names = ("doc_id", "title", "media_type", "language", "created_at", "updated_at")
    documents = {record["doc_id"]: [record[name] for name in names] for record in records.values()}
    connection.execute(f"CREATE TEMP TABLE new_documents AS SELECT {', '.join(names)} FROM documents LIMIT 0")
    with connection.cursor() as cursor, cursor.copy(f"COPY new_documents ({', '.join(names)}) FROM STDIN") as copy:
        for values in documents.values():
            copy.write_row(values)
    connection.execute(SET_DOCUMENTS)
    connection.commit()
    loaded = time.perf_counter()
    store.build_vector_index()
    build_postings(store)
    connection.commit()
    connection.autocommit = True
    connection.execute(f"VACUUM ANALYZE {store.collection.partition}")
    connection.execute("VACUUM ANALYZE documents, chunk_terms, chunk_segments, chunk_postings")
    connection.autocommit = False
    took = f"{loaded - began:.0f} s, HNSW in {time.perf_counter() - loaded:.0f} s"
    print(f"{len(records):,} chunks of {len(documents):,} documents in {took}", flush=True)
    return store


def typed(values: object) -> Condition:
    condition = parse_condition(values)
    assert condition is not None
    return condition


def paths(url: str, rows: int, count: int, workers: int, until: float) -> None:
    """Counts of filters whose results differ between paths; 0 is the target."""
    tally: Counter[str] = Counter()
    shares = [len(range(worker, count, workers)) for worker in range(workers)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        limits = ([url] * workers, [rows] * workers, [until] * workers)
        for part in pool.map(check_filters, *limits, shares, range(workers)):
            tally += part
    tell(tally)


def tell(tally: Counter[str]) -> None:
    number = tally["filters"]
    wrong = ", ".join(f"{name} {tally['wrong ' + name]}" for name in (*PATHS, "python", "auto"))
    took = ", ".join(f"{name} {tally['us ' + name] / number / 1000:.1f}" for name in PATHS)
    print(
        f"{number:,} random filters, {tally['narrow']:,} of which tell a sample apart; filters with a wrong result: "
        f"{wrong}; packed postings used for {tally['packed']:,}; "
        f"HNSW gave {tally['hits'] / max(1, tally['truths']):.4f} of the exact rows; mean ms: {took}",
        flush=True,
    )


def check_filters(url: str, rows: int, until: float, count: int, worker: int) -> Counter[str]:
    """The tally of so many filters, in a process of its own."""
    chance, tally = random.Random(f"filters {worker}"), Counter[str]()
    records, vectors = make_records(rows), make_vectors(rows, 1)
    keys, every = list(records), max(1, rows // SAMPLED)
    with psycopg.connect(url) as connection:
        store = Store(connection, "typed", Given(make_vectors(ASKED, 2)))
        drawn = fetch_all(connection, SAMPLED_IDS.format(chunks=store.collection.partition), {"every": every})
        ids, sample = [row[0] for row in drawn], {(row[1], row[2]) for row in drawn}
        for number in range(1, count + 1):
            if time.time() > until:
                break
            check_filter(chance, store, records, (ids, sample), tally)
            if number <= WHOLE:
                check_whole(store, records, keys, vectors, chance, tally)
            if number % TOLD == 0:
                print(f"process {worker}: ", end="")
                tell(tally)
    return tally


@contextmanager
def clock(tally: Counter[str], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    tally[f"us {name}"] += round((time.perf_counter() - began) * 1e6)


def check_filter(
    chance: random.Random,
    store: Store,
    records: Mapping[tuple[str, int], Record],
    sampled: tuple[list[int], set[tuple[str, int]]],
    tally: Counter[str],
) -> None:
    connection, condition, (ids, sample) = store.connection, typed(random_filter(chance)), sampled
    plan = RetrievePlan(k=K, candidate_pool=K, exact="never", filters=Filters(where=condition))
    query = f"{chance.randrange(ASKED)} {' '.join(chance.choices(VOCABULARY[:300], k=2))}"
    with connection.transaction():
        state = read_state(plan, store)
        assert store.embedder is not None
        vector = store.embedder.embed_query(query)
        sql = SAMPLE.format(chunks=store.collection.partition, passing=passing(plan, store))
        with clock(tally, "sample"):
            rows = fetch_all(connection, sql, scope(plan, store) | {"ids": ids})
        with clock(tally, "exact"):
            exact = vector_candidates(vector, plan, store, True)
        with clock(tally, "HNSW"):
            nearest = vector_candidates(vector, plan, store, False)
        words = read_query(query, store, state)
        with clock(tally, "keyword rows"):
            scanned = ranked(scanned_rows(words, plan, store), "lexical", "bm25", words.highest)
        with clock(tally, "packed"):
            pruned = pruned_rows(words.weights, words.chunks, words.vector, plan, store)
    tally["filters"] += 1
    expected = {key for key in sample if matches(condition, records[key])}
    tally["wrong sample"] += set(rows) != expected
    tally["narrow"] += 0 < len(expected) < len(sample)
    for name, found in (("exact", exact), ("HNSW", nearest), ("keyword rows", scanned)):
        tally[f"wrong {name}"] += not all(matches(condition, records[item.key]) for item in found)
    if pruned is not None:
        tally["packed"] += 1
        both = ranked(pruned, "lexical", "bm25", words.highest)
        tally["wrong packed"] += described(both) != described(scanned)
    tally["hits"] += len({item.key for item in exact} & {item.key for item in nearest})
    tally["truths"] += len(exact)


def check_whole(
    store: Store,
    records: Mapping[tuple[str, int], Record],
    keys: list[tuple[str, int]],
    vectors: Any,
    chance: random.Random,
    tally: Counter[str],
) -> None:
    """The exact list of one more filter beside one that is computed from all chunks in Python, and that of `auto`."""
    condition = typed(random_filter(chance))
    plan = RetrievePlan(k=K, candidate_pool=K, filters=Filters(where=condition))
    assert store.embedder is not None
    vector = store.embedder.embed_query(f"{chance.randrange(ASKED)}")
    with store.connection.transaction():
        exact = vector_candidates(vector, plan, store, True)
        chosen, is_exact = vector_list(vector, plan, store, read_state(plan, store))
    mask = np.array([matches(condition, records[key]) for key in keys])
    best = np.sort((vectors @ np.asarray(vector))[mask])[::-1][:K]
    scores = [item.score for item in exact]
    tally["wrong python"] += len(best) != len(scores) or not np.allclose(best, scores, atol=1e-5)
    tally["wrong auto"] += is_exact and described(chosen) != described(exact)


def described(candidates: list[Candidate]) -> list[tuple[Any, ...]]:
    return [(item.key, round(item.score, 4)) for item in candidates]


FILTERS: dict[str, Any] = {
    "metadata.number <": lambda most: {"field": "metadata.number", "op": "lt", "value": most},
    "slide < (attributes)": lambda most: {"field": "slide", "op": "lt", "value": most},
    "title, created_at": lambda most: {"and": [{"field": "title", "op": "exists"},
                                               {"field": "metadata.number", "op": "lt", "value": most},
                                               {"field": "created_at", "op": "gte", "value": "2024-02-28"}]},
}  # fmt: skip
EQUAL: dict[str, Any] = {
    "metadata.number =": {"field": "metadata.number", "op": "eq", "value": 7},
    "metadata.label =": {"field": "metadata.label", "op": "eq", "value": "label 7"},
    "metadata.label in 10": {"field": "metadata.label", "op": "in", "value": [f"label {n}" for n in range(10)]},
    "sheet = (attributes)": {"field": "sheet", "op": "eq", "value": "sheet 7"},
    "tags =": {"field": "tags", "op": "eq", "value": "tag 7"},
    "page = 3": {"field": "page", "op": "eq", "value": 3},
}


def latency(connection: psycopg.Connection[Any], store: Store, queries: int) -> None:
    modes = {"exact": {"mode": "vector", "exact": "always"}, "auto": {"mode": "vector"}, "keyword": {"mode": "lexical"}}
    print(
        f"\nmedian ms of {queries} searches, k {K}\n{'filter':26} {'passes':>7} " + "".join(f"{m:>10}" for m in modes)
    )
    unfiltered = [timed(connection, store, RetrievePlan(k=K, **mode), queries) for mode in modes.values()]  # type: ignore[arg-type]
    print(f"{'none':26} {'100 %':>7} " + "".join(f"{took:10.1f}" for took in unfiltered), flush=True)
    for name, make in FILTERS.items():
        for share, most in SHARES.items():
            filters = Filters(where=typed(make(most)))
            took = [
                timed(connection, store, RetrievePlan(k=K, filters=filters, **mode), queries)  # type: ignore[arg-type]
                for mode in modes.values()
            ]
            print(f"{name:26} {share:>7} " + "".join(f"{each:10.1f}" for each in took), flush=True)


def indexes(connection: psycopg.Connection[Any], store: Store, queries: int) -> None:
    """The same without the GIN indexes on the JSON columns: searches, bytes, and what writing takes."""
    after, writes = equal_times(connection, store, queries), written_ms(connection, store)
    names = {column: f"{store.collection.partition}_{column}" for column in ("metadata", "attributes")}
    sizes = [
        f"{column} {fetch_all(connection, SIZE, {'name': name})[0][0] / 1e6:.1f} MB" for column, name in names.items()
    ]
    for name in names.values():
        connection.execute(f"DROP INDEX {name}")
    connection.commit()
    before = equal_times(connection, store, queries)
    print(f"\nGIN jsonb_path_ops: {'; '.join(sizes)}")
    print(f"{CHANGED:,} chunks with new metadata: {written_ms(connection, store):.0f} ms without, {writes:.0f} ms with")
    print(f"{'filter':26} {'exact, without':>15} {'with':>8} {'keyword, without':>17} {'with':>8}  (median ms)")
    for name, one in before.items():
        print(f"{name:26} {one[0]:15.1f} {after[name][0]:8.1f} {one[1]:17.1f} {after[name][1]:8.1f}", flush=True)
    for column, name in names.items():
        connection.execute(f"CREATE INDEX {name} ON {store.collection.partition} USING gin ({column} jsonb_path_ops)")
    connection.commit()


def equal_times(connection: psycopg.Connection[Any], store: Store, queries: int) -> dict[str, list[float]]:
    taken = {}
    for name, values in EQUAL.items():
        filters = Filters(where=typed(values))
        plans = (
            RetrievePlan("vector", K, filters=filters, exact="always"),
            RetrievePlan("lexical", K, filters=filters),
        )
        taken[name] = [timed(connection, store, plan, queries) for plan in plans]
    return taken


def written_ms(connection: psycopg.Connection[Any], store: Store) -> float:
    """Changing the metadata of some chunks, rolled back."""
    sql = f"UPDATE {store.collection.partition} SET metadata = metadata || '{{\"more\": 1}}' WHERE id <= %s"
    ((first,),) = fetch_all(connection, f"SELECT min(id) FROM {store.collection.partition}")
    began = time.perf_counter()
    connection.execute(sql, [first + CHANGED - 1])
    took = (time.perf_counter() - began) * 1000
    connection.rollback()
    return took


def timed(connection: psycopg.Connection[Any], store: Store, plan: RetrievePlan, queries: int) -> float:
    """The median of the milliseconds."""
    took_ms = []
    for number in range(queries):
        query = f"{number} {VOCABULARY[number % 40 + 20]} {VOCABULARY[number % 90 + 100]}"
        began = time.perf_counter()
        with connection.transaction():
            retrieve(query, plan, store)
        took_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(took_ms)


if __name__ == "__main__":
    main()
