"""The audit log: an event per change, reading, log-in and refusal, written in the transaction of what it tells of.

Log-ins, log-outs and passwords in the audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.db.models import Model
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.audit.chain import THREAD_FILE, audit_values, clean_text, seal, text_mark
from collections_app.audit.origin import current_origin
from collections_app.collections.models import Actor, acting, name_actor
from collections_app.models import ApiKey, AuditEvent, Collection
from ragd import telemetry

__all__ = ["ADDITION", "CHANGE", "DELETION", "READING", "Actor", "record", "record_event"]

ADDITION, CHANGE, DELETION, READING = "add", "change", "delete", "read"
VERBS = {ADDITION, CHANGE, DELETION, READING}
BATCH = 500
NAME_MAX = 300
Values = Mapping[str, Any]
Part = Values | None | Callable[[Any], Values | None]  # of all subjects, or of each


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about, a row or only named. collection: (id, name) of its collection."""

    kind: str = ""
    name: str = ""
    id: str = ""
    collection: tuple[int | None, str] = (None, "")

    @classmethod
    def of(cls, row: Model, collection: tuple[int | None, str]) -> Subject:
        return cls(kind_of(row), str(row), "" if row.pk is None else str(row.pk), collection)


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Whoever the request comes from, and what it is called where it comes from nobody known."""

    name: str


NOTHING = Subject()


def record(
    actor: Actor, subjects: Sequence[Model], verb: str, message: str, *, before: Part = None, after: Part = None
) -> None:
    """One event per subject, whoever asks. verb: "change" stands for the action "document.change" and the like; with a
    dot it is the action itself. before, after: the fields that changed, by name; a function gives those of each
    subject."""
    with system_access():
        names = _collections_of(subjects)
        AuditEvent.objects.bulk_create(
            (
                _make_event(
                    actor,
                    verb if "." in verb else f"{kind_of(subject)}.{verb}",
                    message,
                    Subject.of(subject, collection),
                    before=before(subject) if callable(before) else before,
                    after=after(subject) if callable(after) else after,
                )
                for subject, collection in zip(subjects, names, strict=True)
            ),
            batch_size=BATCH,
        )


def record_event(
    actor: Actor | Anonymous,
    action: str,
    message: str,
    *,
    subject: Model | Subject = NOTHING,
    before: Values | None = None,
    after: Values | None = None,
    outcome: str = AuditEvent.Outcome.SUCCEEDED,
) -> AuditEvent:
    """One event, with a subject that is a row or only named."""
    with system_access():
        if isinstance(subject, Model):
            subject = Subject.of(subject, _collections_of([subject])[0])
        event = _make_event(actor, action, message, subject, before=before, after=after, outcome=outcome)
        event.save(force_insert=True)
    return event


def kind_of(subject: Model) -> str:
    """A model's name, such as "document"."""
    return str(subject._meta.model_name)


def _make_event(
    actor: Actor | Anonymous,
    action: str,
    message: str,
    subject: Subject,
    *,
    before: Values | None,
    after: Values | None,
    outcome: str = AuditEvent.Outcome.SUCCEEDED,
) -> AuditEvent:
    origin = current_origin()
    if THREAD_FILE.search(subject.name):  # its fields are not for others either
        before = after = None
    person = None if isinstance(actor, Anonymous) else actor
    kind, actor_id, actor_name = _identity(person if person is not None else origin.find_actor())
    if isinstance(actor, Anonymous) and kind == AuditEvent.ActorKind.SYSTEM:
        kind, actor_name = AuditEvent.ActorKind.ANONYMOUS, actor.name
    row = {
        "at": timezone.now(),
        "actor_kind": str(kind),
        "actor_id": actor_id,
        "actor_name": clean_text(actor_name)[:NAME_MAX],
        "channel": str(origin.channel),
        "address": origin.address,
        "request_id": origin.request_id or telemetry.current_trace_id(),
        "action": action,
        "subject_kind": subject.kind,
        "subject_id": subject.id,
        "subject_name": clean_text(subject.name)[:NAME_MAX],
        "collection_id": subject.collection[0],
        "collection_name": subject.collection[1],
        "message": clean_text(message),
        "before": audit_values(before),
        "after": audit_values(after),
        "outcome": str(outcome),
    }
    return AuditEvent(**row, **seal(row))


def _identity(actor: Any) -> tuple[str, str, str]:
    """(kind, id, name)."""
    actor = acting(actor)
    if isinstance(actor, ApiKey):
        return AuditEvent.ActorKind.KEY, str(actor.pk), name_actor(actor)
    if isinstance(actor, AbstractBaseUser):
        return AuditEvent.ActorKind.USER, str(actor.pk), name_actor(actor)
    return AuditEvent.ActorKind.SYSTEM, "", name_actor(None)


def _collections_of(subjects: Sequence[Any]) -> list[tuple[int | None, str]]:
    """The collection that each subject is, belongs to or names: (id, name), (None, "") where there is none."""
    ids = [int(getattr(subject, "collection_id", None) or 0) for subject in subjects]
    known = dict(Collection.objects.filter(pk__in=set(ids)).values_list("pk", "name")) if any(ids) else {}
    return [
        (subject.pk, subject.name)
        if isinstance(subject, Collection)
        else (pk or None, known.get(pk) or str(getattr(subject, "collection_name", "")))
        for subject, pk in zip(subjects, ids, strict=True)
    ]


def texts_of(values: Values, names: Sequence[str]) -> dict[str, Any]:
    """The hash and length of each named text."""
    return {name: text_mark(str(values[name] or "")) for name in names if name in values}


LOGIN, LOGOUT, PASSWORD = "session.login", "session.logout", "user.password"
UNKNOWN = "an unknown user name"  # what was typed may be a password in the wrong field


def note_login(user: User, *, how: str = "password") -> None:
    """how: by what the person was recognized."""
    record_event(user, LOGIN, f"logged in by {how}", subject=user)


def note_failed_login(username: str) -> None:
    """Under the name of an account that there is; any other name is not kept."""
    user = get_user_model()._default_manager.filter(username=username).first() if "\x00" not in username else None
    record_event(
        Anonymous(str(user) if user else UNKNOWN),
        LOGIN,
        "log-in refused",
        subject=user or Subject("user"),
        outcome=AuditEvent.Outcome.REFUSED,
    )


def note_logout(user: User) -> None:
    record_event(user, LOGOUT, "logged out", subject=user)


def note_password(user: User, *, how: str = "") -> None:
    """how: of one that was set without the old one."""
    record_event(user, PASSWORD, f"changed the own password {how}".strip(), subject=user)
