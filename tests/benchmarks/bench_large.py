"""One very large document through the worker: memory of every process that touches it, and time per stage.

100 MB of text with an embedder that takes the same short time for every request, and 10 MB with the local model. The
document is the Markdown files of cpp-docs-md.tar.gz one behind the other, as often as it takes, each copy with a
number in its heading so that no two chunks are equal. Memory is resident memory, sampled every 50 ms: of the worker
process over what it took before its first document, of the parser's process, the web process and the busiest
PostgreSQL backend without the shared buffers.

Run: python -m tests.benchmarks.bench_large [stub] [local] [MB]     (default: both)
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.server import ROOT, Server, free_port, need_data, running_server

MEGABYTE = 1_000_000
STUB_MB, LOCAL_MB = 100, 10
STUB_MODEL, STUB_DIMS, STUB_DELAY_S = "text-embedding-3-small", 1536, 0.02
SAMPLE_EVERY_S = 0.05
LOOK_FOR_PROCESSES_EVERY_S = 0.5
WAIT_S = 3600
LIMITS = {
    "RAGD_WORKER_PROCESSES": "1",
    "RAGD_WEB_WORKERS": "1",
    "RAGD_MAX_DOCUMENT_MB": "200",
    "RAGD_PARSE_MAX_CHARS": "200000000",
}
ROLES = {"worker": "celery", "parser": "parsing.child", "web": "gunicorn"}


def make_text(size: int) -> bytes:
    """The files of the archive, numbered copies, cut at `size` bytes; ASCII and other characters as they come."""
    files = []
    with tarfile.open(need_data("cpp-docs-md.tar.gz")) as archive:
        for member in archive:
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is not None:
                files.append((member.name, opened.read()))
    files.sort()
    text, copy = bytearray(), 0
    while len(text) < size:
        copy += 1
        for name, data in files:
            text += f"# {name}, copy {copy}\n\n".encode() + data + b"\n\n"
            if len(text) >= size:
                break
    return bytes(text[:size]).decode("utf-8", "ignore").encode()


@dataclass
class Memory:
    """Resident memory of a server's processes by role, MB. first: of each worker process before the document."""

    server: Server
    peak: dict[str, float] = field(default_factory=dict)
    stage: str = ""  # of the document's job, as far as it is known
    stopping: threading.Event = field(default_factory=threading.Event)

    def now(self, role: str, pids: dict[int, str]) -> float:
        return max((resident_mb(pid, role) for pid, its_role in pids.items() if its_role == role), default=0.0)

    def roles(self) -> dict[int, str]:
        """pid -> role. The database is no child of the supervisor: its processes are those of the cluster's parent."""
        lines = self.server.processes()
        found = {pid: role for pid, line in lines.items() for role, mark in ROLES.items() if mark in line}
        for listing in self.server.var.rglob("postmaster.pid"):
            parent = listing.read_text().split()[0]
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            found |= dict.fromkeys(map(int, children), "postgres")
        return found

    def watch(self) -> None:
        looked, pids = 0.0, {}
        while not self.stopping.wait(SAMPLE_EVERY_S):
            if time.monotonic() - looked > LOOK_FOR_PROCESSES_EVERY_S:
                pids, looked = self.roles(), time.monotonic()
            for role in set(pids.values()):
                now = self.now(role, pids)
                for name in (role, f"{role} {self.stage}"):
                    self.peak[name] = max(self.peak.get(name, 0.0), now)


def resident_mb(pid: int, role: str) -> float:
    """VmRSS; of PostgreSQL only what no other process shares."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    wanted = "RssAnon" if role == "postgres" else "VmRSS"
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(wanted)) / 1024


@contextmanager
def stub_embedder() -> Iterator[str]:
    """Its address; it runs in a process of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.bench_large", "serve", str(port)], cwd=ROOT)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


class Stub(BaseHTTPRequestHandler):
    """Answers every embedding request after the same time; a vector depends on the length of its text."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(STUB_DELAY_S)
        rows = [{"object": "embedding", "index": i, "embedding": vector(len(t))} for i, t in enumerate(body["input"])]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = json.dumps({"object": "list", "data": rows, "model": body["model"], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""


def vector(seed: int) -> str:
    numbers = np.random.default_rng(seed).standard_normal(STUB_DIMS).astype(np.float32)
    return base64.b64encode((numbers / np.linalg.norm(numbers)).tobytes()).decode()


def ingest(server: Server, name: str, text: bytes, memory: Memory | None = None) -> dict[str, Any]:
    """Upload one document and wait for its end; the job."""
    ((result),) = server.upload("large", [(name, text)])
    assert result["status"] == "queued", result
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        job: dict[str, Any] = server.call("GET", f"/v1/jobs/{result['job_id']}")
        if memory is not None:
            memory.stage = job["stage"]
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(0.25)
    raise TimeoutError(f"{name} was not done after {WAIT_S} s: {job}")


def measure(label: str, size: int, variables: dict[str, str]) -> None:
    text = make_text(size)
    with running_server(**LIMITS | variables) as server:
        server.call("POST", "/v1/collections", {"name": "large", "hybrid_enabled": True})
        memory = Memory(server)
        time.sleep(3)
        idle = {role: memory.now(role, memory.roles()) for role in ROLES}
        warm = ingest(server, "small.md", text[:2000])
        assert warm["state"] == "succeeded", warm
        used = memory.now("worker", memory.roles())
        watcher = threading.Thread(target=memory.watch)
        watcher.start()
        began = time.monotonic()
        job = ingest(server, "large.md", text, memory)
        took_s = time.monotonic() - began
        memory.stopping.set()
        watcher.join()
        left = memory.now("worker", memory.roles())
    print(f"{label}: {size / MEGABYTE:.0f} MB, {job['chunks_total']} chunks, {job['state']} {job['error'] or ''}")
    print(f"{'all done after':36} {took_s:9.1f} s")
    for stage, spent in job["timings_ms"].items():
        print(f"{'  ' + stage:36} {spent / 1000:9.1f} s")
    print(f"{'worker when idle, fresh':36} {idle['worker']:9.0f} MB")
    print(f"{'worker after a small document':36} {used:9.0f} MB")
    print(f"{'worker, peak':36} {memory.peak['worker']:9.0f} MB")
    print(f"{'worker, left behind':36} {left:9.0f} MB")
    over = memory.peak["worker"] - idle["worker"]
    print(f"{label + ', peak over the idle worker':36} {over:9.0f} MB  (target: under 600)")
    for stage in job["timings_ms"]:
        over = memory.peak.get(f"worker {stage}", 0.0) - idle["worker"]
        print(f"{'  over the idle worker, ' + stage:36} {over:9.0f} MB")
    for role in ("parser", "postgres", "web"):
        print(f"{role + ', peak':36} {memory.peak[role]:9.0f} MB")


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Stub).serve_forever()
        return
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()]
    parts = [word for word in sys.argv[1:] if not word.isdigit()] or ["stub", "local"]
    if "stub" in parts:
        with stub_embedder() as address:
            variables = {"EMBED_BASE_URL": address, "EMBED_API_KEY": "none", "RAGD_EMBED_MODEL": STUB_MODEL}
            variables |= {"RAGD_EMBED_DIMS": str(STUB_DIMS)}
            measure("stub embedder", (sizes or [STUB_MB])[0] * MEGABYTE, variables)
    if "local" in parts:
        measure("local embedder", (sizes or [LOCAL_MB])[0] * MEGABYTE, {})


if __name__ == "__main__":
    main()
