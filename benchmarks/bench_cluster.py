"""Searches of one collection on one server, on a node of a Citus cluster, and spread over two nodes, in one run.

Run: python -m benchmarks.bench_cluster [--chunks 100000] [--questions 60] [--clients 8]     (needs Citus)

A coordinator and two nodes run on this machine. The same chunks (random unit vectors of 384 dimensions, words of a Zipf
distribution) are indexed three times: in the coordinator's database, where a search is that of one server, on one node,
and spread. The placements take turns with each question, and every question is asked once before, so that what is
measured is in memory. Printed are medians and 99th percentiles as multiples of the first, requests per second with
several clients, and in how many answers all three agree.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psycopg

from ragd.search.retrieval import retrieve
from ragd.store.indexing import index
from ragd.store.store import Store
from ragd.store.tables import apply_schema, create_collection
from ragd.types import Chunk, Placement, RetrievePlan
from tests.cluster import nodes

DIMS, WORDS, PER_DOCUMENT, BATCH = 384, 3000, 5, 5000
PLACEMENTS: tuple[Placement, ...] = ("local", "node", "spread")
TARGETS = {"node": 1.3, "spread": 1.8}
PLANS = {
    "vector": RetrievePlan(mode="vector", exact="never"),
    "vector, exact": RetrievePlan(mode="vector", exact="always"),
    "lexical": RetrievePlan(mode="lexical"),
    "hybrid": RetrievePlan(mode="hybrid"),
}
SECONDS = 8.0


class MadeEmbedder:
    """A random vector for each question, the same for the same one."""

    model, dims, system, window = "made", DIMS, "ragd.made", None
    server_address, server_port = None, None

    def embed(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> np.ndarray:
        return unit(np.random.default_rng(sum(text.encode()) * 7919 + len(text)))[0]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def unit(draw: np.random.Generator, rows: int = 1) -> np.ndarray:
    """(rows, DIMS), each of length 1."""
    vectors = draw.standard_normal((rows, DIMS), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def texts_of(draw: np.random.Generator, rows: int, count: int) -> list[str]:
    """That many texts of count words."""
    shares = 1 / np.arange(1, WORDS + 1)
    numbers = draw.choice(WORDS, (rows, count), p=shares / shares.sum())
    return [" ".join(f"w{number}" for number in row) for row in numbers]


def fill(connection: psycopg.Connection, placement: Placement, chunks: int) -> None:
    draw = np.random.default_rng(2)
    with connection.transaction():
        create_collection(
            connection, name=placement, embed_model="made", embed_dims=DIMS, placement=placement, language="simple"
        )
    store = Store(connection, placement, MadeEmbedder())
    for start in range(0, chunks, BATCH):
        rows = min(BATCH, chunks - start)
        made = []
        texts, vectors = texts_of(draw, rows, 40), unit(draw, rows)
        for number, text, vector in zip(range(start, start + rows), texts, vectors, strict=True):
            doc_id, place = f"d{number // PER_DOCUMENT}", number % PER_DOCUMENT
            made.append(Chunk(doc_id=doc_id, chunk_index=place, content=text, embedding=vector, start=0, end=len(text)))
        with connection.transaction():
            index(made, store)
    store.build_vector_index()
    connection.execute(f"VACUUM ANALYZE {store.collection.partition}")  # type: ignore[arg-type]


def search(connection: psycopg.Connection, placement: Placement, question: str, plan: RetrievePlan) -> list[str]:
    with connection.transaction():
        found = retrieve(question, plan, Store(connection, placement, MadeEmbedder()))
    return [f"{each.doc_id}#{each.chunk_index}" for each in found]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    if why := nodes.missing():
        sys.exit(why)
    nodes.build_engine()
    with tempfile.TemporaryDirectory(prefix="ragd-cluster-") as folder:
        Path(folder).chmod(0o755)
        cluster = nodes.Cluster(Path(folder))
        cluster.make()
        for server in (cluster.coordinator, *cluster.nodes):  # builds in memory, as an operator would let them
            for setting in ("maintenance_work_mem = '3GB'", "shared_buffers = '2GB'"):
                server.execute(f"ALTER SYSTEM SET {setting}")
            server.stop()
            server.start()
        try:
            measure(cluster.url, options.chunks, options.questions, options.clients)
        finally:
            cluster.stop()


def measure(url: str, chunks: int, count: int, clients: int) -> None:
    draw = np.random.default_rng(1)
    questions = texts_of(draw, count, 6)
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction():
            apply_schema(connection)
        for placement in PLACEMENTS:
            began = time.monotonic()
            fill(connection, placement, chunks)
            print(f"{placement}: {chunks:,} chunks with their indexes in {time.monotonic() - began:.0f} s", flush=True)
        print(f"\n{'':14} {'':7} {'median':>10} {'':>6} {'99th':>10} {'':>6} {'same answers':>14}")
        for name, plan in PLANS.items():
            times, found = defaultdict(list), defaultdict(list)
            for question in questions:
                for placement in PLACEMENTS:
                    search(connection, placement, question, plan)
            for question in questions:
                for placement in PLACEMENTS:
                    began = time.perf_counter()
                    found[placement].append(search(connection, placement, question, plan))
                    times[placement].append((time.perf_counter() - began) * 1000)
            _print(name, times, found)
    for name in ("vector", "lexical", "hybrid"):
        rates = {placement: throughput(url, placement, questions, PLANS[name], clients) for placement in PLACEMENTS}
        words = ", ".join(f"{placement} {rate:.0f}" for placement, rate in rates.items())
        print(f"{name}: searches per second with {clients} clients: {words}", flush=True)


def _print(name: str, times: dict[Placement, list[float]], found: dict[Placement, list[list[str]]]) -> None:
    base = times["local"]
    for placement in PLACEMENTS:
        own = times[placement]
        median, high = statistics.median(own), float(np.quantile(own, 0.99))
        ratio, high_ratio = median / statistics.median(base), high / float(np.quantile(base, 0.99))
        same = sum(one == other for one, other in zip(found["local"], found[placement], strict=True))
        target = f"   target at most {TARGETS[placement]:g} times" if placement in TARGETS else ""
        print(
            f"{name:14} {placement:7} {median:7.1f} ms {ratio:6.2f} {high:7.1f} ms {high_ratio:6.2f}"
            f" {same:7} of {len(own)}{target}",
            flush=True,
        )


def throughput(url: str, placement: Placement, questions: list[str], plan: RetrievePlan, clients: int) -> float:
    counts, ends = [0] * clients, time.monotonic() + SECONDS

    def work(number: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while time.monotonic() < ends:
                search(connection, placement, questions[counts[number] % len(questions)], plan)
                counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


if __name__ == "__main__":
    main()
