"""`manage.py ragd jobs`: what is under way, what failed, and what to do about it."""

from __future__ import annotations

import time
import uuid
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import IngestBatch, IngestJob
from collections_app.services.collections.collections import get_collection
from collections_app.services.jobs.cancellation import cancel_job
from collections_app.services.jobs.retries import retry_batch, retry_collection_jobs, retry_job
from evaluation_app.commands.progress import LOOK_EVERY_S, Bar, StoppedError, has_worker
from evaluation_app.commands.subcommand import Answer, Options, UsageError

ERROR_SHOWN_CHARS = 200
ACTIVE = "active"


def add_arguments(parser: ArgumentParser) -> None:
    states = [ACTIVE, *IngestJob.State.values]
    parser.add_argument("--collection", help="only of this collection")
    parser.add_argument("--batch", action="append", type=_uuid, metavar="ID", help="only of this batch; repeatable")
    parser.add_argument("--state", choices=states, help="only in this state; active: queued or running")
    parser.add_argument("--limit", type=int, default=50, help="jobs that are listed, newest first; 50 when left out")
    parser.add_argument("--watch", action="store_true", help="until no job is under way, with a progress bar")
    parser.add_argument("--cancel", action="append", type=_uuid, metavar="ID", help="end this job; repeatable")
    parser.add_argument("--retry", action="append", type=_uuid, metavar="ID", help="queue it again; repeatable")
    parser.add_argument("--retry-failed", action="store_true", help="queue again what failed of a collection or batch")


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not the id of a job or batch") from None


def run(options: Options) -> Answer:
    """Change what is asked for, watch if asked for, then list."""
    rows = _chosen(options)
    changed = _change(options)
    left = _watch(rows, quiet=bool(options.get("as_json"))) if options["watch"] else None
    listed = rows.newest()[: max(options["limit"], 0)]
    counts = Counter(rows.order_by().values_list("state", flat=True))
    return {
        "jobs": [describe(job) for job in listed.select_related("collection")],
        "totals": {state: counts[state] for state in IngestJob.State.values if counts[state]},
        **changed,
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


def _change(options: Options) -> dict[str, Any]:
    """Cancel and retry; a job that does not let itself be changed holds up no other."""
    refused: list[dict[str, str]] = []
    done: dict[str, list[str]] = {"cancelled": [], "retried": []}
    for name, act in (("cancel", cancel_job), ("retry", retry_job)):
        for job_id in options[name] or ():
            try:
                act(_find_job(job_id))
                done["cancelled" if name == "cancel" else "retried"].append(str(job_id))
            except ServiceError as error:
                refused.append({"job_id": str(job_id), "error": error.message})
    again = 0
    if options["retry_failed"]:
        if not (options["collection"] or options["batch"]):
            raise UsageError("--retry-failed needs --collection or --batch, to say of what")
        if options["batch"]:
            again = sum(retry_batch(_find_batch(batch_id)) for batch_id in options["batch"])
        else:
            again = retry_collection_jobs(get_collection(options["collection"]))
    return {**done, "retried_failed": again, "refused": refused}


def _find_job(job_id: uuid.UUID) -> IngestJob:
    record = IngestJob.objects.filter(pk=job_id).first()
    if record is None:
        raise ServiceError(f"there is no job {job_id}", type="unknown_job", status=404)
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


def describe(job: IngestJob) -> dict[str, Any]:
    """One job as data; stages as they are stored."""
    return {
        "id": str(job.pk),
        "collection": job.collection.name,
        "doc_id": job.doc_id,
        "kind": job.kind,
        "state": job.state,
        "stage": job.stage,
        "stages": job.stages,
        "chunks_done": job.chunks_done,
        "chunks_total": job.chunks_total,
        "attempts": job.attempts,
        "batch": str(job.batch_id) if job.batch_id else None,
        "error_type": job.error_type,
        "error": job.error,
        "created_at": job.created_at.isoformat(),
        "finished_at": job.finished_at.isoformat() if job.finished_at else None,
    }


def show(answer: Answer) -> str:
    lines = [_line(job) for job in answer["jobs"]] or ["no jobs"]
    totals = ", ".join(f"{count:,} {state}" for state, count in answer["totals"].items())
    if totals:
        lines.append(totals)
    changes = [
        (len(answer["cancelled"]), "cancelled"),
        (len(answer["retried"]) + answer["retried_failed"], "queued again"),
    ]
    lines += [f"{count:,} {word}" for count, word in changes if count]
    lines += [f"not changed: {each['job_id']}: {each['error']}" for each in answer["refused"]]
    under_way = sum(answer["totals"].get(state, 0) for state in ("queued", "running"))
    if under_way and not answer["workers_alive"]:
        lines.append("No worker is alive: what is queued waits. `make run` starts one.")
    return "\n".join(lines)


def _line(job: dict[str, Any]) -> str:
    stages = " ".join(f"{entry['stage']} {_stage(entry)}" for entry in job["stages"])
    line = f"{job['id']}  {job['state']:<11} {job['collection']}: {job['doc_id'] or job['kind']}"
    if stages:
        line += f"\n    {stages}"
    return f"{line}\n    {job['error'][:ERROR_SHOWN_CHARS]}" if job["error"] else line


def _stage(entry: dict[str, Any]) -> str:
    if entry["state"] == "running" and entry["total"]:
        return f"{entry['done']}/{entry['total']} {entry['unit']}"
    return f"{entry['ms']:.0f} ms" if entry["state"] == "succeeded" else str(entry["state"])


def has_passed(answer: Answer) -> bool:
    """Everything that was to be changed was, and nothing is left of what was watched."""
    return not answer["refused"] and not (answer["watched"] and answer["left"])
