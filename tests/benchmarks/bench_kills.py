"""Kill -9 at seeded random moments during an ingest of 500 documents: of the worker, of PostgreSQL, of the web server.

Each of the three has a server of its own, under the real supervisor with the default lease; the embedder is a stub on
the loopback with a fixed latency. The worker is killed whole or by one process, and so is the web server while it
receives the files. Afterwards every document must be there once, with exactly the chunks and vectors that its text
gives when it is chunked afresh, and no job may be left waiting or running.

Run: python -m tests.benchmarks.bench_kills [worker|database|web] [documents] [kills]     (default: all three, 500)
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.faults import kills

DOCUMENTS = 500
SEED = 20


@dataclass(frozen=True)
class Target:
    """What is killed, how often, after which pauses, and how long the embedder takes so that the ingest lasts."""

    kill: Callable[[Any, random.Random], None]
    kills: int
    pauses_s: tuple[float, float]
    latency_s: float


TARGETS = {
    "worker": Target(kills.kill_worker, 20, (2.0, 8.0), 0.5),
    "database": Target(kills.kill_database, 10, (2.0, 8.0), 0.4),
    "web": Target(kills.kill_web, 10, (0.2, 4.0), 0.2),
}


def run(name: str, target: Target, documents: int, count: int) -> kills.Tally:
    draw, tally = random.Random(SEED), kills.Tally()
    made = kills.make_documents(documents, SEED)
    # so many kills may hit one file more often than a file may kill
    with kills.server_under_fire(kills.Latency(target.latency_s), RAGD_JOB_MAX_ATTEMPTS="25") as server:
        began = time.monotonic()
        uploading = threading.Thread(target=kills.upload_all, args=(server, made), kwargs={"slowly": name == "web"})
        uploading.start()
        if name != "web":
            uploading.join()
        kills.fire(server, target.kill, count, target.pauses_s, draw, tally)
        uploading.join()
        kills.wait_until_done(server, documents, tally)
        tally.took_s = time.monotonic() - began
        kills.compare(server, made, tally)
    return tally


def main() -> None:
    names = [sys.argv[1]] if len(sys.argv) > 1 else list(TARGETS)
    documents = int(sys.argv[2]) if len(sys.argv) > 2 else DOCUMENTS
    counts = {name: int(sys.argv[3]) if len(sys.argv) > 3 else TARGETS[name].kills for name in names}
    print(
        f"{'killed':<10}{'kills':>6}{'cut off':>9}{'documents':>11}{'done':>7}{'wrong':>7}{'most attempts':>15}"
        f"{'ran again: median, longest s':>30}{'all done, s':>13}"
    )
    with ThreadPoolExecutor(len(names)) as pool:  # side by side: most of the time passes in waiting
        runs = {name: pool.submit(run, name, TARGETS[name], documents, counts[name]) for name in names}
    verdicts = [report(name, each.result(), documents) for name, each in runs.items()]
    sys.exit(not all(verdicts))


def report(name: str, tally: kills.Tally, documents: int) -> bool:
    """Print one row and its targets; whether all is as it should be."""
    waits = sorted(tally.pick_up_s)
    times = f"{waits[len(waits) // 2]:.1f}, {waits[-1]:.1f}" if waits else "-"
    print(
        f"{name:<10}{tally.kills:>6}{tally.cut_off:>9}{documents:>11}{tally.states.get('succeeded', 0):>7}"
        f"{len(tally.wrong):>7}{tally.attempts:>15}{times:>30}{tally.took_s:>13.0f}"
    )
    for words in tally.wrong[:10]:
        print(f"    {words}")
    ok = not tally.wrong and tally.states == {"succeeded": documents}
    print(f"    {name}: all {documents} once and whole, none hanging: {'yes' if ok else 'NO'}   (target: yes)")
    if waits:
        print(f"    {name}: what was cut off ran again after {waits[-1]:.0f} s at most   (target: under 60)")
    return ok


if __name__ == "__main__":
    main()
