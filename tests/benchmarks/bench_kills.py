"""Kill -9 at seeded random moments during an ingest of 500 documents: of the worker, of PostgreSQL, of the web server.

Each of the three has a server of its own, under the real supervisor with the default lease; the embedder is a stub on
the loopback with a fixed latency. The worker is killed whole or by one process, the web server too, while it receives the
files. Afterwards every document must be there once, with exactly the chunks and vectors that its text gives when it is
chunked afresh, and no job may be left waiting or running.

Run: python -m tests.benchmarks.bench_kills [worker|database|web] [documents] [kills]     (default: all three, 500)
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
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
    with kills.server_under_fire(target.latency_s, RAGD_JOB_MAX_ATTEMPTS="25") as server:
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
    failed = False
    print(
        f"{'killed':<10}{'kills':>6}{'cut off':>9}{'documents':>11}{'done':>7}{'wrong':>7}{'most attempts':>15}"
        f"{'ran again: median, longest s':>30}{'all done, s':>13}"
    )
    for name in names:
        target = TARGETS[name]
        tally = run(name, target, documents, int(sys.argv[3]) if len(sys.argv) > 3 else target.kills)
        waits = sorted(tally.pick_up_s) or [0.0]
        done = tally.states.get("succeeded", 0)
        print(
            f"{name:<10}{tally.kills:>6}{tally.cut_off:>9}{documents:>11}{done:>7}{len(tally.wrong):>7}"
            f"{tally.attempts:>15}{waits[len(waits) // 2]:>21.1f}, {waits[-1]:>7.1f}{tally.took_s:>13.0f}",
            flush=True,
        )
        for words in tally.wrong[:10]:
            print(f"    {words}")
        ok = not tally.wrong and tally.states == {"succeeded": documents}
        failed |= not ok
        print(f"    {name}: all {documents} once and whole, none hanging: {'yes' if ok else 'NO'}   (target: yes)")
        print(f"    {name}: what was cut off ran again after {waits[-1]:.0f} s at most   (target: under 60)")
    sys.exit(failed)


if __name__ == "__main__":
    main()
