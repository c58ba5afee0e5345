"""What a swap of index generations costs those who search meanwhile.

Run: python -m tests.benchmarks.bench_generations [CHUNKS]      (20000)

Two generations of one collection (128 dimensions, a lexical index, no vector index, so that every search reads every
vector). Two threads, each with a connection of its own, open the store and search (hybrid, k = 12) without a pause:
first alone, then while the generations are swapped to and fro, a tenth of a second apart. Printed are the searches
with and without swaps, and each swap from its first statement to the end of its commit, waiting for searches included.
Everything goes through the library; the searches compete for the same two processors.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from ragd import RetrievePlan, index, retrieve
from ragd.store.generations import GenerationSpec, SwapBlocked, create_generation, open_generation, swap_generation
from ragd.store.schema import apply_schema
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import Chunk
from tests.benchmarks.bench_collections import DIMS, database, make_chunks
from tests.benchmarks.growth import MODEL, GivenEmbedder, make_queries

QUESTIONS = 100
SWAPS = 40
PAUSE_S = 0.1
THREADS = 2
BATCH = 2_000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    embedder = GivenEmbedder(make_queries(QUESTIONS, DIMS), DIMS)
    with tempfile.TemporaryDirectory() as folder, database(Path(folder)) as connection:
        apply_schema(connection)
        collection_id = create_collection(
            connection, name="swapped", embed_model=MODEL, embed_dims=DIMS, language="simple"
        )
        first = Store(connection, collection_id, embedder)
        spec = GenerationSpec(MODEL, DIMS, True, "simple", first.collection.policy)
        second = open_generation(
            connection, collection_id, create_generation(connection, collection_id, DIMS), spec, embedder
        )
        connection.commit()
        for store in (first, second):
            fill(connection, store, count)
        url = connection.info.dsn + f" password={connection.info.password}"
        print(f"{'':34} {'median':>12} {'99th':>12} {'longest':>12} {'calls':>6}")
        alone, _, _ = search_during(url, embedder, lambda: time.sleep(SWAPS * PAUSE_S))
        report("search, no swaps", alone)
        swaps: list[float] = []
        blocked: list[int] = []
        during, seen, short = search_during(
            url, embedder, lambda: swap(connection, collection_id, spec, swaps, blocked)
        )
        report(f"search, {SWAPS} swaps meanwhile", during)
        report("one swap", swaps)
        print(f"{len(blocked)} swaps had to be tried again; searches read {seen}; {short} had fewer than 12 results")


def fill(connection: psycopg.Connection[Any], store: Store, count: int) -> None:
    source: Iterator[tuple[str, Any]] = make_chunks()
    began = time.perf_counter()
    for base in range(0, count, BATCH):
        rows = islice(source, min(BATCH, count - base))
        index(
            [
                Chunk(f"d{base + number:08}", 0, text, 0, len(text), embedding=vector)
                for number, (text, vector) in enumerate(rows)
            ],
            store,
        )
        connection.commit()
    connection.autocommit = True
    connection.execute(f"VACUUM ANALYZE {store.collection.partition}")
    connection.autocommit = False
    took_s = time.perf_counter() - began
    print(f"generation {store.collection.generation}: {count} chunks written in {took_s:.1f} s", flush=True)


def search_during(url: str, embedder: GivenEmbedder, work: Any) -> tuple[list[float], dict[int, int], int]:
    """(milliseconds of each search, generation -> searches that read it, searches with fewer than k results)."""
    stop = threading.Event()
    took_ms: list[float] = []
    seen: dict[int, int] = {}
    short = [0]

    def look() -> None:
        with psycopg.connect(url) as connection:
            number, questions = 0, list(embedder.vectors)
            while not stop.is_set():
                began = time.perf_counter()
                store = Store(connection, "swapped", embedder)
                found = retrieve(questions[number % QUESTIONS], RetrievePlan(k=12), store)
                connection.commit()
                took_ms.append((time.perf_counter() - began) * 1000)
                generation = store.collection.generation
                seen[generation] = seen.get(generation, 0) + 1
                short[0] += len(found) < 12
                number += 1

    threads = [threading.Thread(target=look) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    work()
    stop.set()
    for thread in threads:
        thread.join()
    return took_ms, seen, short[0]


def swap(
    connection: psycopg.Connection[Any],
    collection_id: int,
    spec: GenerationSpec,
    took_ms: list[float],
    blocked: list[int],
) -> None:
    for number in range(SWAPS):
        began = time.perf_counter()
        while True:
            try:
                swap_generation(connection, collection_id, 2 - number % 2, spec)
                connection.commit()
                break
            except SwapBlocked:
                connection.rollback()
                blocked.append(number)
        took_ms.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_S)


def report(name: str, took_ms: Sequence[float]) -> None:
    ordered = sorted(took_ms)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{name:34} {statistics.median(ordered):9.2f} ms {last:9.2f} ms {ordered[-1]:9.2f} ms {len(ordered):6}",
        flush=True,
    )


if __name__ == "__main__":
    main()
