"""Thousands of Markdown files through the worker: documents and chunks per second, time outside the embedder, memory.

Run: python -m benchmarks.bench_ingest [files]     (default 3000, by name, of cpp-docs-md.tar.gz)
At the end one process embeds the same texts with the same model. Both ratios are printed: of seconds, and of processor
seconds of all processes of the server, the database among them, which other work on the machine hardly changes.
"""

from __future__ import annotations

import os
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg

from ragd.models.embedding import LocalEmbedder
from ragd_site import embedded
from tests.server import Server, descendants, need_data, peak_memory_mb, running_server

BATCH = 100
TEXTS = "SELECT CASE WHEN context = '' THEN content ELSE context || E'\\n' || content END FROM chunks"
# Looked at often and cheaply: asking the API would take a share of the processors that the ratios are about.
UNDER_WAY = "SELECT EXISTS (SELECT FROM ingest_jobs WHERE state IN ('queued', 'running'))"
STAGES = ("parse", "chunk", "embed", "store")


def read_files(count: int) -> list[tuple[str, bytes]]:
    """The first `count` files by name. They are read in the archive's order: seeking would decompress it again."""
    files = []
    with tarfile.open(need_data("cpp-docs-md.tar.gz")) as archive:
        for member in archive:
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is not None:
                files.append((member.name, opened.read()))
    return sorted(files)[:count]


def jobs(server: Server, collection: str) -> Iterator[dict[str, object]]:
    cursor = ""
    while True:
        page = server.call("GET", f"/v1/jobs?collection={collection}&limit=200{cursor}")
        yield from page["items"]
        if not page["next_cursor"]:
            return
        cursor = f"&cursor={page['next_cursor']}"


def cpu_s(server: Server) -> float:
    """Processor seconds so far of the server's processes, of its database, and of those of them that have ended."""
    cluster = embedded.read_cluster(server.var)
    database = embedded.postmaster_pid(cluster.data) if cluster else None
    ticks = 0
    for pid in {*descendants(server.pid, itself=True), *(descendants(database, itself=True) if database else ())}:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def embed_alone(texts: Sequence[str]) -> tuple[float, float]:
    """(seconds, processor seconds) of embedding them in this process, BATCH at a time."""
    embedder = LocalEmbedder()
    embedder.embed(["opens the model"])
    began, cpu = time.monotonic(), time.process_time()
    for first in range(0, len(texts), BATCH):
        embedder.embed(texts[first : first + BATCH])
    return time.monotonic() - began, time.process_time() - cpu


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    files = read_files(count)
    with running_server() as server:
        server.call("POST", "/v1/collections", {"name": "cpp", "hybrid_enabled": True})
        server.upload("cpp", [("warm.md", b"# Warm\n\nOpens the model.")])
        while any(job["state"] in ("queued", "running") for job in jobs(server, "cpp")):
            time.sleep(0.2)
        began, cpu = time.monotonic(), cpu_s(server)
        for first in range(0, len(files), BATCH):
            refused = [
                result for result in server.upload("cpp", files[first : first + BATCH]) if result["status"] != "queued"
            ]
            assert not refused, refused[:3]
        accepted_s = time.monotonic() - began
        worker_pids = [pid for pid, line in server.processes().items() if "celery" in line]
        peak = 0.0
        with psycopg.connect(server.database_url, autocommit=True) as connection:
            while next(connection.execute(UNDER_WAY))[0]:
                peak = max(peak, peak_memory_mb(worker_pids))
                time.sleep(0.2)
            took_s, used_s = time.monotonic() - began, cpu_s(server) - cpu
            texts = [row[0] for row in connection.execute(TEXTS).fetchall()]
        finished = list(jobs(server, "cpp"))
        states = Counter(str(job["state"]) for job in finished)
        spent = {stage: sum(job["timings_ms"].get(stage, 0.0) for job in finished) for stage in STAGES}  # type: ignore[attr-defined]
        statistics = server.call("GET", "/v1/collections/cpp/statistics")
        restarts = set(worker_pids) - set(server.processes())
    alone_s, alone_cpu_s = embed_alone(texts)  # when the server is gone, which works on after an ingest
    chunks = statistics["chunks"]
    outside = (spent["parse"] + spent["chunk"] + spent["store"]) / chunks
    print(f"files {len(files)}, documents {statistics['documents']}, chunks {chunks}, outcomes {dict(states)}")
    print(f"{'uploads accepted after':36} {accepted_s:9.1f} s")
    print(f"{'all ingested after':36} {took_s:9.1f} s")
    print(f"{'documents per second':36} {len(files) / took_s:9.1f}")
    print(f"{'chunks per second':36} {chunks / took_s:9.1f}")
    for stage in STAGES:
        print(f"{stage + ', ms per chunk':36} {spent[stage] / chunks:9.2f}")
    print(f"{'outside the embedder, ms per chunk':36} {outside:9.2f}   (target: at most 3)")
    print(f"{'seconds / embedding alone':36} {took_s / alone_s:9.2f}   (target: at most 1.2)")
    print(f"{'processor seconds / embedding alone':36} {used_s / alone_cpu_s:9.2f}   load {os.getloadavg()[0]:.1f}")
    print(f"{'peak memory of a worker process':36} {peak:9.0f} MB  (target: under 1,500)")
    print(f"{'worker processes that ended':36} {len(restarts):9}")


if __name__ == "__main__":
    main()
