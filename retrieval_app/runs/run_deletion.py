"""Query runs that are too old: which they are, and their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from collections_app.models import Collection
from collections_app.retention_periods import kept_for
from retrieval_app.models import QueryRun
from retrieval_app.models.chats import forget_runs
from retrieval_app.models.runs import QueryRunQuerySet

DELETE_BATCH = 500

OnDeleted = Callable[[Sequence[tuple[UUID, str]]], object]


def delete_old_runs(days: int | None = None, *, on_batch: OnDeleted = lambda runs: None) -> int:
    """Delete runs that are too old, in batches; returns how many went.

    days: of every run; None: what the run's collection states (retention.runs_days), else the server's number,
    which also holds for runs of collections that are gone. 0 keeps all. on_batch: told (id, trace id) of what has gone.
    """
    if days is not None:
        return _delete(_older(QueryRun.objects.all(), days), on_batch)
    return sum(_delete(rows, on_batch) for rows in expired_runs(kept_for("runs_days")))


def expired_runs(days: int) -> list[QueryRunQuerySet]:
    """Runs that are too old by their collection's number, else by `days`; 0 keeps all. One part per number."""
    explicit: dict[int, int] = {}
    for pk, retention in Collection.objects.live().values_list("pk", "retention"):
        if retention.get("runs_days") is not None:
            explicit[pk] = int(retention["runs_days"])
    rest = QueryRun.objects.filter(Q(collection_id=None) | ~Q(collection_id__in=list(explicit)))
    own = [_older(QueryRun.objects.filter(collection_id=pk), its_days) for pk, its_days in explicit.items()]
    return [_older(rest, days), *own]


def _older(rows: QueryRunQuerySet, days: int) -> QueryRunQuerySet:
    return rows.older_than(timezone.now() - timedelta(days=days)) if days else rows.none()


def _delete(old: QueryRunQuerySet, on_batch: OnDeleted) -> int:
    deleted = 0
    while batch := list(old.values_list("pk", "trace_id")[:DELETE_BATCH]):
        ids = [pk for pk, _ in batch]
        forget_runs(ids)
        deleted += QueryRun.objects.filter(pk__in=ids).delete()[0]
        on_batch(batch)
    return deleted
