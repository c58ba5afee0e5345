"""ragd beside bare SQL and beside LangChain, LlamaIndex and Haystack, on the same embedded PostgreSQL, in one run.

Run: python -m benchmarks.bench_peers [--rows 100000] [--peer-rows N] [--only load,words,vector,hybrid]

load     index() of given vectors (384 dimensions, random, unit length) into a new collection until the HNSW index is
         ready, beside a binary COPY of the very same rows, already encoded, into a bare table and the same index
         builds; and beside each peer, whose HNSW index is there from the start as its own set-up makes it. Then 5,000
         more rows into what is ready. --peer-rows: peers load fewer rows, and rates are compared.
words    the same once more into a collection that is hybrid too. The bare rows have their words parsed and weighed
         before, so this shows what the parsing costs.
vector   top 12 from a beam for a pool of 50, every query a random vector: medians beside the bare statement through
         psycopg with the same settings, and beside each peer with the same beam; recall@12 is against the exact scan.
hybrid   the test queries of SciFact (needs RAGD_DATA/scifact), beside the two bare statements for the same pools, and
         beside each peer's own hybrid search; with nDCG@10. Vectors are those of the local embedder, kept in a cache.

The peers are installed from requirements-peers.txt into a virtual environment of their own (benchmarks/peers.py)
and run in a process each; a query's vector comes from a look-up everywhere. Systems take turns, a few queries each, so
that all of them meet the same machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks import peer_rounds
from benchmarks.peers import NAMES, PeerProcess, peer_python
from ragd.store.tables import apply_schema
from ragd_site import embedded

TARGETS = {
    "load / bare COPY and builds": 1.3,
    "5,000 more / bare COPY": 1.15,
    "vector / bare SQL": 1.15,
    "hybrid / two bare statements": 1.15,
}


@contextmanager
def running_database() -> Iterator[tuple[str, Path]]:
    """An embedded PostgreSQL with the schema, and a folder; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        url = embedded.ensure_running(folder / "var").url
        try:
            with psycopg.connect(url) as connection:
                apply_schema(connection)
            yield url, folder
        finally:
            embedded.stop(folder / "var")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000, help="rows that ragd and bare COPY load")
    parser.add_argument("--peer-rows", type=int, help="rows that each peer loads (default: the same)")
    parser.add_argument("--more", type=int, default=5_000, help="rows added to what is ready")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--only", default="load,words,vector,hybrid", help="which parts, with commas")
    parser.add_argument("--peers", default=",".join(NAMES), help="which peers, with commas; none for ours and bare")
    arguments = parser.parse_args()
    arguments.peer_rows = arguments.peer_rows or arguments.rows
    return arguments


def write_random(folder: Path, rows: int, queries: int) -> None:
    """random.npy and random.json (rows), asked.npy and asked.json (queries)."""
    generator = np.random.default_rng(20)
    vocabulary = [f"word{number}" for number in range(5_000)]
    for name, count in (("random", rows), ("asked", queries)):
        vectors = generator.normal(size=(count, peer_rounds.DIMS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.save(folder / f"{name}.npy", vectors)
        words = generator.integers(0, len(vocabulary), (count, 40))
        texts = [f"{number}: " + " ".join(vocabulary[place] for place in row) for number, row in enumerate(words)]
        (folder / f"{name}.json").write_text(json.dumps(texts))


def print_ratio(name: str, ratio: float) -> None:
    target = next((value for key, value in TARGETS.items() if key == name), None)
    verdict = "" if target is None else f"   target {target}: {'met' if ratio <= target else 'MISSED'}"
    print(f"  {name:44} {ratio:6.2f}{verdict}", flush=True)


def main() -> None:
    arguments = read_arguments()
    parts, peers = arguments.only.split(","), [name for name in arguments.peers.split(",") if name]
    if unknown := set(peers) - set(NAMES):
        sys.exit(f"unknown peers {sorted(unknown)}; there are {', '.join(NAMES)}")
    if peers:
        peer_python()
    with running_database() as (url, folder), ExitStack() as stack:
        started: dict[str, Any] = {name: stack.enter_context(PeerProcess(name, url, folder)) for name in peers}
        connection = stack.enter_context(psycopg.connect(url))
        if "load" in parts or "vector" in parts:
            write_random(folder, arguments.rows + arguments.more, arguments.queries)
            report_load(peer_rounds.measure_load(connection, started, folder, arguments), arguments)
        if "vector" in parts:
            report_search("vector", peer_rounds.measure_vector(connection, started, folder, arguments))
            if peers and arguments.peer_rows != arguments.rows:
                print("  the peers hold fewer rows than ragd here, so their times and recall do not compare")
        if "hybrid" in parts:
            report_search("hybrid", peer_rounds.measure_hybrid(connection, started, folder, arguments))


def report_load(found: peer_rounds.Loaded, arguments: argparse.Namespace) -> None:
    rows, more = arguments.rows, arguments.more
    print(f"\nload: {rows:,} rows of {peer_rounds.DIMS} dimensions until the index is ready; {more:,} more")
    print(f"  {'':44} {'seconds':>8} {'rows/s':>8} {'more, s':>8}")
    for name, (seconds, count, seconds_more) in found.items():
        print(f"  {name:44} {seconds:8.1f} {count / seconds:8.0f} {seconds_more:8.2f}")
    ours, bare = found["ragd"], found["bare COPY, then the indexes"]
    print_ratio("load / bare COPY and builds", ours[0] / bare[0])
    print_ratio("5,000 more / bare COPY", ours[2] / bare[2])
    for key, name in NAMES.items():
        if key in found:
            faster = (ours[1] / ours[0]) / (found[key][1] / found[key][0])
            print(f"  ragd is {faster:.1f} times as fast as {name} (target 5: {'met' if faster >= 5 else 'MISSED'})")


def report_search(kind: str, found: dict[str, peer_rounds.Searched]) -> None:
    quality = "recall@12" if kind == "vector" else "nDCG@10"
    print(f"\n{kind}: top 12, pool 50, beam {peer_rounds.BEAM}; milliseconds")
    print(f"  {'':44} {'median':>8} {'99th':>8} {quality:>10}")
    medians = {name: statistics.median(each.took_ms) for name, each in found.items()}
    for name, each in found.items():
        last = sorted(each.took_ms)[int(len(each.took_ms) * 0.99)]
        print(f"  {name:44} {medians[name]:8.3f} {last:8.3f} {each.quality:10.4f}")
    if kind == "vector":
        print_ratio("vector / bare SQL", medians["ragd"] / medians["bare SQL"])
    else:
        print_ratio("hybrid / two bare statements", medians["ragd"] / medians["two bare statements"])
    for key, name in NAMES.items():
        if key in found:
            faster, better = medians[key] / medians["ragd"], found["ragd"].quality - found[key].quality
            is_ahead = faster > 1 and (kind == "vector" or better >= 0)
            told = f"ahead: {'met' if is_ahead else 'MISSED'}"
            if kind == "hybrid":
                told = f"nDCG@10 {better:+.4f}; {told}, twice as fast: {'met' if faster >= 2 else 'MISSED'}"
            print(f"  ragd is {faster:.2f} times as fast as {name} ({told})")


if __name__ == "__main__":
    main()
