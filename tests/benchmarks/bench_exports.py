"""Downloads of spans: how fast they are, how much memory they take, and how long the evidence report takes.

Real spans of searches with reranking and of answers are multiplied in the database until there are 10,000. A process of
its own writes each format over 1,000 and over all of them; "more memory" is the difference of the two peaks. The
evidence report is made over the newest 1,000 of each type, as its page does, and over all.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from tests.benchmarks.server import ROOT, Server, running_server

COLLECTION = "ragd-docs"
SPANS = 10_000
FEW = 1_000
FORMATS = ("otlp", "otlp-lines", "openinference", "ocsf")
QUESTIONS = ("How are citations checked?", "What is a generation?", "How does reranking work?", "Who may read spans?")
MULTIPLY = """
INSERT INTO spans (trace_id, span_id, parent_span_id, name, kind, scope, service, started_at, ended_at, duration_ms,
    status_code, status_description, collection, run_id, attributes, events, links, type, oi_kind, model, api_key,
    input_tokens, output_tokens, cost_usd, risk_score, words)
SELECT md5(trace_id || n), left(md5(span_id || n), 16), left(md5(parent_span_id || n), 16), name, kind, scope, service,
    started_at - n * interval '1 second', ended_at - n * interval '1 second', duration_ms, status_code,
    status_description, collection, md5(run_id::text || n)::uuid, attributes, events, links, type, oi_kind, model,
    api_key, input_tokens, output_tokens, cost_usd, risk_score, words
FROM spans, generate_series(1, %(times)s) AS n WHERE collection = %(collection)s
"""
WRITE = """
import resource, sys
from django.core.management import call_command
import django
django.setup()
call_command("ragd", "export-spans", sys.argv[1], "--format", sys.argv[2], "--limit", sys.argv[3], "--force",
             "--collection", sys.argv[4])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
REPORT = """
import sys, time
import django
django.setup()
from datetime import timedelta
from django.utils import timezone
from evaluation_app.spans.evidence.report import LOOKED_AT, build_report
from evaluation_app.spans.evidence.tallies import Range
wanted = Range(timezone.now() - timedelta(days=2), timezone.now())
began = time.perf_counter()
report = build_report(wanted, limit=LOOKED_AT if sys.argv[1] == "newest" else None)
print(report.looked_at, len(report.gaps), round(1000 * (time.perf_counter() - began)))
"""


def fill(server: Server) -> int:
    """The number of spans of the collection that are there in the end."""
    for question in QUESTIONS:
        body = {"query": question, "k": 10, "rerank": "builtin", "candidate_pool": 30}
        server.call("POST", f"/v1/collections/{COLLECTION}/search", body)
        server.call("POST", f"/v1/collections/{COLLECTION}/ask", {"query": question})
    time.sleep(3)  # spans are written about once a second
    with psycopg.connect(database_url(server), autocommit=True) as connection:
        count = "SELECT count(*) FROM spans WHERE collection = %s"
        row = connection.execute(count, [COLLECTION]).fetchone()
        times = SPANS // (row[0] if row else 1)
        connection.execute(MULTIPLY, {"times": times, "collection": COLLECTION})
        connection.execute("ANALYZE spans")
        row = connection.execute(count, [COLLECTION]).fetchone()
        return int(row[0]) if row else 0


def database_url(server: Server) -> str:
    from ragd_site import embedded

    known = embedded.read_cluster(server.var)
    assert known is not None
    return str(known.url)


def run(server: Server, program: str, *arguments: str) -> list[str]:
    variables = os.environ | {"RAGD_VAR": str(server.var), "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    variables.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return done.stdout.split()


def main() -> None:
    with running_server(RAGD_SAMPLE="on") as server, tempfile.TemporaryDirectory() as folder:
        total = fill(server)
        path = Path(folder) / "spans"
        print(f"{total:,} spans of one collection")
        print(
            f"{'format':<14} {'spans/s':>9} {'MB':>7} {'peak MB':>8} {'more memory than for ' + format(FEW, ','):>32}"
        )
        for form in FORMATS:
            peaks = []
            for limit in (FEW, total):
                began = time.perf_counter()
                peaks.append(int(run(server, WRITE, str(path), form, str(limit), COLLECTION)[-1]))
                took = time.perf_counter() - began
            size = path.stat().st_size / 1e6
            more = peaks[1] - peaks[0]
            print(f"{form:<14} {total / took:>9,.0f} {size:>7,.0f} {peaks[1]:>8} {more:>20} MB   target <= 50 MB")
        newest = [run(server, REPORT, "newest") for _ in range(3)]
        looked_at, gaps = newest[0][0], newest[0][1]
        median = statistics.median(int(each[2]) for each in newest)
        print(f"evidence, newest of each type ({looked_at} spans, {gaps} gaps): {median:,.0f} ms   target <= 5,000 ms")
        looked_at, gaps, took_ms = run(server, REPORT, "all")
        print(f"evidence, all of them ({looked_at} spans, {gaps} gaps): {int(took_ms) / 1000:.1f} s")


if __name__ == "__main__":
    main()
