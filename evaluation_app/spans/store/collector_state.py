"""What all processes together sent to the collector."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Sum

from evaluation_app.models import SpanSender


@dataclass(frozen=True, slots=True)
class CollectorState:
    """What all processes of the last days sent. endpoint: "" when nothing was ever sent or refused."""

    endpoint: str
    sent: int
    lost: int
    last_error: str
    last_error_at: datetime | None
    updated_at: datetime | None


def collector_state() -> CollectorState:
    sums = SpanSender.objects.aggregate(sent=Sum("sent"), lost=Sum("lost"), updated_at=Max("updated_at"))
    newest = SpanSender.objects.order_by("-updated_at").first()
    failed = SpanSender.objects.exclude(last_error_at=None).order_by("-last_error_at").first()
    return CollectorState(
        endpoint=newest.endpoint if newest else "",
        sent=sums["sent"] or 0,
        lost=sums["lost"] or 0,
        last_error=failed.last_error if failed else "",
        last_error_at=failed.last_error_at if failed else None,
        updated_at=sums["updated_at"],
    )
