"""Sources set up by people: checked, written with their secrets encrypted, and kept in the audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce, Concat
from django.utils import timezone

from collections_app.access.context import current_access, elevated, require
from collections_app.access.document_access import Codes
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.collections.models import name_actor
from collections_app.documents.services import trash_documents
from collections_app.domain.formats import counted
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.errors import ServiceError, WrongValueError
from collections_app.jobs.leases import cancel
from collections_app.models import Collection, Document, FetchedSource, Source
from collections_app.sources.kinds.protocol import BaseSource, Field, Reach
from collections_app.sources.kinds.registry import source_kinds
from collections_app.sources.models import STATES
from collections_app.sources.source_jobs import make_reach
from collections_app.uploads.plan import came_from, clean_prefix
from ragd.errors import InvalidInput
from ragd.identity import UNSEEN, clean_tags

NAME_MAX_CHARS = 100
TEXT_MAX_CHARS = 2000
LINES_MAX = 100
SECRET_MAX_CHARS = 20_000
SCHEDULE_MAX = 43_200  # minutes: 30 days
NUMBER_MAX = 2**31 - 1
AUDITED = ("name", "kind", "settings", "prefix", "tags", "access", "schedule", "keep_missing", "enabled")


@dataclass(frozen=True, slots=True)
class SourceValues:
    """What a person fills in, as `Source` keeps it. secret: None keeps the stored one, "" is none."""

    kind: str
    name: str
    settings: Mapping[str, Any]
    secret: str | None = field(default=None, repr=False)
    prefix: str = ""
    tags: Sequence[str] = ()
    access: Codes | None = None
    schedule: int = 0
    keep_missing: bool = False
    enabled: bool = True


def find_kind(kind: str) -> type[BaseSource]:
    """The class of a kind. Raises ServiceError 422."""
    found = source_kinds().get(kind)
    if found is None:
        known = ", ".join(source_kinds())
        raise WrongValueError(f"kind must be one of {known}, not {kind[:100]!r}", "kind")  # fmt: skip
    return found


def open_source(source: Source, reach: Reach) -> BaseSource:
    """The source's source, opened. Raises ServiceError for a kind that is not installed or a secret that cannot be
    read."""
    kind = source_kinds().get(source.kind)
    if kind is None:
        raise ServiceError(
            f"the source {source.kind!r} is not installed; install its package and start the server again",
            type="unknown_kind",
            status=422,
        )
    try:
        secret = decrypt(source.secret)
    except UnreadableSecretError:
        raise ServiceError(
            "the stored secret cannot be decrypted, because the server's key has changed; enter it again",
            type="unreadable_secret",
        ) from None
    return kind(complete_settings(kind, source.settings), secret, reach)


def complete_settings(kind: type[BaseSource], stored: Mapping[str, Any]) -> dict[str, Any]:
    """A value for every field of the kind but the secret; those that are not stored have their default."""
    return {each.name: stored.get(each.name, each.default) for each in kind.fields if each.kind != "secret"}


def list_sources(collection: Collection) -> QuerySet[Any]:
    """Those of a collection by name, each with `document_total`, how many documents came from it."""
    of_it = FetchedSource.objects.filter(
        document__collection=collection, kind=FetchedSource.Kind.SYNC, endpoint=OuterRef("marker")
    )
    totals = of_it.order_by().values("endpoint").annotate(total=Count("pk")).values("total")
    marker = Concat(Value("source:"), Cast("pk", TextField()), output_field=TextField())
    rows: QuerySet[Any] = Source.objects.filter(collection=collection).annotate(marker=marker)
    counted: QuerySet[Any] = rows.annotate(document_total=Coalesce(Subquery(totals), 0))
    return counted


def save_source(
    collection: Collection, values: SourceValues, *, row: Source | None = None, actor: services.Actor = None
) -> Source:
    """Write a new source, or change `row`. Raises InvalidInput and ServiceError with the field, 409 for a name that
    another one has."""
    require(Permission.WRITE, collection.pk)
    kind = find_kind(row.kind if row is not None else values.kind)
    stated = clean_settings(kind, values.settings)
    if not 0 <= values.schedule <= SCHEDULE_MAX:
        raise InvalidInput(f"schedule must be 0 to {SCHEDULE_MAX:,} minutes, not {values.schedule}", field="schedule")
    cleaned = {
        "name": _clean_name(values.name),
        "prefix": clean_prefix(values.prefix),
        "tags": list(clean_tags(values.tags)),
        "access": None if values.access is None else list(values.access),
        "schedule": values.schedule,
        "keep_missing": values.keep_missing,
        "enabled": values.enabled,
        "settings": stated,
        "secret": _secret(kind, row, values.secret, stated),
    }
    before = {name: getattr(row, name) for name in AUDITED} if row is not None else None
    draft = row or Source(collection=collection, kind=kind.kind, created_by=name_actor(actor))
    for name, value in cleaned.items():
        setattr(draft, name, value)
    draft.next_at = timezone.now() + draft.interval if draft.schedule else None
    try:
        with transaction.atomic():
            draft.save()
            present = {name: getattr(draft, name) for name in AUDITED}
            if before is None:
                services.record(actor, [draft], services.ADDITION, f"source {draft.name}", after=present)
            else:
                old, new = differing(before, present)
                services.record(actor, [draft], services.CHANGE, f"source {draft.name}", before=old, after=new)
    except IntegrityError:
        raise ServiceError(
            f"another source of this collection is named {draft.name!r}; choose another name", field="name"
        ) from None
    return draft


def delete_source(source: Source, *, with_documents: bool = False, actor: services.Actor = None) -> int:
    """Forget a source, its secret and its history; returns how many documents went with it.

    A sync that runs is cancelled. with_documents: also the documents that it brought, as `trash_documents` does.
    """
    collection = source.collection
    require(Permission.WRITE, collection.pk)
    with transaction.atomic():
        cancel(source.runs.filter(finished_at=None), "the source was deleted")
        gone = 0
        if with_documents:
            gone = trash_documents(collection, brought_documents(source), actor=actor)["documents"]
        services.record(
            actor, [source], services.DELETION, f"source {source.name}; {counted(gone, 'document')} deleted"
        )
        with elevated(Permission.WRITE, collection.pk):  # its changes tell of documents that not everybody may read
            source.delete()
    return gone


def brought_documents(source: Source) -> list[str]:
    """The documents that came from it and are still what it brought, by doc_id; without archived ones."""
    rows = Document.objects.filter(came_from(source.endpoint), collection=source.collection_id)
    return list(rows.in_state("present").by_doc_id().values_list("doc_id", flat=True))


def troubled_sources(collection: Collection | None = None) -> list[Source]:
    """Those that need somebody, of one collection or of all in which who asks may write."""
    access = current_access()
    rows = Source.objects.troubled()
    rows = rows if collection is None else rows.filter(collection=collection)
    return [each for each in rows if access.may(Permission.WRITE, each.collection_id)]


def count_states() -> dict[str, int]:
    """Sources of all collections by `Source.state`; every state is there."""
    live = Source.objects.filter(collection__deleted_at__isnull=True)
    counts = Counter(each.state for each in live.only("enabled", "last_error", "waits", "last_success"))
    return {state: counts[state] for state in STATES}


def clean_settings(kind: type[BaseSource], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are kept: a value for every field, checked by the kind. Raises InvalidInput."""
    fields = {each.name: each for each in kind.fields if each.kind != "secret"}
    if unknown := sorted(set(given) - set(fields)):
        raise InvalidInput(f"a {kind.kind} has no setting {unknown[0][:100]!r}; it has {', '.join(fields)}",
                           field="settings")  # fmt: skip
    cleaned = {name: _clean_value(each, given.get(name)) for name, each in fields.items()}
    return kind.check(cleaned, make_reach())


