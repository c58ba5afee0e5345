"""Filtered vector search: recall@10 against the exact scan and latency, at four selectivities, exact auto and never.

Run: python -m benchmarks.bench_filters [--rows 100000] [--queries 50] [--kinds structured,random] [--rounds 5]
     [--clients 1,4,16] [--seconds 10]

The lanes of retrieval-bench 0.1.0 over generated vectors. Filters are independent of the vectors, and correlated with
them ("near"). Clients, each a process, ask at once, without a filter and with one of a tenth; then again while somebody
writes the same vectors anew. Last, REWRITTEN of the vectors are replaced by others, some rounds long, and the recall
without a filter is compared with that before.

"structured" vectors are near what embedding models give; "random" ones are equally far from each other, which no
graph can be searched for well, and are shown as the worst case. "auto" scans exactly up to the threshold, counting
what the filter lets through; "never" leaves it to the database, which may read few rows by their tags and sort them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import psycopg

from benchmarks.bench_peers import running_database
from benchmarks.vectors import SHARES, Given, load, make_vectors
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
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for kind in arguments.kinds.split(","):
            asked = make_vectors(kind, arguments.queries, seed=5)
            store = load(connection, kind, make_vectors(kind, arguments.rows, seed=1), asked)
            report(connection, store, arguments.queries)
            for share in ("", "tenth"):
                press(url, kind, share, arguments)
            rewrite(connection, store, kind, arguments)


def press(url: str, kind: str, tag: str, arguments: argparse.Namespace) -> None:
    """So many clients at once, alone and beside a writer."""
    with psycopg.connect(url) as connection:
        store = Store(connection, kind, Given(make_vectors(kind, arguments.queries, seed=5)))
        truth, _ = answers(connection, store, plan_of(tag, "always"), arguments.queries)
    print(f"  {'clients':20} {'queries/s':>9} {'median':>10} {'95 %':>10} {'recall@10':>10} {'rewritten/s':>12}")
    for clients in map(int, arguments.clients.split(",")):
        for writes in (False, True):
            with ProcessPoolExecutor(clients + writes, get_context("spawn")) as pool:
                writer = pool.submit(write_anew, url, kind, arguments.rows, arguments.seconds) if writes else None
                started = [
                    pool.submit(ask_on, url, kind, tag, arguments.queries, arguments.seconds, first)
                    for first in range(clients)
                ]
                asked = [each for done in started for each in done.result()]
                written = writer.result() / arguments.seconds if writer else 0
            took = sorted(ms for _, ms, _ in asked)
            hits = sum(len(set(truth[number]) & set(found)) for number, _, found in asked)
            share = hits / sum(len(truth[number]) for number, _, _ in asked)
            name = f"{clients}, {tag or 'no filter'}" + ", written" * writes
            figures = f"{took[len(took) // 2]:7.2f} ms {took[int(0.95 * len(took))]:7.2f} ms {share:10.4f}"
            print(f"  {name:20} {len(asked) / arguments.seconds:9.1f} {figures} {written:12.0f}", flush=True)


def plan_of(tag: str, exact: Exact) -> RetrievePlan:
    return RetrievePlan("vector", K, filters=Filters(tags_any=(tag,)) if tag else Filters(), exact=exact)


def ask_on(url: str, kind: str, tag: str, queries: int, seconds: float, first: int) -> list[tuple[int, float, Any]]:
    """For so long: (number of the question, ms, ids found). first: the question that it begins with."""
    asked: list[tuple[int, float, Any]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        store = Store(connection, kind, Given(make_vectors(kind, queries, seed=5)))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            number = (first + len(asked)) % queries
            began = time.perf_counter()
            with connection.transaction():
                found = retrieve(str(number), plan_of(tag, "never"), store)
            asked.append((number, (time.perf_counter() - began) * 1000, [each.doc_id for each in found]))
    return asked


def write_anew(url: str, kind: str, rows: int, seconds: float) -> int:
    """Batches of documents with the vectors that they have, for so long; the number of rows."""
    draw, vectors, written = np.random.default_rng(8), make_vectors(kind, rows, seed=1), 0
    with psycopg.connect(url) as connection:
        store = Store(connection, kind, Given(vectors))
        tags = dict(connection.execute(f"SELECT doc_id, tags FROM {store.collection.partition}".encode()).fetchall())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ids = [f"d{place:07}" for place in draw.choice(rows, 20, replace=False)]
            chunks = [
                Chunk(
                    each, 0, f"chunk of turn {written}", 0, 1, tags=tuple(tags[each]), embedding=vectors[int(each[1:])]
                )
                for each in ids
            ]
            index(chunks, store)
            connection.commit()
            written += len(chunks)
    return written


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
