"""Syncs as a worker does them, and what they changed."""

from __future__ import annotations

from typing import Any

from collections_app.jobs.dispatch import run_job
from collections_app.models import IngestJob, Operation, Source
from collections_app.sources.sync import request_run
from collections_app.tasks import run_operation


def sync(source: Source, *, ingests: bool = True, **values: Any) -> Operation:
    """One run to its end, and then the jobs that it queued."""
    source.refresh_from_db()
    run = request_run(source, **values)
    run_operation(str(run.pk))
    run.refresh_from_db()
    source.refresh_from_db()
    for job in IngestJob.objects.active() if ingests else ():
        run_job(job.pk)
    return run


def changes(run: Operation) -> dict[str, list[str]]:
    """Kind of change -> doc_ids."""
    told: dict[str, list[str]] = {}
    for row in run.changes.order_by("doc_id"):
        told.setdefault(row.kind, []).append(row.doc_id)
    return told


def totals(run: Operation) -> tuple[int, ...]:
    return tuple(run.report[name] for name in ("added", "updated", "deleted", "unchanged", "failed"))
