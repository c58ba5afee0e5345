"""64 clients for a minute, and one search beside a minimal server that sends the same SQL.

Run: python -m benchmarks.bench_load [--clients 64] [--seconds 60] [--rounds 200]

load   a whole server of its own with ragd's documentation: 70 of 100 requests search, 20 ask (the answer of a model
       on the loopback, streamed), 10 upload a document. Printed are requests per second, percentiles, errors, how
       often a client was told to wait, and the server's memory, open files and database connections.
peer   searches by one client, in turns with a FastAPI server (installed into a folder of its own) that embeds the query
       and calls `ragd.retrieve` over the same database: no accounts, no run kept, no trace. Medians and their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load import COLLECTION, QUESTIONS, Usage, loaded_server, press, print_tally
from ragd_site import embedded
from tests.server import ROOT, Server, free_port

TARGET_RATIO = 1.3
WARM_S = 10.0
# with what they need that is not installed here anyway
PACKAGES = ("fastapi", "starlette", "uvicorn", "annotated-doc", "typing-inspection", "psycopg_pool")
MINIMAL = """
import os
import psycopg_pool
import ragd
from fastapi import FastAPI
from pydantic import BaseModel
from ragd.models.embedding import LocalEmbedder

pool = psycopg_pool.ConnectionPool(os.environ["DATABASE"], min_size=1, max_size=8, open=True)
embedder = LocalEmbedder()
app = FastAPI()


class Asked(BaseModel):
    query: str
    k: int = 8


@app.post("/search")
def search(asked: Asked):
    with pool.connection() as connection:
        store = ragd.Store(connection, "docs")
        store.use_embedder(embedder)
        found = ragd.retrieve(asked.query, ragd.RetrievePlan(k=asked.k), store)
    return {"results": [{"doc_id": each.doc_id, "chunk_index": each.chunk_index, "content": each.content,
                         "score": each.score, "metadata": each.metadata} for each in found]}
"""


def main() -> None:
    """--clients 0: no load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with loaded_server() as server:
        if options.rounds:
            measure_peer(server, options.rounds)
        if not options.clients:
            return
        press(server, options.clients, WARM_S)
        tally, usages = press(server, options.clients, options.seconds)
    print(f"\n== load: {options.clients} clients, {options.seconds:g} s")
    print_tally(tally, options.seconds)
    print_usage(usages)


def print_usage(usages: list[Usage]) -> None:
    first, last = usages[0], usages[-1]
    print(
        f"memory {first.memory_mb:.0f} to {last.memory_mb:.0f} MB ({last.memory_mb / first.memory_mb:.3f} times),"
        f" open files {first.handles} to {last.handles}, database connections {first.connections} to {last.connections}"
    )


def measure_peer(server: Server, rounds: int) -> None:
    """Both answer the same questions in turns."""
    with minimal_server(server) as (url, key):
        own = f"{server.url}/v1/collections/{COLLECTION}/search"
        times: dict[str, list[float]] = {"ragd": [], "minimal": []}
        for number in range(rounds + 10):
            question = QUESTIONS[number % len(QUESTIONS)]
            for name, address in (("ragd", own), ("minimal", url)):
                body = f'{{"query": "{question}", "k": 8}}'.encode()
                headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
                began = time.perf_counter()
                with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=60) as answer:
                    answer.read()
                if number >= 10:
                    times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(each) * 1000 for name, each in times.items()}
    ratio = medians["ragd"] / medians["minimal"]
    print(
        f"== one search: ragd {medians['ragd']:.1f} ms, minimal FastAPI server {medians['minimal']:.1f} ms:"
        f" {ratio:.2f} times, target at most {TARGET_RATIO:g}"
    )


@contextmanager
def minimal_server(server: Server) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        folder, port = Path(scratch), free_port()
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            scratch,
        ]
        subprocess.run([*pip, *PACKAGES], check=True)
        (folder / "minimal.py").write_text(MINIMAL)
        cluster = embedded.read_cluster(server.var)
        assert cluster is not None
        values = os.environ | {"DATABASE": cluster.url, "PYTHONPATH": f"{ROOT}:{scratch}"}
        command = [sys.executable, "-m", "uvicorn", "minimal:app", "--port", str(port), "--log-level", "warning"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=scratch, env=values, stdout=log, stderr=log)
        try:
            for _ in range(300):
                time.sleep(0.1)
                if process.poll() is not None:
                    sys.exit((folder / "log").read_text()[-2000:])
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=5).read()
                    break
                except OSError:
                    continue
            yield f"http://127.0.0.1:{port}/search", server.key
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
