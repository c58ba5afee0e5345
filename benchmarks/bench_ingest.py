"""Thousands of Markdown files through the worker: documents and chunks per second, time outside the embedder, memory.

Run: python -m benchmarks.bench_ingest [files]     (default 3000, by name, of cpp-docs-md.tar.gz)
"""

from __future__ import annotations

import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator

from tests.server import Server, need_data, peak_memory_mb, running_server

BATCH = 100
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


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    files = read_files(count)
    with running_server() as server:
        server.call("POST", "/v1/collections", {"name": "cpp", "hybrid_enabled": True})
        began = time.monotonic()
        for first in range(0, len(files), BATCH):
            refused = [
                result for result in server.upload("cpp", files[first : first + BATCH]) if result["status"] != "queued"
            ]
            assert not refused, refused[:3]
        accepted_s = time.monotonic() - began
        worker_pids = [pid for pid, line in server.processes().items() if "celery" in line]
        peak = 0.0
        while True:
            states = Counter(str(job["state"]) for job in jobs(server, "cpp"))
            peak = max(peak, peak_memory_mb(worker_pids))
            if not states["queued"] and not states["running"]:
                break
            time.sleep(2)
        took_s = time.monotonic() - began
        finished = list(jobs(server, "cpp"))
        spent = {stage: sum(job["timings_ms"].get(stage, 0.0) for job in finished) for stage in STAGES}  # type: ignore[attr-defined]
        statistics = server.call("GET", "/v1/collections/cpp/statistics")
        restarts = set(worker_pids) - set(server.processes())
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
    print(f"{'peak memory of a worker process':36} {peak:9.0f} MB  (target: under 1,500)")
    print(f"{'worker processes that ended':36} {len(restarts):9}")


if __name__ == "__main__":
    main()
