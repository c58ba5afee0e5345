"""The audit log: Django's LogEntry, written by the services that change something on a person's or a key's behalf."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Model

from collections_app.models import AuditSubject, Collection
from collections_app.models.library import Actor, name_actor

SYSTEM_USER = "ragd-system"
__all__ = ["ADDITION", "CHANGE", "DELETION", "Actor", "record"]


def record(actor: Actor, subjects: Sequence[Model], flag: int, message: str) -> None:
    """One entry per subject. What no user did (a key, the system) stands under an inactive user of its own."""
    if not subjects:
        return
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
