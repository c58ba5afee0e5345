"""What 500 collections cost: searching one of them beside searching it alone, making one and deleting one.

Run: python -m tests.benchmarks.bench_collections [COLLECTIONS]      (500)

One collection of 2,000 chunks (128 dimensions) is searched while it is alone in the database, and again when it has
499 neighbours of 40 chunks each; then the neighbours are searched in turn, each for the first time in the connection,
and again. Everything goes through the library: create_collection(), index(), retrieve(), drop_collection().
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from ragd import RetrievePlan, index, retrieve
from ragd.store.schema import apply_schema
from ragd.store.store import Store
from ragd.store.tables import create_collection, drop_collection
from ragd.types import Chunk
from ragd_site import embedded
from tests.benchmarks.growth import BLOCK, MODEL, GivenEmbedder, block_texts, make_block, make_queries, make_vectors

DIMS = 128
LARGE, SMALL = 2_000, 40
QUESTIONS = 100
WARM_UP = 10
MODES = ("vector", "lexical", "hybrid")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    embedder = GivenEmbedder(make_queries(QUESTIONS, DIMS), DIMS)
    with tempfile.TemporaryDirectory() as folder, database(Path(folder)) as connection:
        apply_schema(connection)
        connection.commit()
        chunks = make_chunks()
        large, _ = make_collection(connection, embedder, "large", LARGE, chunks)
        settle(connection)
        print(f"{'':36} {'median':>12} {'99th':>12} {'calls':>6}")
        alone = {mode: search(connection, f"{mode}, alone", [large], mode) for mode in MODES}
        made = [make_collection(connection, embedder, f"small-{n}", SMALL, chunks) for n in range(count - 1)]
        settle(connection)
        among = {mode: search(connection, f"{mode}, one of {count}", [large], mode) for mode in MODES}
        neighbours = [store for store, _ in made]
        for label in ("first search in the connection", "again"):
            search(connection, f"hybrid, each neighbour, {label}"[:36], neighbours, "hybrid", warm_up=0)
        report("creating a collection", [took_ms for _, took_ms in made])
        sample = neighbours[:: max(1, len(neighbours) // 50)]
        report("deleting a collection", [timed(connection, lambda s=store: delete(connection, s)) for store in sample])
        for mode in MODES:
            print(f"{mode}: {among[mode] / alone[mode]:.2f} times the median of the same collection alone")


@contextmanager
def database(folder: Path) -> Iterator[psycopg.Connection]:
    folder.chmod(0o755)
    url = embedded.ensure_running(folder, fsync=False).url
    try:
        with psycopg.connect(url) as connection:
            yield connection
    finally:
        embedded.stop(folder)


def settle(connection: psycopg.Connection) -> None:
    """What autovacuum does some time after the writes."""
    connection.autocommit = True
    connection.execute("VACUUM ANALYZE")
    connection.autocommit = False


def make_chunks() -> Iterator[tuple[str, Any]]:
    """(text, vector), over and over again new ones."""
    for number in range(1_000):
        yield from zip(block_texts(make_block(number)), make_vectors((10, number), BLOCK, DIMS), strict=True)


def make_collection(
    connection: psycopg.Connection, embedder: GivenEmbedder, name: str, size: int, source: Iterator[tuple[str, Any]]
) -> tuple[Store, float]:
    """A collection of one-chunk documents and how long it took to make while it was empty, in ms."""
    values = {"embed_model": MODEL, "embed_dims": DIMS, "language": "simple"}
    took_ms = timed(connection, lambda: create_collection(connection, name=name, **values))
    store = Store(connection, name, embedder)
    chunks = [
        Chunk(f"d{number}", 0, text, 0, len(text), embedding=vector)
        for number, (text, vector) in enumerate(islice(source, size))
    ]
    index(chunks, store)
    connection.commit()
    return store, took_ms


def delete(connection: psycopg.Connection, store: Store) -> None:
    drop_collection(connection, store.collection.id)


def search(
    connection: psycopg.Connection, label: str, stores: list[Store], mode: Any, *, warm_up: int = WARM_UP
) -> float:
    """Every question to every store in turn (each store once when there are many); the median in ms."""
    plan = RetrievePlan(mode=mode)
    assert stores[0].embedder is not None
    questions = list(stores[0].embedder.vectors)  # type: ignore[attr-defined]
    calls = [(questions[n % len(questions)], stores[n % len(stores)]) for n in range(max(len(questions), len(stores)))]
    for question, store in calls[:warm_up]:
        timed(connection, lambda q=question, s=store: retrieve(q, plan, s))
    return report(label, [timed(connection, lambda q=q, s=s: retrieve(q, plan, s)) for q, s in calls])


def timed(connection: psycopg.Connection, call: Callable[[], object]) -> float:
    """Milliseconds of one call in a transaction of its own, the commit included."""
    began = time.perf_counter()
    call()
    connection.commit()
    return (time.perf_counter() - began) * 1000


def report(label: str, took_ms: list[float]) -> float:
    ordered = sorted(took_ms)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{label:36} {statistics.median(ordered):9.2f} ms {last:9.2f} ms {len(ordered):6}", flush=True)
    return statistics.median(ordered)


if __name__ == "__main__":
    main()
