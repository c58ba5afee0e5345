"""The span store with a million spans: what the pages of the explorer take, bytes per span, and half of them deleted.

Run: python -m tests.benchmarks.bench_spans [SPANS]      (1000000; needs RAGD_DATA/scifact)

The store lies in an embedded PostgreSQL under RAGD_VAR (var/spans), is made on the first run and kept for the next:
a million spans take 5 GB and, on two cores that are free, some minutes (tests/benchmarks/span_load.py
says how they are made). RAGD_LOAD_S bounds the seconds that one run loads; the next goes on.

Pages are asked for through Django's test client, log-in, session, view and template included, each ROUNDS times with
other values; the first is not counted. "deep" begins behind many thousand newer spans. The deletion runs in a process
of its own, as the worker does it, while this one asks for pages, reads traces and writes spans as a web server does,
one after the other; another session looks every 2 ms for who waits for a
lock. What was deleted is loaded again by the next run.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

from tests.benchmarks.span_load import COLLECTIONS, DAYS, KEYS, MODELS, RARE_WORDS, load, prepare, vocabulary

SPANS = 1_000_000
ROUNDS = 9
PAGE_TARGET_MS = 300
WAIT_TARGET_MS = 200
SIZES = """
SELECT sum(pg_relation_size(c.oid))::bigint, sum(pg_relation_size(c.reltoastrelid))::bigint,
       sum(pg_total_relation_size(c.oid))::bigint
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'spans'::regclass
"""
INDEX_SIZES = r"""
SELECT regexp_replace(p.relname, '^spans_', ''), sum(pg_relation_size(c.oid))::bigint
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
WHERE p.relkind = 'I' AND p.relname LIKE 'spans\_%' GROUP BY 1 ORDER BY 2 DESC
"""
# a session of the application names itself "ragd ..."; the deletion does not, see DELETE_HALF
WAITING = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart)) * 1000, 0)
FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.application_name <> 'ragd-deletion'
"""
DELETE_HALF = """
import django; django.setup()
from django.db import connection
connection.cursor().execute("SET application_name = 'ragd-deletion'")
from evaluation_app.spans.store.partitions import maintain
print(maintain(keep_days={days}, max_mb=0))
"""


def main() -> None:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else SPANS
    var = Path(os.environ.get("RAGD_VAR", "var/spans")).resolve()
    url = prepare(var)
    until_s = time.monotonic() + float(os.environ.get("RAGD_LOAD_S", "inf"))
    if not load(url, total, until_s=until_s):
        sys.exit("The time for loading is over; run again to go on.")
    from ragd_site import embedded

    try:
        print_sizes(url)
        measure_pages()
        measure_deletion(url)
    finally:
        from django.db import connections

        connections.close_all()
        embedded.stop(var)


def print_sizes(url: str) -> None:
    with psycopg.connect(url) as connection:
        count = connection.execute("SELECT count(*) FROM spans").fetchone()[0]
        rows, outside, whole = connection.execute(SIZES).fetchone()
        indexes = connection.execute(INDEX_SIZES).fetchall()
    print(f"\n{count:,} spans over {DAYS} days")
    print(
        f"  bytes per span: {whole / count:,.0f} (rows {rows / count:,.0f}, long values {outside / count:,.0f}, "
        f"indexes {(whole - rows - outside) / count:,.0f})"
    )
    print("  of the indexes: " + ", ".join(f"{name} {size / count:,.0f}" for name, size in indexes), flush=True)


def measure_pages() -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    from evaluation_app.pages.overview.rollups import roll_up

    began = time.perf_counter()
    hours = roll_up(everything=True)
    print(f"  added up by the hour: {hours} hours in {time.perf_counter() - began:.1f} s", flush=True)
    visitor = Client()
    visitor.force_login(User.objects.get_or_create(username="bench")[0])
    draw = random.Random(9)
    print(f"\n  {'page':44} {'median':>9} {'longest':>9}   (target: median at most {PAGE_TARGET_MS} ms)")
    medians = {}
    for name, address in addresses(draw).items():
        times = []
        for _ in range(ROUNDS + 1):
            path = address()
            began = time.perf_counter()
            answer = visitor.get(path)
            times.append((time.perf_counter() - began) * 1000)
            assert answer.status_code == 200, (path, answer.status_code)
        medians[name] = statistics.median(times[1:])
        print(f"  {name:44} {medians[name]:6.0f} ms {max(times[1:]):6.0f} ms", flush=True)
    slowest = max(medians, key=lambda name: medians[name])
    print(
        f"  slowest page at the median: {slowest}, {medians[slowest]:.0f} ms; median of all pages "
        f"{statistics.median(medians.values()):.0f} ms (target: at most {PAGE_TARGET_MS})"
    )


