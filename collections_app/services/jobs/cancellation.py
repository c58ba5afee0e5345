"""Ending jobs that wait or run: one, those of a batch, all of a collection.

A job is cancelled by one conditional update, as it is finished by one: whichever comes first holds. A run that is in
the middle of something is interrupted within seconds (`work/leases.py`), and nothing of it is stored.
"""

from __future__ import annotations

from django.db import transaction

from collections_app.access_context import require
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation, IngestBatch, IngestJob
from collections_app.models.jobs import IngestJobQuerySet
from collections_app.models.library import name_actor
from collections_app.services.governance import audit
from collections_app.work.leases import cancel

State = IngestJob.State


def cancel_job(job: IngestJob, *, actor: audit.Actor = None) -> IngestJob:
    """End a queued or running job. What runs notices within seconds; nothing of it is stored. Else 409."""
    require(Permission.WRITE, job.collection_id)
    with transaction.atomic():
        done = cancel(IngestJob.objects.active().filter(pk=job.pk), _reason(actor))
        if done:
            settle_generations(job.collection_id)
            audit.record(actor, [job], audit.CHANGE, "cancelled")
    job.refresh_from_db()
    if not done:
        raise ServiceError(f"the job is {job.state} already; there is nothing to cancel", type="conflict", status=409)
    return job


def cancel_batch(batch: IngestBatch, *, actor: audit.Actor = None) -> int:
    """End every job of a batch that waits or runs, and take no more into it; returns how many."""
    require(Permission.WRITE, batch.collection_id)
    with transaction.atomic():
        IngestBatch.objects.filter(pk=batch.pk, open=True).update(open=False)
        ended = _end(IngestJob.objects.active().filter(batch=batch), actor)
        if ended:
            audit.record(actor, [batch], audit.CHANGE, f"cancelled {ended} jobs")
    return ended


def cancel_collection_jobs(collection: Collection, *, actor: audit.Actor = None) -> int:
    """End every job of a collection that waits or runs, index builds included; returns how many."""
    require(Permission.WRITE, collection.pk)
    with transaction.atomic():
        IngestBatch.objects.filter(collection=collection, open=True).update(open=False)
        ended = _end(IngestJob.objects.active().filter(collection=collection), actor)
        if ended:
            settle_generations(collection.pk)
            audit.record(actor, [collection], audit.CHANGE, f"cancelled {ended} jobs")
    return ended


def _end(jobs: IngestJobQuerySet, actor: audit.Actor) -> int:
    """End them, and what they made until they ended, such as members of an archive: that is seen only afterwards."""
    ended = cancel(jobs, _reason(actor))
    while jobs.exists():
        ended += cancel(jobs, _reason(actor))
    return ended


def _reason(actor: audit.Actor) -> str:
    return f"cancelled by {name_actor(actor)}"


def settle_generations(collection_id: int) -> None:
    """A generation whose job has ended before it was built is failed or cancelled too, with the job's reason."""
    for generation in Generation.objects.filter(collection_id=collection_id, state=Generation.State.BUILDING):
        last = generation.jobs.newest().first()
        if last is not None and last.state in (State.FAILED, State.CANCELLED):
            ended = Generation.objects.filter(pk=generation.pk, state=Generation.State.BUILDING)
            ended.update(state=last.state, error=last.error, chunks_per_s=None, chars_per_s=None)
