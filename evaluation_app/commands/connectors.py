"""`manage.py ragd connectors`: the sources of collections, synced or previewed here and now."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from collections_app.models import Collection, Connector
from collections_app.services.collections.collections import get_collection
from collections_app.services.connectors.records import list_connectors
from collections_app.services.connectors.runs import request_run
from collections_app.services.connectors.sync import process_run
from evaluation_app.commands.progress import LOOK_EVERY_S
from evaluation_app.commands.subcommand import Answer, Options, UsageError

CHANGES_SHOWN = 200
COUNTS = ("added", "updated", "deleted", "unchanged", "failed", "held")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "sync", "dry-run"), help="dry-run: tell what a sync would change")
    parser.add_argument("collection", nargs="?", help="needed for sync and dry-run")
    parser.add_argument("name", nargs="?", help="the source; all of the collection when left out")


def run(options: Options) -> Answer:
    """list: every source. sync, dry-run: each of the chosen, in this process; what is brought is queued."""
    collections = [get_collection(options["collection"])] if options["collection"] else Collection.objects.live()
    if options["action"] == "list":
        return {"sources": [_describe(row) for each in collections for row in list_connectors(each)], "runs": []}
    if not options["collection"]:
        raise UsageError(f"name the collection: ragd connectors {options['action']} COLLECTION [SOURCE]")
    rows = Connector.objects.filter(collection__in=[each.pk for each in collections]).select_related("collection")
    chosen = rows.filter(name=options["name"]) if options["name"] else rows
    if not chosen:
        raise UsageError("there is no such source; `ragd connectors list` names them")
    return {"sources": [], "runs": [_sync(row, is_dry=options["action"] == "dry-run") for row in chosen]}


def _sync(row: Connector, *, is_dry: bool) -> Answer:
    run = request_run(row, dry_run=is_dry)
    process_run(str(run.pk))
    run.refresh_from_db()
    while run.is_active:  # a worker was faster
        time.sleep(LOOK_EVERY_S)
        run.refresh_from_db()
    return {
        "id": str(run.pk),
        "source": row.name,
        "state": run.state,
        "dry_run": run.dry_run,
        **{name: getattr(run, name) for name in COUNTS},
        "changes": [
            {"doc_id": each.doc_id, "kind": each.kind, "reason": each.reason}
            for each in run.changes.all()[:CHANGES_SHOWN]
        ],
        "error": run.error,
    }


def _describe(row: Any) -> Answer:
    return {
        "id": row.pk,
        "collection": row.collection.name,
        "name": row.name,
        "kind": row.kind,
        "state": row.state,
        "documents": row.document_total,
        "schedule": row.schedule,
        "last_success": row.last_success.isoformat() if row.last_success else None,
        "last_error": row.last_error,
    }


def show(answer: Answer) -> str:
    lines = [
        f"{each['collection']}  {each['name']} ({each['kind']}): {each['state']}, {each['documents']} documents"
        + (f"\n    {each['last_error']}" if each["last_error"] else "")
        for each in answer["sources"]
    ]
    for each in answer["runs"]:
        counts = ", ".join(f"{each[name]} {name}" for name in COUNTS if each[name]) or "no changes"
        lines.append(f"{each['source']}: {each['state']}{' (dry run)' if each['dry_run'] else ''}, {counts}")
        lines += [f"    {row['kind']} {row['doc_id']} {row['reason']}".rstrip() for row in each["changes"]]
        lines += [f"    {each['error']}"] if each["error"] else []
    return "\n".join(lines) or "no sources"


def has_passed(answer: Answer) -> bool:
    """False when a sync failed or waits for a decision."""
    return all(each["state"] == "succeeded" and not each["held"] for each in answer["runs"])
