"""What it costs to count a request of a limited key.

Run: python -m tests.benchmarks.bench_limits [--requests 2000] [--threads 8]

One thread counts for a key alone and for a key with its person; then threads count for one key, which is one row that
all of them wait for, and for a key each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        os.environ |= {"RAGD_VAR": folder, "RAGD_LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
        from ragd_site import embedded

        embedded.ensure_running(Path(folder))
        try:
            measure(arguments.requests, arguments.threads)
        finally:
            embedded.stop(Path(folder))


def measure(requests: int, threads: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    from collections_app.access_context import Access, Limit
    from collections_app.services.governance.limits import count_request

    def count(access: Access, times_ms: list[float]) -> None:
        for _ in range(requests):
            began = time.perf_counter()
            count_request(access)
            times_ms.append((time.perf_counter() - began) * 1000)

    def run(name: str, accesses: list[Access]) -> None:
        times: list[list[float]] = [[] for _ in accesses]

        def work(number: int) -> None:
            count(accesses[number], times[number])
            connection.close()

        workers = [threading.Thread(target=work, args=(number,)) for number in range(len(accesses))]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        took_s = time.perf_counter() - began
        every = sorted(each for own in times for each in own)
        p50, p95 = statistics.median(every), every[int(len(every) * 0.95)]
        print(f"{name:34} p50 {p50:6.3f} ms  p95 {p95:6.3f} ms  {len(every) / took_s:8.0f} requests/s")

    ample = 10**9
    run("one thread, a key", [Access(limits=(Limit("key:1", ample),))])
    run("one thread, a key and its person", [Access(limits=(Limit("key:1", ample), Limit("user:1", ample)))])
    run(f"{threads} threads, the same key", [Access(limits=(Limit("key:1", ample),))] * threads)
    run(f"{threads} threads, a key each", [Access(limits=(Limit(f"key:{n}", ample),)) for n in range(threads)])


if __name__ == "__main__":
    main()
