"""The audit log: Django's LogEntry, written by services that change something for a person or a key, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, Q, QuerySet

from collections_app.access_context import system_access
from collections_app.models import AuditSubject, Collection
from collections_app.models.library import Actor, name_actor

SYSTEM_USER = "ragd-system"
__all__ = ["ADDITION", "CHANGE", "DELETION", "Actor", "record"]


def record(actor: Actor, subjects: Sequence[Model], flag: int, message: str) -> None:
    """One entry per subject. What no user did (a key, the system) stands under an inactive user of its own."""
    if not subjects:
        return
    with system_access():
        text = message if isinstance(actor, AbstractBaseUser) else f"{message} (by {name_actor(actor)})"
        entries = LogEntry.objects.log_actions(_user_id(actor), subjects, flag, text)
        names = _collection_names(subjects)
        AuditSubject.objects.bulk_create(
            AuditSubject(entry=entry, collection_name=name, actor=name_actor(actor))
            for entry, name in zip(entries, names, strict=True)
        )


def _collection_names(subjects: Sequence[Model]) -> list[str]:
    """The name of the collection that each subject is, belongs to or names, "" where there is none."""
    ids = [int(getattr(subject, "collection_id", None) or 0) for subject in subjects]
    known = dict(Collection.objects.filter(pk__in=set(ids)).values_list("pk", "name")) if any(ids) else {}
    return [
        subject.name
        if isinstance(subject, Collection)
        else known.get(pk) or str(getattr(subject, "collection_name", ""))
        for subject, pk in zip(subjects, ids, strict=True)
    ]


def _user_id(actor: Actor) -> int:
    if isinstance(actor, AbstractBaseUser):
        return int(actor.pk)
    users = get_user_model()
    stored = users._default_manager.filter(username=SYSTEM_USER).values_list("pk", flat=True).first()
    if stored is not None:
        return int(stored)
    made, _ = users._default_manager.get_or_create(username=SYSTEM_USER, defaults={"is_active": False, "password": "!"})
    return int(made.pk)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is looked for; "" leaves a field out. kind: a model's name, such as "document". words: in what was done."""

    collection: str = ""
    actor: str = ""
    kind: str = ""
    words: str = ""


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
