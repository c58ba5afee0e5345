"""What telemetry costs a hybrid search.

Run: python -m benchmarks.bench_overhead [documents [rounds]]     (needs RAGD_DATA/scifact)
Two web servers over one database, with telemetry and without (OTEL_SDK_DISABLED); they are asked in turns, a block of
searches each, so that what else the machine does falls on both; the writing of spans in the background, which falls
outside a request, shows in the processor time. The queries are different ones: nothing is cached.
What a search does when the span store takes nothing is tested (tests/faults/test_span_store.py).
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.scifact import JsonClient, ingest, load_scifact, timed
from tests.server import ROOT, Server, free_port, running_server, wait_until_healthy

DOCUMENTS = 500
ROUNDS = 30
BLOCK = 15
WARM_UP = 40


@contextmanager
def second_server(server: Server, **variables: str) -> Iterator[Server]:
    """Another web server over the same database."""
    port = free_port()
    environment = os.environ | {"RAGD_VAR": str(server.var), "PORT": str(port), "RAGD_LOG_LEVEL": "WARNING"} | variables
    command = [sys.executable, "-m", "gunicorn", "-c", "python:ragd_site.web", "ragd_site.wsgi"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(process, url, Path(os.devnull))
        yield replace(server, url=url, pid=process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def ask(server: Server, queries: Sequence[str]) -> list[float]:
    """Milliseconds of each search, over one connection. A search that is not answered ends the benchmark."""
    client = JsonClient(server)
    took_ms = [timed(client.search, query) for query in queries]
    client.connection.close()
    return took_ms


def report(name: str, took_ms: Sequence[float]) -> float:
    median = statistics.median(took_ms)
    print(f"{name:46} {median:8.2f} ms {max(took_ms):9.1f} ms {len(took_ms):6}", flush=True)
    return median


def web_cpu_s(parent: int) -> float:
    """Processor seconds so far of the gunicorn processes below `parent`, and of itself when it is one."""
    total = 0
    for pid in [parent, *Server("", "", Path(), parent).processes()]:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"gunicorn" in line:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def measure_ratio(server: Server, queries: Sequence[str], rounds: int) -> None:
    with second_server(server, OTEL_SDK_DISABLED="true") as without:
        for each in (server, without):
            ask(each, queries[:WARM_UP])
        on: list[float] = []
        off: list[float] = []
        ratios = []
        began = [web_cpu_s(each.pid) for each in (server, without)]
        for number in range(rounds):
            block = [queries[(number * BLOCK + place) % len(queries)] for place in range(BLOCK)]
            pairs = [(server, on), (without, off)]
            for each, times in pairs if number % 2 else reversed(pairs):
                times += ask(each, block)
            ratios.append(statistics.median(on[-BLOCK:]) / statistics.median(off[-BLOCK:]))
        time.sleep(3)  # what waits to be written is written
        cpu_ms = [
            (web_cpu_s(each.pid) - at) * 1000 / len(on) for each, at in zip((server, without), began, strict=True)
        ]
        ratio = report("telemetry on", on) / report("telemetry off", off)
    low, _, high = statistics.quantiles(ratios, n=4)
    print(
        f"processor time of the web server per search: {cpu_ms[0]:.1f} ms with, {cpu_ms[1]:.1f} ms without, "
        f"ratio {cpu_ms[0] / cpu_ms[1]:.3f}"
    )
    print(
        f"overhead: ratio of the medians {ratio:.3f}, half of the {rounds} rounds between {low:.3f} and {high:.3f}, "
        f"load of the machine {os.getloadavg()[0]:.1f}; target at most 1.10"
    )


def main() -> None:
    stated = [int(word) for word in sys.argv[1:]]
    documents, rounds = [*stated, *(DOCUMENTS, ROUNDS)[len(stated) :]]
    data = load_scifact("train")
    data.documents[documents:] = []
    queries = list(data.queries.values())
    with running_server(RAGD_WEB_WORKERS="1") as server:
        took_s = ingest(server, data)
        print(f"{len(data.documents)} documents ingested in {took_s:.0f} s; {os.cpu_count()} processors")
        print(f"{'hybrid search over HTTP, k 12, pool 50':46} {'median':>11} {'slowest':>12} {'calls':>6}")
        measure_ratio(server, queries, rounds)


if __name__ == "__main__":
    main()
