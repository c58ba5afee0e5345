"""What is past its retention goes, in batches, and it is told what went; how much would go now is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.db import connection
from django.utils import timezone

from collections_app.access.context import elevated
from collections_app.access.permissions import Permission
from collections_app.collections.invariants import request_check
from collections_app.collections.retention import (
    count_deleted_documents,
    count_old_revisions,
    drop_deleted_documents,
    drop_old_revisions,
)
from collections_app.documents.services import expire_trash, expired_trash
from collections_app.endpoints.server_settings import stored
from collections_app.index.swap import expire_retired, expired_retired
from collections_app.jobs.operations import forget_operations, last_operation, running
from collections_app.models import Operation
from evaluation_app.runs.lifecycle import delete_old_evaluations, expired_evaluations
from evaluation_app.scoring.run_scores import forget_scores
from evaluation_app.telemetry.search.search import in_time
from evaluation_app.telemetry.store.partitions import count_expired, maintain
from evaluation_app.telemetry.store.span_reads import forget_writers
from ragd.store.store import execute
from retrieval_app.runs.run_log import delete_old_runs, expired_runs

CHECK_EVERY = timedelta(hours=24)
COUNT_S = 3.0

# a trace that another run is part of stays
DELETE_SPANS_OF_RUNS = """
DELETE FROM spans s WHERE s.trace_id = ANY(%(traces)s)
  AND NOT EXISTS (SELECT 1 FROM retrieval_app_queryrun r WHERE r.trace_id = s.trace_id)
"""


# by the key of a period: how many rows go at a value of it
COUNTERS: dict[str, Callable[[int], int]] = {
    "runs_days": lambda days: sum(rows.count() for rows in expired_runs(days)),
    "span_days": lambda days: count_expired(timezone.now(), days, 0),
    "span_mb": lambda most: count_expired(timezone.now(), 0, most),
    "evaluation_days": lambda days: expired_evaluations(days).count(),
    "trash_days": lambda days: expired_trash(timezone.now(), days).count(),
    "revisions": count_old_revisions,
    "deleted_days": count_deleted_documents,
    "index_version_days": lambda days: expired_retired(timezone.now(), days).count(),
}


def count_due(values: Mapping[str, int], *, limit_s: float = COUNT_S) -> dict[str, int | None]:
    """How many rows the next deletion would remove of each kind if it were kept for `values`, by the key of a period.

    Nothing is deleted. No statement takes longer than what is left of `limit_s` for all; None: not counted within that.
    """
    ends = time.monotonic() + limit_s
    result: dict[str, int | None] = {}
    for key, value in values.items():
        result[key] = None
        if (left := ends - time.monotonic()) > 0:
            with suppress(TimeoutError), elevated(Permission.ADMINISTER):  # of all that is stored
                result[key] = in_time(partial(COUNTERS[key], value), left)
    return result


@dataclass(frozen=True, slots=True)
class LastDeletion:
    """at: when the last one ran, None before the first; failed: that it did. removed: how many rows it removed, by the
    names of its report. removing: the last one that removed some, by those names: (when, how many)."""

    at: datetime | None
    failed: bool
    removed: Mapping[str, int]
    removing: Mapping[str, tuple[datetime, int]]


def last_deletions() -> LastDeletion:
    """What is known of the deletions of the last days, as far as operations are kept. One query."""
    ended = Operation.objects.filter(kind=Operation.Kind.RETENTION, finished_at__isnull=False)
    rows = list(ended.values_list("finished_at", "state", "report"))
    removing: dict[str, tuple[datetime, int]] = {}
    for at, _, report in rows:
        for name, count in report.items():
            if count and at is not None:
                removing.setdefault(name, (at, count))
    if not rows:
        return LastDeletion(None, False, {}, removing)
    at, state, report = rows[0]
    return LastDeletion(at, state == Operation.State.FAILED, report, removing)


def apply_retention() -> Operation:
    """Once: delete what is too old by the collections' and the server's numbers; the operation says what went."""
    stored.take_over()  # what was set a moment ago holds
    with running(Operation.Kind.RETENTION, "") as progress:
        spans = 0

        def drop_spans(runs: Sequence[tuple[UUID, str]]) -> None:
            nonlocal spans
            forget_scores([run_id for run_id, _ in runs])
            traces = [trace_id for _, trace_id in runs if trace_id]
            spans += execute(connection, DELETE_SPANS_OF_RUNS, {"traces": traces}) if traces else 0
            progress.tell("runs", spans, 0)

        forget_writers()
        runs = delete_old_runs(on_batch=drop_spans)
        report = {
            "runs": runs,
            "spans_of_runs": spans,
            "spans": maintain().spans,
            "revisions": drop_old_revisions(),
            "deleted_documents": drop_deleted_documents(),
            "trashed_documents": expire_trash(timezone.now()),
            "index_versions": expire_retired(timezone.now()),
            "evaluation_runs": delete_old_evaluations(),
            "operations": forget_operations(),
        }
        return progress.succeed(report)


def check_daily() -> bool:
    """Have everything checked when that was not done for a day; returns whether it was asked for."""
    newest = last_operation(Operation.Kind.CHECK, "")
    if newest is not None and newest.created_at > timezone.now() - CHECK_EVERY:
        return False
    request_check()
    return True
