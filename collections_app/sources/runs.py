"""Syncs: asked for by people and by the schedule, found again when their worker died, cancelled, and forgotten."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from collections_app.access.context import elevated, require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError
from collections_app.jobs.delivery import enqueue, job_retry_policy, requeue
from collections_app.jobs.leases import cancel
from collections_app.models import Collection, Source, SourceChange, SourceRun

RUN_SOURCE = "collections.run_source"  # the task of one sync, by its id
DUE_AT_ONCE = 50


def request_run(
    source: Source, *, dry_run: bool = False, agreed_run: SourceRun | None = None, actor: services.Actor = None
) -> SourceRun:
    """Let a worker sync, or look what a sync would do. agreed_run: its held deletions are agreed to.

    Raises ServiceError 409 while one is under way.
    """
    require(Permission.WRITE, source.collection_id)
    agreed = None
    if agreed_run is not None:
        held = agreed_run.changes.filter(run__source=source, kind=SourceChange.Kind.HELD)
        agreed = list(held.values_list("doc_id", flat=True))
    now = timezone.now()
    try:
        with transaction.atomic():
            run = SourceRun.objects.create(
                source=source,
                collection_id=source.collection_id,
                dry_run=dry_run,
                agreed=agreed,
                created_by=name_actor(actor),
                created_at=now,
                sent_at=now,
            )
            if not dry_run and source.schedule:
                Source.objects.filter(pk=source.pk).update(next_at=now + source.interval)
            if agreed:
                message = f"agreed to delete {len(agreed)} documents that {source.name} has no more"
                services.record_event(actor, "source.confirm", message, subject=source)
            enqueue(RUN_SOURCE, str(run.pk))
    except IntegrityError:
        message = f"a sync of {source.name} is under way; wait until it has ended, or cancel it"
        raise ServiceError(message, type="conflict", status=409) from None
    return run


def cancel_run(run: SourceRun) -> bool:
    """End a sync; what it brought so far stays. Returns whether it had not ended before."""
    require(Permission.WRITE, run.collection_id)
    return bool(cancel(SourceRun.objects.filter(pk=run.pk, finished_at=None), "cancelled"))


def find_run(collection: Collection, run_id: uuid.UUID | str) -> SourceRun:
    """A sync of this collection, or ServiceError 404."""
    try:
        return SourceRun.objects.select_related("source").get(collection=collection, pk=uuid.UUID(str(run_id)))
    except (ValueError, SourceRun.DoesNotExist):
        message = f"collection {collection.name!r} has no sync {str(run_id)[:80]!r}"
        raise ServiceError(message, type="not_found", status=404) from None


def start_syncs(now: datetime) -> int:
    """Begin what is due, and send again what lost its worker or its message; returns how many."""
    unfinished = SourceRun.objects.filter(finished_at=None)
    sent = requeue(unfinished, RUN_SOURCE, job_retry_policy(), _give_up, now, state=SourceRun.State.QUEUED)
    for source in Source.objects.due(now).select_related("collection").order_by("next_at")[:DUE_AT_ONCE]:
        try:
            request_run(source)
            sent += 1
        except ServiceError:  # somebody began one a moment ago
            continue
    return sent


def _give_up(run: SourceRun) -> None:
    message = f"given up after {run.tries} attempts, each of which lost its worker; look at the worker's log"
    fail_run(run, "worker_lost", message)


def count_changes(run: SourceRun) -> dict[str, Any]:
    """Kind of change -> how many of the run's."""
    counts = Counter(run.changes.order_by().values_list("kind", flat=True))
    return {kind: counts[kind] for kind in SourceChange.Kind.values}


def fail_run(run: SourceRun, error_type: str, message: str, **values: Any) -> None:
    """Write down that a sync failed; the alarm of its source begins with the first failure after a success.

    values: further columns of the run.
    """
    with elevated(Permission.WRITE, run.collection_id), transaction.atomic():
        ended: dict[str, Any] = {"state": SourceRun.State.FAILED, "finished_at": timezone.now(), "lease_until": None}
        ended |= {"error_type": error_type, "error": message, **count_changes(run), **values}
        SourceRun.objects.filter(pk=run.pk).update(**ended)
        if run.dry_run:
            return
        source = Source.objects.select_for_update().get(pk=run.source_id)
        if not source.last_error:
            text = f"the source {source.name} cannot be synced: {message}"
            services.record_event(None, "source.fail", text, subject=source)
        Source.objects.filter(pk=source.pk).update(last_error=message)
