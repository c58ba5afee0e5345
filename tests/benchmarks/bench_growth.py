"""How search grows: medians and 99th percentiles of vector, lexical and hybrid retrieve() at three sizes.

Run: python -m tests.benchmarks.bench_growth [SIZE ...]      (10000 100000 1000000; multiples of 10,000)

Each size is a collection of its own in an embedded PostgreSQL under RAGD_VAR (var/growth), made on the first run and
kept for the next: a million chunks take 6 GB and, on two cores that are free, about a quarter of an hour. Texts,
vectors of 128 dimensions and questions come from tests/benchmarks/growth.py; k 12 from a pool of 50 per list. Up to
20,000 chunks every vector is compared, by the compact index first, and recall@12 beside a scan of the table is printed;
above that the HNSW index is used. The last lines compare the medians of the largest size with those of the smallest;
the target is at most 3 times.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from ragd import RetrievePlan, retrieve
from ragd.search.vector_search import vector_candidates
from ragd.store.store import Store, fetch_all
from ragd.types import Filters
from ragd_site import embedded
from tests.benchmarks.growth import TAGS, GivenEmbedder, load, make_queries, tune_builds

SIZES = (10_000, 100_000, 1_000_000)
DIMS = 128
QUESTIONS = 200
FILTERED_QUESTIONS = 40
MODES = ("vector", "lexical", "hybrid")
TARGET = 3.0

LOADED = """
SELECT s.chunk_count = %(size)s FROM collections c
JOIN chunk_stats s ON s.collection_id = c.id AND s.generation = c.generation
WHERE c.name = %(name)s
"""

BYTES = """
SELECT pg_table_size(%(table)s::regclass), pg_indexes_size(%(table)s::regclass),
       coalesce(pg_relation_size(to_regclass(%(vector_index)s)), 0),
       (SELECT coalesce(sum(length(postings) + 40), 0)
        FROM chunk_postings p JOIN chunk_segments s ON s.id = p.segment_id
        WHERE s.collection_id = %(collection_id)s),
       (SELECT count(*) FROM chunk_segments WHERE collection_id = %(collection_id)s)
"""


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or list(SIZES)
    var = Path(os.environ.get("RAGD_VAR", "var/growth")).resolve()
    queries = make_queries(2 * QUESTIONS, DIMS)
    url = embedded.ensure_running(var, fsync=False).url
    try:
        with psycopg.connect(url) as connection:
            medians = {size: measure(connection, url, size, queries) for size in sizes}
    finally:
        embedded.stop(var)
    for mode in MODES if len(sizes) > 1 else ():
        growth = medians[sizes[-1]][mode] / medians[sizes[0]][mode]
        print(f"{mode}: {sizes[-1]:,} chunks take {growth:.2f} times as long as {sizes[0]:,} (target: {TARGET:g})")


def measure(connection: psycopg.Connection, url: str, size: int, queries: dict[str, Any]) -> dict[str, float]:
    name = f"growth-{size}"
    print(f"\n{size:,} chunks", flush=True)
    ready = fetch_all(connection, "SELECT to_regclass('collections') IS NOT NULL")[0][0] and fetch_all(
        connection, LOADED, {"name": name, "size": size}
    )
    if not ready:
        took = load(connection, url, name, size, DIMS)
        print("  loaded, in seconds: " + ", ".join(f"{step} {value:.1f}" for step, value in took.items()), flush=True)
    store = Store(connection, name, GivenEmbedder(queries, DIMS))
    if size > store.exact_threshold and not store.state().vector_index:
        tune_builds(connection)
        began = time.perf_counter()
        store.build_vector_index()
        connection.commit()
        print(f"  HNSW index built in {time.perf_counter() - began:.1f} s", flush=True)
    connection.commit()
    if not ready:
        connection.autocommit = True
        connection.execute(f"VACUUM ANALYZE {store.collection.partition}")
        connection.execute("VACUUM ANALYZE chunk_terms, chunk_segments, chunk_postings")
        connection.autocommit = False
    print_bytes(connection, store, size)
    print(f"  {'mode':34} {'median':>12} {'99th':>12} {'calls':>6}")
    medians = {}
    for mode in MODES:
        plan = RetrievePlan(mode=mode)
        medians[mode] = report(mode, connection, store, plan, list(queries))
    if size <= store.exact_threshold:
        print(f"  recall@12 of vector beside a scan of the table {recall(connection, store, list(queries)):.4f}")
    for tag, step in TAGS.items():
        plan = RetrievePlan(mode="lexical", filters=Filters(tags_any=(tag,)))
        report(
            f"lexical, a filter of {100 / step:g} %", connection, store, plan, list(queries)[-2 * FILTERED_QUESTIONS :]
        )
    return medians


def print_bytes(connection: psycopg.Connection, store: Store, size: int) -> None:
    params = {
        "table": store.collection.partition,
        "vector_index": store.collection.vector_index,
        "collection_id": store.collection.id,
    }
    ((table, indexes, hnsw, postings, segments),) = fetch_all(connection, BYTES, params)
    total = table + indexes + int(postings)
    print(
        f"  bytes per chunk: {total / size:,.0f} (rows {table / size:,.0f}, HNSW {hnsw / size:,.0f}, other indexes "
        f"{(indexes - hnsw) / size:,.0f}, postings {int(postings) / size:,.0f} in {segments} segments)",
        flush=True,
    )


def report(
    label: str, connection: psycopg.Connection, store: Store, plan: RetrievePlan, questions: Sequence[str]
) -> float:
    half = len(questions) // 2  # the first half warms up: other questions, but the caches of a server in use
    for question in questions[:half]:
        timed(connection, store, plan, question)
    ordered = sorted(timed(connection, store, plan, question) for question in questions[half:])
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"  {label:34} {statistics.median(ordered):9.2f} ms {last:9.2f} ms {len(ordered):6}", flush=True)
    return statistics.median(ordered)


def recall(connection: psycopg.Connection, store: Store, questions: Sequence[str]) -> float:
    """The share of the nearest 12 chunks of a scan that compares each row of the table that retrieve() finds."""
    plan, found = RetrievePlan(mode="vector", candidate_pool=12), 0
    assert store.embedder is not None
    for question in questions:
        nearest = vector_candidates(store.embedder.embed_query(question), plan, store, True)
        found += len({each.key for each in nearest} & {each.key for each in retrieve(question, plan, store)})
        connection.commit()
    return found / (12 * len(questions))


def timed(connection: psycopg.Connection, store: Store, plan: RetrievePlan, question: str) -> float:
    began = time.perf_counter()
    retrieve(question, plan, store)
    connection.commit()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
