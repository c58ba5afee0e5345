"""Which documents a collection had at a time, in which revision, enabled or not, and which index version was active.

Read from revisions, recorded changes and the documents that are there. Nothing is guessed: what cannot be told, because
it is kept no longer, is refused by name.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from collections_app.access_context import Access, current_access
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, DocumentRevision, StateChange
from collections_app.services.governance.document_access import hidden_from
from ragd.errors import InvalidInput
from ragd.store.store import fetch_all
from ragd.types import canonical_json

Kind = StateChange.Kind
SWITCHES = (Kind.ENABLED, Kind.DISABLED, Kind.ARCHIVED, Kind.UNARCHIVED)
NAMED_MAX = 5  # documents that a refusal names

# Of each document: the first revision that was replaced later, and whether the one before it is kept.
REPLACED_LATER = """
SELECT r.doc_id, r.revision, r.made_at <= %(at)s OR r.revision = 1 OR EXISTS (
           SELECT FROM document_revisions e
           WHERE e.collection_id = r.collection_id AND e.doc_id = r.doc_id AND e.revision = r.revision - 1)
FROM (SELECT DISTINCT ON (doc_id) * FROM document_revisions
      WHERE collection_id = %(collection)s AND replaced_at > %(at)s ORDER BY doc_id, revision) AS r
"""

# A present revision that began before: the one that it replaced was replaced by then.
BEGAN_BEFORE = """
SELECT d.doc_id FROM documents d JOIN document_revisions e
  ON e.collection_id = d.collection_id AND e.doc_id = d.doc_id AND e.revision = d.revision - 1
WHERE d.collection_id = %(collection)s AND e.replaced_at <= %(at)s AND d.updated_at > %(at)s
"""


@dataclass(frozen=True, slots=True)
class PastDocument:
    """One document as it was. pk: of its row, which a document that is made again under the same id does not have.

    kept: its revisions as a deletion kept them, oldest first; None: it is still there.
    """

    doc_id: str
    pk: int
    revision: int
    enabled: bool
    kept: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class PastState:
    """A collection at a time. documents: by doc_id. swapped_at: when another index version was activated since."""

    at: datetime
    generation: int
    documents: Mapping[str, PastDocument]
    swapped_at: datetime | None

    def mixed(self, other: PastState, doc_ids: Iterable[str]) -> PastState:
        """This state with these documents as they were in the other one, of the same index version; it need never have
        been. Raises ValueError for one of another."""
        if self.generation != other.generation:
            raise ValueError("states of two index versions cannot be mixed")
        taken = set(doc_ids)
        documents = {name: each for name, each in self.documents.items() if name not in taken}
        documents |= {name: each for name, each in other.documents.items() if name in taken}
        swaps = [moment for moment in (self.swapped_at, other.swapped_at) if moment is not None]
        return replace(self, documents=documents, swapped_at=min(swaps, default=None))

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the index version and the state of every document. Same hash: same chunks."""
        rows = [[each.doc_id, each.pk, each.revision, each.enabled] for each in self.documents.values()]
        return hashlib.sha256(canonical_json([self.generation, sorted(rows)]).encode()).hexdigest()


def read_past_state(collection: Collection, at: datetime, *, asker: Access | None = None) -> PastState:
    """What the collection was at `at`, changes of that very moment included.

    Raises InvalidInput for a time in the future or without a zone, ServiceError 409: "not_recorded" for a time before
    changes were recorded, "not_restorable" with the documents whose state of then is not kept, named where
    `asker` (None: who asks) may read them.
    """
    _check_time(collection, at)
    later = list(
        StateChange.objects.filter(collection=collection, made_at__gt=at).order_by("made_at", "id").defer("kept")
    )
    swap = next((change for change in later if change.kind == Kind.SERVING), None)
    current = Collection.objects.only("generation").get(pk=collection.pk)
    reader = _Reader(collection, at, later)
    documents = {document.doc_id: document for document in reader.read()}
    if reader.missing:
        hidden = hidden_from(asker or current_access(), collection, reader.missing)
        raise not_restorable(at, reader.missing, hidden=hidden)
    return PastState(
        at=at,
        generation=current.generation if swap is None else int(swap.number or 0),
        documents=documents,
        swapped_at=None if swap is None else swap.made_at,
    )


def recorded_since(collection: Collection) -> datetime:
    """The earliest time that `read_past_state` takes."""
    beginnings = StateChange.objects.filter(collection=collection, kind=Kind.RECORDED).order_by("-made_at")
    return beginnings.values_list("made_at", flat=True).first() or collection.created_at


