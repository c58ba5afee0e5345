"""`manage.py ragd check consistency` and `check findings`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from collections_app.chunks.finding_scan import count_findings, list_findings, scan_collection
from collections_app.collections.invariants import check_invariants
from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import Answer, Options, Subcommand, as_usage


def add_check_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", nargs="?", help="all of them, and what stands between them, when left out")


def run_check(options: Options) -> Answer:
    name = options["collection"]
    operation = check_invariants(get_collection(name) if name else None)
    passed = not operation.report["findings"]
    return {"operation_id": str(operation.pk), "collection": name or "", **operation.report, "passed": passed}


def add_scan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", help="the collection whose stored chunks are looked through")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long; the next call goes on there")
    parser.add_argument("--anew", action="store_true", help="from the first chunk, also where an earlier scan stopped")
    parser.add_argument("--limit", type=int, default=20, help="how many chunks are listed, the riskiest first")


def run_scan(options: Options) -> Answer:
    with as_usage():
        collection = get_collection(options["collection"])
    operation = scan_collection(collection, seconds=options["seconds"], anew=options["anew"], on_batch=_report_scan)
    counts = count_findings(collection)
    names = ("doc_id", "chunk_index", "risk_score", "findings")
    rows = list_findings(collection, limit=max(0, options["limit"]))
    return {
        "collection": collection.name,
        "operation_id": str(operation.pk),
        "chunks_scanned": operation.report["chunks_scanned"],
        "complete": operation.report["complete"],
        "chunks_with_findings": counts.chunks,
        "by_family": counts.by_family,
        "chunks": [{name: getattr(row, name) for name in names} for row in rows],
    }


def _report_scan(chunks_scanned: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{chunks_scanned} chunks", end="", file=sys.stderr, flush=True)


COMMANDS = {
    "check consistency": Subcommand(
        "compare stored data with itself; exit status 1 on problems", add_check_arguments, run_check
    ),
    "check findings": Subcommand(
        "look through stored chunks for prompt injection, secrets and personal data", add_scan_arguments, run_scan
    ),
}
