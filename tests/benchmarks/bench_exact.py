"""Exact scan against HNSW: where they cross, which sets EXACT_THRESHOLD; and a half-precision index beside a full one.

Run: python -m tests.benchmarks.bench_exact [--sizes 1000,2000,5000,10000,20000,50000] [--queries 100]

Structured vectors of 384 dimensions. Per size: median of retrieve() by the exact scan and through the index, and what
the index finds of the exact top 12. Then, at the largest size, an HNSW index over halfvec: bytes, build time, median
and recall beside those of the index over vector, by bare statements.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

from ragd import RetrievePlan
from ragd.store.store import EXACT_THRESHOLD, Store
from tests.benchmarks.bench_filters import answers
from tests.benchmarks.bench_peers import running_database
from tests.benchmarks.vectors import DIMS, load, make_vectors

K = 12
ACCEPTED_MS = 20.0

NEAREST = """
SELECT doc_id FROM {table} WHERE enabled
ORDER BY (embedding::{kind}({dims})) <=> %(vector)s::vector::{kind}({dims}) LIMIT 12
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1000,2000,5000,10000,20000,50000")
    parser.add_argument("--queries", type=int, default=100)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    asked = make_vectors("structured", arguments.queries, seed=5)
    vectors = make_vectors("structured", max(sizes), seed=1)
    with running_database() as (url, _), psycopg.connect(url) as connection:
        rows = []
        for size in sizes:
            store = load(connection, f"exact-{size}", vectors[:size], asked)
            truth, exact_ms = answers(connection, store, plan("always"), arguments.queries)
            found, index_ms = answers(connection, store, plan("never"), arguments.queries)
            rows.append((size, exact_ms, index_ms, recall(truth, found)))
        print(f"\n{'chunks':>8} {'exact':>10} {'HNSW':>10} {'recall@12':>10}")
        for size, exact_ms, index_ms, share in rows:
            print(f"{size:8,} {exact_ms:7.2f} ms {index_ms:7.2f} ms {share:10.4f}")
        slower = next((size for size, exact_ms, index_ms, _ in rows if exact_ms > index_ms), None)
        print(f"HNSW is faster from {slower:,} chunks on" if slower else "the exact scan is faster at every size")
        within = max((size for size, exact_ms, _, _ in rows if exact_ms <= ACCEPTED_MS), default=0)
        print(
            f"the exact scan takes at most {ACCEPTED_MS:g} ms up to {within:,}; EXACT_THRESHOLD is {EXACT_THRESHOLD:,}"
        )
        compare_halves(connection, store, asked, truth)


def plan(exact: Any) -> RetrievePlan:
    return RetrievePlan("vector", K, exact=exact)


def recall(truth: list[list[str]], found: list[list[str]]) -> float:
    return sum(len(set(right) & set(got)) for right, got in zip(truth, found, strict=True)) / sum(map(len, truth))


def compare_halves(connection: psycopg.Connection[Any], store: Store, asked: Any, truth: list[list[str]]) -> None:
    table, full = store.collection.partition, store.collection.vector_index
    began = time.perf_counter()
    connection.execute(f"CREATE INDEX halves ON {table} USING hnsw ((embedding::halfvec({DIMS})) halfvec_cosine_ops)")
    connection.commit()
    print(f"\nhalfvec index built in {time.perf_counter() - began:.1f} s")
    register_vector(connection)
    print(f"{'HNSW over':10} {'MB':>8} {'median':>10} {'recall@12':>10}")
    for kind, name in (("vector", full), ("halfvec", "halves")):
        ((size,),) = connection.execute("SELECT pg_relation_size(%s::regclass)", (name,)).fetchall()
        sql = NEAREST.format(table=table, kind=kind, dims=DIMS)
        found, took_ms = [], []
        for _ in range(2):  # the first round fills the caches
            found, took_ms = [], []
            for vector in asked:
                with connection.transaction():
                    connection.execute("SELECT set_config('hnsw.ef_search', '51', true)")
                    began = time.perf_counter()
                    rows = connection.execute(sql, {"vector": Vector(vector)}).fetchall()
                    took_ms.append((time.perf_counter() - began) * 1000)
                found.append([doc_id for (doc_id,) in rows])
        print(f"{kind:10} {size / 1e6:8.1f} {statistics.median(took_ms):7.2f} ms {recall(truth, found):10.4f}")


if __name__ == "__main__":
    main()
