"""Syncs: asked for by people and by the schedule, and found again."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import suppress
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from collections_app.access.context import require, system_access
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.errors import ServiceError
from collections_app.jobs.operations import request_operation
from collections_app.models import Collection, Operation, Source, SourceChange

UNCHANGED = "unchanged"
DUE_AT_ONCE = 50


def request_run(
    source: Source, *, dry_run: bool = False, agreed_run: Operation | None = None, actor: services.Actor = None
) -> Operation:
    """Let a worker sync, or look what a sync would do. agreed_run: its held deletions are agreed to.

    Raises ServiceError 409 while one is under way.
    """
    require(Permission.WRITE, source.collection_id)
    agreed = None
    if agreed_run is not None:
        held = agreed_run.changes.filter(run__source=source, kind=SourceChange.Kind.HELD)
        agreed = list(held.values_list("doc_id", flat=True))
    arguments = {"dry_run": dry_run, "agreed": agreed}
    try:
        with transaction.atomic():
            run = request_operation(
                Operation.Kind.SYNC, source.collection.name, arguments, actor=actor, source=source,
                report={"dry_run": dry_run} | dict.fromkeys((*SourceChange.Kind.values, UNCHANGED), 0),
            )  # fmt: skip
            if not dry_run and source.schedule:
                Source.objects.filter(pk=source.pk).update(next_at=timezone.now() + source.interval)
            if agreed:
                message = f"agreed to delete {len(agreed)} documents that {source.name} has no more"
                services.record_event(actor, "source.confirm", message, subject=source)
    except IntegrityError:
        message = f"a sync of {source.name} is under way; wait until it has ended, or cancel it"
        raise ServiceError(message) from None
    return run


def find_run(collection: Collection, run_id: uuid.UUID | str) -> Operation:
    """A sync of this collection, or ServiceError 404."""
    try:
        return Operation.objects.select_related("source").get(source__collection=collection, pk=uuid.UUID(str(run_id)))
    except (ValueError, Operation.DoesNotExist):
        message = f"collection {collection.name!r} has no sync {str(run_id)[:80]!r}"
        raise ServiceError(message, type="not_found", status=404) from None


def start_syncs(now: datetime) -> int:
    """Begin what is due; returns how many."""
    begun = 0
    for source in Source.objects.due(now).select_related("collection").order_by("next_at")[:DUE_AT_ONCE]:
        with suppress(ServiceError):  # somebody began one a moment ago
            request_run(source)
            begun += 1
    return begun


def count_changes(run: Operation) -> dict[str, int]:
    """Kind of change -> how many of the run's."""
    counts = Counter(run.changes.order_by().values_list("kind", flat=True))
    return {kind: counts[kind] for kind in SourceChange.Kind.values}


def raise_alarm(run: Operation) -> None:
    """Note that a sync failed, as its error says; the alarm begins with the first failure after a success."""
    if run.source_id is None or run.arguments["dry_run"]:
        return
    with system_access(), transaction.atomic():
        source = Source.objects.select_for_update().get(pk=run.source_id)
        if not source.last_error:
            text = f"the source {source.name} cannot be synced: {run.error}"
            services.record_event(None, "source.fail", text, subject=source)
        Source.objects.filter(pk=source.pk).update(last_error=run.error)
