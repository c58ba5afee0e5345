"""A run is worked at by one process at a time: it is taken, kept by signs of life, given back or ended.

Every write of an attempt says which attempt it belongs to; one that finds the run cancelled, taken over or gone changes
nothing and stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.utils import timezone

from evaluation_app.models import EvaluationRun

log = logging.getLogger(__name__)

State = EvaluationRun.State
CLAIM_LOCK = 0x7261676406  # one number for "a run is being taken"

LOCK = "SELECT pg_advisory_xact_lock(%s)"

# With `most` runs alive elsewhere it is not taken; None: however many there are.
CLAIM = """
UPDATE evaluation_runs r
SET state = 'running', attempts = attempts + 1, worker = %(worker)s, beat_at = %(now)s,
    started_at = coalesce(started_at, %(now)s),
    losses = CASE state WHEN 'running' THEN losses + 1 ELSE losses END
WHERE id = %(id)s AND (state = 'queued' OR (state = 'running' AND beat_at < %(since)s))
  AND (%(most)s::int IS NULL OR %(most)s > (
      SELECT count(*) FROM evaluation_runs o WHERE o.id <> r.id AND o.state = 'running' AND o.beat_at >= %(since)s))
RETURNING *
"""


class RunLostError(Exception):
    """The run is no longer this attempt's."""


def claim_run(run_id: UUID | str, worker: str, *, most: int | None) -> EvaluationRun | None:
    """Take a run that waits, or one whose worker is silent. None: somebody has it, it has ended, or `most` are busy."""
    now = timezone.now()
    values = {"id": str(run_id), "worker": worker, "now": now, "since": silence_limit(now), "most": most}
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(LOCK, [CLAIM_LOCK])
        return next(iter(EvaluationRun.objects.raw(CLAIM, values)), None)


def silence_limit(now: datetime) -> datetime:
    """A run that is worked at and whose last sign of life is older than this was lost."""
    return now - timedelta(seconds=settings.RAGD_JOB_LEASE_S)


def write_run(run: EvaluationRun, **values: Any) -> None:
    """Change the row, as long as this attempt holds the run. Raises RunLostError."""
    mine = EvaluationRun.objects.filter(pk=run.pk, state=State.RUNNING, attempts=run.attempts)
    if not mine.update(**{"beat_at": timezone.now(), **values}):
        raise RunLostError
    for name, value in values.items():
        setattr(run, name, value)


@contextmanager
def heartbeat(run: EvaluationRun) -> Iterator[threading.Event]:
    """Signs of life from a thread of its own, however long one question takes. The event: the run is lost."""
    stop, lost = threading.Event(), threading.Event()
    keeper = threading.Thread(target=_keep, args=(run, stop, lost), daemon=True, name="ragd-evaluation-lease")
    keeper.start()
    try:
        yield lost
    finally:
        stop.set()
        keeper.join()


def _keep(run: EvaluationRun, stop: threading.Event, lost: threading.Event) -> None:
    mine = EvaluationRun.objects.filter(pk=run.pk, state=State.RUNNING, attempts=run.attempts)
    try:
        while not stop.wait(max(0.5, settings.RAGD_JOB_LEASE_S / 4)):
            try:
                if not mine.update(beat_at=timezone.now()):
                    lost.set()
                    return
            except (DatabaseError, InterfaceError) as error:
                log.warning("the sign of life of evaluation run %s could not be written: %s", run.pk, error)
                connection.close()
    finally:
        connection.close()


def release_run(run: EvaluationRun, **values: Any) -> bool:
    """Put the run back in the queue, for whoever comes next; False when it was lost before. values: to be kept."""
    values |= {"state": State.QUEUED, "worker": "", "error": "", "error_type": ""}
    try:
        write_run(run, **values)
    except RunLostError:
        return False
    return True


def release_host(host: str, *, but: Iterable[int] = ()) -> int:
    """The workers of a host are to stop: their runs wait for the next ones. Returns how many.

    but: processes that died by themselves; a question of their runs may be to blame.
    """
    held = EvaluationRun.objects.filter(state=State.RUNNING, worker__startswith=f"{host}:")
    return held.exclude(worker__in=[f"{host}:{pid}" for pid in but]).update(state=State.QUEUED, worker="", beat_at=None)
