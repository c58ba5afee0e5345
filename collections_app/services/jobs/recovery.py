"""Jobs that a dead worker or a broker lost, and those that wait for an endpoint, are sent again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Coalesce

from collections_app.models import IngestJob
from collections_app.services.endpoints.providers import open_providers, provider_name
from collections_app.services.jobs.attempts import WAITING, WAITING_FOR_SITE, give_up
from collections_app.services.jobs.queue import QUEUES, send_jobs
from collections_app.work.delivery import SENT_AT_ONCE, job_retry_policy, overdue, recover
from collections_app.work.leases import database_now

State, Stage = IngestJob.State, IngestJob.Stage

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
    due = waiting.annotate(asks=Coalesce("generation__embed_model", "collection__embed_model"))
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