def addresses(draw: random.Random) -> dict[str, Callable[[], str]]:
    from django.urls import reverse

    from evaluation_app.spans.search.search import SpanFilter, search_spans

    words = vocabulary()
    explorer = reverse("evaluation:spans")

    def page(**given: Any) -> str:
        return f"{explorer}?{urlencode(given, doseq=True)}"

    def rare() -> str:
        return f"w{draw.randint(2_000, RARE_WORDS)}"

    def span_page() -> str:
        span = draw.choice(search_spans(SpanFilter(types=("aitf.rag.retrieve",)), limit=500).spans)
        return reverse("evaluation:span", args=[span.trace_id, span.span_id])

    def deep(**given: Any) -> str:
        from evaluation_app.spans.search.search import parse_filter

        cursor = None
        for _ in range(2):
            cursor = search_spans(parse_filter(given), cursor, 500).next_cursor or cursor
        return page(cursor=cursor or "", **given)

    def deepest() -> str:
        from datetime import timedelta

        from django.utils import timezone

        moment = timezone.now() - timedelta(days=draw.uniform(5, 28))
        cursor = search_spans(SpanFilter(until=moment), None, 50).next_cursor
        return page(cursor=cursor or "")

    return {
        "overview": lambda: reverse("evaluation:traces"),
        "overview, 30 days by key": lambda: reverse("evaluation:traces") + "?period=30d&by=key",
        "overview, one collection, last hour": lambda: (
            f"{reverse('evaluation:traces')}?period=1h&collection={COLLECTIONS[0]}"
        ),
        "queries and ingests": lambda: reverse("evaluation:trace-list"),
        "spans, no filter": page,
        "spans, deep (half of all before it)": deepest,
        "type": lambda: page(type=draw.choice(["aitf.rag.retrieve", "gen_ai.inference", "rag.fuse", "ragd.ingest"])),
        "type, deep": lambda: deep(type="aitf.rag.rerank"),
        "collection, model and key": lambda: page(
            collection=draw.choice(COLLECTIONS[:8]), model=draw.choice(MODELS), api_key=draw.choice(KEYS)
        ),
        "failed": lambda: page(status="error"),
        "failed, of one rare collection": lambda: page(status="error", collection=COLLECTIONS[-1]),
        "slower than 2 s": lambda: page(min_ms=2000),
        "seven days of one collection": lambda: page(since="7d", collection=draw.choice(COLLECTIONS[:8])),
        "a common word": lambda: page(text=f"w{draw.randint(1, 4)}"),
        "a rare word": lambda: page(text=rare()),
        "two words, one rare": lambda: page(text=f"w1 {rare()}"),
        "a word that is nowhere": lambda: page(text="xylophonist"),
        "a beginning of words": lambda: page(text=f"{rare()[:4]}*"),
        "attribute equals, common": lambda: page(attr=f"gen_ai.request.model:eq:{draw.choice(MODELS)}"),
        "attribute equals, rare": lambda: page(attr=f"aitf.rag.retrieve.results_count:eq:{draw.randint(100, 999)}"),
        "attribute greater, common": lambda: page(attr="gen_ai.usage.input_tokens:gt:100"),
        "attribute greater, of one type": lambda: page(type="chat", attr="gen_ai.usage.output_tokens:gt:10"),
        "attribute contains, of one day": lambda: page(since="48h", attr=f"input.value:contains:{words[50]}"),
        "kind == 'RETRIEVER' and latency_ms > 500": lambda: page(where="kind == 'RETRIEVER' and latency_ms > 500"),
        "cost_usd > 0.001 and status == 'error'": lambda: page(where="cost_usd > 0.001 and status == 'error'"),
        "one span's page": span_page,
    }


class LockWatch:
    """Looks for sessions that wait for a lock, but for the deletion's own, as long as it is open."""

    def __init__(self, url: str) -> None:
        self.url, self.longest_ms = url, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> LockWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self._over.wait(0.002):
                row = connection.execute(WAITING).fetchone()
                self.longest_ms = max(self.longest_ms, float(row[0]) if row else 0.0)


def measure_deletion(url: str) -> None:
    """Half of the days go, and requests are answered meanwhile."""
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    from evaluation_app.models import Span

    visitor = Client()
    visitor.force_login(User.objects.get(username="bench"))
    newest = list(Span.objects.filter(type="aitf.rag.pipeline").order_by("-started_at", "-id").only("trace_id")[:200])
    draw = random.Random(3)
    writer = psycopg.connect(url, autocommit=True)

    def ask(name: str) -> float:
        began = time.perf_counter()
        if name == "write":
            writer.execute(
                "INSERT INTO spans (trace_id, span_id, name, kind, started_at, ended_at, duration_ms) "
                "SELECT 'bench', 'bench', 'bench', 'INTERNAL', now(), now(), 0 FROM generate_series(1, 50)"
            )
        elif name == "trace":
            visitor.get(reverse("evaluation:trace", args=[draw.choice(newest).trace_id]))
        else:
            visitor.get(reverse("evaluation:spans"), {"type": "aitf.rag.retrieve"})
        return (time.perf_counter() - began) * 1000

    def rounds(running: Callable[[], bool]) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {"write": [], "trace": [], "spans": []}
        while running():
            for name, found in times.items():
                found.append(ask(name))
        return times

    for name in ("write", "trace", "spans"):
        ask(name)
    until = time.monotonic() + 8
    before = rounds(lambda: time.monotonic() < until)
    began = time.monotonic()
    code = DELETE_HALF.format(days=DAYS // 2)
    with (
        LockWatch(url) as watch,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process,
    ):
        during = rounds(lambda: process.poll() is None)
        assert process.stdout is not None
        said = process.stdout.read().strip()
    print(f"\n  deletion of half: {said} in {time.monotonic() - began:.1f} s (start of the process included)")
    print(f"  {'request':8} {'before':>22} {'while half goes':>24}   (median, longest)")
    for name, usual in before.items():
        found = during[name]
        print(
            f"  {name:8} {statistics.median(usual):8.1f} {max(usual):8.1f} ms   "
            f"{statistics.median(found):8.1f} {max(found):8.1f} ms  {len(found):5} requests"
        )
    waits = {name: max(during[name]) - statistics.median(before[name]) for name in before}
    worst = max(waits, key=lambda name: waits[name])
    print(f"  longest request: {waits[worst]:.0f} ms over the usual median ({worst}), whatever else the machine does")
    print(
        f"  longest wait for a lock while half is deleted: {watch.longest_ms:.0f} ms, looked for every 2 ms "
        f"(target: at most {WAIT_TARGET_MS})"
    )
    writer.execute("DELETE FROM spans WHERE trace_id = 'bench'")
    writer.close()


if __name__ == "__main__":
    main()
