"""Send jobs again, put them back into the queue, or end them.

Jobs that a dead worker or a broker lost, and those that wait for an endpoint, are sent again. A job is cancelled by one
conditional update, as it is finished by one: whichever comes first holds. A run that is in the middle of something is
interrupted within seconds (`leases.py`), and nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.domain.formats import counted
from collections_app.endpoints.providers import open_providers, provider_name
from collections_app.errors import ServiceError
from collections_app.jobs.attempts import WAITING, WAITING_FOR_SITE, give_up
from collections_app.jobs.leases import SENT_AT_ONCE, cancel, database_now, job_retry_policy, overdue, recover
from collections_app.jobs.models import LASTING_ERRORS, SCANNED, IngestJobQuerySet
from collections_app.jobs.queue import QUEUES, QUICK_LANE, check_queue, send_jobs, supersede_jobs
from collections_app.models import Collection, IndexVersion, IngestBatch, IngestJob
from ragd import telemetry
from ragd.readers.scans.engines import find_engine

State, Stage, Kind = IngestJob.State, IngestJob.Stage, IngestJob.Kind

RESEND_AFTER = timedelta(seconds=30)
LANE_RESEND_AFTER = timedelta(minutes=1)
IDLE_AFTER = timedelta(seconds=15)


def resend_lost_jobs(now: datetime) -> dict[str, int]:
    """Send again what a dead worker or a broker lost, and end what was tried too often.

    A queued job counts as lost only when jobs of its lane that were sent well after it have been started; or when
    nothing of its lane runs although jobs of another one, with which it takes turns, were started well after it was
    sent; or when nothing at all runs. A long queue that moves is healthy, and so is one behind long jobs.
    """
    counts = {"resent": 0, "failed": 0}
    lately = (now - IDLE_AFTER, now + IDLE_AFTER)  # what is later is of a clock that was ahead
    busy = IngestJob.objects.filter(Q(state=State.RUNNING) | Q(heartbeat_at__range=lately))
    lanes = busy.order_by().values_list("lane").annotate(sent=Max("sent_at"), started=Max("started_at"))
    moving = {lane: (sent, started or sent) for lane, sent, started in lanes}
    for lane in QUEUES:
        if not moving:
            unsent_before = now - IDLE_AFTER
        elif lane in moving:
            unsent_before = min(moving[lane][0], now) - RESEND_AFTER
        else:
            unsent_before = max(started for _, started in moving.values()) - LANE_RESEND_AFTER
        resent, failed = _resend(now, lane, unsent_before)
        counts["resent"] += resent
        counts["failed"] += failed
    return counts


def _resend(now: datetime, lane: int, unsent_before: datetime) -> tuple[int, int]:
    due = IngestJob.objects.active().filter(overdue(now, unsent_before), lane=lane)
    due = due.exclude(error_type__in=(WAITING, WAITING_FOR_SITE), state=State.QUEUED)
    with transaction.atomic():
        recovered = recover(due, job_retry_policy(), give_up, now, state=State.QUEUED, stage=Stage.QUEUED)
        send_jobs([job.pk for job in recovered.expired], had_turn=True)
        send_jobs([job.pk for job in recovered.unsent])
    return len(recovered.expired) + len(recovered.unsent), len(recovered.given_up)


def resend_taken(most: int) -> int:
    """A worker was killed, and the broker holds back the messages that it had taken: the jobs of each lane that wait
    longest are sent once more. Returns how many.

    most: how many messages of a lane a worker may have taken.
    """
    now, count = database_now(), 0
    with transaction.atomic():
        for lane in QUEUES:
            waiting = IngestJob.objects.filter(state=State.QUEUED, lane=lane, lease_until=None, sent_at__lte=now)
            due = waiting.exclude(error_type__in=(WAITING, WAITING_FOR_SITE)).order_by("sent_at")
            ids = list(due.values_list("pk", flat=True)[:most])
            count += IngestJob.objects.filter(pk__in=ids, state=State.QUEUED).update(sent_at=now)
            send_jobs(ids, had_turn=True)
    return count


def wake_fetches(now: datetime) -> int:
    """Send the jobs whose site may be asked again; returns how many."""
    return _wake(IngestJob.objects.filter(state=State.QUEUED, error_type=WAITING_FOR_SITE, sent_at__lte=now), now)


def wake_waiting_jobs(now: datetime) -> int:
    """Send the jobs whose endpoint may be asked again; while it is only being tried, one of them.

    Returns how many were sent.
    """
    waiting = IngestJob.objects.filter(state=State.QUEUED, error_type=WAITING, sent_at__lte=now)
    due = waiting.annotate(asks=Coalesce("index_version__embed_model", "collection__embed_model"))
    models = set(due.order_by().values_list("asks", flat=True))
    troubled = open_providers() if models else set()
    most = {model: 1 if provider_name(model) in troubled else SENT_AT_ONCE for model in sorted(models)}
    return sum(_wake(due.filter(asks=model), now, most[model]) for model in most)


def _wake(due: QuerySet[Any], now: datetime, most: int = SENT_AT_ONCE) -> int:
    """Send at most so many, those that waited longest first; how many still waited."""
    with transaction.atomic():
        ids = list(due.order_by("sent_at", "created_at").values_list("pk", flat=True)[:most])
        waiting = IngestJob.objects.filter(pk__in=ids, state=State.QUEUED)
        woken = waiting.update(sent_at=now, error_type="", error="")
        send_jobs(ids)
    return woken


RETRIED_STATES = (State.FAILED, State.CANCELLED, State.QUARANTINED)
RETRIED_AT_ONCE = 1000
READ_AGAIN = (Kind.FILE, Kind.FETCH, Kind.REINDEX)


def retry_job(job: IngestJob, *, actor: services.Actor = None) -> IngestJob:
    """Queue a failed, cancelled or quarantined job again, with all its attempts.

    Else, or when its file is gone, 409; 429 when the queue is full.
    """
    require(Permission.WRITE, job.collection_id)
    check_queue(1)
    with transaction.atomic():
        current = IngestJob.objects.select_for_update().filter(pk=job.pk).first()
        if current is None or current.state not in RETRIED_STATES:
            state = current.state if current else "deleted"
            raise ServiceError(f"the job is {state}; only a failed, cancelled or quarantined one can be retried")
        if current.kind in (Kind.FILE, Kind.ARCHIVE) and current.upload_id is None:
            raise ServiceError("the file of this job is gone; upload it again")
        if current.doc_id and current.kind in READ_AGAIN:
            supersede_jobs(current.collection, [current.doc_id], "superseded by the retry of another job")
        if current.index_version is not None:
            reopen_index_version(current.index_version)
        queue_again([current])
        services.record(actor, [current], services.CHANGE, "retried")
    current.refresh_from_db()
    return current


def retry_jobs(whole: IngestBatch | Collection, *, actor: services.Actor = None) -> int:
    """Queue again what failed of a batch or a collection, and nothing else; returns how many. ServiceError 429 when
    that is too many.

    What failed for good (`can_succeed`), was quarantined or cancelled, or whose document is under way by another job,
    stays as it is.
    """
    collection_id, jobs, _ = _parts_of(whole)
    require(Permission.WRITE, collection_id)
    retried = _retry_failed(jobs)
    if retried:
        services.record(actor, [whole], services.CHANGE, f"retried {counted(retried, 'failed job')}")
    return retried


def _parts_of(whole: IngestBatch | Collection) -> tuple[int, IngestJobQuerySet, QuerySet[IngestBatch]]:
    """(the id of the collection, the jobs, the batches)"""
    if isinstance(whole, IngestBatch):
        return whole.collection_id, IngestJob.objects.filter(batch=whole), IngestBatch.objects.filter(pk=whole.pk)
    own = {"collection": whole}
    return whole.pk, IngestJob.objects.filter(**own), IngestBatch.objects.filter(**own)


def _retry_failed(jobs: IngestJobQuerySet) -> int:
    """Newest first, one per document: an older failure of a document that came again says nothing any more."""
    failed = can_succeed(jobs).filter(kind__in=(*READ_AGAIN, Kind.ARCHIVE))
    check_queue(failed.count())
    seen: set[tuple[int, str]] = set()
    retried = 0
    before = timezone.now()
    while True:
        with transaction.atomic():
            rows = list(_told_newer(failed.filter(created_at__lt=before)).newest()[:RETRIED_AT_ONCE])
            chosen = _worth_retrying(rows, seen)
            queue_again(chosen)
            retried += len(chosen)
        if len(rows) < RETRIED_AT_ONCE:
            return retried
        before = rows[-1].created_at


def can_succeed(jobs: IngestJobQuerySet) -> IngestJobQuerySet:
    """Those that failed and may end differently in another attempt."""
    return jobs.failed().exclude(error_type__in=lasting_errors())


def lasting_errors() -> list[str]:
    """Types of errors that another attempt here would meet again."""
    return [*LASTING_ERRORS, *([] if find_engine(settings.RAGD_OCR) else [SCANNED])]


def _told_newer(jobs: IngestJobQuerySet) -> Any:
    """The rows, held, each with has_newer: whether another job brought its document since, or is about to."""
    newer = IngestJob.objects.filter(
        collection_id=OuterRef("collection_id"),
        doc_id=OuterRef("doc_id"),
        created_at__gt=OuterRef("created_at"),
        kind__in=READ_AGAIN,
    )
    return jobs.annotate(has_newer=Exists(newer.exclude(state__in=RETRIED_STATES))).select_for_update(of=("self",))


def _worth_retrying(rows: Sequence[Any], seen: set[tuple[int, str]]) -> list[IngestJob]:
    """Of what `_told_newer` gave those whose file is there and whose document has no newer job."""
    chosen = []
    for job in rows:
        key = (job.collection_id, job.doc_id)
        is_gone = job.kind in (Kind.FILE, Kind.ARCHIVE) and job.upload_id is None
        if key in seen or is_gone:
            continue
        seen.add(key)
        if job.kind == Kind.ARCHIVE or not job.has_newer:
            chosen.append(job)
    return chosen


def queue_again(jobs: Sequence[IngestJob]) -> None:
    """With all attempts that a job may have; those before still count among its attempts. What was fetched is fetched
    again. The caller holds the rows."""
    fetched = [job.pk for job in jobs if job.kind == Kind.FETCH]
    IngestJob.objects.filter(pk__in=fetched, kind=Kind.FETCH).update(upload=None)
    ids = [job.pk for job in jobs]
    IngestJob.objects.filter(pk__in=ids).update(
        state=State.QUEUED,
        stage=Stage.QUEUED,
        attempts_forgiven=F("attempts"),
        error="",
        error_type="",
        stages=[],
        worker="",
        lane=QUICK_LANE,
        sent_at=timezone.now(),
        finished_at=None,
        started_at=None,
        traceparent=telemetry.current_traceparent(),
    )
    send_jobs(ids)


def reopen_index_version(index_version: IndexVersion) -> None:
    """Let the retried job of an index version go on where it stopped. ServiceError 409 when nothing is left of it."""
    if index_version.state in (IndexVersion.State.READY, IndexVersion.State.RETIRED):
        return
    others = (
        IndexVersion.objects.filter(collection_id=index_version.collection_id).next_up().exclude(pk=index_version.pk)
    )
    if index_version.state != IndexVersion.State.FAILED or others.exists():
        why = "another one is being built" if others.exists() else f"it is {index_version.state}"
        raise ServiceError(f"index version {index_version.number} cannot go on: {why}; start a new one")
    IndexVersion.objects.filter(pk=index_version.pk).update(state=IndexVersion.State.BUILDING, error="")


def cancel_job(job: IngestJob, *, actor: services.Actor = None) -> IngestJob:
    """End a queued or running job. What runs notices within seconds; nothing of it is stored. Else 409."""
    require(Permission.WRITE, job.collection_id)
    with transaction.atomic():
        done = cancel(IngestJob.objects.active().filter(pk=job.pk), _reason(actor))
        if done:
            settle_index_versions(job.collection_id)
            services.record(actor, [job], services.CHANGE, "cancelled")
    job.refresh_from_db()
    if not done:
        raise ServiceError(f"the job is {job.state} already; there is nothing to cancel")
    return job


def cancel_jobs(whole: IngestBatch | Collection, *, actor: services.Actor = None) -> int:
    """End every job of a batch or a collection that waits or runs, index builds included, and take no more into its
    batches; returns how many."""
    collection_id, jobs, batches = _parts_of(whole)
    require(Permission.WRITE, collection_id)
    with transaction.atomic():
        batches.filter(open=True).update(open=False)
        ended = _end(jobs.active(), actor)
        if ended:
            settle_index_versions(collection_id)
            services.record(actor, [whole], services.CHANGE, f"cancelled {counted(ended, 'job')}")
    return ended


def _end(jobs: IngestJobQuerySet, actor: services.Actor) -> int:
    """End them, and what they made until they ended, such as members of an archive: that is seen only afterwards."""
    ended = cancel(jobs, _reason(actor))
    while jobs.exists():
        ended += cancel(jobs, _reason(actor))
    return ended


def _reason(actor: services.Actor) -> str:
    return f"cancelled by {name_actor(actor)}"


def settle_index_versions(collection_id: int) -> None:
    """An index version whose job has ended before it was built is failed or cancelled too, with the job's reason."""
    for index_version in IndexVersion.objects.filter(collection_id=collection_id, state=IndexVersion.State.BUILDING):
        last = index_version.jobs.newest().first()
        if last is not None and last.state in (State.FAILED, State.CANCELLED):
            ended = IndexVersion.objects.filter(pk=index_version.pk, state=IndexVersion.State.BUILDING)
            ended.update(state=last.state, error=last.error, chunks_per_s=None, chars_per_s=None)
