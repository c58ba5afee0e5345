"""`manage.py ragd scan`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from collections_app.models import FindingScan
from collections_app.services.chunks.finding_scan import count_findings, list_findings, scan_collection
from collections_app.services.collections.collections import get_collection
from collections_app.templatetags.interface import counted
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from ragd.errors import UnknownCollection


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", help="the collection whose stored chunks are looked through")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long; the next call goes on there")
    parser.add_argument("--anew", action="store_true", help="from the first chunk, also where an earlier scan stopped")
    parser.add_argument("--limit", type=int, default=20, help="how many chunks are listed, the riskiest first")


def run(options: Options) -> Answer:
    try:
        collection = get_collection(options["collection"])
    except UnknownCollection as error:
        raise UsageError(error.message) from None
    state = scan_collection(collection, seconds=options["seconds"], anew=options["anew"], on_batch=_tell)
    counts = count_findings(collection)
    return {
        "collection": collection.name,
        "chunks_scanned": state.chunks_scanned,
        "complete": state.complete,
        "took_ms": state.took_ms,
        "chunks_with_findings": counts.chunks,
        "by_family": counts.by_family,
        "chunks": [
            {
                "doc_id": row.doc_id,
                "chunk_index": row.chunk_index,
                "risk_score": row.risk_score,
                "findings": row.findings,
            }
            for row in list_findings(collection, limit=max(0, options["limit"]))
        ],
    }


def show(answer: Answer) -> str:
    result: dict[str, Any] = answer["by_family"]
    lines = [
        f"{counted(answer['chunks_scanned'], 'chunk')} of {answer['collection']} looked through"
        f"{'' if answer['complete'] else ', not all of them'}; with findings: {answer['chunks_with_findings']}"
    ]
    lines += [f"  {family:24}{count:>8}" for family, count in result.items()]
    for item in answer["chunks"]:
        rules = ", ".join(sorted({f"{each['family']}.{each['rule']}" for each in item["findings"]}))
        lines.append(f"  {item['risk_score']:5.1f}  {item['doc_id']}#{item['chunk_index']}  {rules}")
    return "\n".join(lines)


def _tell(state: FindingScan) -> None:
    if sys.stderr.isatty():
        print(f"\r{state.chunks_scanned} chunks", end="", file=sys.stderr, flush=True)
