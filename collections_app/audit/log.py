"""The audit log, read back: filtered, newest first."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date

from collections_app.domain.formats import parse_moment
from collections_app.errors import WrongValueError
from collections_app.models import AuditEvent
from ragd.errors import InvalidInput

ORDER = ("-id",)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is looked for; "" leaves a field out.

    actor: a part of a name, or an address. action: "document.change", or "document" for all of a kind. kind, subject: a
    model's name and a row's id. q: in what was done and to what. since, until: a day, a time or an age; a
    day is whole.
    """

    q: str = ""
    collection: str = ""
    actor: str = ""
    action: str = ""
    kind: str = ""
    subject: str = ""
    channel: str = ""
    outcome: str = ""
    since: str = ""
    until: str = ""

    @classmethod
    def read(cls, values: Any) -> AuditFilter:
        """Of an address' parameters."""
        stated = {field.name: str(values.get(field.name) or "").strip() for field in fields(cls)}
        return cls(**{name: text.encode(errors="replace").decode() for name, text in stated.items()})

    def as_params(self) -> dict[str, str]:
        """What is stated, for an address."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}

    def rows(self) -> QuerySet[AuditEvent]:
        """Newest first. Raises ServiceError (422) naming the field that is no time."""
        rows = AuditEvent.objects.order_by(*ORDER)
        if any("\x00" in value for value in self.as_params().values()):
            return rows.none()  # no stored text holds a NUL
        exact = {
            "collection_name": self.collection,
            "subject_kind": self.kind,
            "subject_id": self.subject,
            "channel": self.channel,
            "outcome": self.outcome,
        }
        rows = rows.filter(**{name: value for name, value in exact.items() if value})
        if self.action:
            rows = rows.filter(Q(action=self.action) | Q(action__startswith=f"{self.action}."))
        if self.actor:
            rows = rows.filter(Q(actor_name__icontains=self.actor) | Q(address=self.actor))
        if self.q:
            rows = rows.filter(Q(message__icontains=self.q) | Q(subject_name__icontains=self.q) | Q(request_id=self.q))
        if self.since:
            rows = rows.filter(at__gte=_moment("since", self.since))
        if self.until:
            rows = rows.filter(at__lt=_moment("until", self.until, end=True))
        return rows


def _moment(name: str, text: str, *, end: bool = False) -> datetime:
    """The time, or the begin of the day; of a day that ends, the begin of the next."""
    try:
        if day := parse_date(text):
            return _begin(day + timedelta(days=1) if end else day)
    except ValueError:
        pass  # 2026-02-31, which is no time either
    try:
        return parse_moment(name, text) or timezone.now()
    except InvalidInput as error:
        raise WrongValueError(error.message, name) from None


def _begin(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


def list_actions() -> list[str]:
    """The actions that there are events of, by name."""
    return list(AuditEvent.objects.order_by("action").values_list("action", flat=True).distinct())


def describe_event(event: AuditEvent) -> dict[str, Any]:
    """An event as the API and JSON Lines give it."""
    link = getattr(event, "link", None)
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "actor": {"kind": event.actor_kind, "id": event.actor_id, "name": event.actor_name},
        "channel": event.channel,
        "address": event.address,
        "request_id": event.request_id,
        "action": event.action,
        "subject": {"kind": event.subject_kind, "id": event.subject_id, "name": event.subject_name},
        "collection": {"id": event.collection_id, "name": event.collection_name},
        "message": event.message,
        "before": event.before,
        "after": event.after,
        "outcome": event.outcome,
        "erased": event.is_erased,
        "position": link.position if link else None,
        "digest": event.digest,
        "prev_hash": link.prev_hash if link else "",
        "hash": link.hash if link else "",
    }