def _clean_value(each: Field, value: Any) -> Any:
    if value is None or value == "" or (each.kind == "lines" and not value):
        if each.required:
            raise InvalidInput(f"{each.name} is needed", field=each.name)
        return list(each.default) if each.kind == "lines" else each.default
    if each.kind == "lines":
        if not isinstance(value, list | tuple) or not all(isinstance(line, str) for line in value):
            raise InvalidInput(f"{each.name} must be a list of texts", field=each.name)
        if len(value) > LINES_MAX:
            raise InvalidInput(f"{each.name} must have at most {LINES_MAX} lines, not {len(value)}", field=each.name)
        return [_clean_text(each, line) for line in value]
    if each.kind == "switch":
        if not isinstance(value, bool):
            raise InvalidInput(f"{each.name} must be true or false, not {value!r}"[:300], field=each.name)
        return value
    if each.kind == "number":
        low, high = each.minimum or 0, NUMBER_MAX if each.maximum is None else each.maximum
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidInput(f"{each.name} must be a number from {low} to {high:,}", field=each.name)
        return value
    text = _clean_text(each, value)
    if each.kind == "choice" and text not in [name for name, _ in each.choices]:
        known = ", ".join(name for name, _ in each.choices)
        raise InvalidInput(f"{each.name} must be one of {known}, not {text[:100]!r}", field=each.name)
    return text


def _clean_text(each: Field, value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > TEXT_MAX_CHARS or UNSEEN.search(text):
        raise InvalidInput(f"{each.name} must be a text of 1 to {TEXT_MAX_CHARS} visible characters", field=each.name)
    return text


def _clean_name(name: str) -> str:
    cleaned = name.strip()
    if not cleaned or len(cleaned) > NAME_MAX_CHARS or UNSEEN.search(cleaned):
        raise InvalidInput(f"name must have 1 to {NAME_MAX_CHARS} visible characters", field="name")
    return cleaned


def _secret(kind: type[BaseSource], row: Source | None, given: str | None, stated: Mapping[str, Any]) -> str:
    """The new secret encrypted, or the stored one, which goes only to where it was given for."""
    asked = next((each for each in kind.fields if each.kind == "secret"), None)
    if asked is None:
        return ""
    if given is not None:
        if len(given) > SECRET_MAX_CHARS or "\x00" in given:
            raise InvalidInput(f"{asked.name} must have at most {SECRET_MAX_CHARS:,} characters", field=asked.name)
        secret = encrypt(given)
    else:
        secret = row.secret if row is not None else ""
        before = kind.describe(complete_settings(kind, row.settings)) if row is not None else ""
        if secret and before != kind.describe(stated):
            raise InvalidInput(f"enter it again: the stored one was given for {before}", field=asked.name)
    if asked.required and not secret:
        raise InvalidInput(f"{asked.name} is needed", field=asked.name)
    return secret
