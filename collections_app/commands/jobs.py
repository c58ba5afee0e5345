"""`manage.py ragd jobs`: what is under way and what failed."""

from __future__ import annotations

import time
import uuid
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from collections_app.collections.services import get_collection
from collections_app.commands.progress import LOOK_EVERY_S, Bar, StoppedError, has_worker
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError
from collections_app.jobs.api import JobItem
from collections_app.models import IngestBatch, IngestJob

ERROR_SHOWN_CHARS = 200
ACTIVE = "active"


def add_arguments(parser: ArgumentParser) -> None:
    states = [ACTIVE, *IngestJob.State.values]
    parser.add_argument("--collection", help="only of this collection")
    parser.add_argument("--batch", action="append", type=_uuid, metavar="ID", help="only of this batch; repeatable")
    parser.add_argument("--state", choices=states, help="only in this state; active: queued or running")
    parser.add_argument("--limit", type=int, default=50, help="jobs that are listed, newest first; 50 when left out")
    parser.add_argument("--watch", action="store_true", help="until no job is under way, with a progress bar")


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not the id of a job or batch") from None


def run(options: Options) -> Answer:
    """Watch if asked for, then list."""
    rows = _chosen(options)
    left = _watch(rows, quiet=bool(options.get("as_json"))) if options["watch"] else None
    listed = rows.newest()[: max(options["limit"], 0)]
    counts = Counter(rows.order_by().values_list("state", flat=True))
    return {
        "jobs": [JobItem.from_orm(job).model_dump(mode="json") for job in listed.select_related("collection")],
        "totals": {state: counts[state] for state in IngestJob.State.values if counts[state]},
        "watched": options["watch"],
        "left": left,
        "workers_alive": has_worker(),
    }


def _chosen(options: Options) -> Any:
    rows = IngestJob.objects.filter(collection__deleted_at__isnull=True)
    if options["collection"]:
        rows = rows.filter(collection=get_collection(options["collection"]))
    if options["batch"]:
        rows = rows.filter(batch__in=[_find_batch(batch_id) for batch_id in options["batch"]])
    if options["state"] == ACTIVE:
        rows = rows.active()
    elif options["state"]:
        rows = rows.filter(state=options["state"])
    return rows


def _find_batch(batch_id: uuid.UUID) -> IngestBatch:
    record = IngestBatch.objects.filter(pk=batch_id).first()
    if record is None:
        raise UsageError(f"there is no batch {batch_id}; `ragd ingest` and the page Batches list them")
    return record


def _watch(rows: QuerySet[IngestJob], *, quiet: bool) -> int:
    """Until none of the jobs is under way, or nobody is left to do them; how many are left then."""
    began = timezone.now()
    try:
        with Bar("jobs", "jobs", quiet=quiet) as bar:
            while True:
                left = rows.filter(state__in=("queued", "running")).count()
                ended = rows.filter(finished_at__gte=began)
                done, failed = ended.count(), ended.filter(state__in=("failed", "quarantined")).count()
                bar.show(done, done + left, f"{failed:,} failed" if failed else "")
                if not left or not has_worker():
                    return left
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        raise StoppedError("Stopped watching. The jobs go on in the worker.") from None


def show(answer: Answer) -> str:
    lines = [_line(job) for job in answer["jobs"]] or ["no jobs"]
    totals = ", ".join(f"{count:,} {state}" for state, count in answer["totals"].items())
    if totals:
        lines.append(totals)
    under_way = sum(answer["totals"].get(state, 0) for state in ("queued", "running"))
    if under_way and not answer["workers_alive"]:
        lines.append("No worker is alive: what is queued waits. `make run` starts one.")
    return "\n".join(lines)


def _line(job: dict[str, Any]) -> str:
    stages = " ".join(_stage(stage) for stage in job["stages"])
    line = f"{job['id']}  {job['state']:<11} {job['collection']}: {job['doc_id'] or job['kind']}"
    line += f"\n    {stages}" if stages else ""
    return f"{line}\n    {job['error'][:ERROR_SHOWN_CHARS]}" if job["error"] else line


def _stage(stage: dict[str, Any]) -> str:
    if stage["state"] == "running" and stage["total"]:
        return f"{stage['stage']} {stage['done']}/{stage['total']} {stage['unit']}"
    return f"{stage['stage']} {stage['took_ms']:.0f} ms" if stage["state"] == "succeeded" else stage["stage"]


def has_passed(answer: Answer) -> bool:
    """Return False where something is left of what was watched."""
    return not (answer["watched"] and answer["left"])


COMMANDS = {"jobs": Subcommand("list and watch jobs", add_arguments, run, show, has_passed)}
