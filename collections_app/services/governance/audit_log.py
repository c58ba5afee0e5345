"""The audit log read back: newest first, by collection, by who it was, by what it was done to, by words."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Q, QuerySet


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is looked for; "" leaves a field out. kind: a model's name, such as "document". words: in what was done."""

    collection: str = ""
    actor: str = ""
    kind: str = ""
    words: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.collection or self.actor or self.kind or self.words)


def list_entries(audit_filter: AuditFilter) -> QuerySet[LogEntry]:
    """Newest first; with the user, the kind of object and, where it was kept, the collection and the actor."""
    rows = LogEntry.objects.select_related("user", "content_type", "audit_subject").order_by("-action_time", "-id")
    if "\x00" in audit_filter.collection + audit_filter.actor + audit_filter.kind + audit_filter.words:
        return rows.none()  # no stored text holds a NUL
    if audit_filter.collection:
        rows = rows.filter(audit_subject__collection_name=audit_filter.collection)
    if audit_filter.actor:
        rows = rows.filter(
            Q(audit_subject__actor__icontains=audit_filter.actor)
            | Q(audit_subject=None, user__username__icontains=audit_filter.actor)
        )
    if audit_filter.kind:
        rows = rows.filter(content_type__model=audit_filter.kind)
    if audit_filter.words:
        rows = rows.filter(
            Q(change_message__icontains=audit_filter.words) | Q(object_repr__icontains=audit_filter.words)
        )
    return rows


def tell(entry: LogEntry) -> str:
    """What was done, without the name behind it: the log tells that beside it."""
    words = str(entry.get_change_message() or entry.get_action_flag_display())
    subject = getattr(entry, "audit_subject", None)
    return words.removesuffix(f" (by {subject.actor})") if subject else words


def list_subject_kinds() -> list[ContentType]:
    """What entries there are about, by name."""
    used = LogEntry.objects.order_by().values("content_type").distinct()
    return sorted(ContentType.objects.filter(pk__in=used), key=lambda kind: kind.name)
