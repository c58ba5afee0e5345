"""Filtered vector search: recall@10 against the exact scan and latency, at four selectivities, exact auto and never.

Run: python -m benchmarks.bench_filters [--rows 100000] [--queries 50] [--kinds structured,random] [--rounds 5]

Filters are independent of the vectors, and correlated with them ("near"). Then REWRITTEN of the vectors are replaced,
some rounds long, and the recall without a filter is compared with that before.

"structured" vectors are near what embedding models give; "random" ones are equally far from each other, which no
graph can be searched for well, and are shown as the worst case. "auto" scans exactly up to the threshold, counting
what the filter lets through; "never" leaves it to the database, which may read few rows by their tags and sort them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import psycopg

from benchmarks.bench_peers import running_database
from benchmarks.vectors import SHARES, load, make_vectors
from ragd import RetrievePlan, index, retrieve
from ragd.store.store import Store
from ragd.types import Chunk, Exact, Filters

K = 10
TARGET = 0.98
REWRITTEN, REWRITTEN_TARGET = 0.05, 0.99


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--kinds", default="structured,random")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for kind in arguments.kinds.split(","):
            asked = make_vectors(kind, arguments.queries, seed=5)
            store = load(connection, kind, make_vectors(kind, arguments.rows, seed=1), asked)
            report(connection, store, arguments.queries)
            rewrite(connection, store, kind, arguments)


def rewrite(connection: psycopg.Connection[Any], store: Store, kind: str, arguments: argparse.Namespace) -> None:
    """Recall at the default ef_search before and after; vacuumed by the server itself, if it comes to it."""
    before = recall(connection, store, Filters(), "never", arguments.queries)[0]
    draw = np.random.default_rng(6)
    for number in range(arguments.rounds):
        places = draw.choice(arguments.rows, int(REWRITTEN * arguments.rows), replace=False)
        vectors = make_vectors(kind, len(places), seed=100 + number)
        chunks = [
            Chunk(f"d{place:07}", 0, f"chunk {place} of round {number}", 0, 1, embedding=vector)
            for place, vector in zip(places, vectors, strict=True)
        ]
        index(chunks, store)
        connection.commit()
    after = recall(connection, store, Filters(), "never", arguments.queries)[0]
    verdict = "met" if after >= REWRITTEN_TARGET * before else "MISSED"
    rounds = f"{arguments.rounds} rounds of {REWRITTEN:.0%} rewritten"
    print(f"  {rounds}: {before:.4f} to {after:.4f}, {after / before:.3f}  {verdict}", flush=True)


def report(connection: psycopg.Connection[Any], store: Store, queries: int) -> None:
    print(
        f"  {'filter lets through':20} {'exact':8} {'recall@10':>9} {'median':>10} {'exact scan':>12}  target {TARGET}"
    )
    for tag, share in {"": 1.0, **SHARES, **{f"near {tag}": share for tag, share in SHARES.items()}}.items():
        filters, near = Filters(tags_any=(tag,)) if tag else Filters(), "near " * tag.startswith("near")
        for exact in ("auto", "never"):
            found, took_ms, exact_ms = recall(connection, store, filters, exact, queries)
            verdict = "" if not tag else "met" if found >= TARGET else "MISSED"
            times = f"{took_ms:7.2f} ms {exact_ms:9.2f} ms"
            print(f"  {f'{near}{share:.1%}':20} {exact:8} {found:9.4f} {times}  {verdict}", flush=True)


def recall(
    connection: psycopg.Connection[Any], store: Store, filters: Filters, exact: Exact, queries: int
) -> tuple[float, float, float]:
    """(recall@K against the exact scan, median ms, median ms of the exact scan)."""
    truth, exact_ms = answers(connection, store, RetrievePlan("vector", K, filters=filters, exact="always"), queries)
    found, took_ms = answers(connection, store, RetrievePlan("vector", K, filters=filters, exact=exact), queries)
    hits = sum(len(set(right) & set(got)) for right, got in zip(truth, found, strict=True))
    return hits / sum(map(len, truth)), took_ms, exact_ms


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
