"""The audit log: what an event costs its transaction, how many a second writers chain, how fast it is verified.

One writer alone times a transaction that changes a row, without and with an event; then one event per transaction by
one and by four processes at once, whose commits wait for each other at the end of the chain; then many events in one
transaction; then `verify_chain` over all of them. fsync is on, as in production.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.benchmarks.server import ROOT, Server, running_server

ALONE = 200
EACH = 100
WRITERS = 4
MANY = 5_000

SETUP = """
import sys, time, statistics
import django
django.setup()
from django.db import connection, transaction
from collections_app.models import Report
from collections_app.services.governance.audit import record_event
from collections_app.services.governance.audit_chain import verify_chain
from django.utils import timezone
def change(number, told):
    with transaction.atomic():
        Report.objects.update_or_create(name=sys.argv[2], defaults={"values": {"n": number}, "made_at": timezone.now()})
        if told:
            record_event(None, "test.change", "changed a report", before={"n": number - 1}, after={"n": number})
"""
COST = (
    SETUP
    + """
took = {False: [], True: []}
for number in range(2 * int(sys.argv[1])):
    told = bool(number % 2)
    began = time.perf_counter()
    change(number, told)
    took[told].append(1000 * (time.perf_counter() - began))
print(statistics.median(took[False]), statistics.median(took[True]))
"""
)
WRITE = (
    SETUP
    + """
for number in range(int(sys.argv[1])):
    change(number, True)
"""
)
BULK = (
    SETUP
    + """
from collections_app.services.governance import audit
subject = Report.objects.first()
began = time.perf_counter()
with transaction.atomic():
    audit.record(None, [subject] * int(sys.argv[1]), audit.CHANGE, "many", before={"n": 1}, after={"n": 2})
print(1000 * (time.perf_counter() - began))
"""
)
VERIFY = (
    SETUP
    + """
began = time.perf_counter()
verdict = verify_chain()
print(verdict.checked, int(verdict.is_whole), time.perf_counter() - began)
"""
)


def start(server: Server, program: str, *arguments: str) -> subprocess.Popen[str]:
    variables = os.environ | {"RAGD_VAR": str(server.var), "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    variables.pop("DATABASE_URL", None)
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True
    )


def run(server: Server, program: str, *arguments: str) -> list[float]:
    process = start(server, program, *arguments)
    printed, _ = process.communicate()
    if process.returncode:
        sys.exit("a process of the benchmark failed")
    return [float(word) for word in printed.split()]


def main() -> None:
    with running_server() as server:
        without, told = run(server, COST, str(ALONE), "alone")
        print(
            f"a transaction that changes a row: {without:.2f} ms, with an event {told:.2f} ms: {told - without:.2f} ms "
            "more   target <= 3 ms"
        )
        for writers in (1, WRITERS):
            began = time.perf_counter()
            processes = [start(server, WRITE, str(EACH), f"writer {number}") for number in range(writers)]
            for process in processes:
                process.communicate()
            took = time.perf_counter() - began
            print(f"{writers} writers: {writers * EACH / took:,.0f} transactions/s with an event, start included")
        (bulk,) = run(server, BULK, str(MANY), "bulk")
        print(f"{MANY:,} events in one transaction: {1000 * bulk / MANY:.0f} us each   target <= 500 us")
        checked, whole, took = run(server, VERIFY, "0", "verify")
        print(f"verified {checked:,.0f} events ({'whole' if whole else 'NOT WHOLE'}): {checked / took:,.0f} events/s")


if __name__ == "__main__":
    main()
