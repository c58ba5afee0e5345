"""Filtered vector search: recall@10 against the exact scan and latency, at four selectivities, exact auto and never.

Run: python -m benchmarks.bench_filters [--rows 100000] [--queries 50] [--kinds structured,random]

"structured" vectors are near what embedding models give; "random" ones are equally far from each other, which no
graph can be searched for well, and are shown as the worst case. "auto" scans exactly up to the threshold, counting
what the filter lets through; "never" leaves it to the database, which may read few rows by their tags and sort them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import psycopg

from benchmarks.bench_peers import running_database
from benchmarks.vectors import SHARES, load, make_vectors
from ragd import RetrievePlan, retrieve
from ragd.store.store import Store
from ragd.types import Filters

K = 10
TARGET = 0.95


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--kinds", default="structured,random")
    arguments = parser.parse_args()
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for kind in arguments.kinds.split(","):
            asked = make_vectors(kind, arguments.queries, seed=5)
            store = load(connection, kind, make_vectors(kind, arguments.rows, seed=1), asked)
            report(connection, store, arguments.queries)


def report(connection: psycopg.Connection[Any], store: Store, queries: int) -> None:
    print(
        f"  {'filter lets through':20} {'exact':8} {'recall@10':>9} {'median':>10} {'exact scan':>12}  target {TARGET}"
    )
    for tag, share in {"": 1.0, **SHARES}.items():
        filters = Filters(tags_any=(tag,)) if tag else Filters()
        truth, exact_ms = answers(
            connection, store, RetrievePlan("vector", K, filters=filters, exact="always"), queries
        )
        for exact in ("auto", "never"):
            plan = RetrievePlan("vector", K, filters=filters, exact=exact)
            found, took_ms = answers(connection, store, plan, queries)
            hits = sum(len(set(right) & set(got)) for right, got in zip(truth, found, strict=True))
            recall = hits / sum(map(len, truth))
            verdict = "" if not tag else "met" if recall >= TARGET else "MISSED"
            times = f"{took_ms:7.2f} ms {exact_ms:9.2f} ms"
            print(f"  {f'{share:.1%}':9} {exact:8} {recall:9.4f} {times}  {verdict}", flush=True)


def answers(
    connection: psycopg.Connection[Any], store: Store, plan: RetrievePlan, queries: int
) -> tuple[list[list[str]], float]:
    """Document ids per query, and the median of the milliseconds."""
    found, took_ms = [], []
    for number in range(queries):
        began = time.perf_counter()
        with connection.transaction():
            candidates = retrieve(str(number), plan, store)
        took_ms.append((time.perf_counter() - began) * 1000)
        found.append([candidate.doc_id for candidate in candidates])
    return found, statistics.median(took_ms)


if __name__ == "__main__":
    main()
