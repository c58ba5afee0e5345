"""The audit log: an event per change, reading, log-in and refusal, written in the transaction of what it tells of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import Model
from django.utils import timezone

from collections_app.access_context import system_access
from collections_app.audit_origin import current_origin
from collections_app.domain.audit_digests import audit_values, clean_text, seal, text_mark
from collections_app.models import ApiKey, AuditEvent, Collection
from collections_app.models.library import Actor, acting, name_actor
from ragd import telemetry

__all__ = ["ADDITION", "CHANGE", "DELETION", "READING", "Actor", "record", "record_event"]

ADDITION, CHANGE, DELETION, READING = "add", "change", "delete", "read"
VERBS = {ADDITION, CHANGE, DELETION, READING}
BATCH = 500
NAME_MAX = 300
Values = Mapping[str, Any]
Part = Values | None | Callable[[Any], Values | None]  # of all subjects, or of each


def record(
    actor: Actor,
    subjects: Sequence[Model],
    verb: str,
    message: str,
    *,
    action: str = "",
    before: Part = None,
    after: Part = None,
) -> None:
    """One event per subject, whoever asks. action: "document.change" and the like where none is named.

    before, after: the fields that changed, by name; a function gives those of each subject.
    """
    with system_access():
        names = _collections_of(subjects)
        AuditEvent.objects.bulk_create(
            (
                _make_event(
                    actor,
                    action=action or f"{kind_of(subject)}.{verb}",
                    message=message,
                    subject=subject,
                    collection=collection,
                    before=before(subject) if callable(before) else before,
                    after=after(subject) if callable(after) else after,
                )
                for subject, collection in zip(subjects, names, strict=True)
            ),
            batch_size=BATCH,
        )


def record_event(
    actor: Actor,
    action: str,
    message: str,
    *,
    subject: Model | None = None,
    subject_kind: str = "",
    subject_name: str = "",
    collection: Collection | None = None,
    before: Values | None = None,
    after: Values | None = None,
    outcome: str = AuditEvent.Outcome.SUCCEEDED,
    anonymous_name: str = "",
) -> AuditEvent:
    """One event, with a subject that is a row or only named. anonymous_name: what an unknown caller called itself."""
    with system_access():
        place = (
            (collection.pk, collection.name) if collection else _collections_of([subject])[0] if subject else (None, "")
        )
        event = _make_event(
            actor, action=action, message=message, subject=subject, collection=place, before=before, after=after,
            subject_kind=subject_kind, subject_name=subject_name, outcome=outcome, anonymous_name=anonymous_name,
        )  # fmt: skip
        event.save(force_insert=True)
    return event


def kind_of(subject: Model) -> str:
    """A model's name, such as "document"."""
    return str(subject._meta.model_name)


def _make_event(
    actor: Actor,
    *,
    action: str,
    message: str,
    subject: Model | None,
    collection: tuple[int | None, str],
    before: Values | None,
    after: Values | None,
    subject_kind: str = "",
    subject_name: str = "",
    outcome: str = AuditEvent.Outcome.SUCCEEDED,
    anonymous_name: str = "",
) -> AuditEvent:
    origin = current_origin()
    kind, actor_id, actor_name = _identity(actor if actor is not None else origin.find_actor())
    if anonymous_name and kind == AuditEvent.ActorKind.SYSTEM:
        kind, actor_name = AuditEvent.ActorKind.ANONYMOUS, anonymous_name
    row = {
        "at": timezone.now(),
        "actor_kind": str(kind),
        "actor_id": actor_id,
        "actor_name": clean_text(actor_name)[:NAME_MAX],
        "channel": str(origin.channel),
        "address": origin.address,
        "request_id": origin.request_id or telemetry.current_trace_id(),
        "action": action,
        "subject_kind": kind_of(subject) if subject is not None else subject_kind,
        "subject_id": "" if subject is None or subject.pk is None else str(subject.pk),
        "subject_name": clean_text(str(subject) if subject is not None else subject_name)[:NAME_MAX],
        "collection_id": collection[0],
        "collection_name": collection[1],
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