def not_restorable(at: datetime, reasons: Mapping[str, str], *, hidden: AbstractSet[str] = frozenset()) -> ServiceError:
    """reasons: doc_id -> why its state of then cannot be made again. hidden: those that are not named."""
    told = {doc_id: repr(doc_id) for doc_id in reasons if doc_id not in hidden}
    named = [f"{told.get(doc_id, 'a document')} ({reasons[doc_id]})" for doc_id in sorted(reasons)[:NAMED_MAX]]
    more = f" and {len(reasons) - NAMED_MAX} more" if len(reasons) > NAMED_MAX else ""
    return ServiceError(
        f"the collection as of {at.isoformat()} cannot be restored: {', '.join(named)}{more}. Choose a later time, and "
        "keep more in the collection's settings (revisions, deleted_days) for the times to come",
        type="not_restorable",
        status=409,
        field="as_of",
    )


def _check_time(collection: Collection, at: datetime) -> None:
    if at.tzinfo is None:
        raise InvalidInput(f"as_of must be a time with a zone, such as 2026-01-31T12:00:00Z, not {at}", field="as_of")
    if at > timezone.now():
        raise InvalidInput(f"as_of must not be in the future, and {at.isoformat()} is", field="as_of")
    since = recorded_since(collection)
    if at < since:
        raise ServiceError(
            f"changes of {collection.name!r} are recorded since {since.isoformat()}; what it was at {at.isoformat()} "
            "is not known. Choose a later time",
            type="not_recorded",
            status=409,
            field="as_of",
        )


class _Reader:
    """The documents of one moment. missing: doc_id -> why its state is not known, filled by `read`."""

    def __init__(self, collection: Collection, at: datetime, later: Sequence[StateChange]) -> None:
        self.collection, self.at = collection, at
        self.scope = {"collection": collection.pk, "at": at}
        self.missing: dict[str, str] = {}
        self.switches: dict[int, list[StateChange]] = defaultdict(list)
        self.deletions: list[StateChange] = []
        for change in later:
            if change.kind == Kind.DELETED and change.began_at is not None and change.began_at <= at:
                self.deletions.append(change)
            elif change.kind in SWITCHES and change.document_id is not None:
                self.switches[change.document_id].append(change)

    def read(self) -> list[PastDocument]:
        return [*self._present(), *self._deleted()]

    def _enabled(self, pk: int, last: bool) -> bool:
        """The state before the first switch that came later; without one the last known."""
        changes = self.switches.get(pk)
        return bool(changes[0].enabled_before) if changes else last

    def _present(self) -> Iterable[PastDocument]:
        replaced = {name: (number, known) for name, number, known in fetch_all(connection, REPLACED_LATER, self.scope)}
        began_before = {name for (name,) in fetch_all(connection, BEGAN_BEFORE, self.scope)}
        rows = Document.objects.filter(collection=self.collection, created_at__lte=self.at).order_by("doc_id")
        for pk, doc_id, revision, enabled, updated_at in rows.values_list(
            "pk", "doc_id", "revision", "enabled", "updated_at"
        ):
            number, known = replaced.get(doc_id, (revision, True))
            if number == revision:
                known = revision == 1 or updated_at <= self.at or doc_id in began_before
            if not known:
                self.missing[doc_id] = "its revision of then is kept no longer"
            yield PastDocument(doc_id, pk, number, self._enabled(pk, enabled))

    def _deleted(self) -> Iterable[PastDocument]:
        kept = dict(
            StateChange.objects.filter(pk__in=[change.pk for change in self.deletions]).values_list("pk", "kept")
        )
        for change in self.deletions:
            revisions: Any = kept.get(change.pk)
            pk = int(change.document_id or 0)
            if revisions is None:
                self.missing[change.doc_id] = f"deleted at {change.made_at.isoformat()}, and its content is not kept"
                continue
            # the last one is what the deletion ended, which took effect some moments after it was kept
            later = [*(row for row in revisions[:-1] if _time(row["replaced_at"]) > self.at), revisions[-1]]
            number = int(later[0]["revision"])
            before = any(int(row["revision"]) == number - 1 for row in revisions)
            if number > 1 and not before and _time(later[0]["made_at"]) > self.at:
                self.missing[change.doc_id] = "its revision of then is kept no longer"
            enabled = self._enabled(pk, bool(change.enabled_before))
            yield PastDocument(change.doc_id, pk, number, enabled, kept=later)


def read_revision(collection_id: int, values: Mapping[str, Any]) -> DocumentRevision:
    """A revision as a deletion kept it, unsaved."""
    times = {name: _time(values[name]) for name in ("made_at", "replaced_at")}
    return DocumentRevision(collection_id=collection_id, **{**values, **times})


def _time(text: str) -> datetime:
    read = parse_datetime(text)
    assert read is not None, text
    return read
