"""64 clients for a minute, one search beside a minimal server that sends the same SQL, and threads that have files.

Run: python -m benchmarks.bench_load [--clients 64] [--seconds 60] [--rounds 200] [--threads 10000]

load   a whole server of its own with ragd's documentation: 70 of 100 requests search, 20 ask (the answer of a model
       on the loopback, streamed), 10 upload a document. Printed are requests per second, percentiles, errors, how
       often a client was told to wait, and the server's memory, open files and database connections.
peer   searches by one client, in turns with a FastAPI server (installed into a folder of its own) that embeds the query
       and calls `ragd.retrieve` over the same database: no accounts, no run kept, no trace. Medians and their ratio.
threads  a server with 10,000 threads that have a file each, and one with the same files of no thread, started in turns:
       a search of another collection, a start and a backup. Files and rows are copied inside the database.
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
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.load import COLLECTION, QUESTIONS, Usage, add_documents, loaded_server, press, print_tally
from benchmarks.scifact import timed
from tests.server import ROOT, Server, free_port, running_server

TARGET_RATIO = 1.3
WARM_S = 10.0
# with what they need that is not installed here anyway
PACKAGES = ("fastapi", "starlette", "uvicorn", "annotated-doc", "typing-inspection", "psycopg_pool")
OWN = "my-files-1-x"
KINDS, TURNS, TIMED = ("files", "threads"), 3, ("search", "start", "backup")
COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_name = %s AND column_name <> 'id' AND is_generated = 'NEVER' ORDER BY ordinal_position
"""
COPY_ROWS = """
INSERT INTO {table} ({columns})
SELECT {values} FROM {table} t, unnest(%(threads)s::uuid[], %(readers)s::bigint[]) AS each(thread, reader)
WHERE t.collection_id = 2 AND t.doc_id = 'seed.md'
"""
OF_THREAD = {"access": "ARRAY[reader]", "metadata": "jsonb_build_object('thread', thread)"}
MAKE_THREADS = """
INSERT INTO chat_threads (id, title, collection_ids, shared, rewrites, has_files, created_at, updated_at, user_id)
SELECT thread, 'A file', ARRAY[1], false, true, true, now(), now(), (SELECT min(id) FROM auth_user)
FROM unnest(%(threads)s::uuid[]) AS thread
"""
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
    """--clients 0: no load. --threads 0: none with files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=10_000)
    options = parser.parse_args()
    if options.threads:
        measure_threads(options.threads)
    if not options.clients and not options.rounds:
        return
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


def measure_threads(count: int) -> None:
    """Each ratio is of medians: of starts and backups over `TURNS`, of searches over all."""
    taken: dict[str, dict[str, list[float]]] = {
        name: {kind: [] for kind in KINDS} for name in ("search", "start", "backup")
    }
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        Path(scratch).chmod(0o755)
        for kind in KINDS:
            with running_server(Path(scratch) / kind) as server:
                copy_files(server, count, of_threads=kind == "threads")
        for kind in KINDS * TURNS:
            began = time.perf_counter()
            with running_server(Path(scratch) / kind) as server:
                taken["start"][kind].append((time.perf_counter() - began) * 1000)
                address = f"/v1/collections/{COLLECTION}/search"
                taken["search"][kind] += [
                    timed(server.call, "POST", address, {"query": each}) for each in QUESTIONS * 6
                ]
                taken["backup"][kind].append(timed(run_backup, server, Path(scratch) / f"{kind}-backups"))
    for name, times in taken.items():
        files, threads = (statistics.median(times[kind]) for kind in KINDS)
        print(
            f"{name} with {count:,} threads that have files: {threads:.1f} ms, with the files alone {files:.1f} ms:"
            f" {threads / files:.3f} times, target at most 1.05"
        )


def copy_files(server: Server, count: int, *, of_threads: bool) -> None:
    """Documents of `docs`, and so many files of a person, each of a thread of its own or of none."""
    add_documents(server)
    server.call("POST", "/v1/collections", {"name": OWN, "hybrid_enabled": True})
    (outcome,) = server.upload(OWN, [("seed.md", Path("docs/chunking.md").read_bytes()[:1500])])
    while server.call("GET", f"/v1/jobs/{outcome['job_id']}")["state"] != "succeeded":
        time.sleep(0.2)
    ids = [uuid.UUID(int=number << 66) for number in range(1, count + 1)]
    values = {"threads": ids, "readers": [-1 - (each.int >> 66) for each in ids]}
    own = {"doc_id": "'thread-' || thread || '/seed.md'"} | (OF_THREAD if of_threads else {})
    with psycopg.connect(server.database_url, autocommit=True) as connection:
        for table in ("documents", "chunks_c2_g1", "uploads"):
            names = [name for (name,) in connection.execute(COLUMNS, [table])]
            sources = ", ".join(own.get(name, f"t.{name}") for name in names)
            connection.execute(COPY_ROWS.format(table=table, columns=", ".join(names), values=sources), values)
        if of_threads:
            connection.execute(MAKE_THREADS, values)
        connection.execute("VACUUM ANALYZE")


def run_backup(server: Server, place: Path) -> None:
    """As an operator runs it; the key is made at the first."""
    key, environment = place.with_suffix(".key"), os.environ | {"RAGD_VAR": str(server.var)}
    backup = [["--at", str(place), "--key-file", str(key)]]
    for arguments in backup if key.exists() else [["key", str(key)], *backup]:
        command = [sys.executable, "manage.py", "ragd", "backup", *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)


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
        options = ["-qq", "--disable-pip-version-check", "--no-deps", "--target", scratch]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *PACKAGES], check=True)
        (folder / "minimal.py").write_text(MINIMAL)
        values = os.environ | {"DATABASE": server.database_url, "PYTHONPATH": f"{ROOT}:{scratch}"}
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
